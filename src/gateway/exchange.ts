/**
 * One client request and its response. Sends the request to the service, repeats it if that is safe, and relays the
 * response. A *repeat* goes out with a new token after a rejection, and once on a new connection after a connection has
 * failed. A WebSocket handshake is an exchange like any other until a 101 makes its connection a tunnel.
 *
 * This is the hot path: it allocates nothing that the request does not need.
 */

import type { IncomingMessage } from 'node:http'
import { performance } from 'node:perf_hooks'
import { causeOf, type Failure, OriginError, TokenError } from '../errors.ts'
import type { AdmittedRequest } from '../http/admitted-request.ts'
import type { ClientResponse } from '../http/client-response.ts'
import { markEmpty } from '../http/node-20.ts'
import { respondWithProblem } from '../http/problem.ts'
import {
  type AbandonCode,
  type GatewayObserver,
  type RepeatOutcome,
  RequestRecord,
  STATUS_WITHOUT_ANSWER,
  type TokenResult,
} from '../http/request-record.ts'
import type { ResponseHead } from '../http/response-head.ts'
import { Attempt, type AttemptSink, type ContentFate } from '../origin/attempt.ts'
import type { Origin } from '../origin/origin.ts'
import type { AppCredentials, AppKey } from '../token/app-credentials.ts'
import type { RequestKind } from '../token/org-tokens.ts'
import { Rejection } from '../token/rejection.ts'
import type { TokenCache } from '../token/token-cache.ts'
import { AccessToken } from '../token/token-source.ts'
import { ClientContent, type RepeatMemory } from './client-content.ts'
import { ResponseRelay } from './response-relay.ts'

export interface Gateway {
  /** Requests that wait for a token. */
  waiting: number
  readonly tokens: TokenCache
  readonly observer: GatewayObserver
  readonly app: AppCredentials
  readonly origin: Origin
  /** Until the final response head, counted from the last progress of the request; also the longest wait for a connection. */
  readonly responseTimeoutMs: number
  /** Silence of the service inside a response. */
  readonly idleTimeoutMs: number
  readonly repeatMemory: RepeatMemory
  /** Sent to the client as `Keep-Alive: timeout`. */
  readonly clientKeepAliveSeconds: number
}

/** A request as the listener received it, and what it takes to answer it. */
export interface ReceivedRequest {
  readonly message: IncomingMessage
  readonly response: ClientResponse
  readonly connection: { isTunnel: boolean }
  /** Monotonic milliseconds: its head had arrived. */
  readonly startedAt: number
  /** To be called once: the connection may take its next request. */
  ended(): void
}

/** Methods that are safe to carry out twice (RFC 9110 §9.2.2). */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])

const SWITCHING_PROTOCOLS = 101
const UNAUTHORIZED = 401

/** A longer rejection is not read to its end: its connection is closed. */
const MAX_REJECTION_BYTES = 64 * 1024
/** A rejection may go on for this time after the new token is here. Most have ended by then, and their connection is kept. */
const REJECTION_GRACE_MS = 100

export class Exchange implements AttemptSink {
  readonly #gateway: Gateway
  readonly #request: AdmittedRequest
  readonly #message: IncomingMessage
  readonly #response: ClientResponse
  readonly #received: ReceivedRequest
  readonly #relay: ResponseRelay
  readonly #record: RequestRecord
  readonly #content: ClientContent | undefined
  #attempt: Attempt | undefined
  /** The key of a request as the bare App. */
  #credential: AccessToken | AppKey | undefined
  /** Set from a rejection until the request is repeated. To be called when the rejection has been read, or broke off. */
  #endRejection: (() => void) | undefined
  #rejectionBytes = 0
  /** When the token of the attempt was sent, for its age. Monotonic milliseconds. */
  #sentAt = 0
  /** Set from the first rejection on. */
  #rejection: Rejection | undefined
  #hasNewConnection = false
  /** The App's other key was tried. */
  #hasOtherKey = false
  /** The longest time without progress. */
  #limitMs = Number.POSITIVE_INFINITY
  #hasProgressed = false
  #checkedBytes = 0
  /** The last check that has seen progress. Monotonic milliseconds. */
  #progressedAt = 0
  isOver = false

  constructor(gateway: Gateway, request: AdmittedRequest, received: ReceivedRequest) {
    const { message, response, startedAt } = received
    this.#gateway = gateway
    this.#request = request
    this.#message = message
    this.#response = response
    this.#received = received
    this.#relay = new ResponseRelay(message, response)
    this.#record = new RequestRecord(request.requestId, request.orgId, request.method, request.path, startedAt)
    this.#record.caller = request.caller?.name
    this.#record.traceId = request.traceId
    if (request.hasContent) this.#content = new ClientContent(message, request.contentLength, gateway.repeatMemory)
    else markEmpty(message)
  }

  /** True while we read content and the client sends none. */
  get awaitsClient(): boolean {
    return this.#content?.awaitsClient ?? false
  }

  /** False if it is known that this request cannot be sent twice. */
  get isRepeatable(): boolean {
    return !this.#request.isWebSocket && (this.#content === undefined || this.#content.willBeKept)
  }

  /** Gets the credential and forwards the request with it. Only a miss makes a promise. */
  start(): void {
    const { orgId, isWebSocket, caller, requestId } = this.#request
    const { tokens, app } = this.#gateway
    const kind: RequestKind = isWebSocket ? 'handshake' : this.isRepeatable ? 'repeatable' : 'once'
    try {
      const found = orgId === undefined ? { token: app.key, result: 'none' as const } : tokens.get(orgId, kind)
      if (found !== undefined) this.#forward(found.token, found.result)
      else if (orgId !== undefined) {
        this.#gateway.waiting++
        tokens
          .obtain(orgId, { kind, requester: caller ?? this.#received.connection, requestId })
          .then(({ token, result }) => this.#forward(token, result))
          .catch((error: unknown) => this.failWith(error))
          .finally(() => this.#gateway.waiting--)
      }
    } catch (error) {
      this.failWith(error)
    }
  }

  #forward(credential: AccessToken | AppKey, source: TokenResult | 'none'): void {
    if (this.isOver) return
    this.#credential = credential
    this.#record.token = source
    this.#request.fields.push('authorization', credential.reveal())
    if (this.#request.expectsContinue) this.#message.socket.write('HTTP/1.1 100 Continue\r\n\r\n')
    // By the next tick, Node has parsed content that came together with the head. It is then sent in one piece.
    else if (this.#content !== undefined) {
      process.nextTick(() => this.#dispatch())
      return
    }
    this.#dispatch()
  }

  #dispatch(content: Attempt['request']['content'] = this.#content?.whole() ?? this.#content): void {
    if (this.isOver) return
    const { target, method, fields, contentLength, isWebSocket, orgId = '' } = this.#request
    const webSocketClient = isWebSocket ? this.#message.socket : undefined
    try {
      const request = { method, target, fields, content, contentLength, webSocketClient, org: orgId }
      this.#attempt = new Attempt(request, this, isWebSocket || this.#hasNewConnection)
      this.#sentAt = performance.now()
      this.#record.dispatchedAt = this.#sentAt
      this.#record.respondedAt = undefined
      this.#allow(this.#gateway.responseTimeoutMs)
      this.#gateway.origin.dispatch(this.#attempt)
    } catch (error) {
      this.failWith(error)
    }
  }

  /** There was progress; the next must follow within this time. */
  #allow(limitMs: number): void {
    this.#limitMs = limitMs
    this.#hasProgressed = true
  }

  /** The one clock of the request. Called several times within each limit, with monotonic milliseconds. */
  check(now: number): void {
    // An early response has a limit of its own, however much content the client still sends.
    const bytes = this.#relay.hasHead ? this.#relay.bytes : (this.#content?.receivedBytes ?? 0)
    if (this.#hasProgressed || bytes !== this.#checkedBytes) {
      this.#hasProgressed = false
      this.#checkedBytes = bytes
      this.#progressedAt = now
    } else if (now - this.#progressedAt >= this.#limitMs) this.#limitPassed()
  }

  #limitPassed(): void {
    if (this.#endRejection !== undefined) {
      this.#limitMs = Number.POSITIVE_INFINITY // the mint and the client's content have limits of their own
      this.#attempt?.abort(UNREAD)
    } else if (!this.#response.hasStarted && this.awaitsClient) {
      this.#allow(this.#gateway.responseTimeoutMs)
    } else if (this.#attempt?.isConnected !== false) this.fail({ code: 'http_response_timeout' })
    else if (this.#attempt.queuedFor !== undefined) this.fail({ code: 'overloaded', limit: this.#attempt.queuedFor })
    else this.fail({ code: 'connection_timeout' })
  }

  /** The service is asked only now: the time before was spent on waiting for a connection. */
  connected(): void {
    if (this.#attempt?.queuedFor !== undefined) this.#sentAt = performance.now()
    this.#allow(this.#gateway.responseTimeoutMs)
  }

  responseHead(head: ResponseHead): void {
    if (this.isOver) return
    const { status } = head
    this.#record.respondedAt = performance.now()
    if (this.#isToBeRepeated(head)) return
    this.#record.status = status
    if (status === SWITCHING_PROTOCOLS) {
      this.#received.connection.isTunnel = true
      this.#end()
      return
    }
    this.#allow(this.#gateway.idleTimeoutMs)
    // Content that still arrives after an early response must not be read as a request.
    if (this.#mustClose()) this.#response.keepsAlive = false
    this.#content?.dropKept()
    // There is no tunnel, so all bytes behind the handshake are read and dropped.
    if (this.#request.isWebSocket) this.#message.socket.resume()
    this.#relay.begin(head, this.#gateway.clientKeepAliveSeconds)
  }

  responseContent(bytes: Buffer, start: number, end: number): ContentFate {
    if (this.isOver) return 'taken'
    if (this.#endRejection !== undefined) {
      this.#rejectionBytes += end - start
      if (this.#rejectionBytes > MAX_REJECTION_BYTES) this.#attempt?.abort(UNREAD)
      return 'taken'
    }
    const fate = this.#relay.write(bytes, start, end)
    if (fate === 'full' && this.#limitMs !== Number.POSITIVE_INFINITY) {
      this.#limitMs = Number.POSITIVE_INFINITY // the listener watches a client that takes nothing
      this.#message.socket.once('drain', () => {
        this.#allow(this.#gateway.idleTimeoutMs)
        this.#attempt?.resume()
      })
    }
    return fate
  }

  responsePaused(): void {
    if (!this.isOver && this.#endRejection === undefined) this.#relay.flush()
  }

  responseEnd(): void {
    if (this.isOver) return
    if (this.#endRejection !== undefined) {
      this.#endRejection()
      return
    }
    this.#response.isEnded = true
    if (complete.push(this) === 1) setImmediate(finishComplete)
  }

  /** The response is complete: writes what is left of it. */
  finish(): void {
    if (this.isOver) return
    try {
      if (this.#relay.end()) {
        this.#end()
        return
      }
    } catch (error) {
      this.failWith(error)
      return
    }
    // Until a slow client has taken everything, it can still leave, and the proxy can still break off.
    this.#limitMs = Number.POSITIVE_INFINITY
    this.#response.whenFlushed(() => {
      if (!this.isOver) this.#end()
    })
  }

  attemptFailed(attempt: Attempt, error: Error): void {
    if (!(error instanceof OriginError)) {
      this.failWith(error)
      return
    }
    if (this.isOver || attempt !== this.#attempt) return
    if (this.#endRejection !== undefined) {
      this.#endRejection()
      return
    }
    if (this.#mayUseNewConnection(attempt, error)) {
      this.#hasNewConnection = true
      this.#dispatch(attempt.request.content) // it may be kept nowhere else
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
  #isToBeRepeated(head: ResponseHead): boolean {
    const { status } = head
    const { orgId } = this.#request
    const credential = this.#credential
    if (orgId === undefined || !(credential instanceof AccessToken)) return this.#startsRepeatAsApp(status)
    const { tokens } = this.#gateway
    const sentAt = this.#sentAt
    if (this.#rejection === undefined && tokens.habits.meaningOf(status) === 'accepted') {
      tokens.accepted(orgId, credential, sentAt, this.#record)
      return false
    }
    const { method, path, requestId, isWebSocket: isHandshake, caller } = this.#request
    const requester = caller ?? this.#received.connection
    const { isRepeatable } = this
    this.#rejection ??= new Rejection({ org: orgId, method, path, isRepeatable, isHandshake, requester, requestId })
    const rejected = { token: credential, sentAt, status, challenge: head.challenge }
    const next = tokens.judge(this.#rejection, rejected)
    if (next !== undefined) {
      this.#record.repeat = 'failed' // until the repeat is answered
      void this.#repeatWith(next)
      return true
    }
    this.#record.repeat = repeatOutcome(this.#rejection, tokens.habits.meaningOf(status) === 'rejected')
    return false
  }

  /** The App has two secrets. After a 401 to one, the request is repeated with the other, once. */
  #startsRepeatAsApp(status: number): boolean {
    const { app } = this.#gateway
    const key = this.#credential
    if (key === undefined || key instanceof AccessToken) return false
    if (status >= 200 && status <= 299) app.accepted(key)
    if (status !== UNAUTHORIZED) return false
    key.isRejected = true
    const other = app.alternativeTo(key)
    if (other === undefined || !this.isRepeatable || this.#hasOtherKey) return false
    this.#hasOtherKey = true
    void this.#repeatWith(Promise.resolve(other))
    return true
  }

  /** Waits for the new token and for all of the client's content, then for the end of the rejection. */
  async #repeatWith(next: Promise<AccessToken | AppKey>): Promise<void> {
    this.#rejectionBytes = 0
    const ended = new Promise<void>((resolve) => {
      this.#endRejection = resolve
    })
    try {
      const [credential] = await Promise.all([next, this.#content?.received()])
      const giveUp = setTimeout(() => this.#attempt?.abort(UNREAD), REJECTION_GRACE_MS)
      await ended
      clearTimeout(giveUp)
      this.#endRejection = undefined
      this.#credential = credential
      this.#record.token = 'replayed'
      this.#request.fields[this.#request.fields.length - 1] = credential.reveal()
      this.#dispatch()
    } catch (error) {
      this.failWith(error)
    }
  }

  failWith(error: unknown): void {
    if (error instanceof TokenError || error instanceof OriginError) this.fail(error)
    else {
      this.#gateway.observer.programFailed(error, this.#request.requestId)
      this.fail({ code: 'proxy_internal_error' })
    }
  }

  /** Ends the exchange: with an answer of our own or, if a byte of the response was sent, with a broken one. */
  fail(failure: Failure): void {
    if (this.isOver) return
    this.#record.code = failure.code
    this.#record.detail = causeOf(failure)
    this.#record.reason = failure.limit
    if (this.#response.hasStarted) this.#relay.cut()
    else {
      if (this.#mustClose()) this.#response.keepsAlive = false
      const { method, requestId } = this.#request
      const { status, bytes } = respondWithProblem(this.#response, method === 'HEAD', failure, requestId)
      this.#record.status = status
      this.#relay.bytes = bytes
    }
    this.#giveUp()
  }

  abandon(code: AbandonCode): void {
    if (this.isOver) return
    this.#record.code = code
    if (!this.#response.hasStarted) this.#record.status = STATUS_WITHOUT_ANSWER[code]
    this.#relay.discard()
    this.#giveUp()
  }

  #mustClose(): boolean {
    return this.#content !== undefined && !this.#message.complete
  }

  #giveUp(): void {
    this.#end()
    this.#content?.dropKept()
    this.#attempt?.abort(OVER)
  }

  #end(): void {
    this.isOver = true
    const record = this.#record
    record.endedAt = performance.now()
    record.bytesIn = this.#content?.receivedBytes ?? 0
    record.bytesOut = this.#relay.bytes
    this.#gateway.observer.requestEnded(record)
    this.#received.ended()
  }
}

/**
 * Exchanges whose response is complete. Their last bytes are written together, when the event loop has handled all that it
 * found: a client that sleeps between two writes has to be woken for each, which costs as much as the write.
 */
let complete: Exchange[] = []

function finishComplete(): void {
  const exchanges = complete
  complete = []
  for (const exchange of exchanges) exchange.finish()
}

const UNREAD = new OriginError('http_response_incomplete', 'a rejection that is not read to its end')
const OVER = new OriginError('connection_terminated', 'the exchange has ended')

function repeatOutcome(rejection: Rejection, isRejected: boolean): RepeatOutcome | undefined {
  if (rejection.isRepeated) return isRejected ? 'rejected' : 'accepted'
  if (!isRejected) return undefined
  return rejection.request.isRepeatable ? 'passed' : 'refused'
}
