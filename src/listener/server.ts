/** The proxy's listener: sockets, limits and time limits of clients. Gives requests to a handler. */

import { createServer, type Server, type Socket } from 'node:net'
import type { Caller } from '../callers/callers.ts'
import * as clock from '../clock.ts'
import { type Bound, bind, type ListenAddress, locationOfPeer } from './bind.ts'
import { ClientConnection, type ConnectionOwner, type ConnectionSource, type WaitLimits } from './client-connection.ts'
import { LastWrites } from './client-response.ts'
import { ConnectionLimit } from './connection-limit.ts'
import type { RequestHandler } from './request-handler.ts'
import { type HandshakeFailure, ListenerTls, type TlsSettings } from './tls.ts'

export interface ListenerObserver {
  /** The first refusal after a pause of ten seconds. */
  connectionsRefused(limit: ConnectionLimit): void
  handshakeFailed(failure: HandshakeFailure): void
  /** A fault of this program. */
  programFailed(fault: unknown): void
}

export interface ListenerOptions extends WaitLimits {
  /** `off`: only the sockets of callers. */
  readonly address: ListenAddress | 'off'
  readonly socketMode: number
  /** Listening sockets to use instead of binding `address`. */
  readonly inheritedSockets?: readonly number[] | undefined
  readonly allowRemote: boolean
  /** The sockets of callers are never under TLS. */
  readonly tls: TlsSettings
  readonly maxConnections: number
  /** Of a request: its head, and its trailers. */
  readonly maxHeadSizeBytes: number
  /** Descriptors that other connections may need: those to the service and the endpoint, and those of another listener. */
  readonly otherDescriptors: number
  /** How many this instance may use. By default, all of the process. */
  readonly descriptors?: number | undefined
  /** WebSockets that are open to the service. */
  readonly tunnels: () => number
  readonly observer: ListenerObserver
}

/** A client that has connected so lately is about to send a request. */
const ARRIVAL_MS = 1_000

export class Listener implements ConnectionOwner {
  readonly options: ListenerOptions
  readonly handler: RequestHandler
  readonly lastWrites = new LastWrites()
  readonly #connections = new Map<Socket, ClientConnection>()
  readonly tls: ListenerTls | undefined
  /** The sockets of callers by path, and the common address under `undefined`. */
  readonly #bound = new Map<string | undefined, Bound>()
  #sweep: clock.Timer | undefined
  readonly limit: ConnectionLimit
  /** Each response closes its connection. */
  isEnding = false

  constructor(options: ListenerOptions, handler: RequestHandler) {
    this.options = options
    this.handler = handler
    if (options.tls.certFile !== undefined) {
      this.tls = new ListenerTls(options.tls, options.headersTimeoutMs, options.maxConnections, {
        opened: (socket, carrier, certificate) =>
          this.#open(socket, { isLocal: locationOfPeer(carrier, 'tcp') === 'here', certificate, carrier }),
        handshakeFailed: (failure) => options.observer.handshakeFailed(failure),
      })
    }
    this.limit = new ConnectionLimit(
      options.maxConnections,
      options.otherDescriptors,
      options.tunnels,
      options.descriptors,
    )
  }

  programFailed(fault: unknown): void {
    this.options.observer.programFailed(fault)
  }

  /** Resolves with the address as it stands in a URL, or `off`. */
  async listen(): Promise<string> {
    const { address, socketMode, inheritedSockets } = this.options
    const bound =
      address === 'off' ? undefined : await bind(address, () => this.#newServer(), socketMode, inheritedSockets)
    if (bound !== undefined) this.#bound.set(undefined, bound)
    const { headersTimeoutMs, idleTimeoutMs, keepAliveTimeoutMs } = this.options
    const least = Math.min(headersTimeoutMs, idleTimeoutMs, keepAliveTimeoutMs)
    const check = () => {
      const now = clock.runningTime()
      for (const connection of this.#connections.values()) connection.check(now)
    }
    this.#sweep = clock.every(Math.min(1_000, Math.max(20, least / 4)), check)
    return bound?.address ?? 'off'
  }

  /**
   * Prepares a reload: opens the sockets of these callers that are not open yet. Resolves with a function that puts everything in
   * use, and cannot fail: other sockets of callers are closed, and so are connections of a client CA that is gone, when their
   * current request has finished; or, unless it `isTaken`, closes what was opened. @throws The system's error, or if the certificates do not fit; then nothing has changed.
   */
  async prepare(callerSockets: readonly string[], tls: TlsSettings): Promise<(isTaken?: boolean) => void> {
    const useTls = this.tls?.prepare(tls)
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
    return (isTaken = true) => {
      if (!isTaken) {
        for (const bound of opened.values()) bound.close()
        return
      }
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
    const { address } = this.options
    const isOnSocket = callerSocket !== undefined || (address !== 'off' && address.kind === 'unix')
    return createServer(SOCKETS, (socket) => {
      const location = locationOfPeer(socket, isOnSocket ? 'unix' : 'tcp')
      const isLocal = location === 'here'
      if (location === 'unknown' || !this.#hasRoom(isLocal)) {
        socket.destroy()
      } else if (isOnSocket || this.tls === undefined) {
        this.#open(socket, { isLocal, isOnSocket, callerSocket, carrier: socket })
      } else {
        this.tls.begin(socket)
      }
    })
  }

  #open(accepted: Socket, source: ConnectionSource): void {
    const connection = new ClientConnection(accepted, this, source)
    const { socket } = connection
    this.#connections.set(socket, connection)
    socket.once('close', () => this.#connections.delete(socket))
  }

  get connections(): number {
    return this.#connections.size
  }

  /** Makes room for one more connection if it can. */
  #hasRoom(isLocal: boolean): boolean {
    if (this.#connections.size + (this.tls?.handshakes ?? 0) < this.limit.most) return true
    if (this.limit.refuse()) this.options.observer.connectionsRefused(this.limit)
    return (this.options.allowRemote || isLocal) && this.#makeRoom()
  }

  /**
   * Ends a connection that has not proved yet who it is, or else the one that has been idle for longest. Strangers that open
   * connections and send nothing must not take the places of callers, which keep theirs for later.
   */
  #makeRoom(): boolean {
    if (this.tls?.dropOldest() === true) return true
    const victim = this.#oldestStranger() ?? this.#longestIdle()
    if (victim === undefined) return false
    victim.makeRoom()
    this.#connections.delete(victim.socket)
    return true
  }

  /** Anyone can send a JWT that has to be verified, so such requests take no place from callers that are known. */
  #oldestStranger(): ClientConnection | undefined {
    for (const connection of this.#connections.values()) if (connection.awaitsProof) return connection
    return undefined
  }

  #longestIdle(): ClientConnection | undefined {
    let oldest: ClientConnection | undefined
    for (const connection of this.#connections.values()) {
      if (connection.isBusy || connection.socket.destroyed) continue
      const goesFirst = connection.wasAdmitted === oldest?.wasAdmitted && connection.idleSince < oldest.idleSince
      if (oldest === undefined || goesFirst || (oldest.wasAdmitted && !connection.wasAdmitted)) oldest = connection
    }
    return oldest
  }

  /** From now on, each response says that its connection closes, so that clients open their next one elsewhere. */
  announceEnd(): void {
    this.isEnding = true
  }

  /** Stops listening. Resolves when every connection has finished its current request. */
  async drain(): Promise<void> {
    this.announceEnd()
    for (const bound of this.#bound.values()) bound.close()
    // Takes the requests that have arrived, but were not read yet.
    for (let turns = 0; turns < 2; turns++) await new Promise((resolve) => setImmediate(resolve))
    const until = clock.runningTime() + ARRIVAL_MS
    while (clock.runningTime() < until && this.#hasArrivals()) await clock.sleep(5)
    this.handler.drain()
    this.tls?.endHandshakes()
    this.#finish(() => true)
    const sockets = [...this.#connections.keys()]
    await Promise.all(sockets.map((socket) => new Promise((resolve) => socket.once('close', resolve))))
  }

  #hasArrivals(): boolean {
    const since = clock.runningTime() - ARRIVAL_MS
    const isArriving = ({ socket, idleSince }: ClientConnection) => socket.bytesRead === 0 && idleSince > since
    return (this.tls?.handshakes ?? 0) > 0 || [...this.#connections.values()].some(isArriving)
  }

  /** Breaks off what is left. Returns the number of connections that were busy. */
  close(): number {
    this.#sweep?.cancel()
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
