/** The proxy's listener: sockets, limits and timeouts. Takes requests from Node's parser and gives them to the gateway. */

import { createServer as createParsers, type IncomingMessage, type Server as Parsers } from 'node:http'
import { createServer, type Server, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Caller, CallerRefusal } from '../callers/callers.ts'
import type { Failure, RefusalCode } from '../errors.ts'
import { Exchange, type Gateway } from '../gateway/exchange.ts'
import { gatherFields } from '../http/fields.ts'
import { ignoreOffer } from '../http/node-20.ts'
import { discardInput } from '../http/node-internals.ts'
import type { GatewayObserver } from '../http/request-record.ts'
import { type AdmissionRules, type Admitted, admit, asksForWebSocket } from './admission.ts'
import type { Arrival } from './arrival.ts'
import { type Bound, bind, type ListenAddress, placeOfPeer } from './bind.ts'
import { ClientConnection, type ConnectionOrigin, type WaitLimits } from './connection.ts'
import { ConnectionLimit } from './connection-limit.ts'
import { ListenerTls, type TlsMaterial } from './tls.ts'

export interface ListenerObserver extends GatewayObserver {
  /** The first refusal of an episode. `most`: the connections that are open. */
  connectionsRefused(limit: ConnectionLimit): void
  handshakeFailed(reason: unknown): void
}

export interface ListenerOptions extends WaitLimits {
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
  /** Called once for each request. A reload gives later requests other rules. `isOnSocket`: it came through a unix socket. */
  readonly rules: (isOnSocket: boolean) => AdmissionRules
  readonly newRequestId: () => string
  readonly observer: ListenerObserver
}

export class Listener {
  readonly options: ListenerOptions
  readonly #gateway: Gateway
  readonly #connections = new Map<Duplex, ClientConnection>()
  readonly tls: ListenerTls | undefined
  /** Node's HTTP server. It listens nowhere: connections are given to it, and each gets a parser. */
  readonly #parsers: Parsers
  /** The sockets of callers by path, and the common address under `undefined`. */
  readonly #bound = new Map<string | undefined, Bound>()
  #sweep: NodeJS.Timeout | undefined
  readonly limit: ConnectionLimit
  /** Every response is the last one of its connection. */
  isEnding = false
  #isDraining = false
  /** Monotonic milliseconds: the last request came whose cookies are not sent on. */
  cookieDroppedAt = Number.NEGATIVE_INFINITY
  requestsInFlight = 0
  /**
   * The requests in flight whose JWT is being verified, the oldest first. Anyone can send such a JWT, so they take no place
   * from callers that are known, and give up their own first.
   */
  readonly #verifying = new Set<Arrival>()

  constructor(options: ListenerOptions, gateway: Gateway) {
    this.options = options
    this.#gateway = gateway
    this.#parsers = this.#newParsers()
    // Anyone on the network can make handshakes fail, so this is logged at the level debug.
    this.tls =
      options.tls &&
      new ListenerTls(options.tls, options.headersTimeoutMs, {
        opened: (socket, carrier, certificate) =>
          this.#open(socket, { isLocal: placeOfPeer(carrier, 'tcp') === 'here', certificate, carrier }),
        handshakeFailed: (code) => options.observer.handshakeFailed(code),
      })
    this.limit = new ConnectionLimit(options.maxConnections, options.maxOutgoing, () => gateway.origin.tunnels)
  }

  /** Resolves with the address as it stands in a URL. */
  async listen(): Promise<string> {
    const { address, socketMode, inheritedSockets } = this.options
    const bound = await bind(address, () => this.#newServer(), socketMode, inheritedSockets)
    this.#bound.set(undefined, bound)
    const { headersTimeoutMs, idleTimeoutMs, keepAliveTimeoutMs } = this.options
    const ofService = Math.min(this.#gateway.responseTimeoutMs, this.#gateway.idleTimeoutMs)
    const least = Math.min(headersTimeoutMs, idleTimeoutMs, keepAliveTimeoutMs, ofService)
    const check = () => {
      const now = performance.now()
      for (const connection of this.#connections.values()) connection.check(now, this.options)
    }
    this.#sweep = setInterval(check, Math.min(1_000, Math.max(20, least / 4))).unref()
    return bound.address
  }

  /**
   * Prepares a reload: opens the sockets of these callers that are not open yet. Resolves with a function that puts everything in
   * use, and cannot fail: other sockets of callers are closed, and so are connections of a client CA that is gone, when their
   * current request has finished. @throws The system's error, or if the certificates do not fit; then nothing has changed.
   */
  async prepare(callerSockets: readonly string[], tls?: TlsMaterial): Promise<() => void> {
    const useTls = tls && this.tls?.prepare(tls)
    const opened = new Map<string, Bound>()
    try {
      for (const path of callerSockets) {
        if (this.#bound.has(path)) continue
        opened.set(path, await bind({ kind: 'unix', path }, () => this.#newServer(path), this.options.socketMode))
      }
    } catch (error) {
      for (const bound of opened.values()) bound.close()
      throw error
    }
    return () => {
      for (const [path, bound] of this.#bound) {
        if (path === undefined || callerSockets.includes(path)) continue
        bound.close()
        this.#bound.delete(path)
        this.#finish(({ callerSocket }) => callerSocket === path)
      }
      for (const [path, bound] of opened) this.#bound.set(path, bound)
      if (useTls?.() === true) this.#finish(({ certificate }) => certificate !== undefined)
    }
  }

  /**
   * Ends the tunnels of those whose identity is gone, and their connections behind the current request. Who had none keeps a
   * connection that is idle, because each request is checked anew.
   */
  endLost(isLost: (caller: Caller | undefined) => boolean): void {
    this.#finish(({ wasAdmitted, caller, isBusy }) => wasAdmitted && (isBusy || caller !== undefined) && isLost(caller))
  }

  #finish(isMeant: (connection: ClientConnection) => boolean): void {
    for (const connection of this.#connections.values()) if (isMeant(connection)) connection.finish()
  }

  #newServer(callerSocket?: string): Server {
    const isOnSocket = callerSocket !== undefined || this.options.address.kind === 'unix'
    return createServer(SOCKETS, (socket) => {
      const place = placeOfPeer(socket, isOnSocket ? 'unix' : 'tcp')
      const isLocal = place === 'here'
      if (place === 'unknown' || !this.#hasRoom(isLocal)) {
        socket.destroy()
      } else if (isOnSocket || this.tls === undefined) {
        this.#open(socket, { isLocal, isOnSocket, callerSocket, carrier: socket })
      } else {
        this.tls.begin(socket)
      }
    })
  }

  #open(socket: Socket, origin: ConnectionOrigin): void {
    this.#parsers.emit('connection', socket)
    this.#connections.set(socket, new ClientConnection(socket, this, origin))
    socket.once('close', () => this.#connections.delete(socket))
  }

  /** Makes room for one more connection if it can. */
  #hasRoom(isLocal: boolean): boolean {
    if (this.#connections.size + (this.tls?.handshakes ?? 0) < this.limit.most) return true
    if (this.limit.refuse()) this.options.observer.connectionsRefused(this.limit)
    return (this.options.allowsRemote || isLocal) && this.#makeRoom()
  }

  /**
   * Ends a connection that has not proved yet who it is, or else the one that has been idle for longest. Strangers that open
   * connections and send nothing must not take the places of callers, which keep theirs for later.
   */
  #makeRoom(): boolean {
    if (this.tls?.dropOldest() === true) return true
    const [verifying] = this.#verifying
    verifying?.fail({ code: 'overloaded', limit: 'listen.maxConnections' })
    const victim = verifying?.connection.socket ?? this.#longestIdle()
    if (victim === undefined) return false
    victim.destroy()
    this.#connections.delete(victim)
    return true
  }

  #longestIdle(): Socket | undefined {
    let oldest: ClientConnection | undefined
    for (const connection of this.#connections.values()) {
      if (connection.isBusy || connection.socket.destroyed) continue
      const goesFirst = connection.wasAdmitted === oldest?.wasAdmitted && connection.idleSince < oldest.idleSince
      if (oldest === undefined || goesFirst || (oldest.wasAdmitted && !connection.wasAdmitted)) oldest = connection
    }
    return oldest?.socket
  }

  /** Starts a request. `problem`: the bytes that came are no request, and the message is empty. */
  begin(arrival: Arrival, problem?: RefusalCode): void {
    this.requestsInFlight++
    if (problem === undefined) this.#admit(arrival)
    else arrival.fail({ code: problem })
  }

  /** `verified`: who sent its JWT, or why that names no caller. */
  #admit(arrival: Arrival, verified?: Caller | CallerRefusal): void {
    const { connection, message, rules } = arrival
    if (!connection.origin.isLocal && !this.options.allowsRemote) {
      arrival.fail({ code: 'remote_refused' })
      return
    }
    const admission = admit(message, rules, this.options.newRequestId, connection, verified)
    if (admission.verdict === 'unverified') void this.#verify(arrival, admission.token)
    else if (admission.verdict === 'refused') arrival.fail(admission)
    else this.#start(arrival, admission)
  }

  /** Verifies a JWT that is not known yet, then goes on under the rules that the request began with. */
  async #verify(arrival: Arrival, token: string): Promise<void> {
    this.#verifying.add(arrival)
    arrival.connection.current = arrival
    const verified = await arrival.rules.callers?.verify(token).catch(() => 'malformed token' as const)
    if (!this.#verifying.delete(arrival)) return
    this.#admit(arrival, verified)
    // A reload may have come in between.
    const { connection } = arrival
    const { callers } = this.options.rules(false)
    if (connection.caller !== undefined && callers?.stillKnow(connection.caller) !== true) connection.finish()
  }

  #start(arrival: Arrival, admission: Admitted): void {
    const { orgId, caller } = admission
    const lack = this.#lackOfRoom(caller)
    if (lack !== undefined) {
      arrival.fail({ ...lack, orgId, caller })
      return
    }
    arrival.usage = caller?.usage
    if (arrival.usage !== undefined) arrival.usage.inFlight++
    arrival.connection.wasAdmitted = true
    arrival.connection.caller = caller
    if (admission.dropsCookie) this.cookieDroppedAt = arrival.startedAt
    if (admission.isForProxy) {
      arrival.answerOptions(admission)
      return
    }
    const exchange = new Exchange(this.#gateway, admission, arrival)
    arrival.connection.current = exchange
    exchange.start()
  }

  /** Why an admitted request is not started. `requestsInFlight` counts it already. */
  #lackOfRoom(caller: Caller | undefined): Failure | undefined {
    if (this.#isDraining) return { code: 'draining' }
    const inFlight = this.requestsInFlight - this.#verifying.size
    if (inFlight > this.options.maxInFlight) return { code: 'overloaded', limit: 'listen.maxInFlight' }
    return caller?.hasRoom === false ? { code: 'overloaded', limit: 'callers[].maxInFlight' } : undefined
  }

  #newParsers(): Parsers {
    const parsers = createParsers(HTTP)
    // Node drops fields beyond a count in silence, perhaps a Content-Length among them. The size limit decides instead.
    parsers.maxHeadersCount = 0
    // A connection that has gone back to the server has a new parser. One that is new is not known yet.
    parsers.on('connection', (socket: Socket) => this.#connections.get(socket)?.readRequests())
    parsers.on('upgrade', (message, socket, firstBytes) => this.#upgrade(message, socket, firstBytes))
    parsers.on('connect', (message, socket) => this.#connections.get(socket)?.takeLast(message))
    parsers.on('clientError', (error, socket) => this.#inputBroken(error, socket))
    return parsers
  }

  #upgrade(message: IncomingMessage, socket: Duplex, firstBytes: Buffer): void {
    const connection = this.#connections.get(socket)
    if (!asksForWebSocket(gatherFields(message.rawHeaders))) {
      connection?.inTurn(() => ignoreOffer(this.#parsers, connection.socket, message, firstBytes))
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

  requestEnded(arrival: Arrival): void {
    this.requestsInFlight--
    this.#verifying.delete(arrival)
    if (arrival.usage !== undefined) arrival.usage.inFlight--
  }

  /** From now on, each response says that its connection closes, so that clients open their next one elsewhere. */
  announceEnd(): void {
    this.isEnding = true
    for (const connection of this.#connections.values()) connection.announceEnd()
  }

  /** Stops listening. Resolves when every connection has finished its current request. */
  async drain(): Promise<void> {
    this.announceEnd()
    for (const bound of this.#bound.values()) bound.close()
    // Takes the requests that have arrived, but were not read yet.
    await nextTurn()
    await nextTurn()
    this.#isDraining = true
    this.tls?.endHandshakes()
    this.#finish(() => true)
    const sockets = [...this.#connections.keys()]
    await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('close', resolve))))
  }

  /** Breaks off what is left. Returns the number of connections that were busy. */
  close(): number {
    clearInterval(this.#sweep)
    for (const bound of this.#bound.values()) bound.close()
    this.tls?.close()
    const connections = [...this.#connections.values()]
    const broken = connections.filter(({ isBusy }) => isBusy).length
    for (const connection of connections) connection.breakOff()
    return broken
  }
}

/** A tunnel may end one side first. In all other states, a connection that ends one side is over. */
const SOCKETS = { allowHalfOpen: true, noDelay: true, highWaterMark: 64 * 1024 }

/** Node's HTTP server, as strict as it can be. We give the answers that Node would give by itself, and watch its clients. */
const HTTP = {
  insecureHTTPParser: false,
  requireHostHeader: false, // answered by admission, in our own form
  maxHeaderSize: 16 * 1024, // request line and fields together
  headersTimeout: 0,
  requestTimeout: 0,
  keepAliveTimeout: 0, // would arm and clear a timer for each request
}
