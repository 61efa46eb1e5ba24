/** A scripted origin server on its own port, which records the bytes that it receives. */

import { once } from 'node:events'
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net'
import {
  createServer as createTlsServer,
  type SecureContextOptions,
  type TlsOptions,
  Server as TlsServer,
} from 'node:tls'
import { OriginConnection, OriginRecord, type OriginScript } from './origin-connection.ts'

export interface OriginOptions {
  /** Key and certificate: the origin speaks TLS. */
  readonly tls?: TlsOptions
  readonly host?: string
  /** A free one if left out. */
  readonly port?: number
}

export class Origin extends OriginRecord implements AsyncDisposable {
  readonly connections: OriginConnection[] = []
  /** Read for every request, so that a test may exchange it. */
  script: OriginScript
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #scheme: string

  constructor(script: OriginScript, options: OriginOptions) {
    super()
    this.script = script
    this.#scheme = options.tls === undefined ? 'http' : 'https'
    const onSocket = (socket: Socket) => {
      const connection = new OriginConnection(socket, this)
      this.connections.push(connection)
      void connection.serve((request, on) => this.script(request, on))
    }
    this.#server =
      options.tls === undefined
        ? createServer({ allowHalfOpen: true }, onSocket)
        : createTlsServer({ ...options.tls, allowHalfOpen: true }, onSocket)
    this.#server.on('tlsClientError', () => {})
    // With TLS, too: an unfinished handshake is no connection yet, and must not keep the server from stopping.
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket)
      socket.once('close', () => this.#sockets.delete(socket))
    })
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Without a slash at its end. */
  get url(): string {
    return `${this.#scheme}://${this.#scheme === 'https' ? 'localhost' : '127.0.0.1'}:${this.port}`
  }

  get openConnections(): OriginConnection[] {
    return this.connections.filter((connection) => !connection.isClosed)
  }

  /** Resolves when the condition holds. It is checked after each event of a connection. */
  waitFor(
    condition: (origin: this) => boolean,
    what = 'the awaited state of the origin',
    deadlineMs?: number,
  ): Promise<void> {
    return this.changes.until(() => condition(this), what, deadlineMs)
  }

  async listen(port = 0, host = '127.0.0.1'): Promise<void> {
    this.#server.listen(port, host)
    await once(this.#server, 'listening')
  }

  /** Uses these certificates for new TLS connections, and resets the open ones. */
  present(tls: SecureContextOptions): void {
    if (this.#server instanceof TlsServer) this.#server.setSecureContext(tls)
    for (const socket of this.#sockets) socket.destroy()
  }

  /** Stops: the port refuses connections, and open ones are reset. `listen(port)` starts it again. */
  async stop(): Promise<void> {
    if (!this.#server.listening) return
    const closed = once(this.#server, 'close')
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop()
    if (this.scriptErrors.length > 0) throw new AggregateError(this.scriptErrors, 'the script of the origin failed')
  }
}

export const sayHello: OriginScript = () => ({ content: 'hello from the origin' })

export async function startOrigin(script: OriginScript = sayHello, options: OriginOptions = {}): Promise<Origin> {
  const origin = new Origin(script, options)
  await origin.listen(options.port, options.host)
  return origin
}
