/** One request of a sidecar, `POST /v1/orgs/{orgId}/token`, and its answer. */

import type { Caller } from '../callers/callers.ts'
import { causeForOperator, type Failure, TokenError } from '../errors.ts'
import type { Refusal } from '../gateway/admission.ts'
import { respondWithJson, respondWithProblem } from '../gateway/own-responses.ts'
import { type AbandonCode, type GatewayObserver, RequestRecord } from '../gateway/request-record.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import type { BrokenInput, Client } from '../listener/request-handler.ts'
import type { OrgId } from '../org-id.ts'
import type { AdmittedTokenRequest } from './admission.ts'
import { readRequest } from './message.ts'
import type { TokenGiver } from './token-giver.ts'

const MAX_CONTENT_BYTES = 1024
const WRONG_CONTENT: Failure = { code: 'request_invalid', hint: 'The content may be {"rejected":"ID"}, and no more.' }

export interface TokenDesk {
  /** The longest time until all of a request is here. */
  readonly headersTimeoutMs: number
  readonly newRequestId: () => string
  readonly giver: TokenGiver
  /** `tokenAsked` gets the code of a problem, or where the token came from. */
  readonly observer: GatewayObserver & { tokenAsked(outcome: string): void }
}

export class TokenRequest {
  readonly mayBecomeTunnel = false
  /** Until all of it is here, too: nobody holds a place by half a request. */
  awaitsProof = false
  isOver = false
  readonly #desk: TokenDesk
  readonly #client: Client
  readonly #response: Client['response']
  readonly #onEnd: (request: TokenRequest) => void
  readonly #record: RequestRecord
  #content: Buffer = Buffer.alloc(0)
  #isComplete = false
  #admitted: AdmittedTokenRequest | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(
    desk: TokenDesk,
    client: Client,
    { method, target }: Pick<RequestHead, 'method' | 'target'>,
    onEnd: (request: TokenRequest) => void,
  ) {
    const path = target.replace(/^[^/].*|\?.*/, '') // without an authority or a query, which may hold a password
    this.#desk = desk
    this.#client = client
    this.#response = client.response
    this.#onEnd = onEnd
    this.#record = new RequestRecord(desk.newRequestId(), undefined, method, path, performance.now())
  }

  get caller(): Caller | undefined {
    return this.#admitted?.caller
  }

  get orgId(): OrgId | undefined {
    return this.#admitted?.orgId
  }

  start(admitted: AdmittedTokenRequest): void {
    this.#admitted = admitted
    this.#record.isAdmitted = true
    this.#record.caller = admitted.caller.name
    this.#record.orgId = admitted.orgId
    if (this.#isComplete || !admitted.hasContent) void this.#serve(admitted)
    else {
      this.awaitsProof = true
      this.#timer = setTimeout(() => this.refuse({ code: 'request_timeout' }), this.#desk.headersTimeoutMs)
      if (admitted.expectsContinue) this.#client.sendContinue()
    }
  }

  async #serve({ orgId, caller }: AdmittedTokenRequest): Promise<void> {
    const { giver, observer } = this.#desk
    const { requestId } = this.#record
    try {
      const asker = { caller, requestId, hasLeft: () => this.isOver }
      const { given, outcome, result, retryAfterSeconds } = await giver.give(orgId, asker, readRequest(this.#content))
      if (this.isOver) return
      this.isOver = true
      this.#record.token = result
      this.#record.status = respondWithJson(this.#response, requestId, given, retryAfterSeconds)
      this.#end(outcome)
    } catch (error) {
      if (error instanceof TokenError) this.refuse(error)
      else if (error instanceof SyntaxError) this.refuse(WRONG_CONTENT)
      else {
        observer.programFailed(error, requestId)
        this.refuse({ code: 'proxy_internal_error' })
      }
    }
  }

  refuse(failure: Failure & Pick<Refusal, 'caller' | 'orgId'>): void {
    if (this.isOver) return
    this.isOver = true
    const { certificateProblem } = this.#client
    // On its next connection, the client may have a better certificate, or the minter the CA.
    if (certificateProblem !== undefined) this.#response.keepsAlive = false
    const record = this.#record
    const { code, limit = failure.reason } = failure
    record.code = code
    record.caller ??= failure.caller?.name
    record.orgId ??= failure.orgId
    record.reason = limit === 'no credential' ? (certificateProblem ?? limit) : limit
    record.detail = causeForOperator(failure)
    record.status = respondWithProblem(this.#response, record, failure)
    this.#end(code)
  }

  #end(outcome: string): void {
    const { observer } = this.#desk
    const record = this.#record
    clearTimeout(this.#timer)
    record.endedAt = performance.now()
    record.bytesIn = this.#content.length
    record.bytesOut = this.#response.contentBytes
    observer.requestEnded(record)
    observer.tokenAsked(outcome)
    this.#onEnd(this)
  }

  // ---- what the client's connection tells

  get awaitsClient(): boolean {
    return !this.isOver && !this.#isComplete
  }

  content(bytes: Buffer, start: number, end: number): void {
    if (this.isOver) return
    this.#content = Buffer.concat([this.#content, bytes.subarray(start, end)])
    if (this.#content.length > MAX_CONTENT_BYTES) this.refuse(WRONG_CONTENT)
  }

  contentEnded(): void {
    this.#isComplete = true
    if (this.#admitted === undefined || this.isOver) return
    this.awaitsProof = false
    clearTimeout(this.#timer)
    void this.#serve(this.#admitted)
  }

  readonly clientFailed = (input: BrokenInput) => this.refuse(input)

  abandoned(code: AbandonCode): void {
    if (this.isOver) return
    this.isOver = true
    this.#record.code = code
    this.#record.status = code === 'draining' ? 0 : 499
    this.#end(code)
  }

  responseDrained(): void {}
  responseFlushed(): void {}
}
