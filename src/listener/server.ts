/** The proxy's listener: sockets, limits, timeouts, and the way from a parsed head to the gateway. */

import { createServer, type IncomingMessage, type Server, type ServerOptions, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import type { Duplex } from 'node:stream'
import type { ErrorCode, Failure } from '../errors.ts'
import type { Gateway } from '../gateway/handler.ts'
import { endWithProblem, respondWithProblem } from '../gateway/problem-response.ts'
import type { GatewayObserver } from '../gateway/request-record.ts'
import type { OrgId } from '../http/org-id.ts'
import { type Admission, type AdmissionOptions, admit } from './admission.ts'
import { type Bound, bind, type ListenAddress } from './bind.ts'
import { Connection, type ConnectionHost } from './connection.ts'
import { isLocalPeer } from './local-peer.ts'
import { ownRecord } from './own-record.ts'
import { isWebSocketHandshake, UpgradableMessage } from './upgradable-message.ts'

export interface ListenerOptions {
  readonly address: ListenAddress
  readonly socketMode: number
  readonly allowsRemote: boolean
  readonly maxConnections: number
  readonly maxInFlight: number
  /** A whole request head. */
  readonly headersTimeoutMs: number
  /** Silence of the client inside a request's content, or while it takes none of its response. */
  readonly idleTimeoutMs: number
  /** An idle connection. */
  readonly keepAliveTimeoutMs: number
  readonly admission: AdmissionOptions
  readonly observer: GatewayObserver
}

/** Request line and fields together. */
const MAX_HEAD_BYTES = 16 * 1024

/** Answered and then closed: what follows on the connection cannot be trusted to be a request. */
const ENDS_CONNECTION: ReadonlySet<ErrorCode> = new Set([
  'remote_refused',
  'request_invalid',
  'http_version_refused',
  'upgrade_invalid',
])

const HEAD = Buffer.from('HEAD ')

const FOREIGN: Admission = { isAdmitted: false, code: 'remote_refused' }

export class Listener implements ConnectionHost {
  readonly #options: ListenerOptions
  readonly #gateway: Gateway
  readonly #connections = new Map<Duplex, Connection>()
  #bound: Bound<Server> | undefined
  #sweep: NodeJS.Timeout | undefined
  #isDraining = false
  #onEmpty: (() => void) | undefined
  #inFlight = 0

  constructor(options: ListenerOptions, gateway: Gateway) {
    this.#options = options
    this.#gateway = gateway
  }

  get requestsInFlight(): number {
    return this.#inFlight
  }

  get connections(): number {
    return this.#connections.size
  }

  /** Resolves with the address as it stands in a URL. */
  async listen(): Promise<string> {
    const { address, socketMode, idleTimeoutMs } = this.#options
    this.#bound = await bind(address, () => this.#newServer(), socketMode)
    const intervalMs = Math.min(1_000, Math.max(20, idleTimeoutMs / 4))
    this.#sweep = setInterval(() => this.#check(), intervalMs).unref()
    return this.#bound.address
  }

  #newServer(): Server {
    const { headersTimeoutMs, keepAliveTimeoutMs } = this.#options
    const options: ServerOptions & { shouldUpgradeCallback: (message: IncomingMessage) => boolean } = {
      IncomingMessage: UpgradableMessage,
      shouldUpgradeCallback: isWebSocketHandshake,
      insecureHTTPParser: false,
      requireHostHeader: false, // answered by admission, in our own form
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: headersTimeoutMs,
      requestTimeout: 0, // a slow but moving upload of any size goes through
      connectionsCheckingInterval: Math.min(1_000, Math.max(20, headersTimeoutMs / 4)),
      keepAliveTimeout: keepAliveTimeoutMs,
      highWaterMark: 64 * 1024,
      noDelay: true,
    }
    const server = createServer(options)
    // Node drops fields beyond a count without a word, a late Content-Length among them: the size limit decides instead.
    server.maxHeadersCount = 0
    // Undocumented, as old as the module: without it the end of a client's input ends our output too.
    Object.assign(server, { httpAllowHalfOpen: true })
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
    const admission = this.#admit(connection, message)
    this.#inFlight++
    if (this.#isDraining) response.shouldKeepAlive = false
    if (!admission.isAdmitted) {
      if ('code' in admission) this.#refuse(connection, message, response, admission, startedAt, admission.orgId)
      else this.#answerPreflight(connection, message, response, admission.preflightOrigin, startedAt)
      return
    }
    const noRoom = this.#roomProblem()
    if (noRoom !== undefined) {
      this.#refuse(connection, message, response, noRoom, startedAt, admission.orgId)
      return
    }
    const exchange = this.#gateway.handle(admission, message, response, connection, startedAt)
    if (!exchange.isOver) connection.carry(exchange)
  }

  #admit(connection: Connection, message: IncomingMessage): Admission {
    return connection.isForeign ? FOREIGN : admit(message, this.#options.admission)
  }

  /** Step 9. The request at hand is counted already. */
  #roomProblem(): Failure | undefined {
    if (this.#isDraining) return { code: 'draining', retryAfterSeconds: 1 }
    if (this.#inFlight > this.#options.maxInFlight) return { code: 'overloaded', retryAfterSeconds: 1 }
    return undefined
  }

  #refuse(
    connection: Connection,
    message: IncomingMessage,
    response: ServerResponse,
    failure: Failure,
    startedAt: number,
    orgId?: OrgId,
  ): void {
    const requestId = this.#options.admission.newRequestId()
    if (ENDS_CONNECTION.has(failure.code) || declaresContent(message)) {
      response.shouldKeepAlive = false
      connection.isClosing = true
    }
    const status = respondWithProblem(response, failure, requestId)
    this.#options.observer.requestEnded(ownRecord(message, failure.code, status, requestId, startedAt, orgId))
    connection.exchangeEnded()
  }

  /** `*` covers `X-Org-Id`; credentials of the page are not asked for. */
  #answerPreflight(
    connection: Connection,
    message: IncomingMessage,
    response: ServerResponse,
    origin: string,
    startedAt: number,
  ): void {
    if (declaresContent(message)) response.shouldKeepAlive = false
    response.writeHead(204, {
      'access-control-allow-origin': origin,
      'access-control-allow-methods': 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS',
      'access-control-allow-headers': '*',
      'access-control-max-age': '600',
      vary: 'Origin',
    })
    response.end()
    const requestId = this.#options.admission.newRequestId()
    this.#options.observer.requestEnded(ownRecord(message, undefined, 204, requestId, startedAt))
    connection.exchangeEnded()
  }

  #upgrade(message: IncomingMessage, socket: Duplex, firstBytes: Buffer): void {
    const connection = this.#connections.get(socket)
    if (connection === undefined) socket.destroy()
    else connection.takeOver(() => this.#beginUpgrade(connection, message, firstBytes))
  }

  #beginUpgrade(connection: Connection, message: IncomingMessage, firstBytes: Buffer): void {
    const startedAt = performance.now()
    const { socket } = connection
    connection.isClosing = true
    this.#inFlight++
    const admission = this.#admit(connection, message)
    const failure = 'code' in admission ? admission : this.#roomProblem()
    if (!admission.isAdmitted || failure !== undefined) {
      const response = new ServerResponse(message)
      response.shouldKeepAlive = false
      response.assignSocket(socket)
      response.once('finish', () => connection.linger())
      this.#refuse(connection, message, response, failure ?? { code: 'proxy_internal_error' }, startedAt)
      return
    }
    connection.isTunnel = true
    const handshake = this.#gateway.upgrade(admission, message, socket, firstBytes, connection, startedAt)
    if (!handshake.isOver) connection.carry(handshake)
  }

  #refuseConnect(message: IncomingMessage, socket: Duplex): void {
    const connection = this.#connections.get(socket)
    if (connection === undefined) {
      socket.destroy()
      return
    }
    connection.takeOver(() => {
      const requestId = this.#options.admission.newRequestId()
      const status = endWithProblem(socket, { code: 'method_refused' }, requestId)
      const record = ownRecord(message, 'method_refused', status, requestId, performance.now())
      this.#options.observer.requestEnded(record)
      connection.linger()
    })
  }

  #inputBroken(error: Error, socket: Duplex): void {
    const connection = this.#connections.get(socket)
    const code = parserCode(error)
    if (connection === undefined || code === undefined || !socket.writable) {
      socket.destroy()
      return
    }
    const startedAt = performance.now()
    if (connection.inputBroken({ code }) === 'answered') return
    const requestId = this.#options.admission.newRequestId()
    const status = endWithProblem(socket, { code }, requestId, looksLikeHead(error))
    this.#options.observer.requestEnded(ownRecord(undefined, code, status, requestId, startedAt))
    connection.linger()
  }

  exchangeEnded(connection: Connection): void {
    this.#inFlight--
    connection.idleSince = performance.now()
  }

  #check(): void {
    const now = performance.now()
    for (const connection of this.#connections.values()) connection.check(now, this.#options.idleTimeoutMs)
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

function declaresContent(message: IncomingMessage): boolean {
  const { headers } = message
  return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0'
}

/** The parser does not say what it had understood before it complained; a head mostly comes in one packet. */
function looksLikeHead(error: Error): boolean {
  return 'rawPacket' in error && Buffer.isBuffer(error.rawPacket) && error.rawPacket.subarray(0, 5).equals(HEAD)
}

/** What the parser's complaint is to us; undefined where there is nobody left to answer. */
function parserCode(error: Error): 'request_timeout' | 'request_head_too_large' | 'request_invalid' | undefined {
  const code = 'code' in error ? error.code : ''
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return 'request_timeout'
  if (code === 'HPE_HEADER_OVERFLOW') return 'request_head_too_large'
  return typeof code === 'string' && code.startsWith('HPE_') ? 'request_invalid' : undefined
}
