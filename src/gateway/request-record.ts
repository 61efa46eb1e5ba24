/** What is known about a request when it has ended: the one source of its log line and its metrics. */

import type { ErrorCode } from '../errors.ts'
import type { LeaseResult } from '../token/token-cache.ts'

/** How the token of a request was come by; `none` for requests of the bare App and for refused ones. */
export type TokenResult = LeaseResult | 'replayed' | 'none'

/** Never sent: the client had gone before an answer, or the answer broke off. */
export const CLIENT_CLOSED_STATUS = 499

export interface RequestRecord {
  readonly requestId: string
  readonly orgId: string | undefined
  readonly method: string
  /** Without the query. */
  readonly path: string
  /** Status sent, or 499 where the client had gone before. */
  readonly status: number
  readonly code: ErrorCode | 'client_closed' | undefined
  /** Monotonic milliseconds: head received, sent to the origin, response head received, ended. */
  readonly startedAt: number
  readonly dispatchedAt: number | undefined
  readonly respondedAt: number | undefined
  readonly endedAt: number
  readonly token: TokenResult
  /** Octets of request and response content. */
  readonly bytesIn: number
  readonly bytesOut: number
}

/** `refused`: the content had not been kept; `passed`: a cool-down was on, so the rejection went to the client. */
export type ReplayOutcome = 'accepted' | 'rejected' | 'failed' | 'refused' | 'passed'

/** Who hears of it: the log and the metrics. */
export interface GatewayObserver {
  requestEnded(record: RequestRecord): void
  replaySettled(outcome: ReplayOutcome): void
}
