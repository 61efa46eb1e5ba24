/** The proxy's listener: sockets, limits and timeouts. Takes requests from Node's parser and gives them to the gateway. */

import { createServer, type IncomingMessage, type Server, type ServerOptions, type ServerResponse } from 'node:http'
import { createServer as createTlsServer, Server as TlsServer } from 'node:https'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import type { Duplex } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { TLSSocket } from 'node:tls'
import type { Caller, CallerRefusal } from '../callers/callers.ts'
import type { Failure } from '../errors.ts'
import type { Gateway } from '../gateway/handler.ts'
import { carrierOf, isParserStopped, keepConnections, parse } from '../http/node-internals.ts'
import type { GatewayObserver } from '../http/request-record.ts'
import { type Admission, type AdmissionRules, admit, offersWebSocket, type Sender } from './admission.ts'
import { type Bound, bind, isLocalPeer, type ListenAddress } from './bind.ts'
import { type Carried, ClientConnection, type ConnectionOwner } from './connection.ts'
import { ConnectionLimit, type ConnectionLimitObserver } from './connection-limit.ts'
import { type Arrival, inputProblem, OwnAnswers } from './own-answers.ts'
import {
  type ClientCertificate,
  HandshakeFailures,
  type HandshakeObserver,
  ListenerTls,
  type TlsMaterial,
} from './tls.ts'

export interface ListenerOptions {
  /** For a whole request head. */
  readonly headersTimeoutMs: number
  /** For an idle connection. */
  readonly keepAliveTimeoutMs: number
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
  /** For a client that falls silent inside a request's content, or takes none of its response. */
  readonly idleTimeoutMs: number
  /** Called once for each request. A reload gives later requests other rules. */
  readonly rules: () => AdmissionRules
  readonly newRequestId: () => string
  readonly observer: GatewayObserver & ConnectionLimitObserver & HandshakeObserver
}

/** Request line and fields together. */
const MAX_HEAD_BYTES = 16 * 1024

const FOREIGN: Admission = { isAdmitted: false, code: 'remote_refused' }

export class Listener implements ConnectionOwner {
  readonly #options: ListenerOptions
  readonly #gateway: Gateway
  readonly #answers: OwnAnswers
  readonly #connections = new Map<Duplex, ClientConnection>()
  readonly tls: ListenerTls | undefined
  /** TCP connections whose TLS handshake goes on, the oldest first. */
  readonly #handshakes = new Set<Socket>()
  readonly #handshakeFailures: HandshakeFailures
  #bound: Bound | undefined
  /** The sockets of callers, by path. */
  readonly #callerSockets = new Map<string, Bound>()
  #sweep: NodeJS.Timeout | undefined
  readonly limit: ConnectionLimit
  /** Every response is the last one of its connection. */
  #isEnding = false
  #isDraining = false
  #onEmpty: (() => void) | undefined
  #inFlight = 0
  /**
   * The requests in flight whose JWT is being verified, the oldest first. Anyone can send such a JWT, so they take no place
   * from callers that are known, and give up their own first.
   */
  readonly #verifying = new Map<PendingVerification, ClientConnection>()

  constructor(options: ListenerOptions, gateway: Gateway) {
    this.#options = options
    this.#gateway = gateway
    this.#answers = new OwnAnswers(options)
    this.tls = options.tls === undefined ? undefined : new ListenerTls(options.tls)
    this.#handshakeFailures = new HandshakeFailures(options.observer)
    this.limit = new ConnectionLimit(options.maxConnections, options.maxOutgoing, options.observer)
  }

  get requestsInFlight(): number {
    return this.#inFlight
  }

  /** Resolves with the address as it stands in a URL. */
  async listen(): Promise<string> {
    const { address, socketMode, inheritedSockets, idleTimeoutMs, keepAliveTimeoutMs } = this.#options
    this.#bound = await bind(address, () => this.#newServer(), socketMode, inheritedSockets)
    const intervalMs = Math.min(1_000, Math.max(20, Math.min(idleTimeoutMs, keepAliveTimeoutMs) / 4))
    this.#sweep = setInterval(() => this.#check(), intervalMs).unref()
    return this.#bound.address
  }

  /** Opens the sockets of callers that are not open yet: all of them, or none. @throws The system's error. */
  async openCallerSockets(paths: readonly string[]): Promise<void> {
    const opened: string[] = []
    try {
      for (const path of paths) {
        if (this.#callerSockets.has(path)) continue
        const address: ListenAddress = { kind: 'unix', path }
        this.#callerSockets.set(path, await bind(address, () => this.#newServer(path), this.#options.socketMode))
        opened.push(path)
      }
    } catch (error) {
      for (const path of opened) this.#closeCallerSocket(path)
      throw error
    }
  }

  /** Takes over other certificates. If a CA of clients is gone, connections with a client certificate end. @throws if they do not fit. */
  useTls(material: TlsMaterial): void {
    if (this.tls?.use(material) !== true) return
    for (const socket of this.#handshakes) socket.destroy()
    const headUntil = performance.now() + this.#options.headersTimeoutMs
    for (const connection of this.#connections.values()) if (connection.hasCertificate) connection.finish(headUntil)
  }

  /** Closes all other sockets of callers. Their connections finish their current request. */
  keepCallerSockets(paths: readonly string[]): void {
    for (const path of this.#callerSockets.keys()) if (!paths.includes(path)) this.#closeCallerSocket(path)
  }

  #closeCallerSocket(path: string): void {
    this.#callerSockets.get(path)?.close()
    this.#callerSockets.delete(path)
    const headUntil = performance.now() + this.#options.headersTimeoutMs
    for (const connection of this.#connections.values())
      if (connection.callerSocket === path) connection.finish(headUntil)
  }

  #stopListening(): void {
    this.#bound?.close()
    for (const bound of this.#callerSockets.values()) bound.close()
  }

  #newServer(callerSocket?: string): Server | TlsServer {
    const tls = callerSocket === undefined ? this.tls : undefined
    const server = newHttpServer(this.#options.headersTimeoutMs, tls)
    const receive = (message: IncomingMessage, response: ServerResponse) => this.#receive(message, response)
    server.on('request', receive)
    server.on('checkContinue', receive)
    server.on('checkExpectation', receive)
    if (tls === undefined) server.on('connection', (socket) => this.#accept(socket, callerSocket))
    else {
      server.on('connection', (socket: Socket) => this.#awaitHandshake(socket))
      server.on('tlsClientError', (error) => this.#handshakeFailures.add(error, performance.now()))
      server.on('secureConnection', (socket: TLSSocket) => this.#accept(socket, undefined, tls.certificateOf(socket)))
    }
    server.on('upgrade', (message, socket, firstBytes) => this.#upgrade(server, message, socket, firstBytes))
    server.on('connect', (message, socket) => this.#refuseConnect(message, socket))
    server.on('clientError', (error, socket) => this.#inputBroken(error, socket))
    return server
  }

  #awaitHandshake(socket: Socket): void {
    if (!this.#hasRoomFor(socket)) return
    this.#handshakes.add(socket)
    socket.once('close', () => this.#handshakes.delete(socket))
  }

  #accept(socket: Socket, callerSocket: string | undefined, certificate?: ClientCertificate | string): void {
    const known = this.#connections.get(socket)
    if (known !== undefined) {
      known.parserAttached()
      return
    }
    // As on a plain connection: a tunnel may end one side first. During its handshake, a connection that ends one side is over.
    const carrier = carrierOf(socket)
    socket.allowHalfOpen = true
    carrier.allowHalfOpen = true
    // A connection under TLS has its place since before its handshake.
    const hasPlace = this.#handshakes.delete(carrier)
    if (!hasPlace && !this.#hasRoomFor(socket)) return
    const connection = new ClientConnection(socket, this, {
      isForeign: this.#isForeign(socket),
      callerSocket,
      certificate,
    })
    this.#connections.set(socket, connection)
    socket.once('close', () => this.#forget(socket))
  }

  #isForeign(socket: Socket): boolean {
    return !this.#options.allowsRemote && !isLocalPeer(socket)
  }

  /** Destroys `socket` if there is no room. */
  #hasRoomFor(socket: Socket): boolean {
    const isFull = this.#connections.size + this.#handshakes.size >= this.limit.most
    const isRefused = isFull && (this.#isForeign(socket) || !this.#makeRoom())
    if (isRefused) this.limit.refuse(performance.now())
    if (isRefused || this.#isDraining) socket.destroy()
    return !isRefused && !this.#isDraining
  }

  #forget(socket: Duplex): void {
    this.#connections.delete(socket)
    if (this.#connections.size === 0) this.#onEmpty?.()
  }

  /** Ends a connection that has not proved yet who it is, or else the one that has been idle for longest. */
  #makeRoom(): boolean {
    for (const socket of this.#handshakes) {
      this.limit.refuse(performance.now())
      this.#handshakes.delete(socket)
      socket.destroy()
      return true
    }
    for (const [verification, connection] of this.#verifying) {
      this.limit.refuse(performance.now())
      verification.fail({ code: 'overloaded', limit: 'listen.maxConnections' })
      this.#drop(connection)
      return true
    }
    let oldest: ClientConnection | undefined
    for (const connection of this.#connections.values()) {
      if (connection.isBusy || connection.socket.destroyed) continue
      if (oldest === undefined || connection.idleSince < oldest.idleSince) oldest = connection
    }
    if (oldest === undefined) return false
    this.limit.refuse(performance.now())
    this.#drop(oldest)
    return true
  }

  #drop({ socket }: ClientConnection): void {
    socket.destroy()
    this.#connections.delete(socket)
  }

  #receive(message: IncomingMessage, response: ServerResponse): void {
    this.#connections.get(message.socket)?.take(message, response)
  }

  begin(connection: ClientConnection, message: IncomingMessage, response: ServerResponse): void {
    this.#inFlight++
    const startedAt = performance.now()
    this.#proceed({ connection, message, response, startedAt, rules: this.#options.rules() }, connection)
  }

  #proceed(arrival: Arrival, sender: Sender): void {
    const { connection, response } = arrival
    const admission = this.#admit(arrival, sender)
    if (this.#isEnding) response.shouldKeepAlive = false
    if (!admission.isAdmitted) {
      // On its next connection, the client may have a better certificate, or the proxy the CA.
      if (connection.certificateProblem !== undefined) response.shouldKeepAlive = false
      if ('token' in admission) this.#verify(arrival, admission.token)
      else this.#answers.refuse(arrival, admission)
      return
    }
    if (admission.caller !== undefined) connection.countFor(admission.caller.usage)
    const exchange = this.#gateway.handle(admission, arrival)
    if (!exchange.isOver) connection.carry(exchange)
  }

  /** `#inFlight` counts this request already. */
  #admit({ connection, message, rules }: Arrival, sender: Sender): Admission {
    if (connection.isForeign) return FOREIGN
    const admission = admit(message, rules, this.#options.newRequestId, sender)
    if (!admission.isAdmitted) return admission
    const { orgId, caller } = admission
    if (this.#isDraining) return { isAdmitted: false, code: 'draining', orgId, caller }
    const limit = this.#limitReached(caller)
    return limit === undefined ? admission : { isAdmitted: false, code: 'overloaded', orgId, caller, limit }
  }

  #limitReached(caller: Caller | undefined): Failure['limit'] {
    if (this.#inFlight - this.#verifying.size > this.#options.maxInFlight) return 'listen.maxInFlight'
    return caller?.hasRoom === false ? 'callers[].maxInFlight' : undefined
  }

  /** Verifies a JWT that is not known yet, then goes on under the rules that the request began with. */
  #verify(arrival: Arrival, token: string): void {
    const { connection, rules } = arrival
    const verification = new PendingVerification((failure) => {
      if (this.#verifying.delete(verification)) this.#answers.abandon(arrival, failure)
    })
    this.#verifying.set(verification, connection)
    connection.carry(verification)
    const goOn = (verified: Caller | CallerRefusal) => {
      if (!this.#verifying.delete(verification)) return
      const { callerSocket } = connection
      this.#proceed(arrival, { callerSocket, verified })
    }
    const verifying = rules.callers?.verify(token) ?? Promise.resolve('unknown key' as const)
    verifying.then(goOn, () => goOn('malformed token'))
  }

  #upgrade(server: Server | TlsServer, message: IncomingMessage, socket: Duplex, firstBytes: Buffer): void {
    const connection = this.#connections.get(socket)
    if (connection === undefined) {
      socket.destroy()
      return
    }
    if (!offersWebSocket(message)) {
      connection.leaveHttp(() => ignoreOffer(server, connection, message, firstBytes))
      return
    }
    if (firstBytes.length > 0) socket.unshift(firstBytes) // they belong to the tunnel
    connection.takeHandshake(message)
  }

  #refuseConnect(message: IncomingMessage, socket: Duplex): void {
    const connection = this.#connections.get(socket)
    if (connection === undefined) socket.destroy()
    else connection.leaveHttp(() => this.#answers.refuseConnect(connection, message))
  }

  #inputBroken(error: Error, socket: Duplex): void {
    const connection = this.#connections.get(socket)
    if (isParserStopped(error)) {
      connection?.inputStopped()
      return
    }
    const code = inputProblem(error)
    // Clients open connections before they need them. One that was never used gets no answer and no log line.
    const isUnused = connection?.socket.bytesRead === 0
    if (connection === undefined || code === undefined || isUnused || !socket.writable) socket.destroy()
    else if (connection.inputBroken({ code }) === 'unanswered') this.#answers.refuseInput(connection, code, error)
  }

  exchangeEnded(): void {
    this.#inFlight--
  }

  #check(): void {
    const now = performance.now()
    const { idleTimeoutMs, keepAliveTimeoutMs } = this.#options
    for (const connection of this.#connections.values()) connection.check(now, idleTimeoutMs, keepAliveTimeoutMs)
    this.limit.check(now)
  }

  /** From now on, each response says that its connection closes, so that clients open their next one elsewhere. */
  announceEnd(): void {
    this.#isEnding = true
    for (const connection of this.#connections.values()) connection.announceEnd()
  }

  /** Stops listening. Resolves when every connection has finished its current request. */
  async drain(): Promise<void> {
    this.announceEnd()
    this.#stopListening()
    // Takes the requests that have arrived, but were not read yet.
    await nextTurn()
    await nextTurn()
    this.#isDraining = true
    const headUntil = performance.now() + this.#options.headersTimeoutMs
    for (const socket of this.#handshakes) socket.destroy()
    for (const connection of this.#connections.values()) connection.finish(headUntil)
    if (this.#connections.size === 0) return
    await new Promise<void>((resolve) => {
      this.#onEmpty = resolve
    })
  }

  /** Breaks off what is left. Returns the number of connections that were busy. */
  close(): number {
    clearInterval(this.#sweep)
    let broken = 0
    this.#stopListening()
    for (const socket of this.#handshakes) socket.destroy()
    for (const connection of this.#connections.values()) {
      if (connection.isBusy) broken++
      connection.breakOff()
    }
    return broken
  }
}

/** Takes the place of an exchange while the JWT of a request is verified. */
class PendingVerification implements Carried {
  readonly awaitsClient = false
  readonly #onFailure: (failure: Failure | 'client_closed') => void

  constructor(onFailure: (failure: Failure | 'client_closed') => void) {
    this.#onFailure = onFailure
  }

  fail(failure: Failure): void {
    this.#onFailure(failure)
  }

  clientGone(): void {
    this.#onFailure('client_closed')
  }

  stopped(): void {
    this.#onFailure('client_closed')
  }
}

/** Node's HTTP server, as strict as it can be. We give the answers that Node would give by itself. */
function newHttpServer(headersTimeoutMs: number, tls: ListenerTls | undefined): Server | TlsServer {
  const options: ServerOptions = {
    insecureHTTPParser: false,
    requireHostHeader: false, // answered by admission, in our own form
    maxHeaderSize: MAX_HEAD_BYTES,
    headersTimeout: headersTimeoutMs,
    requestTimeout: 0, // a slow but moving upload of any size goes through
    connectionsCheckingInterval: Math.floor(Math.min(1_000, Math.max(20, headersTimeoutMs / 4))),
    keepAliveTimeout: 0, // would arm and clear a timer for each request; our sweep sees idle connections too
    highWaterMark: 64 * 1024,
    noDelay: true,
  }
  const server =
    tls === undefined ? createServer(options) : createTlsServer({ ...options, ...tls.serverOptions(headersTimeoutMs) })
  if (server instanceof TlsServer) tls?.add(server)
  // Node drops fields beyond a count in silence, perhaps a Content-Length among them. The size limit decides instead.
  server.maxHeadersCount = 0
  return keepConnections(server)
}

/**
 * Ignores the offer of a protocol other than WebSocket, which Java's HttpClient makes with every request (`Upgrade: h2c`). Node
 * has given the connection away and its parser has lost its place, so the connection goes back to the server like a new one,
 * and the request is parsed again without the field. Nothing that followed it is lost (RFC 9110 §7.8).
 */
function ignoreOffer(
  server: Server | TlsServer,
  connection: ClientConnection,
  message: IncomingMessage,
  firstBytes: Buffer,
): void {
  const { method, url, httpVersion, rawHeaders } = message
  let text = `${method} ${url} HTTP/${httpVersion}\r\n`
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    if (rawHeaders[i]?.toLowerCase() !== 'upgrade') text += `${rawHeaders[i]}: ${rawHeaders[i + 1]}\r\n`
  }
  const head = Buffer.from(`${text}\r\n`, 'latin1')
  connection.returnToHttp(() => {
    server.emit('encrypted' in connection.socket ? 'secureConnection' : 'connection', connection.socket)
    parse(connection.socket, Buffer.concat([head, firstBytes]))
  })
}
