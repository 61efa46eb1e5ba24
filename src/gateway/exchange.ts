/**
 * One client request and its response. `#serve` is its way: take a credential, send, judge; then repeat, relay, tunnel or fail.
 * A *repeat* goes out after a rejection, with another token or with the same one, and once on a new connection after a
 * connection has failed.
 *
 * This is the hot path: it allocates nothing that the request does not need.
 */

import assert from 'node:assert/strict'
import type { Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import type { Caller } from '../callers/callers.ts'
import { causeForOperator, type ErrorCode, type Failure, OriginError, TokenError } from '../errors.ts'
import { fieldValue, joinedValue } from '../http1/field-list.ts'
import type { ContentUse } from '../http1/message-parser.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import type { ReceivedResponse } from '../http1/response-parser.ts'
import { pathOf } from '../http1/target.ts'
import type { BrokenInput, Client, RequestInProgress } from '../listener/request-handler.ts'
import type { OrgId } from '../org-id.ts'
import { Attempt, type AttemptSink } from '../origin/attempt.ts'
import type { Origin } from '../origin/origin.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import { AppProof } from '../token/app-key.ts'
import type { OrgTokens, Repeatability } from '../token/org-tokens.ts'
import type { RejectionOutcome } from '../token/repeats.ts'
import type { TokenCache } from '../token/token-cache.ts'
import { AccessToken } from '../token/token-source.ts'
import { TokenUse } from '../token/token-use.ts'
import type { Admitted, Refusal } from './admission.ts'
import { ClientContent, type RepeatMemory } from './client-content.ts'
import { respondToOptions, respondWithProblem } from './own-responses.ts'
import {
  type AbandonCode,
  type GatewayObserver,
  type RepeatOutcome,
  RequestRecord,
  type RequestTrace,
  STATUS_WITHOUT_ANSWER,
  type Tracing,
  type TunnelRecord,
  traceIdOf,
  tunnelRecordOf,
  waitedForServiceMs,
} from './request-record.ts'
import { ResponseHead } from './response-head.ts'
import { Tunnel } from './tunnel.ts'

export interface Gateway {
  readonly tokens: TokenCache
  readonly observer: GatewayObserver
  readonly tracing?: Tracing | undefined
  /** Each response tells the time that it took here (`Server-Timing`). */
  readonly tellsTime: boolean
  /** Undefined where no request goes as the bare App. */
  readonly credentials: AppCredentials | undefined
  readonly origin: Origin
  readonly baseUrl: URL
  readonly repeatMemory: RepeatMemory
  /** Those that are open. */
  readonly tunnels: Map<Tunnel, TunnelRecord>
}

/** Of a request that is none, what was read before the fault. */
export type KnownHead = Pick<RequestHead, 'method' | 'target' | 'minorVersion' | 'rawFields'>

type Credential = AccessToken | AppProof

/** Methods that may be carried out twice (RFC 9110 §9.2.2, §18.2). Nobody knows of others whether they may. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'QUERY', 'PROPFIND', 'REPORT', 'SEARCH'])

/** Failures to connect that may be gone at once. A time limit has passed already, and a bad certificate stays. */
const PASSING_FAILURES: ReadonlySet<ErrorCode> = new Set(['connection_refused', 'connection_terminated', 'dns_error'])

/** The connection closes behind these answers: the bytes that follow cannot be trusted to be a request. */
const ENDS_CONNECTION: ReadonlySet<ErrorCode> = new Set([
  'remote_refused',
  'request_invalid',
  'request_head_too_large',
  'http_version_refused',
  'upgrade_invalid',
])

/** Refused before the sender was known. Anyone can say that a request is to leave spans, so these leave none. */
const OF_STRANGERS: ReadonlySet<ErrorCode> = new Set([
  'remote_refused',
  'request_invalid',
  'request_head_too_large',
  'request_timeout',
  'http_version_refused',
  'transfer_coding_refused',
  'method_refused',
  'expectation_failed',
  'host_invalid',
  'host_refused',
  'browser_refused',
  'forwarded_refused',
  'caller_refused',
  'caller_keys_unavailable',
])

const UNAUTHORIZED = 401

/** A service that refuses the request does so in this time. So the client need not send the content (RFC 9110 §10.1.1). */
const CONTINUE_AFTER_MS = 100

export class Exchange implements RequestInProgress, AttemptSink, Repeatability {
  readonly #gateway: Gateway
  readonly #client: Client
  readonly #head: KnownHead
  readonly #response: Client['response']
  readonly #newRequestId: () => string
  /** It is in flight no more. */
  readonly #onEnd: (exchange: Exchange) => void
  /** Monotonic milliseconds: its head had arrived. */
  readonly #startedAt = performance.now()
  /** True while a JWT is being verified: nobody knows who has sent the request. */
  awaitsProof = false
  /** Set before anybody is called: what ends a request calls others, and they may call back. */
  isOver = false
  #record: RequestRecord | undefined
  /** Undefined if the request leaves no spans. */
  #trace: RequestTrace | undefined
  // Once it is admitted:
  #request: Admitted | undefined
  #content: ClientContent | undefined
  /** Those of its Org when it took the first one. */
  #tokens: OrgTokens | undefined
  /** Set once it waits for a token, or gets an answer that is not a plain success. */
  #tokenUse: TokenUse | undefined
  /** Runs until the client is told to send its content. */
  #continuing: NodeJS.Timeout | undefined
  // Of the current attempt:
  #attempt: Attempt | undefined
  /** The token of the Org, or the key of the App if the request goes as the bare App. */
  #credential: Credential | undefined
  /** Set until the service has answered. Tells `#serve` what comes next: a repeat, or nothing. */
  #answered: ((repeatsWith?: Promise<Credential>) => void) | undefined
  /** Monotonic milliseconds: the request was sent. */
  #sentAt = 0
  #hasNewConnection = false

  constructor(
    gateway: Gateway,
    client: Client,
    head: KnownHead,
    newRequestId: () => string,
    onEnd: (exchange: Exchange) => void,
  ) {
    this.#gateway = gateway
    this.#client = client
    this.#head = head
    this.#response = client.response
    this.#newRequestId = newRequestId
    this.#onEnd = onEnd
  }

  /** It was admitted for this one. */
  get caller(): Caller | undefined {
    return this.#request?.caller
  }

  get orgId(): OrgId | undefined {
    return this.#request?.orgId
  }

  // ---- before it is admitted

  /** Answers without the service. `refusal` says why, and what is known of the sender. */
  refuse(refusal: Failure & Pick<Refusal, 'orgId' | 'caller'>): void {
    this.isOver = true
    const response = this.#response
    const { certificateProblem } = this.#client
    // On its next connection, the client may have a better certificate, or the proxy the CA.
    if (certificateProblem !== undefined || ENDS_CONNECTION.has(refusal.code)) response.keepsAlive = false
    // The client may speak another protocol from here on.
    if (fieldValue(this.#head.rawFields, 'upgrade') !== '') response.keepsAlive = false
    const record = this.#newRecord(refusal.orgId, !OF_STRANGERS.has(refusal.code))
    record.caller = refusal.caller?.name
    record.code = refusal.code
    const isUncertified = refusal.reason === 'no credential' && certificateProblem !== undefined
    const reason = refusal.reason ?? refusal.limit
    record.reason = isUncertified ? certificateProblem : reason
    this.#tellTime()
    record.status = respondWithProblem(response, record, refusal)
    this.#end()
  }

  /** Of a request that is not admitted. `orgId` is undefined if the id was not checked, or is invalid. */
  #newRecord(orgId?: string, mayLeaveSpans = false): RequestRecord {
    const { method, target, rawFields } = this.#head
    const path = target.startsWith('/') ? pathOf(target) : '' // without an authority, which may hold a password
    // An id of our own: the answer repeats nothing of a request that was not admitted.
    const record = new RequestRecord(this.#newRequestId(), orgId, method, path, this.#startedAt)
    this.#beginWith(record, fieldValue(rawFields, 'traceparent'), mayLeaveSpans)
    return record
  }

  #beginWith(record: RequestRecord, traceparent: string | undefined, mayLeaveSpans = true): void {
    this.#record = record
    if (mayLeaveSpans) this.#trace = this.#gateway.tracing?.begin(record, traceparent)
    record.traceId = this.#trace?.traceId ?? (traceparent === undefined ? undefined : traceIdOf(traceparent))
  }

  // ---- the way of an admitted request

  start(request: Admitted): void {
    const { requestId, orgId, method, path, caller, hasContent } = request
    const record = new RequestRecord(requestId, orgId, method, path, this.#startedAt)
    this.#beginWith(record, request.traceparent)
    record.isAdmitted = true
    record.caller = caller?.name
    this.#request = request
    // Without a tunnel, what comes behind the handshake is no request.
    if (request.isWebSocket) this.#response.keepsAlive = false
    // The client asks this proxy, not the service behind it (RFC 9110 §7.6.2).
    if (request.isForProxy) {
      this.isOver = true
      this.#tellTime()
      record.status = respondToOptions(this.#response, requestId)
      this.#end()
      return
    }
    if (hasContent)
      this.#content = new ClientContent(this.#client, request, this.#gateway.repeatMemory, caller ?? orgId)
    void this.#serve(request)
  }

  /** Take a credential, send, judge; and again, until the client has its answer. */
  async #serve(request: Admitted): Promise<void> {
    try {
      let credential = request.orgId === undefined ? await this.#proveApp() : this.#takeToken(request.orgId)
      credential ??= await this.#waitForToken()
      // Content that came together with the head is sent in one piece: the parser tells it before this goes on.
      if (request.hasContent) await undefined
      while (!this.isOver) {
        const next = await this.#send(credential)
        if (next === undefined) return // the client gets the answer, or an error of our own
        credential = next
      }
    } catch (error) {
      this.#caught(error)
    }
  }

  #proveApp(): Promise<Credential> {
    const { credentials, baseUrl } = this.#gateway
    assert(credentials !== undefined)
    return credentials.key.prove(baseUrl.href)
  }

  #takeToken(orgId: OrgId): Credential | undefined {
    const { tokens } = this.#gateway
    this.#tokens = tokens.orgs.get(orgId)
    if (this.#tokens === undefined) return undefined
    const found = tokens.get(orgId, this.#tokens, this)
    if ('wait' in found) return undefined
    this.#writableRecord.token = found.result
    return found.token
  }

  async #waitForToken(): Promise<AccessToken> {
    const { token, result } = await this.#useOfToken().obtain()
    this.#writableRecord.token = result
    return token
  }

  #useOfToken(): TokenUse {
    if (this.#tokenUse === undefined) {
      const { orgId: org, caller, requestId } = this.#admitted
      assert(org !== undefined)
      const requester = caller ?? this.#client
      const request = { org, requester, requestId, hasLeft: () => this.isOver, repeatability: this }
      this.#tokenUse = new TokenUse(this.#gateway.tokens, request, this.#tokens)
    }
    return this.#tokenUse
  }

  get isKept(): boolean {
    return this.#content?.isRepeatable !== false
  }

  get isSafe(): boolean {
    const { method } = this.#admitted
    return method === 'GET' || method === 'HEAD'
  }

  /** Resolves with the credential for a repeat, once the repeat can be sent, or with undefined if the client gets the answer. */
  #send(credential: Credential): Promise<Credential | undefined> {
    return new Promise((resolve) => {
      this.#answered = resolve
      this.#credential = credential
      this.#dispatch(this.#content?.take())
    })
  }

  #dispatch(content: Attempt['content']): void {
    const { target, method, contentLength, isWebSocket: isHandshake, orgId: org = '' } = this.#admitted
    const fields = this.#trace?.attemptBegan(this.#admitted.fields) ?? this.#admitted.fields
    const needsNewConnection = isHandshake || this.#hasNewConnection
    const request = { method, target, fields, contentLength, isHandshake, org, needsNewConnection }
    this.#attempt = new Attempt(request, content, this)
    const record = this.#writableRecord
    this.#sentAt = performance.now()
    record.waitedMs = waitedForServiceMs(record, this.#sentAt)
    record.dispatchedAt = this.#sentAt
    record.respondedAt = undefined
    this.#gateway.origin.dispatch(this.#attempt)
  }

  // ---- what the attempt tells

  /** A token that has ended while the attempt waited for its connection is replaced, and the connection waits. */
  authorize(): string | Promise<string> {
    const credential = this.#credential
    const hasEnded = credential instanceof AccessToken && this.#gateway.tokens.hasEnded(credential)
    if (!hasEnded) return this.#authorizeWith(credential)
    return this.#waitForToken().then((token) => this.#authorizeWith(token))
  }

  /** The service is asked only now: the time before was spent on waiting for a connection. */
  #authorizeWith(credential: Credential | undefined): string {
    assert(credential !== undefined)
    this.#credential = credential
    this.#sentAt = performance.now()
    if (this.#admitted.expectsContinue && this.#content?.isComplete === false) {
      clearTimeout(this.#continuing)
      this.#continuing = setTimeout(() => this.#client.sendContinue(), CONTINUE_AFTER_MS)
    }
    return credential.reveal()
  }

  responseHead(head: ReceivedResponse): void {
    clearTimeout(this.#continuing)
    this.#writableRecord.respondedAt = performance.now()
    const next = this.#judge(head)
    if (next === undefined) this.#relay(head)
    else this.#trace?.attemptEnded(head.status)
    this.#answer(next && this.#waitToRepeat(next))
  }

  /** Tells `#serve` what comes next. */
  #answer(repeatsWith?: Promise<Credential>): void {
    const answered = this.#answered
    assert(answered !== undefined)
    this.#answered = undefined
    answered(repeatsWith)
  }

  protocolSwitched(head: ReceivedResponse, service: Socket, firstBytes: Buffer): void {
    this.#writableRecord.respondedAt = performance.now()
    this.#judge(head) // a 101 accepts the token
    this.#attempt = undefined // the tunnel outlives the exchange
    this.#answer()
    const client = this.#client
    const started = client.startTunnel()
    if (started === undefined) {
      service.destroy()
      this.fail({ code: 'draining' })
      return
    }
    this.isOver = true
    const record = this.#writableRecord
    record.status = head.status
    this.#tellTime()
    this.#response.switchProtocols(new ResponseHead(head))
    const { observer, tunnels } = this.#gateway
    const told = tunnelRecordOf(record)
    const tunnel = new Tunnel(
      started.socket,
      service,
      () => client.isFinishing,
      (end) => {
        tunnels.delete(tunnel)
        observer.tunnelEnded?.(told, end)
      },
    )
    tunnels.set(tunnel, told)
    tunnel.join(started.firstBytes, firstBytes)
    this.#end()
  }

  responseContent(bytes: Buffer, start: number, end: number): ContentUse {
    return this.#response.write(bytes, start, end)
  }

  responsePaused(): void {
    this.#response.writeHeld()
  }

  responseEnd(): void {
    this.#response.end()
  }

  attemptFailed(attempt: Attempt, error: Error): void {
    if (this.isOver) return
    if (!(error instanceof OriginError)) this.#caught(error)
    else if (this.#mayUseNewConnection(attempt, error)) {
      this.#hasNewConnection = true
      this.#trace?.attemptEnded(error.code)
      this.#dispatch(attempt.content) // it may be kept nowhere else
    } else {
      // Send the content that came before the break, so that the client sees the service's response break.
      this.#response.writeHeld()
      // RFC 9209 §2.3: "terminated" means that no part of the response was received.
      const isCut = attempt.hasResponse && error.code === 'connection_terminated'
      const isBroken = isCut || (this.#response.hasStarted && error.code !== 'http_response_timeout')
      this.fail(isBroken ? { code: 'http_response_incomplete', reason: error.reason } : error)
    }
  }

  /**
   * A request that was never sent may go again. One that was sent on a reused connection, and got no byte of a response,
   * may go again if it is safe to carry out twice: the service may have closed the connection before it read the request.
   */
  #mayUseNewConnection(attempt: Attempt, failure: OriginError): boolean {
    const { hasContent, method } = this.#admitted
    if (this.#hasNewConnection) return false
    if (!attempt.isSent) return PASSING_FAILURES.has(failure.code)
    if (attempt.hasResponse || !attempt.isReused || failure.code !== 'connection_terminated') return false
    return !hasContent && IDEMPOTENT.has(method)
  }

  // ---- judge

  /** If the client need not see this answer: resolves with the credential for the repeat. */
  #judge({ status, rawFields }: ReceivedResponse): Promise<Credential> | undefined {
    const credential = this.#credential
    if (credential instanceof AppProof) return this.#judgeAsApp(credential, status)
    assert(credential !== undefined)
    if (this.#tokenUse === undefined && status >= 200 && status <= 299) {
      this.#tokens?.noteAccepted(credential, this.#sentAt)
      return undefined
    }
    this.#content?.reserve() // a repeat may follow at once: makes sure of memory for the rest of the content
    const use = this.#useOfToken()
    const challenge = joinedValue(rawFields, 'www-authenticate') // RFC 9110 §11.6.1
    const next = use.judge({ token: credential, sentAt: this.#sentAt, status, challenge })
    const record = this.#writableRecord
    // Until the repeat is answered, it counts as failed.
    record.repeat = next === undefined ? repeatOutcome(use.outcome, record.repeat) : 'failed'
    record.rejection = use.outcome
    return next
  }

  /** The App has two secrets. After a 401 to one, the request is repeated with the other, once. */
  #judgeAsApp({ key }: AppProof, status: number): Promise<AppProof> | undefined {
    const { credentials, baseUrl } = this.#gateway
    assert(credentials !== undefined)
    if (status >= 200 && status <= 299) credentials.accepted(key)
    if (status !== UNAUTHORIZED) return undefined
    credentials.rejected(key)
    const other = credentials.next([key])
    if (other === undefined || !this.isKept || this.#content?.reserve() === false || this.#record?.token === 'replayed')
      return undefined
    return other.prove(baseUrl.href)
  }

  /** Waits for the new token and for all of the client's content. */
  async #waitToRepeat(next: Promise<Credential>): Promise<Credential> {
    assert(this.#attempt !== undefined)
    this.#attempt.discardResponse()
    const [credential] = await Promise.all([next, this.#content?.repeatable()])
    this.#writableRecord.token = 'replayed'
    return credential
  }

  // ---- relay

  #relay(received: ReceivedResponse): void {
    const head = new ResponseHead(received)
    this.#writableRecord.status = head.status
    this.#content?.dropKept()
    // There is no tunnel, so what came behind the handshake is dropped.
    if (this.#admitted.isWebSocket) this.#client.finish()
    // Links for the App, such as the one that links an Org, may be meant for a browser.
    if (this.#admitted.orgId !== undefined)
      head.relocate(this.#gateway.baseUrl, this.#client.scheme, this.#admitted.host)
    this.#tellTime()
    this.#response.begin(head, this.#head.minorVersion === 0)
  }

  #tellTime(): void {
    if (!this.#gateway.tellsTime) return
    const now = performance.now()
    const tookMs = now - this.#startedAt - waitedForServiceMs(this.#writableRecord, now)
    this.#response.timing = `Server-Timing: oap;dur=${tookMs.toFixed(3)}\r\n`
  }

  // ---- what the client's connection tells

  get mayBecomeTunnel(): boolean {
    return !this.isOver && this.#request?.isWebSocket !== false
  }

  get awaitsClient(): boolean {
    return !this.isOver && this.#content?.awaitsClient === true
  }

  content(bytes: Buffer, start: number, end: number): void {
    if (!this.isOver) this.#content?.receive(bytes, start, end)
  }

  contentEnded(): void {
    if (!this.isOver) this.#content?.ended()
  }

  clientFailed(input: BrokenInput): void {
    if (this.isOver) return
    if (this.#request === undefined) this.refuse(input)
    else this.fail(input)
  }

  abandoned(code: AbandonCode): void {
    if (this.isOver) return
    this.isOver = true
    const record = this.#record ?? this.#newRecord()
    record.code = code
    if (!this.#response.hasStarted) record.status = STATUS_WITHOUT_ANSWER[code]
    this.#response.discard()
    this.#end()
  }

  responseDrained(): void {
    this.#attempt?.resume()
  }

  responseFlushed(): void {
    if (this.isOver) return
    this.isOver = true
    this.#end()
  }

  // ---- the ends

  /** Anything but a known failure is a fault of this program. */
  #caught(error: unknown): void {
    if (error instanceof TokenError || error instanceof OriginError) this.fail(error)
    else {
      this.#gateway.observer.programFailed(error, this.#writableRecord.requestId)
      this.fail({ code: 'proxy_internal_error' })
    }
  }

  /** The client gets an answer of our own or, if it has a byte of the response, a broken one. */
  fail(failure: Failure): void {
    if (this.isOver) return
    this.isOver = true
    const record = this.#writableRecord
    record.code = failure.code
    record.isOfMinter = failure.isOfMinter ?? false
    record.detail = causeForOperator(failure)
    record.reason = failure.limit ?? failure.reason
    if (this.#response.hasStarted) this.#response.cut()
    else {
      this.#tellTime()
      record.status = respondWithProblem(this.#response, record, failure)
    }
    this.#end()
  }

  #end(): void {
    assert(this.isOver)
    const record = this.#writableRecord
    record.endedAt = performance.now()
    record.bytesIn = this.#content?.receivedBytes ?? 0
    record.bytesOut = this.#response.contentBytes
    this.#gateway.observer.requestEnded(record)
    this.#trace?.ended()
    this.#onEnd(this)
    clearTimeout(this.#continuing)
    this.#tokenUse?.end()
    this.#content?.dropKept()
    this.#attempt?.abort(OVER)
  }

  get #admitted(): Admitted {
    assert(this.#request !== undefined)
    return this.#request
  }

  get #writableRecord(): RequestRecord {
    assert(this.#record !== undefined)
    return this.#record
  }
}

/** `before`: what was told of it so far. */
function repeatOutcome(rejection: RejectionOutcome | undefined, before: RepeatOutcome | undefined) {
  switch (rejection) {
    case 'repeated':
      return 'accepted'
    case 'not_kept':
      return 'refused'
    case 'useless':
      return 'rejected'
    case 'passed':
      return before === undefined ? 'passed' : 'rejected'
    case undefined:
      return undefined
  }
}

const OVER = new OriginError('connection_terminated', 'the exchange has ended')
