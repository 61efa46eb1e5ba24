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
import * as clock from '../clock.ts'
import { OriginError } from '../errors.ts'
import { serverNameOf } from '../http1/host.ts'
import { NO_RENEGOTIATION } from '../trusted-certificates.ts'
import { Addresses } from './addresses.ts'
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
  readonly outboundProxy?: OutboundProxy | undefined
  /** Finds the addresses of the host. */
  readonly lookup?: LookupFunction | undefined
}

/** The way through a proxy. */
export interface OutboundProxy {
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

export class Connector {
  readonly #options: ConnectorOptions
  readonly #isSecure: boolean
  readonly #host: string
  readonly #port: number
  readonly #addresses: Addresses

  constructor(options: ConnectorOptions) {
    const { protocol, hostname, port } = options.baseUrl
    const { lookup = (host, given, found) => dns.lookup(host, given, found), socketPath, connectTimeoutMs } = options
    this.#options = options
    this.#isSecure = protocol === 'https:'
    this.#host = hostname.replace(/^\[|\]$/g, '')
    this.#port = port === '' ? (this.#isSecure ? 443 : 80) : Number(port)
    this.#addresses =
      socketPath === undefined
        ? new Addresses(this.#host, lookup, connectTimeoutMs)
        : new Addresses(socketPath, itself, connectTimeoutMs)
  }

  /**
   * Calls `done` once. What is read goes to `reader`. The socket is a stream like any other if there is no reader, behind an outbound
   * proxy, and under TLS if the connection `mayBecomeTunnel`: then `done` gets the `carrier`, too. Returns a function that gives up;
   * `done` is not called then.
   */
  open(
    reader: SocketReader | undefined,
    mayBecomeTunnel: boolean,
    done: (result: Socket | OriginError, carrier?: Socket) => void,
  ): () => void {
    const { outboundProxy, connectTimeoutMs } = this.#options
    let giveUpOpening = () => {}
    let socket: Socket | undefined
    let isOver = false
    const finish = (result?: Socket | Error, carrier?: Socket) => {
      if (isOver) return
      isOver = true
      timer.cancel()
      if (result === undefined || result instanceof Error) {
        giveUpOpening()
        socket?.destroy()
      }
      if (result !== undefined) done(result instanceof Error ? originError(result) : result, carrier)
    }
    const handshake = (secure: Socket, carrier?: Socket) => {
      socket = secure
      secure.once('secureConnect', () => finish(secure, carrier))
      secure.on('error', (error: NodeJS.ErrnoException) =>
        finish(error.code === 'ECONNRESET' ? endedInHandshake() : error),
      )
      // If the peer closes during the TLS handshake, `close` is the only event.
      secure.once('close', () => finish(endedInHandshake()))
    }
    const timer = clock.after(connectTimeoutMs, () => finish(tooLate(outboundProxy)))
    const secureCarrier = (carrier: Socket | Error) => {
      if (carrier instanceof Error) finish(carrier)
      else handshake(this.#secure({ socket: carrier, host: this.#host }), carrier)
    }
    if (outboundProxy !== undefined) giveUpOpening = outboundProxy.open(this.#isSecure ? secureCarrier : finish)
    else if (!this.#isSecure) giveUpOpening = this.#connect((route) => net.connect(route), finish, reader)
    else if (mayBecomeTunnel) giveUpOpening = this.#connect((route) => net.connect(route), secureCarrier)
    else {
      giveUpOpening = this.#connect(
        // `tls.connect` ignores two of the options.
        (route) => this.#secure(route).setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_PROBE_MS),
        (result) => (result instanceof Error ? finish(result) : handshake(result)),
        reader,
      )
    }
    return () => finish()
  }

  /** Opens a socket to the first address that answers. Calls `done` once. Returns a function that gives up. */
  #connect(
    open: (route: TcpNetConnectOpts | IpcNetConnectOpts) => Socket,
    done: (result: Socket | Error) => void,
    reader?: SocketReader,
  ): () => void {
    const { socketPath } = this.#options
    const options = {
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_PROBE_MS,
      ...(reader && { onread: readInto(reader) }),
    }
    return this.#addresses.connect(
      (address) =>
        open(
          socketPath === undefined ? { ...options, host: address, port: this.#port } : { ...options, path: address },
        ),
      done,
    )
  }

  /** Without a server name, Node checks the certificate against `host`. Each handshake is a whole one: no session is resumed. */
  #secure(transport: ConnectionOptions): TLSSocket {
    const { secureContext } = this.#options
    return tls.connect({
      ...transport,
      servername: serverNameOf(this.#host),
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: true,
      ...(secureContext === undefined ? NO_RENEGOTIATION : { secureContext }),
    })
  }
}

/** For a unix socket: its path is its address. */
const itself: LookupFunction = (path, _, found) => found(null, [{ address: path, family: 0 }])

function endedInHandshake(): OriginError {
  const hint =
    'TLS with the service failed: the connection was ended during the handshake; a load balancer may have no server behind it.'
  return new OriginError('tls_protocol_error', 'closed during the TLS handshake', { hint })
}

function tooLate(outboundProxy: OutboundProxy | undefined): OriginError {
  const way = outboundProxy === undefined ? '' : ` through the proxy on the way, ${outboundProxy.proxy},`
  const hint = `TCP and TLS with the service${way} took longer than origin.connectTimeout.`
  return new OriginError('connection_timeout', 'no connection in time', { hint })
}

function readInto(reader: SocketReader): OnReadOpts {
  return {
    buffer: () => reader.nextBuffer(),
    callback: (length, bytes) => reader.received(bytes as Buffer, length),
  }
}
