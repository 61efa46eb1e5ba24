/** Gives each admitted request its credential, and starts its exchange. */

import type { AdmittedRequest } from '../http/admitted-request.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import type { RequestKind } from '../token/org-tokens.ts'
import { Exchange, type ExchangeContext, type ReceivedRequest } from './exchange.ts'

export interface GatewayOptions extends ExchangeContext {
  readonly app: AppCredentials
}

export class Gateway {
  readonly #options: GatewayOptions
  /** Requests that wait for a token. */
  waiting = 0

  constructor(options: GatewayOptions) {
    this.#options = options
  }

  handle(request: AdmittedRequest, received: ReceivedRequest): Exchange {
    const exchange = new Exchange(this.#options, request, received)
    try {
      this.#forward(exchange, request, received)
    } catch (error) {
      exchange.failWith(error)
    }
    return exchange
  }

  #forward(exchange: Exchange, request: AdmittedRequest, received: ReceivedRequest): void {
    const { tokens, app } = this.#options
    const { orgId, isWebSocket, caller } = request
    if (orgId === undefined) {
      exchange.forwardAsApp(app)
      return
    }
    // Only a miss makes a promise.
    const kind: RequestKind = isWebSocket ? 'handshake' : exchange.isRepeatable ? 'repeatable' : 'once'
    const lookup = tokens.get(orgId, kind)
    if (lookup !== undefined) exchange.forward(lookup)
    else {
      const requester = caller?.name ?? received.connection
      this.waiting++
      tokens
        .obtain(orgId, { kind, requester, requestId: request.requestId })
        .then((obtained) => exchange.forward(obtained))
        .catch((error: unknown) => exchange.failWith(error))
        .finally(() => this.waiting--)
    }
  }
}
