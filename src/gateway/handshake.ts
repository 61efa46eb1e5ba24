/**
 * One WebSocket handshake. A tunnel opens only behind the origin's 101 for the protocol that was asked for; any other
 * answer is relayed as plain HTTP.
 */

import { type ClientRequest, type IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { type Duplex, pipeline } from 'node:stream'
import { type Failure, OriginError, type OriginErrorCode, TokenError } from '../errors.ts'
import { groupFields } from '../http/fields.ts'
import { readResponseHead } from '../http/response-head.ts'
import { translateOriginError } from '../origin/origin-failure.ts'
import type { AccessToken } from '../token/access-token.ts'
import type { Lease } from '../token/token-cache.ts'
import type { AdmittedRequest } from './admitted-request.ts'
import type { ExchangeOwner } from './exchange.ts'
import { respondWithProblem } from './problem-response.ts'
import { CLIENT_CLOSED_STATUS, RequestRecord } from './request-record.ts'
import { judgeToken, type VerdictContext } from './token-verdict.ts'
import type { Tunnels, UpgradeWatcher } from './tunnels.ts'

export interface HandshakeContext extends VerdictContext {
  readonly tunnels: Tunnels
  /** Until the origin's answer to the handshake. */
  readonly connectTimeoutMs: number
  readonly responseTimeoutMs: number
  readonly keepsAccessControl: boolean
}

const NOTHING = Buffer.alloc(0)

export class Handshake implements UpgradeWatcher {
  readonly #context: HandshakeContext
  readonly #request: AdmittedRequest
  readonly #message: IncomingMessage
  readonly #socket: Duplex
  readonly #firstBytes: Buffer
  readonly #owner: ExchangeOwner
  #accessToken: AccessToken | undefined
  #upstream: ClientRequest | undefined
  #timer: NodeJS.Timeout | undefined
  /** True once bytes of it may have been sent. */
  #isConnected = false
  #hasRetried = false
  #isOver = false

  readonly #record: RequestRecord

  constructor(
    context: HandshakeContext,
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
    this.#record = new RequestRecord(request.requestId, request.orgId, request.method, request.path, startedAt)
  }

  get isOver(): boolean {
    return this.#isOver
  }

  forward(lease: Lease): void {
    this.#accessToken = lease.token
    this.#record.token = lease.result
    this.#send(lease.token.reveal())
  }

  forwardAsApp(authorization: string): void {
    this.#send(authorization)
  }

  #send(authorization: string): void {
    if (this.#isOver) return
    this.#request.fields.push('authorization', authorization)
    this.#record.dispatchedAt = performance.now()
    this.#failIn(this.#context.connectTimeoutMs, 'connection_timeout')
    this.#connect(this.#firstBytes)
  }

  #connect(firstBytes: Buffer): void {
    const { target, fields } = this.#request
    this.#context.tunnels.connect(this, target, fields, this.#socket, firstBytes)
  }

  /** The library has made its request; what it listens for is taken over once it has said what. */
  started(upstream: ClientRequest): void {
    this.#upstream = upstream
    upstream.on('error', (error) => this.#failed(error))
    upstream.once('socket', (originSocket) => {
      this.#takeOver(upstream)
      const isConnected = 'encrypted' in originSocket ? 'secureConnect' : 'connect'
      originSocket.once(isConnected, () => {
        this.#isConnected = true
        this.#failIn(this.#context.responseTimeoutMs, 'http_response_timeout')
      })
    })
  }

  #failed(error: Error): void {
    const failure = translateOriginError(error)
    if (failure === undefined || !this.#mayRetry(failure)) {
      this.failWith(failure ?? error)
      return
    }
    this.#hasRetried = true
    this.#connect(NOTHING) // the library has put the first bytes back into the client's connection
  }

  /** Nothing sent: it may go again, as any request may. */
  #mayRetry({ code }: OriginError): boolean {
    if (this.#isOver || this.#hasRetried || this.#isConnected) return false
    return code === 'connection_refused' || code === 'connection_terminated'
  }

  #failIn(limitMs: number, code: OriginErrorCode): void {
    clearTimeout(this.#timer)
    if (!this.#isOver) this.#timer = setTimeout(() => this.fail({ code }), limitMs).unref()
  }

  #takeOver(upstream: ClientRequest): void {
    const [carry] = upstream.listeners('upgrade')
    upstream.removeAllListeners('upgrade').removeAllListeners('response').removeAllListeners('error')
    upstream.on('error', (error) => this.#failed(error))
    upstream.once('response', (answer) => this.#relay(answer))
    upstream.once('upgrade', (answer, originSocket, firstBytes) => {
      if (!this.#judgeUpgrade(answer, originSocket)) return
      carry?.call(upstream, answer, originSocket, firstBytes)
      this.#opened(originSocket)
    })
  }

  /** True where the library may carry it on; the head that it will write is then the filtered one. */
  #judgeUpgrade(answer: IncomingMessage, originSocket: Socket): boolean {
    const head = readResponseHead(101, '', answer.rawHeaders, this.#context)
    if (this.#isOver || head === undefined || answer.headers.upgrade?.toLowerCase() !== 'websocket') {
      originSocket.destroy()
      this.fail({ code: 'http_upgrade_failed' })
      return false
    }
    this.#judgeToken(101)
    answer.headers = { Connection: 'Upgrade', Upgrade: 'websocket', ...groupFields(head.fields) }
    return true
  }

  #opened(originSocket: Socket): void {
    this.#bind(originSocket)
    this.#context.tunnels.opened(this.#socket)
    this.#record.status = 101
    this.#end()
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
    const isFinal = status >= 200 && status <= 599
    const reason = answer.statusMessage ?? ''
    const head = isFinal ? readResponseHead(status, reason, answer.rawHeaders, this.#context) : undefined
    if (this.#isOver || head === undefined) {
      answer.destroy()
      // A 101 that names no protocol comes here too.
      this.fail({ code: status === 101 ? 'http_upgrade_failed' : 'http_protocol_error' })
      return
    }
    this.#judgeToken(status)
    const response = this.#responseOf()
    this.#record.status = status
    clearTimeout(this.#timer)
    response.writeHead(status, head.reason, head.fields)
    answer.on('data', (chunk: Buffer) => {
      this.#record.bytesOut += chunk.length
    })
    pipeline(answer, response, (error) => {
      if (error != null) {
        this.#record.code = 'http_response_incomplete'
        this.#socket.destroy()
      }
      this.#end()
    })
  }

  /** A handshake is not repeated: the client's next one has the new token. */
  #judgeToken(status: number): void {
    this.#record.respondedAt = performance.now()
    const { orgId } = this.#request
    const token = this.#accessToken
    if (orgId === undefined || token === undefined) return
    judgeToken(this.#context, orgId, token, status, 'impossible', this.#record.dispatchedAt)
  }

  #responseOf(): ServerResponse {
    const response = new ServerResponse(this.#message)
    response.shouldKeepAlive = false
    response.assignSocket(this.#socket as Socket)
    // As after any last response: what the client still sends is read away, or its end would never be seen.
    response.once('finish', () => (this.#socket as Socket).destroySoon())
    return response
  }

  failWith(error: unknown): void {
    if (error instanceof TokenError || error instanceof OriginError) this.fail(error)
    else this.fail({ code: 'proxy_internal_error' })
  }

  fail(failure: Failure): void {
    if (this.#isOver) return
    this.#record.code = failure.code
    if (this.#record.status === 0)
      this.#record.status = respondWithProblem(this.#responseOf(), failure, this.#request.requestId)
    else this.#socket.destroy()
    this.#end()
    this.#upstream?.destroy()
  }

  clientGone(): void {
    if (this.#isOver) return
    this.#record.code = 'client_closed'
    if (this.#record.status === 0) this.#record.status = CLIENT_CLOSED_STATUS
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
    this.#record.endedAt = performance.now()
    this.#context.observer.requestEnded(this.#record)
    this.#owner.exchangeEnded()
  }
}
