/** One request, in the order of the wire: a token, the exchange, and one way back. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { OrgId } from '../http/org-id.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import type { Lease } from '../token/token-cache.ts'
import type { AdmittedRequest } from './admitted-request.ts'
import { Exchange, type ExchangeContext, type ExchangeOwner } from './exchange.ts'
import { Handshake, type HandshakeContext } from './handshake.ts'

export interface GatewayOptions extends ExchangeContext, HandshakeContext {
  readonly app: AppCredentials
}

/** What waits for its credential. */
interface Forwarding {
  forward(lease: Lease): void
  forwardAsApp(authorization: string): void
  failWith(error: unknown): void
}

type TokenUse = 'repeatable' | 'unrepeatable' | 'handshake'

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
    this.#supply(exchange, request.orgId, exchange.isRepeatable ? 'repeatable' : 'unrepeatable')
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
    this.#supply(handshake, request.orgId, 'handshake')
    return handshake
  }

  /** At once where a token is at hand: only a miss makes a promise. */
  #supply(forwarding: Forwarding, orgId: OrgId | undefined, use: TokenUse): void {
    const { tokens, app } = this.#options
    if (orgId === undefined) {
      forwarding.forwardAsApp(app.authorization())
      return
    }
    const lease = this.#lookUp(orgId, use)
    if (lease !== undefined) {
      forwarding.forward(lease)
      return
    }
    tokens.obtain(orgId, use === 'handshake').then(
      (obtained) => forwarding.forward(obtained),
      (error: unknown) => forwarding.failWith(error),
    )
  }

  #lookUp(orgId: OrgId, use: TokenUse): Lease | undefined {
    const { tokens } = this.#options
    switch (use) {
      case 'repeatable':
        return tokens.get(orgId)
      case 'unrepeatable':
        return tokens.getUnrepeatable(orgId)
      case 'handshake':
        return tokens.getForHandshake(orgId)
    }
  }
}
