/** The proxy's listener: sockets, limits, timeouts, and the way from a parsed head to the gateway. */

import { type IncomingMessage, type Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import type { Duplex } from 'node:stream'
import type { Gateway } from '../gateway/handler.ts'
import { letPageRead } from '../gateway/problem-response.ts'
import type { GatewayObserver } from '../gateway/request-record.ts'
import { type Admission, type AdmissionOptions, admit } from './admission.ts'
import { type Bound, bind, type ListenAddress } from './bind.ts'
import { Connection, type ConnectionHost } from './connection.ts'
import { type HttpServerLimits, newHttpServer } from './http-server.ts'
import { isLocalPeer } from './local-peer.ts'
import { OwnAnswers } from './own-answers.ts'
import { readComplaint } from './parser-complaint.ts'
import { SendQueues } from './send-queues.ts'

export interface ListenerOptions extends HttpServerLimits {
  /** An idle connection. */
  readonly keepAliveTimeoutMs: number
  readonly address: ListenAddress
  readonly socketMode: number
  readonly allowsRemote: boolean
  readonly maxConnections: number
  readonly maxInFlight: number
  /** Silence of the client inside a request's content, or while it takes none of its response. */
  readonly idleTimeoutMs: number
  readonly admission: AdmissionOptions
  readonly observer: GatewayObserver
}

const FOREIGN: Admission = { isAdmitted: false, code: 'remote_refused' }

export class Listener implements ConnectionHost {
  readonly #options: ListenerOptions
  readonly #gateway: Gateway
  readonly #answers: OwnAnswers
  readonly #connections = new Map<Duplex, Connection>()
  readonly sendQueues = new SendQueues()
  #bound: Bound<Server> | undefined
  #sweep: NodeJS.Timeout | undefined
  #isDraining = false
  #onEmpty: (() => void) | undefined
  #inFlight = 0

  constructor(options: ListenerOptions, gateway: Gateway) {
    this.#options = options
    this.#gateway = gateway
    this.#answers = new OwnAnswers({ newRequestId: options.admission.newRequestId, observer: options.observer })
  }

  get requestsInFlight(): number {
    return this.#inFlight
  }

  get connections(): number {
    return this.#connections.size
  }

  /** Resolves with the address as it stands in a URL. */
  async listen(): Promise<string> {
    const { address, socketMode, idleTimeoutMs, keepAliveTimeoutMs } = this.#options
    this.#bound = await bind(address, () => this.#newServer(), socketMode)
    const intervalMs = Math.min(1_000, Math.max(20, Math.min(idleTimeoutMs, keepAliveTimeoutMs) / 4))
    this.#sweep = setInterval(() => this.#check(), intervalMs).unref()
    return this.#bound.address
  }

  #newServer(): Server {
    const server = newHttpServer(this.#options)
    const receive = (message: IncomingMessage, response: ServerResponse) => this.#receive(message, response)
    server.on('request', receive)
    server.on('checkContinue', receive)
    server.on('checkExpectation', receive)
    server.on('connection', (socket) => this.#accept(socket))
    server.on('upgrade', (message, socket, firstBytes) => this.#upgrade(message, socket, firstBytes))
    server.on('connect', (message, socket) => this.#refuseConnect(message, socket))
    server.on('clientError', (error, socket) => this.#inputBroken(error, socket))
    return server
  }

  #accept(socket: Socket): void {
    if (this.#isDraining) {
      socket.destroy()
      return
    }
    const isForeign = !this.#options.allowsRemote && !isLocalPeer(socket)
    if (this.#connections.size >= this.#options.maxConnections && (isForeign || !this.#dropOldestIdle())) {
      socket.destroy()
      return
    }
    const connection = new Connection(socket, this, performance.now())
    connection.isForeign = isForeign
    this.#connections.set(socket, connection)
    socket.once('close', () => this.#forget(socket))
  }

  #forget(socket: Duplex): void {
    this.#connections.delete(socket)
    if (this.#connections.size === 0) this.#onEmpty?.()
  }

  #dropOldestIdle(): boolean {
    let oldest: Connection | undefined
    for (const connection of this.#connections.values()) {
      if (connection.isBusy || connection.socket.destroyed) continue
      if (oldest === undefined || connection.idleSince < oldest.idleSince) oldest = connection
    }
    oldest?.socket.destroy()
    if (oldest !== undefined) this.#connections.delete(oldest.socket)
    return oldest !== undefined
  }

  #receive(message: IncomingMessage, response: ServerResponse): void {
    this.#connections.get(message.socket)?.take(message, response)
  }

  begin(connection: Connection, message: IncomingMessage, response: ServerResponse): void {
    const startedAt = performance.now()
    this.#inFlight++
    const admission = this.#admit(connection, message)
    if (this.#isDraining) response.shouldKeepAlive = false
    if (this.#options.admission.browserOrigins.length > 0) this.#openToPage(message, response)
    if (!admission.isAdmitted) {
      this.#answers.decline(connection, message, response, admission, startedAt)
      return
    }
    const exchange = this.#gateway.handle(admission, message, response, connection, startedAt)
    if (!exchange.isOver) connection.carry(exchange)
  }

  /** Steps 1 to 9. The request at hand is counted already. */
  #admit(connection: Connection, message: IncomingMessage): Admission {
    if (connection.isForeign) return FOREIGN
    const admission = admit(message, this.#options.admission)
    if (!admission.isAdmitted) return admission
    const { orgId } = admission
    if (this.#isDraining) return { isAdmitted: false, code: 'draining', orgId }
    if (this.#inFlight > this.#options.maxInFlight) return { isAdmitted: false, code: 'overloaded', orgId }
    return admission
  }

  /** The scripts of a listed page may read what we answer, as they may read what the service does. */
  #openToPage({ headers: { origin } }: IncomingMessage, response: ServerResponse): void {
    if (origin !== undefined && this.#options.admission.browserOrigins.includes(origin)) letPageRead(response, origin)
  }

  #upgrade(message: IncomingMessage, socket: Duplex, firstBytes: Buffer): void {
    const connection = this.#connections.get(socket)
    if (connection === undefined) socket.destroy()
    else connection.takeOver(() => this.#beginUpgrade(connection, message, firstBytes))
  }

  #beginUpgrade(connection: Connection, message: IncomingMessage, firstBytes: Buffer): void {
    const startedAt = performance.now()
    connection.isClosing = true
    this.#inFlight++
    const admission = this.#admit(connection, message)
    if (!admission.isAdmitted) {
      this.#answers.decline(connection, message, lastResponse(connection, message), admission, startedAt)
      return
    }
    connection.isTunnel = true
    const handshake = this.#gateway.upgrade(admission, message, connection.socket, firstBytes, connection, startedAt)
    if (!handshake.isOver) connection.carry(handshake)
  }

  #refuseConnect(message: IncomingMessage, socket: Duplex): void {
    const connection = this.#connections.get(socket)
    if (connection === undefined) socket.destroy()
    else connection.takeOver(() => this.#answers.refuseConnect(connection, message))
  }

  #inputBroken(error: Error, socket: Duplex): void {
    const connection = this.#connections.get(socket)
    const complaint = readComplaint(error)
    // Opened ahead of need and never used: there is nothing to answer, and nothing to tell.
    const isUnused = connection?.socket.bytesRead === 0
    if (connection === undefined || complaint === undefined || isUnused || !socket.writable) socket.destroy()
    else if (connection.inputBroken(complaint) === 'unanswered') this.#answers.refuseInput(connection, complaint)
  }

  exchangeEnded(connection: Connection): void {
    this.#inFlight--
    connection.idleSince = performance.now()
  }

  #check(): void {
    const now = performance.now()
    const { idleTimeoutMs, keepAliveTimeoutMs } = this.#options
    for (const connection of this.#connections.values()) connection.check(now, idleTimeoutMs, keepAliveTimeoutMs)
  }

  /** Stops listening; resolves when the last connection has finished what it had in hand. */
  async drain(): Promise<void> {
    this.#isDraining = true
    for (const server of this.#bound?.servers ?? []) server.close()
    for (const connection of this.#connections.values()) connection.finish()
    if (this.#connections.size === 0) return
    await new Promise<void>((resolve) => {
      this.#onEmpty = resolve
    })
  }

  /** Breaks off what is left. Returns how many connections that were busy. */
  close(): number {
    clearInterval(this.#sweep)
    let broken = 0
    for (const server of this.#bound?.servers ?? []) server.close()
    for (const connection of this.#connections.values()) {
      if (connection.isBusy) broken++
      connection.socket.destroy()
    }
    return broken
  }
}

/** Node gives an upgraded connection away without a response. */
function lastResponse(connection: Connection, message: IncomingMessage): ServerResponse {
  const response = new ServerResponse(message)
  response.shouldKeepAlive = false
  response.assignSocket(connection.socket)
  response.once('finish', () => connection.linger())
  return response
}
