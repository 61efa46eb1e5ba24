/**
 * One exchange with the origin on behalf of one client request: dispatched, repeated once where that is safe, its
 * response relayed. The hot path is here; nothing is allocated on it that the request does not need.
 */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { performance } from 'node:perf_hooks'
import { type Failure, OriginError, TokenError } from '../errors.ts'
import type { ResponseHead } from '../http/response-head.ts'
import { Attempt, type AttemptSink, type ContentFate } from '../origin/attempt.ts'
import type { Origin } from '../origin/origin.ts'
import { translateOriginError } from '../origin/origin-failure.ts'
import type { AccessToken } from '../token/access-token.ts'
import type { Lease } from '../token/token-cache.ts'
import { type AdmittedRequest, hasContent } from './admitted-request.ts'
import type { Deadlines, Watched } from './deadlines.ts'
import { markEmpty } from './node-bookkeeping.ts'
import { respondWithProblem } from './problem-response.ts'
import { Repeat, type RepeatTarget } from './repeat.ts'
import { ReplayContent } from './replay-content.ts'
import { CLIENT_CLOSED_STATUS, RequestRecord } from './request-record.ts'
import { type RelayOwner, ResponseRelay } from './response-relay.ts'
import { judgeToken, type Repeatability, type VerdictContext } from './token-verdict.ts'

/** What all exchanges share. */
export interface ExchangeContext extends VerdictContext {
  readonly origin: Origin
  readonly deadlines: Deadlines
  /** Until the final response head, counted from the last progress of the request. */
  readonly responseTimeoutMs: number
  /** Silence inside a response's content. */
  readonly idleTimeoutMs: number
  readonly maxReplayBytes: number
  /** What idle connections of clients are told. */
  readonly clientKeepAliveSeconds: number
}

/** Who is told that the connection may serve its next request. */
export interface ExchangeOwner {
  exchangeEnded(): void
}

/** Safe to carry out twice (RFC 9110 §9.2.2). */
const REPEATABLE = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])

const NO_CONTENT = 204

export class Exchange implements AttemptSink, RelayOwner, RepeatTarget, Watched {
  readonly #context: ExchangeContext
  readonly #request: AdmittedRequest
  readonly #message: IncomingMessage
  readonly #response: ServerResponse
  readonly #owner: ExchangeOwner
  readonly #relay: ResponseRelay
  readonly #content: ReplayContent | undefined
  #attempt: Attempt | undefined
  #accessToken: AccessToken | undefined
  #repeat: Repeat | undefined
  #isRepeated = false
  #hasRetriedConnection = false
  #isOver = false

  deadlineAt = Number.POSITIVE_INFINITY
  slot: number | undefined = undefined
  readonly #record: RequestRecord

  constructor(
    context: ExchangeContext,
    request: AdmittedRequest,
    message: IncomingMessage,
    response: ServerResponse,
    owner: ExchangeOwner,
    startedAt: number,
  ) {
    this.#context = context
    this.#request = request
    this.#message = message
    this.#response = response
    this.#owner = owner
    this.#relay = new ResponseRelay(message, response, context.clientKeepAliveSeconds)
    this.#record = new RequestRecord(request.requestId, request.orgId, request.method, request.path, startedAt)
    if (hasContent(request)) {
      const { contentLength: length } = request
      this.#content = new ReplayContent(message, { length, maxReplayBytes: context.maxReplayBytes })
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
  forward(lease: Lease): void {
    this.#accessToken = lease.token
    this.#record.token = lease.result
    this.#send(lease.token.reveal())
  }

  /** Forwards as the bare App; never repeated after a rejection. */
  forwardAsApp(authorization: string): void {
    this.#send(authorization)
  }

  #send(authorization: string): void {
    if (this.#isOver) return
    this.#request.fields.push('authorization', authorization)
    this.#context.deadlines.watch(this, performance.now())
    if (this.#content === undefined) {
      this.#dispatch()
    } else if (this.#request.expectsContinue) {
      this.#response.writeContinue()
      this.#dispatch()
    } else {
      // What came in one piece with the head has been parsed by the next tick, and then goes on in one piece too.
      process.nextTick(dispatchNow, this)
    }
  }

  /** The second half of a send that waited for the tick to end. */
  static dispatch(exchange: Exchange): void {
    if (!exchange.#isOver) exchange.#dispatch()
  }

  #dispatch(isFresh = false): void {
    const { origin, deadlines, responseTimeoutMs } = this.#context
    const { target, method, fields, contentLength } = this.#request
    const content = this.#content?.whole() ?? this.#content
    const attempt = new Attempt({ method, target, fields, content, contentLength }, this)
    this.#attempt = attempt
    this.#record.dispatchedAt = performance.now()
    this.deadlineAt = deadlines.now + responseTimeoutMs
    if (isFresh) origin.dispatchFresh(attempt)
    else origin.dispatch(attempt)
  }

  /** Only now is the origin asked: what was waited for before was a place in the pool. */
  connected(): void {
    this.deadlineAt = this.#context.deadlines.now + this.#context.responseTimeoutMs
  }

  contentSent(): void {
    if (this.#relay.hasBegun) return // an early answer has a deadline of its own
    this.deadlineAt = this.#context.deadlines.now + this.#context.responseTimeoutMs
  }

  responseHead(head: ResponseHead): void {
    if (this.#isOver) return
    const { status } = head
    this.#record.respondedAt = performance.now()
    this.deadlineAt = this.#record.respondedAt + this.#context.idleTimeoutMs
    if (this.#isMadeGood(status)) return
    this.#record.status = status
    // Content that still arrives after an early answer must not be read as a request.
    if (this.#mustClose()) this.#response.shouldKeepAlive = false
    this.#content?.release()
    if (status === NO_CONTENT) head.dropLength()
    this.#relay.begin(head)
  }

  responseContent(bytes: Buffer, start: number, end: number): ContentFate {
    if (this.#isOver) return 'taken'
    if (this.#repeat !== undefined) return this.#discard(this.#repeat, end - start)
    this.deadlineAt = this.#context.deadlines.now + this.#context.idleTimeoutMs
    const fate = this.#relay.write(bytes, start, end, this)
    if (fate === 'full') this.deadlineAt = Number.POSITIVE_INFINITY // now it is the client's turn: the listener watches it
    return fate
  }

  responsePaused(): void {
    if (!this.#isOver && this.#repeat === undefined) this.#relay.flush()
  }

  clientDrained(): void {
    this.deadlineAt = this.#context.deadlines.now + this.#context.idleTimeoutMs
    this.#attempt?.resume()
  }

  responseEnd(): void {
    if (this.#isOver) return
    if (this.#repeat !== undefined) {
      this.#repeat.responseGone()
      return
    }
    this.#relay.end()
    this.#end()
  }

  attemptFailed(attempt: Attempt, error: Error): void {
    if (this.#isOver || attempt !== this.#attempt) return
    if (this.#repeat !== undefined) {
      this.#repeat.responseGone()
      return
    }
    const failure = translateOriginError(error)
    if (failure !== undefined && this.#mayRetry(attempt, failure)) {
      this.#hasRetriedConnection = true
      this.#dispatch(true)
      return
    }
    if (failure !== undefined && this.#relay.hasBegun) {
      // What came before the break goes out, so that the client sees whose response it is that is broken.
      this.#relay.flush()
      this.fail({ code: 'http_response_incomplete' })
    } else this.fail(failure ?? { code: 'proxy_internal_error' })
  }

  /** Nothing sent: any request may go again. Sent, and unanswered on a reused connection: only what is safe to carry out twice. */
  #mayRetry(attempt: Attempt, failure: OriginError): boolean {
    if (this.#hasRetriedConnection) return false
    if (!attempt.isConnected) return failure.code === 'connection_refused' || failure.code === 'connection_terminated'
    if (attempt.hasResponse || !attempt.isReused || failure.code !== 'connection_terminated') return false
    return this.#content === undefined && REPEATABLE.has(this.#request.method)
  }

  /** True where the response is a rejection that is being made good, and must not reach the client. */
  #isMadeGood(status: number): boolean {
    const token = this.#accessToken
    const { orgId } = this.#request
    if (token === undefined || orgId === undefined) return false
    const replacement = judgeToken(this.#context, orgId, token, status, this.#repeatability, this.#record.dispatchedAt)
    if (replacement === undefined) return false
    this.#repeat = new Repeat(this, replacement, this.#content)
    return true
  }

  /** True where a rejected token can be made good, as far as can be told. */
  get isRepeatable(): boolean {
    return this.#content === undefined || this.#content.willBeReplayable
  }

  get #repeatability(): Repeatability {
    if (this.#isRepeated) return 'repeat'
    return this.isRepeatable ? 'possible' : 'impossible'
  }

  #discard(repeat: Repeat, bytes: number): ContentFate {
    if (!repeat.discard(bytes)) {
      this.#attempt?.abort(new OriginError('http_response_incomplete', 'a rejection too large to be read away'))
    }
    return 'taken'
  }

  repeat(token: AccessToken): void {
    if (this.#isOver) return
    this.#repeat = undefined
    this.#isRepeated = true
    this.#accessToken = token
    this.#record.token = 'replayed'
    this.#request.fields[this.#request.fields.length - 1] = token.reveal()
    this.#dispatch()
  }

  repeatFailed(error: unknown): void {
    if (this.#isOver) return
    this.#context.observer.replaySettled('failed')
    this.failWith(error)
  }

  deadlinePassed(): void {
    if (!this.#relay.hasStarted && this.awaitsClient) {
      this.deadlineAt = this.#context.deadlines.now + this.#context.responseTimeoutMs
      return
    }
    // A connection that cannot be made fails by itself, and sooner: who waited that long waited for a place in the pool.
    this.fail({ code: this.#attempt?.isConnected === false ? 'overloaded' : 'http_response_timeout' })
  }

  failWith(error: unknown): void {
    if (error instanceof TokenError || error instanceof OriginError) this.fail(error)
    else this.fail({ code: 'proxy_internal_error' })
  }

  /** Ends the exchange with an answer of ours, or, where the response has begun, with a broken one. */
  fail(failure: Failure): void {
    if (this.#isOver) return
    this.#record.code = failure.code
    if (this.#relay.hasStarted) this.#relay.breakOff()
    else {
      this.#relay.abandon()
      if (this.#mustClose()) this.#response.shouldKeepAlive = false
      this.#record.status = respondWithProblem(this.#response, failure, this.#request.requestId)
    }
    this.#end()
    this.#letGo()
  }

  /** The client has left: what it asked for ends at the origin too. */
  clientGone(): void {
    if (this.#isOver) return
    this.#record.code = 'client_closed'
    if (!this.#relay.hasStarted) this.#record.status = CLIENT_CLOSED_STATUS
    this.#relay.abandon()
    this.#end()
    this.#letGo()
  }

  #mustClose(): boolean {
    return this.#request.mustClose || (this.#content !== undefined && !this.#message.complete)
  }

  #letGo(): void {
    const reason = new OriginError('connection_terminated', 'the exchange has ended')
    this.#content?.release()
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

const dispatchNow = Exchange.dispatch
