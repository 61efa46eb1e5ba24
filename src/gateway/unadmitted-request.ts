/** A request that is not admitted: it is refused, or nobody knows yet who has sent it. The proxy answers by itself. */

import type { ErrorCode, Failure } from '../errors.ts'
import { fieldValue } from '../http1/field-list.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import { pathOf } from '../http1/target.ts'
import type { BrokenInput, Client, RequestInProgress } from '../listener/request-handler.ts'
import type { Refusal } from './admission.ts'
import { refuseWith } from './own-responses.ts'
import { type AbandonCode, type GatewayObserver, RequestRecord, type Tracing } from './request-record.ts'

/** Of a request that is none, what was read before the fault. */
export type KnownHead = Pick<RequestHead, 'method' | 'target' | 'rawFields'>

export interface RefusalDesk {
  readonly newRequestId: () => string
  readonly tracing?: Tracing | undefined
  /** Each response tells the time that it took here (`Server-Timing`). */
  readonly tellsTime: boolean
  readonly observer: Pick<GatewayObserver, 'requestEnded' | 'programFailed'>
}

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

export class UnadmittedRequest implements RequestInProgress {
  readonly #desk: RefusalDesk
  readonly #client: Client
  readonly #head: KnownHead
  readonly #startedAt: number
  readonly mayBecomeTunnel = false
  readonly awaitsClient = false
  /** Its JWT is being verified. */
  readonly awaitsProof = true
  /** It was answered, or goes on as an admitted request. */
  isOver = false

  /** `startedAt`, in monotonic milliseconds: its head had arrived. */
  constructor(desk: RefusalDesk, client: Client, head: KnownHead, startedAt: number) {
    this.#desk = desk
    this.#client = client
    this.#head = head
    this.#startedAt = startedAt
  }

  /** `refusal` says why, and what is known of the sender. `fault`: of this program. */
  refuse(refusal: Failure & Pick<Refusal, 'orgId' | 'caller'>, fault?: unknown): this {
    const { response, certificateProblem } = this.#client
    const { code, orgId, caller, reason = refusal.limit } = refusal
    const record = this.#newRecord(orgId, !OF_STRANGERS.has(code))
    if (fault !== undefined) this.#desk.observer.programFailed(fault, record.requestId)
    record.caller = caller?.name
    record.code = code
    record.reason = reason === 'no credential' ? (certificateProblem ?? reason) : reason
    // On its next connection, the client may have a better certificate, or the proxy the CA.
    if (certificateProblem !== undefined || ENDS_CONNECTION.has(code)) response.keepsAlive = false
    // The client may speak another protocol from here on.
    if (fieldValue(this.#head.rawFields, 'upgrade') !== '') response.keepsAlive = false
    if (this.#desk.tellsTime) response.timing = record.timing
    refuseWith(refusal, record, this.#client, this.#desk.observer)
    record.ended(this.#desk.observer, 0, response.contentBytes)
    return this
  }

  #newRecord(orgId?: string, mayLeaveSpans = false): RequestRecord {
    this.isOver = true
    const { newRequestId, tracing } = this.#desk
    const { method, target, rawFields } = this.#head
    const path = target.startsWith('/') ? pathOf(target) : '' // without an authority, which may hold a password
    // An id of our own: the answer repeats nothing of a request that was not admitted.
    const record = new RequestRecord(newRequestId(), orgId, method, path, this.#startedAt)
    record.trace(mayLeaveSpans ? tracing : undefined, fieldValue(rawFields, 'traceparent'))
    return record
  }

  clientFailed(input: BrokenInput): void {
    if (!this.isOver) this.refuse(input)
  }

  abandoned(code: AbandonCode): void {
    if (this.isOver) return
    const record = this.#newRecord()
    record.abandoned(code)
    record.ended(this.#desk.observer, 0, 0)
  }

  start(): void {}
  content(): void {}
  contentEnded(): void {}
  responseDrained(): void {}
  responseFlushed(): void {}
}
