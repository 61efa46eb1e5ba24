/** Opens connections to the origin: TCP or TLS, directly or through a proxy, within a time limit. */

import net, { type OnReadOpts, type Socket } from 'node:net'
import tls, { type SecureContext } from 'node:tls'
import { OriginError } from '../errors.ts'
import { originError } from './origin-failure.ts'
import type { ConnectTunnel } from './proxy-tunnel.ts'

export interface ConnectorOptions {
  /** Only scheme, host and port are used. */
  readonly baseUrl: URL
  /** For TCP and TLS together. */
  readonly connectTimeoutMs: number
  /** Replaces the CA certificates of the runtime. Read for each connection, because a reload may change it. */
  readonly secureContext?: SecureContext | undefined
  /** Opens a tunnel through a proxy; undefined for direct connections. */
  readonly tunnel?: ConnectTunnel | undefined
}

/** Receives what is read, in buffers of its own. */
export interface SocketReader {
  /** Returns the buffer for the next read. */
  nextBuffer(): Buffer
  /** The first `length` octets of `bytes` are new. */
  received(bytes: Buffer, length: number): void
}

export interface Opening {
  /** Gives up. `opened` is not called. */
  cancel(): void
}

/** One of these is called, once. */
export interface OpeningEvents {
  opened(socket: Socket): void
  failed(reason: OriginError): void
}

/** TCP keep-alive finds peers that vanished without closing. */
const KEEP_ALIVE_PROBE_MS = 60_000

export class Connector {
  readonly #options: ConnectorOptions
  readonly #isSecure: boolean
  readonly #host: string
  readonly #port: number
  /** For the resumption of a TLS session, which does not verify the certificate again. */
  #session: Buffer | undefined
  /** The certificates that the session was verified with. */
  #sessionContext: SecureContext | undefined

  constructor(options: ConnectorOptions) {
    const { protocol, hostname, port } = options.baseUrl
    this.#options = options
    this.#isSecure = protocol === 'https:'
    this.#host = hostname.replace(/^\[|\]$/g, '')
    this.#port = port === '' ? (this.#isSecure ? 443 : 80) : Number(port)
  }

  /** What is read goes to `reader`; without one the socket is a stream like any other. */
  open(reader: SocketReader | undefined, events: OpeningEvents): Opening {
    const attempt = new OpeningAttempt(this.#options.connectTimeoutMs, events)
    const { tunnel } = this.#options
    if (tunnel === undefined) attempt.watch(this.#connect(reader, undefined), this.#isSecure)
    else {
      attempt.tunnel = tunnel(this.#host, this.#port, (error, socket) => {
        if (socket === undefined) attempt.fail(originError(error ?? new Error('no tunnel')))
        // The time limit has passed, or the attempt was cancelled.
        else if (attempt.isSettled) socket.destroy()
        else this.#throughTunnel(attempt, reader, socket)
      })
    }
    return attempt
  }

  #throughTunnel(attempt: OpeningAttempt, reader: SocketReader | undefined, socket: Socket): void {
    const carrier = this.#isSecure ? this.#connect(reader, socket) : socket
    if (reader !== undefined) carrier.on('data', (chunk: Buffer) => reader.received(chunk, chunk.length))
    if (this.#isSecure) attempt.watch(carrier, true)
    else attempt.succeed(socket)
  }

  #connect(reader: SocketReader | undefined, socket: Socket | undefined): Socket {
    const own = {
      host: this.#host,
      port: this.#port,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_PROBE_MS,
      ...(reader && { onread: readInto(reader) }),
    }
    if (!this.#isSecure) return net.connect(own)
    const { secureContext } = this.#options
    if (secureContext !== this.#sessionContext) this.#session = undefined
    this.#sessionContext = secureContext
    const secured = tls.connect({
      ...(socket === undefined ? own : { socket }),
      servername: net.isIP(this.#host) === 0 ? this.#host : '',
      host: this.#host,
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: true,
      ...(secureContext && { secureContext }),
      ...(this.#session === undefined ? {} : { session: this.#session }),
    })
    // `tls.connect` ignores these options. The socket of a tunnel has them already.
    if (socket === undefined) secured.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_PROBE_MS)
    secured.on('session', (session) => {
      if (secureContext === this.#sessionContext) this.#session = session
    })
    return secured
  }
}

function readInto(reader: SocketReader): OnReadOpts {
  return {
    buffer: () => reader.nextBuffer(),
    callback: (length, bytes) => {
      reader.received(bytes as Buffer, length)
      return true
    },
  }
}

class OpeningAttempt implements Opening {
  /** Cleared once told, because it references the first exchange of the connection. */
  #events: OpeningEvents | undefined
  readonly #timer: NodeJS.Timeout
  #socket: Socket | undefined
  tunnel: Opening | undefined

  constructor(limitMs: number, events: OpeningEvents) {
    this.#events = events
    this.#timer = setTimeout(() => this.fail(new OriginError('connection_timeout', 'no connection in time')), limitMs)
  }

  watch(socket: Socket, isSecure: boolean): void {
    this.#socket = socket
    socket.once(isSecure ? 'secureConnect' : 'connect', () => this.succeed(socket))
    socket.on('error', (error) => this.fail(originError(error)))
    // If the peer closes during the TLS handshake, `close` is the only event.
    socket.once('close', () => this.fail(new OriginError('connection_terminated', 'closed while connecting')))
  }

  get isSettled(): boolean {
    return this.#events === undefined
  }

  succeed(socket: Socket): void {
    this.#settle()?.opened(socket)
  }

  fail(reason: OriginError): void {
    const events = this.#events
    this.cancel()
    events?.failed(reason)
  }

  cancel(): void {
    if (this.#settle() === undefined) return
    this.tunnel?.cancel()
    this.#socket?.on('error', () => undefined)
    this.#socket?.destroy()
  }

  #settle(): OpeningEvents | undefined {
    const events = this.#events
    this.#events = undefined
    clearTimeout(this.#timer)
    return events
  }
}
