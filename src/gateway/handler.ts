/** Gives each admitted request its credential, and starts its exchange. */

import type { AdmittedRequest } from '../http/admitted-request.ts'
import type { RequestKind } from '../token/org-tokens.ts'
import { Exchange, type ExchangeContext, type ReceivedRequest } from './exchange.ts'

export class Gateway {
  readonly #context: ExchangeContext
  /** Requests that wait for a token. */
  waiting = 0

  constructor(context: ExchangeContext) {
    this.#context = context
  }

  /** The shortest time limit of an exchange, which has to be checked several times within it. */
  get shortestLimitMs(): number {
    return Math.min(this.#context.responseTimeoutMs, this.#context.idleTimeoutMs)
  }

  handle(request: AdmittedRequest, received: ReceivedRequest): Exchange {
    const exchange = new Exchange(this.#context, request, received)
    try {
      this.#forward(exchange, request, received)
    } catch (error) {
      exchange.failWith(error)
    }
    return exchange
  }

  #forward(exchange: Exchange, { orgId, isWebSocket, caller, requestId }: AdmittedRequest, received: ReceivedRequest) {
    const { tokens, app } = this.#context
    const kind: RequestKind = isWebSocket ? 'handshake' : exchange.isRepeatable ? 'repeatable' : 'once'
    const found = orgId === undefined ? { token: app.key, result: 'none' as const } : tokens.get(orgId, kind)
    if (found !== undefined) exchange.forward(found.token, found.result)
    else if (orgId !== undefined) {
      // Only a miss makes a promise.
      this.waiting++
      tokens
        .obtain(orgId, { kind, requester: caller ?? received.connection, requestId })
        .then(({ token, result }) => exchange.forward(token, result))
        .catch((error: unknown) => exchange.failWith(error))
        .finally(() => this.waiting--)
    }
  }
}
