/**
 * One client request and its response. Sends the request to the service, repeats it if that is safe, and relays the
 * response. A *repeat* goes out after a rejection, with another token or with the same one, and once on a new connection
 * after a connection has failed. A WebSocket handshake is an exchange like any other until a 101 makes its connection a tunnel.
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
  RequestRecord,
  STATUS_WITHOUT_ANSWER,
  type TokenResult,
} from '../http/request-record.ts'
import type { ResponseHead } from '../http/response-head.ts'
import { Attempt, type AttemptSink, type ContentUse } from '../origin/attempt.ts'
import type { Origin } from '../origin/origin.ts'
import { type AppCredentials, AppKey } from '../token/app-credentials.ts'
import type { RequestKind } from '../token/org-tokens.ts'
import type { TokenCache, Waiter } from '../token/token-cache.ts'
import type { AccessToken } from '../token/token-source.ts'
import { ClientContent, type RepeatMemory } from './client-content.ts'
import { RejectedToken } from './rejected-token.ts'

export interface Gateway {
  /** Requests that wait for a token. */
  waiting: number
  readonly tokens: TokenCache
  readonly observer: GatewayObserver
  readonly credentials: AppCredentials
  readonly origin: Origin
  readonly baseUrl: URL
  /** Until the final response head, counted from the last progress of the request; also the longest wait for a connection. */
  readonly responseTimeoutMs: number
  /** Silence of the service inside a response. */
  readonly idleTimeoutMs: number
  readonly repeatMemory: RepeatMemory
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
  readonly #received: ReceivedRequest
  readonly #response: ClientResponse
  readonly #record: RequestRecord
  readonly #content: ClientContent | undefined
  #attempt: Attempt | undefined
  /** Of the attempt: the token of the org, or the key of the App if the request goes as the bare App. */
  #credential: AccessToken | AppKey | undefined
  /** When the token of the attempt was sent, for its age. Monotonic milliseconds. */
  #sentAt = 0
  /** Set from the first rejection on. */
  #rejection: RejectedToken | undefined
  #hasNewConnection = false
  /** The longest time without progress. */
  #limitMs = Number.POSITIVE_INFINITY
  #checkedBytes = 0
  /** The last progress that is known. Monotonic milliseconds. */
  #progressedAt = 0
  #isOver = false
  /** It waits for its first token. */
  #isWaiting = false

  constructor(gateway: Gateway, request: AdmittedRequest, received: ReceivedRequest) {
    const { message, response, startedAt } = received
    this.#gateway = gateway
    this.#request = request
    this.#received = received
    this.#response = response
    this.#record = new RequestRecord(request.requestId, request.orgId, request.method, request.path, startedAt)
    this.#record.isAdmitted = true
    this.#record.caller = request.caller?.name
    this.#record.traceId = request.traceId
    const { hasContent, contentLength, caller, orgId } = request
    if (hasContent) this.#content = new ClientContent(message, contentLength, gateway.repeatMemory, caller ?? orgId)
    else markEmpty(message)
  }

  /** True while we read content and the client sends none. */
  get awaitsClient(): boolean {
    return this.#content?.awaitsClient ?? false
  }

  /** False if it is known that this request cannot be sent twice. */
  get #isRepeatable(): boolean {
    return !this.#request.isWebSocket && this.#content?.isRepeatable !== false
  }

  /** The same when a repeat may follow at once: makes sure of memory for the rest of the content. */
  #reserveRepeat(): boolean {
    return !this.#request.isWebSocket && this.#content?.reserve() !== false
  }

  /** Gets the credential and forwards the request with it. Only a miss makes a promise. */
  start(): void {
    const { orgId } = this.#request
    const { tokens, credentials } = this.#gateway
    try {
      const found =
        orgId === undefined ? { token: credentials.key, result: 'none' as const } : tokens.get(orgId, this.#requestKind)
      if (found !== undefined) this.#forward(found.token, found.result)
      else if (orgId !== undefined) {
        this.#setWaiting(true)
        tokens
          .obtain(orgId, this.#waiter())
          .then(({ token, result }) => this.#forward(token, result))
          .catch((error: unknown) => this.#caught(error))
          .finally(() => this.#setWaiting(false))
      }
    } catch (error) {
      this.#caught(error)
    }
  }

  get #requestKind(): RequestKind {
    return this.#isRepeatable ? 'repeatable' : 'once'
  }

  #waiter(): Waiter {
    const { caller, requestId } = this.#request
    const requester = caller ?? this.#received.connection
    return { kind: this.#requestKind, requester, requestId, hasLeft: () => this.#isOver }
  }

  #setWaiting(isWaiting: boolean): void {
    if (isWaiting !== this.#isWaiting) this.#gateway.waiting += isWaiting ? 1 : -1
    this.#isWaiting = isWaiting
  }

  #forward(credential: AccessToken | AppKey, source: TokenResult | 'none'): void {
    if (this.#isOver) return
    this.#request.fields.push('authorization', '')
    this.#useCredential(credential, source)
    // By the next tick, Node has parsed content that came together with the head. It is then sent in one piece.
    if (this.#content === undefined) this.#dispatch()
    else process.nextTick(() => this.#dispatchWithContent())
  }

  #dispatchWithContent(): void {
    if (this.#isOver) return
    const isAwaited = this.#request.expectsContinue && this.#content?.hasBegun === false
    if (isAwaited) this.#response.socket.write('HTTP/1.1 100 Continue\r\n\r\n')
    this.#dispatch()
  }

  #useCredential(credential: AccessToken | AppKey, source: TokenResult | 'none'): void {
    const { fields } = this.#request
    this.#credential = credential
    this.#record.token = source
    fields[fields.length - 1] = credential.reveal()
  }

  #dispatch(content: Attempt['request']['content'] = this.#content?.whole() ?? this.#content): void {
    if (this.#isOver) return
    const { target, method, fields, contentLength, isWebSocket, orgId: org = '' } = this.#request
    const webSocketClient = isWebSocket ? this.#response.socket : undefined
    const needsNewConnection = isWebSocket || this.#hasNewConnection
    try {
      const request = { method, target, fields, content, contentLength, webSocketClient, org, needsNewConnection }
      this.#attempt = new Attempt(request, this)
      this.#sentAt = performance.now()
      this.#record.dispatchedAt = this.#sentAt
      this.#record.respondedAt = undefined
      this.#allow(this.#gateway.responseTimeoutMs, this.#sentAt)
      this.#gateway.origin.dispatch(this.#attempt)
    } catch (error) {
      this.#caught(error)
    }
  }

  /** There was progress; the next must follow within this time. */
  #allow(limitMs: number, now: number): void {
    this.#limitMs = limitMs
    this.#progressedAt = now
  }

  /** The one clock of the request. Called several times within each limit, with monotonic milliseconds. */
  check(now: number): void {
    // An early response has a limit of its own, however much content the client still sends.
    const bytes = this.#response.hasStarted ? this.#response.contentBytes : (this.#content?.receivedBytes ?? 0)
    if (bytes !== this.#checkedBytes) {
      this.#checkedBytes = bytes
      this.#progressedAt = now
    } else if (now - this.#progressedAt >= this.#limitMs) this.#limitPassed(now)
  }

  #limitPassed(now: number): void {
    if (!this.#response.hasStarted && this.awaitsClient) this.#progressedAt = now
    else if (this.#attempt?.isSent !== false) this.fail({ code: 'http_response_timeout' })
    else if (this.#attempt.queuedFor !== undefined) this.fail({ code: 'overloaded', limit: this.#attempt.queuedFor })
    else this.fail(NOT_CONNECTED)
  }

  /** The service is asked only now: the time before was spent on waiting for a connection. */
  connected(): void {
    this.#sentAt = performance.now()
    this.#progressedAt = this.#sentAt
  }

  responseHead(head: ResponseHead): void {
    const { status } = head
    const now = performance.now()
    this.#record.respondedAt = now
    const next = this.#judge(head)
    if (next !== undefined) {
      void this.#repeatWith(next)
      return
    }
    this.#record.status = status
    if (status === SWITCHING_PROTOCOLS) {
      this.#received.connection.isTunnel = true
      this.#attempt = undefined // the tunnel outlives the exchange
      this.#end()
      return
    }
    this.#allow(this.#gateway.idleTimeoutMs, now)
    this.#content?.dropKept()
    // There is no tunnel, so all bytes behind the handshake are read and dropped.
    if (this.#request.isWebSocket) this.#response.socket.resume()
    this.#closeBehindContent()
    // Links for the App, such as the one that links an Org, may be meant for a browser.
    if (this.#request.orgId !== undefined) head.relocate(this.#gateway.baseUrl)
    const isHttp10 = this.#received.message.httpVersionMinor === 0
    this.#response.begin(head, isHttp10)
  }

  /** Content that still arrives after an early response must not be read as a request. */
  #closeBehindContent(): void {
    if (this.#content !== undefined && !this.#received.message.complete) this.#response.keepsAlive = false
  }

  responseContent(bytes: Buffer, start: number, end: number): ContentUse {
    const use = this.#response.write(bytes, start, end)
    if (use === 'pause' && this.#limitMs !== Number.POSITIVE_INFINITY) {
      this.#limitMs = Number.POSITIVE_INFINITY // the listener watches a client that takes nothing
      this.#response.socket.once('drain', () => {
        this.#allow(this.#gateway.idleTimeoutMs, performance.now())
        this.#attempt?.resume()
      })
    }
    return use
  }

  responsePaused(): void {
    this.#response.flush()
  }

  responseEnd(): void {
    this.#response.isComplete = true
    if (completed.push(this) === 1) setImmediate(completeAll)
  }

  attemptFailed(attempt: Attempt, error: Error): void {
    if (!(error instanceof OriginError)) this.#caught(error)
    else if (this.#isOver) return
    else if (this.#mayUseNewConnection(attempt, error)) {
      this.#hasNewConnection = true
      this.#dispatch(attempt.request.content) // it may be kept nowhere else
    } else {
      // Send the content that came before the break, so that the client sees the service's response break.
      this.#response.flush()
      // RFC 9209 §2.3: "terminated" means that no part of the response was received.
      const isIncomplete = attempt.hasResponse && error.code === 'connection_terminated'
      const isBroken = this.#response.hasStarted || isIncomplete
      this.fail(isBroken ? { code: 'http_response_incomplete', reason: error.reason } : error)
    }
  }

  /**
   * A request that was never sent may go again. One that was sent on a reused connection, and got no byte of a response,
   * may go again if it is safe to carry out twice: the service may have closed the connection before it read the request.
   */
  #mayUseNewConnection(attempt: Attempt, failure: OriginError): boolean {
    if (this.#hasNewConnection) return false
    if (!attempt.isSent) return failure.code === 'connection_refused' || failure.code === 'connection_terminated'
    if (attempt.hasResponse || !attempt.isReused || failure.code !== 'connection_terminated') return false
    return this.#content === undefined && IDEMPOTENT.has(this.#request.method)
  }

  /** If the response is a rejection that the client need not see: resolves with the credential for the repeat. */
  #judge(head: ResponseHead): Promise<AccessToken | AppKey> | undefined {
    const { status } = head
    const { orgId } = this.#request
    const credential = this.#credential
    if (credential instanceof AppKey) return this.#judgeAsApp(credential, status)
    if (credential === undefined || orgId === undefined) return undefined
    const { tokens } = this.#gateway
    const sentAt = this.#sentAt
    if (this.#rejection === undefined) {
      const meaning = tokens.service.meaningOf(status, this.#request.method, head.challenge)
      const ofOrg = tokens.orgs.peek(orgId)
      if (meaning === 'accepted') ofOrg?.noteAccepted(credential, sentAt, this.#requestKind, this.#record)
      else if (meaning === 'neither') ofOrg?.noteStatus(status)
      if (meaning === 'accepted' || meaning === 'neither') return undefined
      const { method, path } = this.#request
      const kind = this.#reserveRepeat() ? 'repeatable' : 'once'
      this.#rejection = new RejectedToken(tokens, { ...this.#waiter(), org: orgId, method, path, kind })
    }
    const next = this.#rejection.judge({ token: credential, sentAt, status, challenge: head.challenge })
    // Until the repeat is answered, it counts as failed.
    this.#record.repeat = next === undefined ? this.#rejection.outcome : 'failed'
    this.#record.rejection = this.#rejection.kind
    return next
  }

  /** The App has two secrets. After a 401 to one, the request is repeated with the other, once. */
  #judgeAsApp(key: AppKey, status: number): Promise<AppKey> | undefined {
    const { credentials } = this.#gateway
    if (status >= 200 && status <= 299) credentials.accepted(key)
    if (status !== UNAUTHORIZED) return undefined
    const other = credentials.rejected(key)
    if (other === key || !this.#reserveRepeat() || this.#record.token === 'replayed') return undefined
    return Promise.resolve(other)
  }

  /** Waits for the new token and for all of the client's content, then for the end of the rejection. */
  async #repeatWith(next: Promise<AccessToken | AppKey>): Promise<void> {
    this.#limitMs = Number.POSITIVE_INFINITY // the mint and the client's content have limits of their own
    const attempt = this.#attempt
    const ended = attempt && readAway(attempt)
    try {
      const [credential] = await Promise.all([next, this.#content?.received()])
      const grace = setTimeout(() => attempt?.abort(UNREAD), REJECTION_GRACE_MS)
      await ended
      clearTimeout(grace)
      this.#useCredential(credential, 'replayed')
      this.#dispatch()
    } catch (error) {
      this.#caught(error)
    }
  }

  // ---- the ends: `complete`, `fail` and `abandon`

  /** All of the service's response is here. */
  complete(): void {
    if (this.#isOver || this.#response.socket.destroyed) return // the client has left, and `abandon` follows
    try {
      if (this.#response.end()) this.#end()
      else {
        // Until a slow client has taken everything, it can still leave, and the proxy can still break off.
        this.#limitMs = Number.POSITIVE_INFINITY
        this.#response.onFlushed = () => this.#end()
      }
    } catch (error) {
      this.#caught(error)
    }
  }

  /** Anything but a known failure is a fault of this program. */
  #caught(error: unknown): void {
    if (error instanceof TokenError || error instanceof OriginError) this.fail(error)
    else {
      this.#gateway.observer.programFailed(error, this.#request.requestId)
      this.fail({ code: 'proxy_internal_error' })
    }
  }

  /** The client gets an answer of our own or, if it has a byte of the response, a broken one. */
  fail(failure: Failure): void {
    if (this.#isOver) return
    this.#record.code = failure.code
    this.#record.detail = causeOf(failure)
    this.#record.reason = failure.reason ?? failure.limit
    if (this.#response.hasStarted) this.#response.cut()
    else {
      this.#closeBehindContent()
      this.#record.status = respondWithProblem(this.#response, this.#record, failure)
    }
    this.#end()
  }

  /** The client gets nothing more. */
  abandon(code: AbandonCode): void {
    if (this.#isOver) return
    this.#record.code = code
    if (!this.#response.hasStarted) this.#record.status = STATUS_WITHOUT_ANSWER[code]
    this.#response.discard()
    this.#end()
  }

  #end(): void {
    this.#isOver = true
    this.#setWaiting(false)
    const record = this.#record
    record.endedAt = performance.now()
    record.bytesIn = this.#content?.receivedBytes ?? 0
    record.bytesOut = this.#response.contentBytes
    this.#gateway.observer.requestEnded(record)
    this.#received.ended()
    this.#content?.dropKept()
    this.#attempt?.abort(OVER)
  }
}

/**
 * Exchanges whose response is complete. Their last bytes are written together, when the event loop has handled all that it
 * found: a client that sleeps between two writes has to be woken for each, which costs as much as the write.
 */
let completed: Exchange[] = []

function completeAll(): void {
  const exchanges = completed
  completed = []
  for (const exchange of exchanges) exchange.complete()
}

/** Reads the rest of a response that nobody gets, so that its connection can be used again. Resolves when it has ended or broken off. */
function readAway(attempt: Attempt): Promise<void> {
  return new Promise((resolve) => {
    let bytes = 0
    attempt.sink = {
      responseHead: () => undefined,
      responseContent: (_, start, end) => {
        bytes += end - start
        if (bytes > MAX_REJECTION_BYTES) attempt.abort(UNREAD)
        return 'consumed'
      },
      responseEnd: resolve,
      attemptFailed: () => resolve(),
    }
  })
}

const NOT_CONNECTED: Failure = {
  code: 'connection_timeout',
  hint: 'TCP and TLS with the service took longer than origin.responseTimeout.',
}
const UNREAD = new OriginError('http_response_incomplete', 'a rejection that is not read to its end')
const OVER = new OriginError('connection_terminated', 'the exchange has ended')
