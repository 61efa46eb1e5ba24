/** Gives each admitted request its credential, and starts its exchange. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AdmittedRequest } from '../http/admitted-request.ts'
import type { OrgId } from '../http/org-id.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import type { TokenLookup } from '../token/token-entry.ts'
import { Exchange, type ExchangeContext, type ExchangeOwner } from './exchange.ts'

export interface GatewayOptions extends ExchangeContext {
  readonly app: AppCredentials
}

export class Gateway {
  readonly #options: GatewayOptions

  constructor(options: GatewayOptions) {
    this.#options = options
  }

  /** `startedAt` is the monotonic instant at which the head had arrived. `owner` is told when the exchange has ended. */
  handle(
    request: AdmittedRequest,
    message: IncomingMessage,
    response: ServerResponse,
    owner: ExchangeOwner,
    startedAt: number,
  ): Exchange {
    const exchange = new Exchange(this.#options, request, message, response, owner, startedAt)
    const { tokens, app } = this.#options
    const { orgId, isWebSocket, caller } = request
    if (orgId === undefined) {
      exchange.forwardAsApp(app.authorization())
      return exchange
    }
    // Only a miss makes a promise.
    const lookup = this.#lookUp(orgId, isWebSocket, exchange.isRepeatable)
    if (lookup !== undefined) exchange.forward(lookup)
    else {
      tokens
        .obtain(orgId, { forHandshake: isWebSocket, requester: caller?.name ?? owner, requestId: request.requestId })
        .then(
          (obtained) => exchange.forward(obtained),
          (error: unknown) => exchange.failWith(error),
        )
    }
    return exchange
  }

  #lookUp(orgId: OrgId, isWebSocket: boolean, isRepeatable: boolean): TokenLookup | undefined {
    const { tokens } = this.#options
    if (isWebSocket) return tokens.getForHandshake(orgId)
    return isRepeatable ? tokens.get(orgId) : tokens.getUnrepeatable(orgId)
  }
}
