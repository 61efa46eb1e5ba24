/** One request, in the order of the wire: a token, the exchange, and one way back. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { AppCredentials } from '../token/app-credentials.ts'
import type { AdmittedRequest } from './admitted-request.ts'
import { Exchange, type ExchangeContext, type ExchangeOwner } from './exchange.ts'
import { Handshake, type HandshakeContext } from './handshake.ts'

export interface GatewayOptions extends ExchangeContext, HandshakeContext {
  readonly app: AppCredentials
}

export class Gateway {
  readonly #options: GatewayOptions

  constructor(options: GatewayOptions) {
    this.#options = options
  }

  /** `startedAt` is the monotonic instant of the head's arrival. The owner is told when the exchange has ended. */
  handle(
    request: AdmittedRequest,
    message: IncomingMessage,
    response: ServerResponse,
    owner: ExchangeOwner,
    startedAt: number,
  ): Exchange {
    const exchange = new Exchange(this.#options, request, message, response, owner, startedAt)
    const { tokens, app } = this.#options
    if (request.orgId === undefined) {
      exchange.forwardAsApp(app.authorization())
      return exchange
    }
    const lease = exchange.isRepeatable ? tokens.get(request.orgId) : tokens.getUnrepeatable(request.orgId)
    if (lease !== undefined) exchange.forward(lease)
    else {
      tokens.obtain(request.orgId).then(
        (obtained) => exchange.forward(obtained),
        (error: unknown) => exchange.failWith(error),
      )
    }
    return exchange
  }

  /** A WebSocket handshake; a tunnel opens only behind the origin's 101. */
  upgrade(
    request: AdmittedRequest,
    message: IncomingMessage,
    socket: Duplex,
    firstBytes: Buffer,
    owner: ExchangeOwner,
    startedAt: number,
  ): Handshake {
    const handshake = new Handshake(this.#options, request, message, socket, firstBytes, owner, startedAt)
    const { tokens, app } = this.#options
    if (request.orgId === undefined) {
      handshake.forwardAsApp(app.authorization())
      return handshake
    }
    const lease = tokens.getForHandshake(request.orgId)
    if (lease !== undefined) handshake.forward(lease)
    else {
      tokens.obtain(request.orgId, true).then(
        (obtained) => handshake.forward(obtained),
        (error: unknown) => handshake.failWith(error),
      )
    }
    return handshake
  }
}
