/**
 * One client request and its response. Sends the request to the service, repeats it if that is safe, and relays the
 * response. A *repeat* goes out with a new token after a rejection, and once on a new connection after a connection has
 * failed. A WebSocket handshake is an exchange like any other until a 101 makes its connection a tunnel.
 *
 * This is the hot path: it allocates nothing that the request does not need.
 */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { performance } from 'node:perf_hooks'
import { causeOf, type Failure, OriginError, TokenError } from '../errors.ts'
import { type AdmittedRequest, hasContent } from '../http/admitted-request.ts'
import { leaveSocket, markEmpty } from '../http/node-internals.ts'
import type { OrgId } from '../http/org-id.ts'
import { respondWithProblem } from '../http/problem.ts'
import { CLIENT_CLOSED_STATUS, RequestRecord } from '../http/request-record.ts'
import type { ResponseHead } from '../http/response-head.ts'
import { Attempt, type AttemptSink, type ContentFate } from '../origin/attempt.ts'
import type { Origin } from '../origin/origin.ts'
import type { AppCredentials, AppKey } from '../token/app-credentials.ts'
import { Rejection } from '../token/rejection.ts'
import type { TokenLookup } from '../token/token-cache.ts'
import { AccessToken } from '../token/token-source.ts'
import { ClientContent, type RepeatMemory } from './client-content.ts'
import type { Deadlines, Watched } from './deadlines.ts'
import { type JudgeContext, judgeToken, Repeat, type RepeatTarget } from './rejected-token.ts'
import { type RelayOwner, ResponseRelay } from './response-relay.ts'

/** Shared by all exchanges. */
export interface ExchangeContext extends JudgeContext {
  readonly origin: Origin
  readonly deadlines: Deadlines
  /** Until the final response head, counted from the last progress of the request; also the longest wait for a connection. */
  readonly responseTimeoutMs: number
  /** Silence of the service inside a response. */
  readonly idleTimeoutMs: number
  /** Larger request content is not kept for a repeat. */
  readonly maxKeptBytes: number
  readonly repeatMemory: RepeatMemory
  /** Sent to the client as `Keep-Alive: timeout`. */
  readonly clientKeepAliveSeconds: number
}

/** The client's connection. */
export interface ExchangeOwner {
  /** It carries a tunnel from here on. */
  tunnelOpened(): void
  /** It may take its next request. */
  exchangeEnded(): void
}

/** A request as the listener received it, and what it takes to answer it. */
export interface ReceivedRequest {
  readonly message: IncomingMessage
  readonly response: ServerResponse
  readonly connection: ExchangeOwner
  /** Monotonic milliseconds: its head had arrived. */
  readonly startedAt: number
}

/** Methods that are safe to carry out twice (RFC 9110 §9.2.2). */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])

const SWITCHING_PROTOCOLS = 101
const NO_CONTENT = 204
const UNAUTHORIZED = 401

/** A rejection may go on for this time after the new token is here. Most have ended by then, and their connection is kept. */
const REJECTION_GRACE_MS = 100

export class Exchange implements AttemptSink, RelayOwner, RepeatTarget, Watched {
  readonly #context: ExchangeContext
  readonly #request: AdmittedRequest
  readonly #message: IncomingMessage
  readonly #response: ServerResponse
  readonly #owner: ExchangeOwner
  readonly #relay: ResponseRelay
  readonly #content: ClientContent | undefined
  #attempt: Attempt | undefined
  #accessToken: AccessToken | undefined
  /** Of a request as the bare App. */
  #app: AppCredentials | undefined
  #appKey: AppKey | undefined
  /** Set from a rejection until the request is repeated. */
  #repeat: Repeat | undefined
  /** Set from the first rejection on. */
  #rejection: Rejection | undefined
  #hasNewConnection = false
  #isOver = false

  deadlineAt = Number.POSITIVE_INFINITY
  slot: number | undefined = undefined
  readonly #record: RequestRecord

  constructor(context: ExchangeContext, request: AdmittedRequest, received: ReceivedRequest) {
    const { message, response, connection, startedAt } = received
    this.#context = context
    this.#request = request
    this.#message = message
    this.#response = response
    this.#owner = connection
    this.#relay = new ResponseRelay(message, response, context.clientKeepAliveSeconds)
    this.#record = new RequestRecord(request.requestId, request.orgId, request.method, request.path, startedAt)
    this.#record.caller = request.caller?.name
    this.#record.traceId = request.traceId
    if (hasContent(request)) {
      const { contentLength: length } = request
      this.#content = new ClientContent(message, {
        length,
        maxKeptBytes: context.maxKeptBytes,
        memory: context.repeatMemory,
      })
    } else markEmpty(message)
  }

  get isOver(): boolean {
    return this.#isOver
  }

  /** True while we read content and the client sends none. */
  get awaitsClient(): boolean {
    return this.#content?.awaitsClient ?? false
  }

  /** Forwards with the token of the request's org. */
  forward(lookup: TokenLookup): void {
    this.#accessToken = lookup.token
    this.#record.token = lookup.result
    this.#send(lookup.token.reveal())
  }

  /** Forwards as the bare App. */
  forwardAsApp(app: AppCredentials): void {
    this.#app = app
    this.#appKey = app.key
    this.#send(app.key.reveal())
  }

  #send(authorization: string): void {
    if (this.#isOver) return
    this.#request.fields.push('authorization', authorization)
    if (this.#request.expectsContinue) this.#response.writeContinue()
    // By the next tick, Node has parsed content that came together with the head. It is then sent in one piece.
    else if (this.#content !== undefined) {
      process.nextTick(() => this.#dispatch())
      return
    }
    this.#dispatch()
  }

  #dispatch(): void {
    if (this.#isOver) return
    try {
      this.#sendAttempt()
    } catch (error) {
      this.failWith(error)
    }
  }

  #sendAttempt(): void {
    const { origin, deadlines, responseTimeoutMs } = this.#context
    const { target, method, fields, contentLength, isWebSocket, orgId = '' } = this.#request
    const content = this.#content?.whole() ?? this.#content
    const webSocketClient = isWebSocket ? this.#message.socket : undefined
    const request = { method, target, fields, content, contentLength, webSocketClient, org: orgId }
    const attempt = new Attempt(request, this, isWebSocket || this.#hasNewConnection)
    this.#attempt = attempt
    const now = performance.now()
    this.#record.dispatchedAt = now
    this.deadlineAt = now + responseTimeoutMs
    deadlines.watch(this, now)
    origin.dispatch(attempt)
  }

  #allow(limitMs: number): void {
    this.deadlineAt = this.#context.deadlines.now + limitMs
  }

  progressed(): void {
    if (this.#relay.hasHead) return // an early response has a deadline of its own
    this.#allow(this.#context.responseTimeoutMs)
  }

  responseHead(head: ResponseHead): void {
    if (this.#isOver) return
    const { status } = head
    this.#record.respondedAt = performance.now()
    if (this.#isToBeRepeated(status, head)) return
    if (status === SWITCHING_PROTOCOLS) {
      this.#tunnelOpens()
      return
    }
    this.deadlineAt = this.#record.respondedAt + this.#context.idleTimeoutMs
    this.#record.status = status
    // Content that still arrives after an early response must not be read as a request.
    if (this.#mustClose()) this.#response.shouldKeepAlive = false
    this.#content?.dropKept()
    // There is no tunnel, so all bytes behind the handshake are read and dropped.
    if (this.#request.isWebSocket) this.#message.socket.resume()
    if (status === NO_CONTENT) head.dropLength()
    this.#relay.begin(head)
  }

  responseContent(bytes: Buffer, start: number, end: number): ContentFate {
    if (this.#isOver) return 'taken'
    if (this.#repeat !== undefined) return this.#discard(this.#repeat, end - start)
    this.#allow(this.#context.idleTimeoutMs)
    const fate = this.#relay.write(bytes, start, end, this)
    if (fate === 'full') this.deadlineAt = Number.POSITIVE_INFINITY // the listener watches a client that takes nothing
    return fate
  }

  responsePaused(): void {
    if (!this.#isOver && this.#repeat === undefined) this.#relay.flush()
  }

  clientDrained(): void {
    this.#allow(this.#context.idleTimeoutMs)
    this.#attempt?.resume()
  }

  responseEnd(): void {
    if (this.#isOver) return
    if (this.#repeat !== undefined) {
      this.#repeat.rejectionEnded()
      return
    }
    if (this.#relay.end()) {
      this.#end()
      return
    }
    // Until a slow client has taken everything, it can still leave, and the proxy can still break off.
    this.#context.deadlines.unwatch(this)
    this.#response.once('finish', () => {
      if (!this.#isOver) this.#end()
    })
  }

  #tunnelOpens(): void {
    this.#record.status = SWITCHING_PROTOCOLS
    leaveSocket(this.#response, this.#message.socket)
    this.#owner.tunnelOpened()
    this.#end()
  }

  attemptFailed(attempt: Attempt, error: Error): void {
    if (!(error instanceof OriginError)) {
      this.failWith(error)
      return
    }
    if (this.#isOver || attempt !== this.#attempt) return
    if (this.#repeat !== undefined) {
      this.#repeat.rejectionEnded()
      return
    }
    if (this.#mayUseNewConnection(attempt, error)) {
      this.#hasNewConnection = true
      this.#dispatch()
      return
    }
    // Send the content that came before the break, so that the client sees the service's response break.
    if (this.#relay.hasHead) this.#relay.flush()
    // RFC 9209 §2.3: "terminated" means that no part of the response was received.
    const isIncomplete = attempt.hasResponse && error.code === 'connection_terminated'
    this.fail(this.#relay.hasHead || isIncomplete ? { code: 'http_response_incomplete' } : error)
  }

  /**
   * A request that was never sent may go again. One that was sent on a reused connection, and got no byte of a response,
   * may go again if it is safe to carry out twice: the service may have closed the connection before it read the request.
   */
  #mayUseNewConnection(attempt: Attempt, failure: OriginError): boolean {
    if (this.#hasNewConnection) return false
    if (!attempt.isConnected) return failure.code === 'connection_refused' || failure.code === 'connection_terminated'
    if (attempt.hasResponse || !attempt.isReused || failure.code !== 'connection_terminated') return false
    return this.#content === undefined && IDEMPOTENT.has(this.#request.method)
  }

  /** Returns true if the response is a rejection that leads to a repeat. The client does not see it then. */
  #isToBeRepeated(status: number, head: ResponseHead): boolean {
    const token = this.#accessToken
    const { orgId } = this.#request
    if (token === undefined || orgId === undefined) return this.#startsRepeatAsApp(status)
    const { tokens } = this.#context
    const sentAt = this.#record.dispatchedAt ?? 0
    if (this.#rejection === undefined && tokens.isAccepted(status)) {
      tokens.accepted(orgId, token, sentAt, this.#record)
      return false
    }
    this.#rejection ??= this.#newRejection(orgId)
    const next = judgeToken(this.#context, this.#rejection, { token, sentAt, status, challenge: head.challenge })
    if (next === undefined) return false
    this.#repeat = new Repeat(this, next, this.#content)
    return true
  }

  /** The App has two secrets. After a 401 to one, the request is repeated with the other, once. */
  #startsRepeatAsApp(status: number): boolean {
    const app = this.#app
    const key = this.#appKey
    if (app === undefined || key === undefined) return false
    if (status >= 200 && status <= 299) app.accepted(key)
    if (status !== UNAUTHORIZED) return false
    app.rejected(key)
    const other = app.alternativeTo(key)
    if (other === undefined || !this.isRepeatable || this.#record.token === 'replayed') return false
    this.#appKey = other
    this.#repeat = new Repeat(this, Promise.resolve(other), this.#content)
    return true
  }

  #newRejection(org: OrgId): Rejection {
    const { method, path, requestId, isWebSocket, caller } = this.#request
    const { isRepeatable } = this
    const requester = caller?.name ?? this.#owner
    return new Rejection({ org, method, path, isRepeatable, isHandshake: isWebSocket, requester, requestId })
  }

  /** False if it is known that this request cannot be sent twice. */
  get isRepeatable(): boolean {
    return !this.#request.isWebSocket && (this.#content === undefined || this.#content.willBeKept)
  }

  #discard(repeat: Repeat, bytes: number): ContentFate {
    if (!repeat.discard(bytes)) this.#giveUpRejection()
    return 'taken'
  }

  rejectionIsLate(): void {
    this.#allow(REJECTION_GRACE_MS)
  }

  /** Ends the connection that the rejection comes on. The repeat takes another. */
  #giveUpRejection(): void {
    this.#attempt?.abort(new OriginError('http_response_incomplete', 'a rejection that is not read to its end'))
  }

  repeat(token: AccessToken | AppKey): void {
    this.#repeat = undefined
    if (token instanceof AccessToken) this.#accessToken = token
    this.#record.token = 'replayed'
    this.#request.fields[this.#request.fields.length - 1] = token.reveal()
    this.#dispatch()
  }

  repeatFailed(error: unknown): void {
    if (this.#isOver) return
    this.#context.observer.repeatSettled('failed')
    this.failWith(error)
  }

  deadlinePassed(): void {
    if (this.#repeat !== undefined) {
      this.deadlineAt = Number.POSITIVE_INFINITY // the mint and the client's content have limits of their own
      this.#giveUpRejection()
    } else if (!this.#relay.hasStarted && this.awaitsClient) {
      this.#allow(this.#context.responseTimeoutMs)
    } else if (this.#attempt?.isConnected !== false) this.fail({ code: 'http_response_timeout' })
    else if (this.#attempt.queuedFor !== undefined) this.fail({ code: 'overloaded', limit: this.#attempt.queuedFor })
    else this.fail({ code: 'connection_timeout' })
  }

  failWith(error: unknown): void {
    if (error instanceof TokenError || error instanceof OriginError) this.fail(error)
    else {
      this.#context.observer.programFailed(error, this.#request.requestId)
      this.fail({ code: 'proxy_internal_error' })
    }
  }

  /** Ends the exchange: with an answer of our own or, if a byte of the response was sent, with a broken one. */
  fail(failure: Failure): void {
    if (this.#isOver) return
    this.#record.code = failure.code
    this.#record.detail = causeOf(failure)
    this.#record.reason = failure.limit
    if (this.#relay.hasStarted) this.#relay.breakOff()
    else {
      this.#relay.abandon()
      if (this.#mustClose()) this.#response.shouldKeepAlive = false
      const { status, bytes } = respondWithProblem(this.#response, failure, this.#request.requestId)
      this.#record.status = status
      this.#relay.bytes = bytes
    }
    this.#end()
    this.#letGo()
  }

  /** The client has left, so the exchange with the service ends. */
  clientGone(): void {
    if (this.#isOver) return
    this.#record.code = 'client_closed'
    if (!this.#relay.hasStarted) this.#record.status = CLIENT_CLOSED_STATUS
    this.#abandon()
  }

  /** The proxy stops and closes the client's connection. A status of 0 says that the client got no response. */
  stopped(): void {
    if (this.#isOver) return
    this.#record.code = 'draining'
    if (!this.#relay.hasStarted) this.#record.status = 0
    this.#abandon()
  }

  #abandon(): void {
    this.#relay.abandon()
    this.#end()
    this.#letGo()
  }

  #mustClose(): boolean {
    return this.#content !== undefined && !this.#message.complete
  }

  #letGo(): void {
    const reason = new OriginError('connection_terminated', 'the exchange has ended')
    this.#content?.dropKept()
    this.#attempt?.abort(reason)
  }

  #end(): void {
    this.#isOver = true
    const record = this.#record
    record.endedAt = performance.now()
    record.bytesIn = this.#content?.receivedBytes ?? 0
    record.bytesOut = this.#relay.bytes
    this.#context.deadlines.unwatch(this)
    this.#context.observer.requestEnded(record)
    this.#owner.exchangeEnded()
  }
}
