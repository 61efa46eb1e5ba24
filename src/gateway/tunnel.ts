/**
 * WebSocket handshakes and the tunnels behind them. http-proxy (its maintained rewrite) carries the upgraded connection;
 * what may pass before it is decided here: a tunnel opens only after a 101 for the protocol that was asked for, any
 * other answer is relayed as plain HTTP.
 */

import { type ClientRequest, Agent as HttpAgent, type IncomingMessage, ServerResponse } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { type Duplex, pipeline } from 'node:stream'
import { createProxyServer, type ProxyServer } from 'http-proxy'
import { type ErrorCode, type Failure, OriginError, TokenError } from '../errors.ts'
import { readResponseHead } from '../http/response-head.ts'
import type { AccessToken } from '../token/access-token.ts'
import type { Lease, TokenCache } from '../token/token-cache.ts'
import type { AdmittedRequest } from './admitted-request.ts'
import type { ExchangeOwner } from './exchange.ts'
import { translateOriginError } from './origin-failure.ts'
import { respondWithProblem } from './problem-response.ts'
import { CLIENT_CLOSED_STATUS, type GatewayObserver, type RequestRecord, type TokenResult } from './request-record.ts'

export interface TunnelOptions {
  readonly baseUrl: URL
  readonly ca?: readonly string[] | undefined
}

/** The library and its connections; one for all tunnels. */
export class Tunnels {
  readonly #proxy: ProxyServer
  readonly #agent: HttpAgent
  readonly #open = new Set<Duplex>()

  constructor(options: TunnelOptions) {
    // A connection a tunnel, never reused; half-open, so that one side may finish before the other (RFC 6455 §7.1.1).
    const connection = { keepAlive: false, allowHalfOpen: true }
    this.#agent =
      options.baseUrl.protocol === 'https:'
        ? new HttpsAgent({ ...connection, ...(options.ca === undefined ? {} : { ca: [...options.ca] }) })
        : new HttpAgent(connection)
    this.#proxy = createProxyServer({
      target: options.baseUrl.origin,
      prependPath: false,
      xfwd: false,
      secure: true,
      agent: this.#agent,
    })
    // Failures reach the handshake through the request itself; without a listener here they would be thrown.
    this.#proxy.on('error', () => undefined)
    this.#proxy.on('proxyReqWs', (request, message) => {
      if (message instanceof HandshakeMessage) message.handshake.started(request)
    })
  }

  get size(): number {
    return this.#open.size
  }

  connect(message: HandshakeMessage, socket: Duplex, firstBytes: Buffer): void {
    this.#proxy.ws(message as unknown as IncomingMessage, socket as Socket, {}, firstBytes).catch(() => undefined)
  }

  opened(socket: Duplex): void {
    this.#open.add(socket)
    socket.once('close', () => this.#open.delete(socket))
  }

  close(): void {
    for (const socket of this.#open) socket.destroy()
    this.#agent.destroy()
  }
}

export interface TunnelContext {
  readonly tunnels: Tunnels
  readonly tokens: TokenCache
  readonly observer: GatewayObserver
  /** Until the origin's answer to the handshake. */
  readonly connectTimeoutMs: number
  readonly responseTimeoutMs: number
  readonly rejectedStatuses: ReadonlySet<number>
  readonly keepsAccessControl: boolean
}

/** The request as the library reads it: what was admitted, and nothing of what came. */
class HandshakeMessage {
  readonly method = 'GET'
  readonly httpVersionMajor = 1
  readonly url: string
  readonly headers: Record<string, string | string[]>
  readonly socket: Duplex
  readonly handshake: Handshake

  constructor(handshake: Handshake, target: string, fields: readonly string[], socket: Duplex) {
    this.handshake = handshake
    this.url = target
    this.headers = { ...grouped(fields), connection: 'Upgrade', upgrade: 'websocket' }
    this.socket = socket
  }
}

/** Node sends an array as one line each, in this order and case. */
function grouped(fields: readonly string[]): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = Object.create(null)
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] ?? ''
    const value = fields[i + 1] ?? ''
    const before = headers[name]
    headers[name] = before === undefined ? value : [before, value].flat()
  }
  return headers
}

export class Handshake implements RequestRecord {
  readonly #context: TunnelContext
  readonly #request: AdmittedRequest
  readonly #message: IncomingMessage
  readonly #socket: Duplex
  readonly #firstBytes: Buffer
  readonly #owner: ExchangeOwner
  #accessToken: AccessToken | undefined
  #upstream: ClientRequest | undefined
  #timer: NodeJS.Timeout | undefined
  #isOver = false

  readonly startedAt: number
  dispatchedAt: number | undefined
  respondedAt: number | undefined
  endedAt = 0
  status = 0
  code: ErrorCode | 'client_closed' | undefined
  token: TokenResult = 'none'
  readonly bytesIn = 0
  bytesOut = 0

  constructor(
    context: TunnelContext,
    request: AdmittedRequest,
    message: IncomingMessage,
    socket: Duplex,
    firstBytes: Buffer,
    owner: ExchangeOwner,
    startedAt: number,
  ) {
    this.#context = context
    this.#request = request
    this.#message = message
    this.#socket = socket
    this.#firstBytes = firstBytes
    this.#owner = owner
    this.startedAt = startedAt
  }

  get requestId(): string {
    return this.#request.requestId
  }

  get orgId(): string | undefined {
    return this.#request.orgId
  }

  get method(): string {
    return this.#request.method
  }

  get path(): string {
    return this.#request.path
  }

  forward(lease: Lease): void {
    this.#accessToken = lease.token
    this.token = lease.result
    this.#send(lease.token.reveal())
  }

  forwardAsApp(authorization: string): void {
    this.#send(authorization)
  }

  #send(authorization: string): void {
    if (this.#isOver) return
    const fields = [...this.#request.fields, 'authorization', authorization]
    const { connectTimeoutMs, responseTimeoutMs, tunnels } = this.#context
    this.dispatchedAt = performance.now()
    this.#timer = setTimeout(
      () => this.fail({ code: 'http_response_timeout' }),
      connectTimeoutMs + responseTimeoutMs,
    ).unref()
    tunnels.connect(
      new HandshakeMessage(this, this.#request.target, fields, this.#socket),
      this.#socket,
      this.#firstBytes,
    )
  }

  /** The library has made its request. Our listeners stand before its own, so that we judge first. */
  started(upstream: ClientRequest): void {
    this.#upstream = upstream
    upstream.on('error', (error) => this.failWith(translateOriginError(error) ?? error))
    upstream.once('upgrade', (answer, originSocket) => this.#judgeUpgrade(answer, originSocket))
    // A 101 that names no protocol is, to Node, one more interim response to wait behind.
    upstream.on('information', (interim) => {
      if (interim.statusCode === 101) this.fail({ code: 'http_upgrade_failed' })
    })
    upstream.once('response', (answer) => {
      Object.assign(answer, { upgrade: true }) // the library leaves such an answer alone
      this.#relay(answer)
    })
  }

  #judgeUpgrade(answer: IncomingMessage, originSocket: Socket): void {
    const head = readResponseHead(answer.rawHeaders.map(latin1), this.#context)
    if (this.#isOver || head === undefined || answer.headers.upgrade?.toLowerCase() !== 'websocket') {
      originSocket.destroy()
      this.fail({ code: 'http_upgrade_failed' })
      this.#dropLibraryHead()
      return
    }
    this.#acceptToken(101)
    let text = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n'
    for (let i = 0; i < head.fields.length; i += 2) text += `${head.fields[i]}: ${head.fields[i + 1]}\r\n`
    this.#socket.write(`${text}\r\n`, 'latin1')
    this.#bind(originSocket)
    this.#context.tunnels.opened(this.#socket)
    this.status = 101
    this.#end()
    this.#dropLibraryHead()
  }

  /**
   * The library goes on to write the origin's head itself, joined and unfiltered. Its listener runs right after ours, and
   * its one write is dropped: the client has had its answer.
   */
  #dropLibraryHead(): void {
    const socket: { write?: unknown } = this.#socket
    socket.write = () => {
      delete socket.write // back to the method of the prototype
      return true
    }
  }

  /** A side that breaks breaks the other: the library would end it as if it had finished. */
  #bind(originSocket: Socket): void {
    originSocket.once('close', () => {
      if (!originSocket.readableEnded) this.#socket.destroy()
    })
    this.#socket.once('close', () => originSocket.destroy())
  }

  #relay(answer: IncomingMessage): void {
    const status = answer.statusCode ?? 502
    const head = status <= 599 ? readResponseHead(answer.rawHeaders.map(latin1), this.#context) : undefined
    if (this.#isOver || head === undefined) {
      answer.destroy()
      this.fail({ code: 'http_protocol_error' })
      return
    }
    this.#acceptToken(status)
    const response = this.#responseOf()
    this.status = status
    clearTimeout(this.#timer)
    response.writeHead(status, answer.statusMessage ?? '', head.fields)
    answer.on('data', (chunk: Buffer) => {
      this.bytesOut += chunk.length
    })
    pipeline(answer, response, (error) => {
      if (error != null) {
        this.code = 'http_response_incomplete'
        this.#socket.destroy()
      }
      this.#end()
    })
  }

  #acceptToken(status: number): void {
    this.respondedAt = performance.now()
    const { tokens, observer, rejectedStatuses } = this.#context
    const { orgId } = this.#request
    if (orgId === undefined || this.#accessToken === undefined) return
    if (!rejectedStatuses.has(status)) {
      tokens.accepted(orgId, this.#accessToken)
      return
    }
    tokens.retire(orgId, this.#accessToken)
    observer.replaySettled('refused')
  }

  #responseOf(): ServerResponse {
    const response = new ServerResponse(this.#message)
    response.shouldKeepAlive = false
    response.assignSocket(this.#socket as Socket)
    response.once('finish', () => this.#socket.end())
    return response
  }

  failWith(error: unknown): void {
    if (error instanceof TokenError || error instanceof OriginError) this.fail(error)
    else this.fail({ code: 'proxy_internal_error' })
  }

  fail(failure: Failure): void {
    if (this.#isOver) return
    this.code = failure.code
    if (this.status === 0) this.status = respondWithProblem(this.#responseOf(), failure, this.requestId)
    else this.#socket.destroy()
    this.#end()
    this.#upstream?.destroy()
  }

  clientGone(): void {
    if (this.#isOver) return
    this.code = 'client_closed'
    if (this.status === 0) this.status = CLIENT_CLOSED_STATUS
    this.#end()
    this.#upstream?.destroy()
  }

  get awaitsClient(): boolean {
    return false
  }

  #end(): void {
    if (this.#isOver) return
    this.#isOver = true
    clearTimeout(this.#timer)
    this.endedAt = performance.now()
    this.#context.observer.requestEnded(this)
    this.#owner.exchangeEnded()
  }
}

function latin1(value: string): Buffer {
  return Buffer.from(value, 'latin1')
}
