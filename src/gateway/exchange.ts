/**
 * One admitted request and its response. `#serve` is its way: take a credential, send, judge; then repeat, relay, tunnel or fail.
 * A *repeat* goes out after a rejection, with another token or with the same one, and once on a new connection after a
 * connection has failed.
 *
 * This is the hot path: it allocates nothing that the request does not need.
 */

import assert from 'node:assert/strict'
import * as clock from '../clock.ts'
import { type ErrorCode, type Failure, OriginError, TokenError } from '../errors.ts'
import type { ContentUse } from '../http1/message-parser.ts'
import { type ReceivedResponse, SWITCHING_PROTOCOLS } from '../http1/response-parser.ts'
import type { BrokenInput, Client, RequestInProgress } from '../listener/request-handler.ts'
import type { OrgId } from '../org-id.ts'
import { Attempt, type AttemptSink } from '../origin/attempt.ts'
import type { ConnectionPool } from '../origin/connection-pool.ts'
import type { AppCredentials } from '../token/app-credentials.ts'
import type { Orgs } from '../token/orgs.ts'
import { RequestToken, type TokenUser } from '../token/request-token.ts'
import type { Admitted } from './admission.ts'
import { AppCredential } from './app-credential.ts'
import { ClientContent, type RepeatMemory } from './client-content.ts'
import { cookieThrough } from './cookies.ts'
import { refuseWith, respondToOptions } from './own-responses.ts'
import { type AbandonCode, type GatewayObserver, RequestRecord, type Tracing } from './request-record.ts'
import { type NamesForClient, ResponseHead } from './response-head.ts'
import type { SecretFields } from './secret-fields.ts'
import { linksThrough, targetOfLocation } from './targets.ts'
import { Tunnel, type Tunnels } from './tunnel.ts'

export interface Gateway {
  readonly orgs: Orgs
  readonly observer: GatewayObserver
  readonly tracing?: Tracing | undefined
  /** Each response tells the time that it took here (`Server-Timing`). */
  readonly tellsTime: boolean
  /** Undefined where no request goes as the bare App. */
  readonly credentials: AppCredentials | undefined
  readonly secretFields: SecretFields
  readonly pool: ConnectionPool
  readonly baseUrl: URL
  readonly repeatMemory: RepeatMemory
  readonly tunnels: Tunnels
  /** For a side of a tunnel that takes nothing. */
  readonly idleTimeoutMs: number
}

/** Methods that may be carried out twice (RFC 9110 §9.2.2, §18.2). Nobody knows of others whether they may. */
const IDEMPOTENT = new Set(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'QUERY', 'PROPFIND', 'REPORT', 'SEARCH'])

/** Failures to connect that may be gone at once. A time limit has passed already, and a bad certificate stays. */
const PASSING_FAILURES: ReadonlySet<ErrorCode> = new Set([
  'connection_refused',
  'connection_terminated',
  'dns_error',
  'tls_protocol_error',
])

/** A service that refuses the request does so in this time. So the client need not send the content (RFC 9110 §10.1.1). */
const CONTINUE_AFTER_MS = 100

const CLOSED_WHILE_IDLE: Failure = {
  code: 'connection_terminated',
  reason: 'idle',
  hint: 'The service closed an idle connection: set origin.keepAliveTimeout below its idle timeout.',
}

const OVER = new OriginError('connection_terminated', 'the exchange has ended')

export class Exchange implements RequestInProgress, AttemptSink, TokenUser, NamesForClient {
  readonly #gateway: Gateway
  readonly #client: Client
  readonly #response: Client['response']
  readonly #request: Admitted
  readonly record: RequestRecord
  readonly #credential: RequestToken | AppCredential
  readonly #content: ClientContent | undefined
  /** It is in flight no more. */
  readonly #onEnd: (request: Admitted) => void
  readonly awaitsProof = false
  /** Set before anybody is called: what ends a request calls others, and they may call back. */
  isOver = false
  // Of the current attempt:
  #attempt: Attempt | undefined
  /** Called once, with the head of its response or, if it has none, with its failure. */
  #settle: ((outcome: ReceivedResponse | Error) => void) | undefined
  #hasNewConnection = false
  /** Runs until the client is told to send its content. */
  #continuing: clock.Timer | undefined

  /** `startedAt`, in monotonic milliseconds: the head of the request had arrived. */
  constructor(
    gateway: Gateway,
    client: Client,
    request: Admitted,
    startedAt: number,
    onEnd: (request: Admitted) => void,
  ) {
    const { requestId, orgId, method, path, caller, traceparent } = request
    this.#gateway = gateway
    this.#client = client
    this.#response = client.response
    this.#request = request
    this.#onEnd = onEnd
    this.record = new RequestRecord(requestId, orgId, method, path, startedAt)
    this.record.trace(gateway.tracing, traceparent)
    this.record.isAdmitted = true
    this.record.caller = caller?.name
    this.#credential =
      orgId === undefined
        ? new AppCredential(gateway.credentials, gateway.baseUrl.href, gateway.secretFields, this)
        : new RequestToken(gateway.orgs, orgId, gateway.secretFields, this)
    if (request.hasContent) this.#content = new ClientContent(client, request, gateway.repeatMemory, caller ?? orgId)
  }

  start(): void {
    if (this.isOver) return
    const { isWebSocket, isForProxy } = this.#request
    // Without a tunnel, what comes behind the handshake is no request.
    if (isWebSocket) this.#response.keepsAlive = false
    // The client asks this proxy, not the service behind it (RFC 9110 §7.6.2).
    if (isForProxy) this.#answerOptions()
    else void this.#serve()
  }

  #answerOptions(): void {
    this.#tellTime()
    this.record.status = respondToOptions(this.#response, this.record.requestId)
    this.isOver = true
    this.#end()
  }

  /** Take a credential, send, judge; and again, until the client has its answer. */
  async #serve(): Promise<void> {
    try {
      const taken = this.#credential.take()
      if (taken !== undefined) await taken
      if (this.isOver) return
      let content = this.#content?.handOut()
      while (true) {
        const attempt = this.#newAttempt(content)
        const outcome = await this.#send(attempt)
        if (this.isOver) return
        if (outcome instanceof Error) {
          if (!this.#mayUseNewConnection(attempt, outcome)) return this.#failed(attempt, outcome)
          this.#hasNewConnection = true
          this.record.attemptEnded(outcome.code)
          content = attempt.content // it may be kept nowhere else
          continue
        }
        this.record.responded()
        // A repeat may follow at once: makes sure of memory for the rest of the content.
        if (outcome.status >= 300) this.#content?.reserve()
        const next = this.#credential.judge(outcome)
        if (outcome.status === SWITCHING_PROTOCOLS) return this.#tunnel(attempt, outcome)
        if (next === undefined) return this.#relay(attempt, outcome)
        this.record.attemptEnded(outcome.status)
        attempt.discardResponse()
        await Promise.all([next, this.#content?.repeatable()])
        if (this.isOver) return
        this.record.token = 'replayed'
        content = this.#content?.handOut()
      }
    } catch (error) {
      this.#caught(error)
    }
  }

  get orgId(): OrgId | undefined {
    return this.#request.orgId
  }

  get isKept(): boolean {
    return this.#content?.isRepeatable !== false
  }

  get staysKept(): boolean {
    return this.#content?.staysRepeatable !== false
  }

  get isSafe(): boolean {
    return this.#request.method === 'GET' || this.#request.method === 'HEAD'
  }

  get requester(): object {
    return this.#request.caller ?? this.#client
  }

  #newAttempt(content: Attempt['content']): Attempt {
    const { target, method, fields, contentLength, isWebSocket: isHandshake, orgId: org = '' } = this.#request
    const needsNewConnection = isHandshake || this.#hasNewConnection
    const request = { method, target, fields, contentLength, isHandshake, org, needsNewConnection }
    return new Attempt(request, content, this)
  }

  /** Resolves with the head of the response, behind which nothing is read until the attempt is told to; or with the failure. */
  #send(attempt: Attempt): Promise<ReceivedResponse | Error> {
    return new Promise((resolve) => {
      this.#attempt = attempt
      this.#settle = resolve
      this.#gateway.pool.dispatch(attempt)
    })
  }

  #relay(attempt: Attempt, response: ReceivedResponse): void {
    const head = new ResponseHead(response, this)
    this.record.status = head.status
    this.#content?.dropKept()
    // There is no tunnel, so what came behind the handshake is dropped.
    if (this.#request.isWebSocket) this.#client.finish()
    this.#tellTime()
    this.#response.begin(head)
    attempt.releaseResponse()
  }

  #tunnel(attempt: Attempt, response: ReceivedResponse): void {
    const service = attempt.switchProtocols()
    const client = this.#client.startTunnel()
    if (client === undefined) {
      service.socket.destroy()
      this.fail({ code: 'draining' })
      return
    }
    this.isOver = true
    this.record.status = response.status
    this.#tellTime()
    this.#response.switchProtocols(new ResponseHead(response, this))
    new Tunnel(this.#gateway, this.record, this.#client, client, service)
    this.#end()
  }

  // ---- what its response names: a client that follows it stays behind the proxy

  /** Those for the App, such as the one that links an Org, may be meant for a browser. */
  get #relocates(): boolean {
    return this.orgId !== undefined
  }

  location(value: string): string {
    return this.#relocates ? (targetOfLocation(value, this.#gateway.baseUrl) ?? value) : value
  }

  /** Clients take links as they are, so they get the scheme and host of the request. Without a host, a path has to do. */
  links(value: string): string {
    const { host } = this.#request
    const self = host === '' ? '' : `${this.#client.scheme}://${host}`
    return this.#relocates ? linksThrough(self, value, this.#gateway.baseUrl) : value
  }

  cookie(value: string): string {
    if (!this.#request.sendsCookies) return value
    return cookieThrough(value, this.#gateway.baseUrl, this.#client.scheme)
  }

  // ---- what the attempt tells

  queued(): void {
    this.record.queued()
  }

  carried({ request }: Attempt): void {
    request.fields = this.record.carried(this.#request.fields)
  }

  authorize(): string | Promise<string> {
    return this.#credential.authorize()
  }

  sent(): void {
    if (!this.#request.expectsContinue) return
    this.#continuing?.cancel()
    this.#continuing = clock.after(CONTINUE_AFTER_MS, () => this.#content?.invite())
  }

  responseHead(response: ReceivedResponse): void {
    this.#continuing?.cancel()
    this.#attempt?.holdResponse()
    this.#settle?.(response)
    this.#settle = undefined
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
    const settle = this.#settle
    this.#settle = undefined
    if (settle !== undefined) settle(error)
    else if (!this.isOver) this.#failed(attempt, error)
  }

  /**
   * A request that was never sent may go again. One that was sent on a reused connection, and got no byte of a response,
   * may go again if it is safe to carry out twice: the service may have closed the connection before it read the request.
   */
  #mayUseNewConnection(attempt: Attempt, failure: Error): failure is OriginError {
    const { hasContent, method } = this.#request
    if (isClosedIdle(attempt, failure)) this.record.metClosedIdle = true
    if (this.#hasNewConnection || !(failure instanceof OriginError)) return false
    if (!attempt.isSent) return PASSING_FAILURES.has(failure.code)
    if (attempt.hasResponse || !attempt.isReused || failure.code !== 'connection_terminated') return false
    return !hasContent && IDEMPOTENT.has(method)
  }

  // ---- what the client's connection tells

  get mayBecomeTunnel(): boolean {
    return !this.isOver && this.#request.isWebSocket
  }

  get awaitsClient(): boolean {
    return !this.isOver && this.#content?.awaitsClient === true
  }

  content(bytes: Buffer): void {
    if (this.isOver) return
    try {
      this.#content?.receive(bytes)
    } catch (error) {
      this.#caught(error)
    }
  }

  contentEnded(): void {
    if (this.isOver) return
    try {
      this.#content?.ended()
    } catch (error) {
      this.#caught(error)
    }
  }

  clientFailed(input: BrokenInput): void {
    this.fail(input)
  }

  abandoned(code: AbandonCode): void {
    if (this.isOver) return
    this.isOver = true
    this.record.abandoned(code, this.#response.hasStarted)
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

  #failed(attempt: Attempt, error: Error): void {
    if (!(error instanceof OriginError)) {
      this.#caught(error)
      return
    }
    // Send the content that came before the break, so that the client sees the service's response break.
    this.#response.writeHeld()
    // RFC 9209 §2.3: "terminated" means that no part of the response was received.
    const isCut = attempt.hasResponse && error.code === 'connection_terminated'
    const isBroken = isCut || (this.#response.hasStarted && error.code !== 'http_response_timeout')
    if (isBroken) this.fail({ code: 'http_response_incomplete', reason: error.reason })
    else this.fail(isClosedIdle(attempt, error) ? CLOSED_WHILE_IDLE : error)
  }

  /** Anything but a known failure is a fault of this program. */
  #caught(error: unknown): void {
    if (error instanceof TokenError || error instanceof OriginError) this.fail(error)
    else {
      this.#gateway.observer.programFailed(error, this.record.requestId)
      this.fail({ code: 'proxy_internal_error' })
    }
  }

  /** The client gets an answer of our own or, if it has a byte of the response, a broken one. */
  fail(failure: Failure): void {
    if (this.isOver) return
    this.isOver = true
    this.record.failed(failure)
    if (this.#response.hasStarted) this.#response.cut()
    else {
      this.#tellTime()
      refuseWith(failure, this.record, this.#client, this.#gateway.observer)
    }
    this.#end()
  }

  #tellTime(): void {
    if (this.#gateway.tellsTime) this.#response.timing = this.record.timing
  }

  #end(): void {
    assert(this.isOver)
    this.record.ended(this.#gateway.observer, this.#content?.receivedBytes ?? 0, this.#response.contentBytes)
    this.#onEnd(this.#request)
    this.#continuing?.cancel()
    this.#credential.end()
    this.#content?.dropKept()
    this.#attempt?.abort(OVER)
  }
}

function isClosedIdle({ isSent, isReused, hasResponse }: Attempt, failure: Error): boolean {
  return isSent && isReused && !hasResponse && 'code' in failure && failure.code === 'connection_terminated'
}
