/** Opens connections to the service: TCP or TLS, directly or through a proxy, within a time limit. */

import dns from 'node:dns'
import net, {
  type IpcNetConnectOpts,
  type LookupFunction,
  type OnReadOpts,
  type Socket,
  type TcpNetConnectOpts,
} from 'node:net'
import tls, { type ConnectionOptions, type SecureContext, type TLSSocket } from 'node:tls'
import { OriginError } from '../errors.ts'
import { serverNameOf } from '../http1/host.ts'
import { NO_RENEGOTIATION } from '../trusted-certificates.ts'
import { originError } from './origin-failure.ts'

export interface ConnectorOptions {
  /** Only scheme, host and port are used. */
  readonly baseUrl: URL
  /** Of a unix socket, in place of host and port. */
  readonly socketPath?: string | undefined
  /** For TCP and TLS together. */
  readonly connectTimeoutMs: number
  /** Replaces the CA certificates of the runtime. Read for each connection, because a reload may change it. */
  readonly secureContext?: SecureContext | undefined
  /** Undefined for direct connections. */
  readonly tunnel?: ProxyRoute | undefined
  /** Finds the addresses of the host. */
  readonly lookup?: LookupFunction | undefined
}

/** The way through a proxy. */
export interface ProxyRoute {
  /** Host and port of the proxy, for people. */
  readonly proxy: string
  /** As `Connector.open` does. */
  open(done: (result: Socket | OriginError) => void): () => void
}

/** Receives what is read, in buffers of its own. */
interface SocketReader {
  nextBuffer(): Buffer
  /** The first `length` octets of `bytes` are new. Returns false if no more is wanted until `resume` of the socket. */
  received(bytes: Buffer, length: number): boolean
}

/** TCP keep-alive finds peers that vanished without closing. */
const KEEP_ALIVE_PROBE_MS = 60_000

/** So many addresses of a name are tried within the time limit, one after the other. */
const MOST_ADDRESSES = 4

export class Connector {
  readonly #options: ConnectorOptions
  readonly #isSecure: boolean
  readonly #host: string
  readonly #port: number
  /** A TLS session is resumed without another look at the certificate, so only under the certificates that verified it. */
  #resumption: { readonly context: SecureContext | undefined; session?: Buffer } = { context: undefined }

  constructor(options: ConnectorOptions) {
    const { protocol, hostname, port } = options.baseUrl
    this.#options = options
    this.#isSecure = protocol === 'https:'
    this.#host = hostname.replace(/^\[|\]$/g, '')
    this.#port = port === '' ? (this.#isSecure ? 443 : 80) : Number(port)
  }

  /**
   * Calls `done` once. What is read goes to `reader`. Where there is none, and where `done` gets the `carrier` of TLS, the socket is
   * a stream like any other: through a proxy, and if the connection `mayBecomeTunnel`. Returns a function that gives up; `done` is
   * not called then.
   */
  open(
    reader: SocketReader | undefined,
    mayBecomeTunnel: boolean,
    done: (result: Socket | OriginError, carrier?: Socket) => void,
  ): () => void {
    const { tunnel, connectTimeoutMs } = this.#options
    let giveUpTunnel = () => {}
    let socket: Socket | undefined
    let isOver = false
    const finish = (result?: Socket | Error, carrier?: Socket) => {
      if (isOver) return
      isOver = true
      clearTimeout(timer)
      if (result === undefined || result instanceof Error) {
        giveUpTunnel()
        socket?.destroy()
      }
      if (result !== undefined) done(result instanceof Error ? originError(result) : result, carrier)
    }
    const whenOpen = (opening: Socket, event: 'connect' | 'secureConnect', then: () => void) => {
      socket = opening
      opening.once(event, then)
      opening.on('error', (error) => finish(error))
      // If the peer closes during the TLS handshake, `close` is the only event.
      opening.once('close', () => finish(new OriginError('connection_terminated', 'closed while connecting')))
    }
    const secured = (carrier: Socket) => {
      const secure = this.#secure({ socket: carrier, host: this.#host })
      whenOpen(secure, 'secureConnect', () => finish(secure, carrier))
    }
    const timer = setTimeout(() => finish(tooLate(tunnel)), connectTimeoutMs)
    if (tunnel !== undefined) {
      giveUpTunnel = tunnel.open((result) => {
        if (result instanceof Error || !this.#isSecure) finish(result)
        else secured(result)
      })
    } else if (!this.#isSecure) {
      const plain = net.connect(this.#route(reader))
      whenOpen(plain, 'connect', () => finish(plain))
    } else if (mayBecomeTunnel) {
      const carrier = net.connect(this.#route())
      whenOpen(carrier, 'connect', () => secured(carrier))
    } else {
      // `tls.connect` ignores two of the options.
      const secure = this.#secure(this.#route(reader)).setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_PROBE_MS)
      whenOpen(secure, 'secureConnect', () => finish(secure))
    }
    return () => finish()
  }

  #route(reader?: SocketReader): TcpNetConnectOpts | IpcNetConnectOpts {
    const { socketPath, connectTimeoutMs, lookup = dns.lookup } = this.#options
    return {
      ...(socketPath === undefined ? { host: this.#host, port: this.#port } : { path: socketPath }),
      lookup,
      autoSelectFamily: true,
      // With Node's 250 ms, no service that is farther away than that would be reached, unless it is the last one.
      autoSelectFamilyAttemptTimeout: Math.ceil(connectTimeoutMs / MOST_ADDRESSES),
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_PROBE_MS,
      ...(reader && { onread: readInto(reader) }),
    }
  }

  /** Without a server name, Node checks the certificate against `host`. */
  #secure(transport: ConnectionOptions): TLSSocket {
    const { secureContext } = this.#options
    if (secureContext !== this.#resumption.context) this.#resumption = { context: secureContext }
    const resumption = this.#resumption
    const socket = tls.connect({
      ...transport,
      servername: serverNameOf(this.#host),
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: true,
      ...(secureContext === undefined ? NO_RENEGOTIATION : { secureContext }),
      ...(resumption.session && { session: resumption.session }),
    })
    return socket.on('session', (session) => {
      resumption.session = session
    })
  }
}

function tooLate(tunnel: ProxyRoute | undefined): OriginError {
  const way = tunnel === undefined ? '' : ` through the proxy on the way, ${tunnel.proxy},`
  const hint = `TCP and TLS with the service${way} took longer than origin.connectTimeout.`
  return new OriginError('connection_timeout', 'no connection in time', { hint })
}

function readInto(reader: SocketReader): OnReadOpts {
  return {
    buffer: () => reader.nextBuffer(),
    callback: (length, bytes) => reader.received(bytes as Buffer, length),
  }
}
