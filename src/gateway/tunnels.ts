/** The library that carries upgraded connections, its connections to the origin, and the tunnels that are open. */

import { type ClientRequest, Agent as HttpAgent, type IncomingMessage } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { SecureContext } from 'node:tls'
import { createProxyServer, type ProxyServer } from 'http-proxy'
import { groupFields } from '../http/fields.ts'
import type { ProxyVariables } from '../undici.ts'

/** Who is told of the request that the library makes. */
export interface UpgradeWatcher {
  started(upstream: ClientRequest): void
}

export interface TunnelOptions {
  readonly baseUrl: URL
  readonly secureContext?: SecureContext | undefined
  /** Node takes tunnels through them from 24.5 on; before, they go straight to the origin. */
  readonly proxies?: ProxyVariables | undefined
}

/** The library and its connections; one for all tunnels. */
export class Tunnels {
  readonly #proxy: ProxyServer
  readonly #agent: HttpAgent
  readonly #open = new Set<Duplex>()

  constructor(options: TunnelOptions) {
    // A connection a tunnel, never reused; half-open, so that one side may finish before the other (RFC 6455 §7.1.1).
    const connection = { keepAlive: false, allowHalfOpen: true, ...proxyEnvironment(options.proxies) }
    const { secureContext } = options
    this.#agent =
      options.baseUrl.protocol === 'https:'
        ? new HttpsAgent({ ...connection, ...(secureContext && { secureContext }) })
        : new HttpAgent(connection)
    this.#proxy = createProxyServer({
      target: options.baseUrl.origin,
      prependPath: false,
      xfwd: false,
      secure: true,
      agent: this.#agent,
    })
    // Failures reach the handshake through the request itself; without a listener here they would be thrown.
    this.#proxy.on('error', () => undefined)
    this.#proxy.on('proxyReqWs', (request, message) => {
      if (message instanceof HandshakeMessage) message.watcher.started(request)
    })
  }

  get size(): number {
    return this.#open.size
  }

  /** Sends a handshake with these fields; `watcher` is told before anything comes of it. */
  connect(
    watcher: UpgradeWatcher,
    target: string,
    fields: readonly string[],
    socket: Duplex,
    firstBytes: Buffer,
  ): void {
    const message = new HandshakeMessage(watcher, target, fields, socket)
    this.#proxy.ws(message as unknown as IncomingMessage, socket as Socket, {}, firstBytes).catch(() => undefined)
  }

  opened(socket: Duplex): void {
    this.#open.add(socket)
    socket.once('close', () => this.#open.delete(socket))
  }

  close(): void {
    for (const socket of this.#open) socket.destroy()
    this.#agent.destroy()
  }
}

/** The request as the library reads it: what was admitted, and nothing of what came. */
class HandshakeMessage {
  readonly method = 'GET'
  readonly httpVersionMajor = 1
  readonly url: string
  readonly headers: Record<string, string | string[]>
  readonly socket: Duplex
  readonly watcher: UpgradeWatcher

  constructor(watcher: UpgradeWatcher, target: string, fields: readonly string[], socket: Duplex) {
    this.watcher = watcher
    this.url = target
    this.headers = { ...groupFields(fields), connection: 'Upgrade', upgrade: 'websocket' }
    this.socket = socket
  }
}

function proxyEnvironment(proxies: ProxyVariables | undefined): { proxyEnv?: Record<string, string> } {
  if (proxies === undefined) return {}
  return {
    proxyEnv: {
      HTTP_PROXY: proxies.httpProxy?.reveal() ?? '',
      HTTPS_PROXY: proxies.httpsProxy?.reveal() ?? '',
      NO_PROXY: proxies.noProxy ?? '',
    },
  }
}
