/** Opens connections to the origin: TCP or TLS, directly or through a proxy, within a time limit. */

import net, { type Socket } from 'node:net'
import tls, { type SecureContext } from 'node:tls'
import { OriginError } from '../errors.ts'
import type { ConnectTunnel } from './proxy-tunnel.ts'

export interface ConnectorOptions {
  /** Only its origin is used. */
  readonly baseUrl: URL
  /** TCP and TLS together. */
  readonly connectTimeoutMs: number
  /** What is trusted in place of the CA certificates of the runtime. */
  readonly secureContext?: SecureContext | undefined
  /** Opens the way through a proxy; undefined for direct connections. */
  readonly tunnel?: ConnectTunnel | undefined
}

/** Where what is read goes: into buffers of the reader's own. */
export interface SocketReader {
  /** Where the next bytes may be laid. */
  nextBuffer(): Buffer
  /** The first `length` octets of `bytes` are new. */
  received(bytes: Buffer, length: number): void
}

export interface Opening {
  /** Ends it without a word. */
  cancel(): void
}

type Opened = (error: Error | undefined, socket: Socket | undefined) => void

/** Finds peers that vanished without a word. */
const KEEP_ALIVE_PROBE_MS = 60_000

export class Connector {
  readonly #options: ConnectorOptions
  readonly #isSecure: boolean
  readonly #host: string
  readonly #port: number
  /** What a server gave to resume its TLS session with. */
  #session: Buffer | undefined

  constructor(options: ConnectorOptions) {
    const { protocol, hostname, port } = options.baseUrl
    this.#options = options
    this.#isSecure = protocol === 'https:'
    this.#host = hostname.replace(/^\[|\]$/g, '')
    this.#port = port === '' ? (this.#isSecure ? 443 : 80) : Number(port)
  }

  /** Calls `opened` once, and later: with a connected socket whose bytes go to `reader`, or with an error. */
  open(reader: SocketReader, opened: Opened): Opening {
    const attempt = new OpeningAttempt(this.#options.connectTimeoutMs, opened)
    const { tunnel } = this.#options
    if (tunnel === undefined) attempt.watch(this.#connect(reader, undefined), this.#isSecure)
    else {
      attempt.tunnel = tunnel(this.#host, this.#port, (error, socket) => {
        if (socket === undefined) attempt.settle(error, undefined)
        // Nobody waits for it any more.
        else if (attempt.isSettled) socket.destroy()
        else this.#throughTunnel(attempt, reader, socket)
      })
    }
    return attempt
  }

  #throughTunnel(attempt: OpeningAttempt, reader: SocketReader, socket: Socket): void {
    const carrier = this.#isSecure ? this.#connect(reader, socket) : socket
    carrier.on('data', (chunk: Buffer) => reader.received(chunk, chunk.length))
    if (this.#isSecure) attempt.watch(carrier, true)
    else attempt.settle(undefined, socket)
  }

  #connect(reader: SocketReader, socket: Socket | undefined): Socket {
    const own = {
      host: this.#host,
      port: this.#port,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_PROBE_MS,
      onread: {
        buffer: () => reader.nextBuffer(),
        callback: (length: number, bytes: Uint8Array) => {
          reader.received(bytes as Buffer, length)
          return true
        },
      },
    }
    if (!this.#isSecure) return net.connect(own)
    const { secureContext } = this.#options
    const secured = tls.connect({
      ...(socket === undefined ? own : { socket }),
      servername: net.isIP(this.#host) === 0 ? this.#host : '',
      host: this.#host,
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: true,
      ...(secureContext && { secureContext }),
      ...(this.#session === undefined ? {} : { session: this.#session }),
    })
    // Told here: `tls.connect` leaves these options unread. Through a tunnel they are set already.
    if (socket === undefined) secured.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_PROBE_MS)
    secured.on('session', (session) => {
      this.#session = session
    })
    return secured
  }
}

class OpeningAttempt implements Opening {
  /** Let go when it has been called: it holds on to the first exchange of the connection. */
  #opened: Opened | undefined
  readonly #timer: NodeJS.Timeout
  #socket: Socket | undefined
  tunnel: Opening | undefined

  constructor(limitMs: number, opened: Opened) {
    this.#opened = opened
    this.#timer = setTimeout(() => {
      this.settle(new OriginError('connection_timeout', 'no connection in time'), undefined)
    }, limitMs)
  }

  watch(socket: Socket, isSecure: boolean): void {
    this.#socket = socket
    socket.once(isSecure ? 'secureConnect' : 'connect', () => this.settle(undefined, socket))
    socket.on('error', (error) => this.settle(error, undefined))
    // TLS that the peer ends in the middle of its handshake is told by `close` alone.
    socket.once('close', () =>
      this.settle(new OriginError('connection_terminated', 'closed while connecting'), undefined),
    )
  }

  get isSettled(): boolean {
    return this.#opened === undefined
  }

  settle(error: Error | undefined, socket: Socket | undefined): void {
    const opened = this.#opened
    if (opened === undefined) return
    if (socket === undefined) this.cancel()
    else this.#forget()
    opened(error, socket)
  }

  cancel(): void {
    if (this.isSettled) return
    this.#forget()
    this.tunnel?.cancel()
    this.#socket?.on('error', () => undefined)
    this.#socket?.destroy()
  }

  #forget(): void {
    this.#opened = undefined
    clearTimeout(this.#timer)
  }
}
