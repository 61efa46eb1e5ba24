/** The proxy's listener: sockets, limits and timeouts. Takes requests from Node's parser and gives them to the gateway. */

import { createServer, type IncomingMessage, type Server, type ServerOptions } from 'node:http'
import type { Server as TlsServer } from 'node:https'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { TLSSocket } from 'node:tls'
import type { Caller, CallerRefusal } from '../callers/callers.ts'
import type { Failure, RefusalCode } from '../errors.ts'
import { Exchange, type Gateway } from '../gateway/exchange.ts'
import type { ClientResponse } from '../http/client-response.ts'
import { carrierOf, discardInput, keepConnections } from '../http/node-internals.ts'
import type { GatewayObserver } from '../http/request-record.ts'
import { type Admission, admit, offersWebSocket, type Sender } from './admission.ts'
import { Arrival, type ArrivalOptions } from './arrival.ts'
import { type Bound, bind, isLocalPeer, type ListenAddress } from './bind.ts'
import { ClientConnection, type WaitLimits } from './connection.ts'
import { ConnectionLimit } from './connection-limit.ts'
import { type ClientCertificate, ListenerTls, type TlsMaterial } from './tls.ts'

export interface ListenerObserver extends GatewayObserver {
  /** The first refusal of an episode. `most`: the connections that are open. */
  connectionsRefused(limit: ConnectionLimit): void
  handshakesFailed(reason: string): void
}

export interface ListenerOptions extends ArrivalOptions, WaitLimits {
  readonly address: ListenAddress
  readonly socketMode: number
  /** Listening sockets to use instead of binding `address`. */
  readonly inheritedSockets?: readonly number[] | undefined
  readonly allowsRemote: boolean
  /** Undefined: plain HTTP. The sockets of callers are never under TLS. */
  readonly tls?: TlsMaterial | undefined
  readonly maxConnections: number
  /** Connections that the proxy may open to others. */
  readonly maxOutgoing: number
  readonly maxInFlight: number
  readonly observer: ListenerObserver
}

/** Anyone on the network can make handshakes fail, so each reason is reported once in this time. */
const HANDSHAKE_REPORT_MS = 60_000

export class Listener {
  readonly #options: ListenerOptions
  readonly #gateway: Gateway
  readonly #connections = new Map<Duplex, ClientConnection>()
  readonly tls: ListenerTls | undefined
  /** TCP connections whose TLS handshake goes on, the oldest first. */
  readonly #handshakes = new Set<Socket>()
  /** Why handshakes have failed lately. */
  readonly #reported = new Set<string>()
  #bound: Bound | undefined
  /** The sockets of callers, by path. */
  readonly #callerSockets = new Map<string, Bound>()
  #sweep: NodeJS.Timeout | undefined
  readonly limit: ConnectionLimit
  /** Every response is the last one of its connection. */
  #isEnding = false
  #isDraining = false
  #onEmpty: (() => void) | undefined
  requestsInFlight = 0
  /**
   * The requests in flight whose JWT is being verified, the oldest first. Anyone can send such a JWT, so they take no place
   * from callers that are known, and give up their own first.
   */
  readonly #verifying = new Set<Arrival>()

  constructor(options: ListenerOptions, gateway: Gateway) {
    this.#options = options
    this.#gateway = gateway
    this.tls = options.tls === undefined ? undefined : new ListenerTls(options.tls)
    this.limit = new ConnectionLimit(options.maxConnections, options.maxOutgoing, () => gateway.origin.tunnels)
  }

  /** Resolves with the address as it stands in a URL. */
  async listen(): Promise<string> {
    const { address, socketMode, inheritedSockets } = this.#options
    this.#bound = await bind(address, () => this.#newServer(), socketMode, inheritedSockets)
    const { headersTimeoutMs, idleTimeoutMs, keepAliveTimeoutMs } = this.#options
    const ofService = Math.min(this.#gateway.responseTimeoutMs, this.#gateway.idleTimeoutMs)
    const least = Math.min(headersTimeoutMs, idleTimeoutMs, keepAliveTimeoutMs, ofService)
    const check = () => {
      const now = performance.now()
      for (const connection of this.#connections.values()) connection.check(now, this.#options)
    }
    this.#sweep = setInterval(check, Math.min(1_000, Math.max(20, least / 4))).unref()
    return this.#bound.address
  }

  /**
   * Opens the sockets of these callers that are not open yet, and closes all others. Their connections finish their current
   * request. @throws The system's error; then nothing has changed.
   */
  async useCallerSockets(paths: readonly string[]): Promise<void> {
    const opened = new Map<string, Bound>()
    try {
      for (const path of paths) {
        if (this.#callerSockets.has(path)) continue
        opened.set(path, await bind({ kind: 'unix', path }, () => this.#newServer(path), this.#options.socketMode))
      }
    } catch (error) {
      for (const bound of opened.values()) bound.close()
      throw error
    }
    for (const [path, bound] of this.#callerSockets) {
      if (paths.includes(path)) continue
      bound.close()
      this.#callerSockets.delete(path)
      this.#finish(({ callerSocket }) => callerSocket === path)
    }
    for (const [path, bound] of opened) this.#callerSockets.set(path, bound)
  }

  /** Takes over other certificates. If a CA of clients is gone, connections with a client certificate end. @throws if they do not fit. */
  useTls(material: TlsMaterial): void {
    if (this.tls?.use(material) !== true) return
    for (const socket of this.#handshakes) socket.destroy()
    this.#finish(({ certificate }) => certificate !== undefined)
  }

  #finish(isMeant: (connection: ClientConnection) => boolean): void {
    for (const connection of this.#connections.values()) if (isMeant(connection)) connection.finish()
  }

  #newServer(callerSocket?: string): Server | TlsServer {
    const { headersTimeoutMs } = this.#options
    const tls = callerSocket === undefined ? this.tls : undefined
    const server = tls === undefined ? createServer(HTTP) : tls.newServer(HTTP, headersTimeoutMs)
    // Node drops fields beyond a count in silence, perhaps a Content-Length among them. The size limit decides instead.
    server.maxHeadersCount = 0
    server.on('connection', (socket: Socket) => {
      if (this.#connections.has(socket) || !this.#accept(socket)) return
      if (tls === undefined) this.#open(socket, callerSocket)
      else {
        this.#handshakes.add(socket)
        socket.once('close', () => this.#handshakes.delete(socket))
      }
    })
    server.on('secureConnection', (socket: TLSSocket) => this.#open(socket, undefined, tls?.certificateOf(socket)))
    server.on('tlsClientError', (error: Error) => this.#handshakeFailed(error))
    server.on('upgrade', (message, socket, firstBytes) => this.#upgrade(server, message, socket, firstBytes))
    server.on('connect', (message, socket) => this.#connections.get(socket)?.takeLast(message))
    server.on('clientError', (error, socket) => this.#inputBroken(error, socket))
    return keepConnections(server)
  }

  #handshakeFailed(error: Error): void {
    const reason = 'code' in error ? String(error.code) : 'unknown'
    // A reset: a probe that opens a connection and closes it.
    if (reason === 'ECONNRESET' || this.#reported.has(reason)) return
    this.#reported.add(reason)
    setTimeout(() => this.#reported.delete(reason), HANDSHAKE_REPORT_MS).unref()
    this.#options.observer.handshakesFailed(reason)
  }

  #open(socket: Socket, callerSocket: string | undefined, certificate?: ClientCertificate): void {
    if (this.#connections.has(socket)) return
    const carrier = carrierOf(socket)
    this.#handshakes.delete(carrier)
    // A tunnel may end one side first. During its handshake, a connection that ends one side is over.
    socket.allowHalfOpen = true
    carrier.allowHalfOpen = true
    this.#connections.set(socket, new ClientConnection(socket, this, callerSocket, certificate))
    socket.once('close', () => {
      this.#connections.delete(socket)
      if (this.#connections.size === 0) this.#onEmpty?.()
    })
  }

  /** Makes room for `socket`, or destroys it and returns false. */
  #accept(socket: Socket): boolean {
    const isFull = this.#connections.size + this.#handshakes.size >= this.limit.most
    if (isFull && this.limit.refuse()) this.#options.observer.connectionsRefused(this.limit)
    const isForeign = !this.#options.allowsRemote && !isLocalPeer(socket)
    const isRefused = isFull && (isForeign || !this.#makeRoom())
    if (isRefused || this.#isDraining) socket.destroy()
    return !isRefused && !this.#isDraining
  }

  /** Ends a connection that has not proved yet who it is, or else the one that has been idle for longest. */
  #makeRoom(): boolean {
    const [handshake] = this.#handshakes
    const [verifying] = this.#verifying
    let victim: Socket | undefined = handshake
    if (victim === undefined && verifying !== undefined) {
      verifying.fail({ code: 'overloaded', limit: 'listen.maxConnections' })
      victim = verifying.connection.socket
    }
    victim ??= this.#longestIdle()
    if (victim === undefined) return false
    victim.destroy()
    this.#handshakes.delete(victim)
    this.#connections.delete(victim)
    return true
  }

  #longestIdle(): Socket | undefined {
    let oldest: ClientConnection | undefined
    for (const connection of this.#connections.values()) {
      if (connection.isBusy || connection.socket.destroyed) continue
      if (oldest === undefined || connection.idleSince < oldest.idleSince) oldest = connection
    }
    return oldest?.socket
  }

  /** Starts a request. `problem`: the bytes that came are no request, and `message` is empty. */
  begin(connection: ClientConnection, message: IncomingMessage, response: ClientResponse, problem?: RefusalCode): void {
    this.requestsInFlight++
    const arrival = new Arrival(connection, message, response, this.#options, this.#requestEnded)
    if (problem === undefined) this.#proceed(arrival, connection)
    else arrival.fail({ code: problem })
  }

  #proceed(arrival: Arrival, sender: Sender): void {
    const { connection, response } = arrival
    const admission = this.#admit(arrival, sender)
    if (this.#isEnding) response.keepsAlive = false
    if (admission.verdict !== 'admitted') {
      // On its next connection, the client may have a better certificate, or the proxy the CA.
      if (connection.certificate?.problem !== undefined) response.keepsAlive = false
      if (admission.verdict === 'unverified') this.#verify(arrival, admission.token)
      else arrival.fail(admission)
      return
    }
    arrival.usage = admission.caller?.usage
    if (arrival.usage !== undefined) arrival.usage.inFlight++
    const exchange = new Exchange(this.#gateway, admission, arrival)
    connection.current = exchange
    exchange.start()
  }

  /** `requestsInFlight` counts this request already. */
  #admit({ connection, message, rules }: Arrival, sender: Sender): Admission {
    if (!connection.isLocal && !this.#options.allowsRemote) return { verdict: 'refused', code: 'remote_refused' }
    const admission = admit(message, rules, this.#options.newRequestId, sender)
    if (admission.verdict !== 'admitted') return admission
    const { orgId, caller } = admission
    if (this.#isDraining) return { verdict: 'refused', code: 'draining', orgId, caller }
    const limit = this.#limitReached(caller)
    return limit === undefined ? admission : { verdict: 'refused', code: 'overloaded', orgId, caller, limit }
  }

  #limitReached(caller: Caller | undefined): Failure['limit'] {
    if (this.requestsInFlight - this.#verifying.size > this.#options.maxInFlight) return 'listen.maxInFlight'
    return caller?.hasRoom === false ? 'callers[].maxInFlight' : undefined
  }

  /** Verifies a JWT that is not known yet, then goes on under the rules that the request began with. */
  #verify(arrival: Arrival, token: string): void {
    const { connection, rules } = arrival
    this.#verifying.add(arrival)
    connection.current = arrival
    const goOn = (verified: Caller | CallerRefusal) => {
      if (!this.#verifying.delete(arrival)) return
      const { callerSocket } = connection
      this.#proceed(arrival, { callerSocket, verified })
    }
    const verifying = rules.callers?.verify(token) ?? Promise.resolve('unknown key' as const)
    verifying.then(goOn, () => goOn('malformed token'))
  }

  #upgrade(server: Server | TlsServer, message: IncomingMessage, socket: Duplex, firstBytes: Buffer): void {
    const connection = this.#connections.get(socket)
    if (!offersWebSocket(message)) {
      connection?.ignoreOffer(server, message, firstBytes)
      return
    }
    if (firstBytes.length > 0) socket.unshift(firstBytes) // they belong to the tunnel
    connection?.takeLast(message)
  }

  #inputBroken(error: Error, socket: Duplex): void {
    const connection = this.#connections.get(socket)
    const code = 'code' in error ? error.code : undefined
    if (connection === undefined || typeof code !== 'string' || !code.startsWith('HPE_')) socket.destroy()
    // No request is taken any more.
    else if (code === 'HPE_PAUSED') discardInput(connection.socket)
    else if (code === 'HPE_HEADER_OVERFLOW') connection.inputBroken('request_head_too_large')
    else connection.inputBroken('request_invalid')
  }

  // One function for all requests: a closure for each would be garbage.
  readonly #requestEnded = (arrival: Arrival): void => {
    this.requestsInFlight--
    this.#verifying.delete(arrival)
    if (arrival.usage !== undefined) arrival.usage.inFlight--
  }

  /** From now on, each response says that its connection closes, so that clients open their next one elsewhere. */
  announceEnd(): void {
    this.#isEnding = true
    for (const connection of this.#connections.values()) connection.announceEnd()
  }

  #stopListening(): void {
    this.#bound?.close()
    for (const bound of this.#callerSockets.values()) bound.close()
  }

  /** Stops listening. Resolves when every connection has finished its current request. */
  async drain(): Promise<void> {
    this.announceEnd()
    this.#stopListening()
    // Takes the requests that have arrived, but were not read yet.
    await nextTurn()
    await nextTurn()
    this.#isDraining = true
    for (const socket of this.#handshakes) socket.destroy()
    this.#finish(() => true)
    if (this.#connections.size === 0) return
    await new Promise<void>((resolve) => {
      this.#onEmpty = resolve
    })
  }

  /** Breaks off what is left. Returns the number of connections that were busy. */
  close(): number {
    clearInterval(this.#sweep)
    this.#stopListening()
    for (const socket of this.#handshakes) socket.destroy()
    const connections = [...this.#connections.values()]
    const broken = connections.filter(({ isBusy }) => isBusy).length
    for (const connection of connections) connection.breakOff()
    return broken
  }
}

/** Node's HTTP server, as strict as it can be. We give the answers that Node would give by itself, and watch its clients. */
const HTTP: ServerOptions = {
  insecureHTTPParser: false,
  requireHostHeader: false, // answered by admission, in our own form
  maxHeaderSize: 16 * 1024, // request line and fields together
  headersTimeout: 0,
  requestTimeout: 0,
  keepAliveTimeout: 0, // would arm and clear a timer for each request
  highWaterMark: 64 * 1024,
  noDelay: true,
}
