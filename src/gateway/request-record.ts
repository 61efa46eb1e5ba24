/** What is known about a request when it has ended: the one source of its log line and its metrics. */

import type { ErrorCode } from '../errors.ts'
import type { LeaseResult } from '../token/token-cache.ts'

/** How the token of a request was come by; `none` for requests of the bare App and for those that got none. */
export type TokenResult = LeaseResult | 'replayed' | 'none'

/** Logged where the client had gone before an answer; never sent. */
export const CLIENT_CLOSED_STATUS = 499

/** Instants are monotonic milliseconds. */
export class RequestRecord {
  readonly requestId: string
  readonly orgId: string | undefined
  readonly method: string
  /** Without the query. */
  readonly path: string
  /** The head had been received. */
  readonly startedAt: number
  /** Handed to the connection pool; the last time, where it was repeated. */
  dispatchedAt: number | undefined
  /** The response head had come. */
  respondedAt: number | undefined
  endedAt = 0
  /** Status sent, or 499 where the client had gone before. */
  status = 0
  /** Why the answer was ours, or broken. */
  code: ErrorCode | 'client_closed' | undefined
  token: TokenResult = 'none'
  /** Octets of request and response content. */
  bytesIn = 0
  bytesOut = 0

  constructor(requestId: string, orgId: string | undefined, method: string, path: string, startedAt: number) {
    this.requestId = requestId
    this.orgId = orgId
    this.method = method
    this.path = path
    this.startedAt = startedAt
  }
}

/** `refused`: the content had not been kept; `passed`: a cool-down was on, so the rejection went to the client. */
export type ReplayOutcome = 'accepted' | 'rejected' | 'failed' | 'refused' | 'passed'

/** Who hears of it: the log and the metrics. */
export interface GatewayObserver {
  requestEnded(record: RequestRecord): void
  replaySettled(outcome: ReplayOutcome): void
}
