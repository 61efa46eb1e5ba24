/** What is counted of requests: fed once by each when it ends, read when somebody asks. */

import type { ErrorCode } from '../errors.ts'
import type { GatewayObserver, ReplayOutcome, RequestRecord, TokenResult } from '../gateway/request-record.ts'
import { PROBLEMS } from '../http/problem.ts'
import { LabelledCounter } from './counters.ts'
import { histogramFamily, labelled, type MetricFamily } from './exposition.ts'
import { Histogram, type HistogramSnapshot } from './histogram.ts'
import { ResponseCounter } from './response-counter.ts'

export type LookupResult = Exclude<TokenResult, 'none'>

export interface RequestTotals {
  readonly requests: number
  /** Answered by the proxy itself instead of the service. */
  readonly refused: number
  /** Answered by the service with a 5xx. */
  readonly serviceErrors: number
  readonly lookups: Readonly<Record<LookupResult, number>>
  readonly replays: Readonly<Record<ReplayOutcome, number>>
}

/** From the shortest that is worth telling apart to the longest that anybody waits for. */
export const BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000]
const OVERHEAD_BOUNDS_MS = [0.05, 0.1, 0.25, ...BOUNDS_MS]

const NO_LOOKUPS: RequestTotals['lookups'] = { hit: 0, refreshing: 0, miss: 0, joined: 0, stale: 0, replayed: 0 }
const NO_REPLAYS: RequestTotals['replays'] = { accepted: 0, rejected: 0, failed: 0, refused: 0, passed: 0 }

/** A tunnel's length is that of a conversation, not of an answer. */
const SWITCHING_PROTOCOLS = 101

export class RequestMetrics implements GatewayObserver {
  readonly #responses = new ResponseCounter()
  readonly #durations = new Histogram(BOUNDS_MS)
  readonly #overheads = new Histogram(OVERHEAD_BOUNDS_MS)
  readonly #refused = new LabelledCounter<ErrorCode>('code', PROBLEMS)
  readonly #lookups = new LabelledCounter<LookupResult>('result', NO_LOOKUPS)
  readonly #replays = new LabelledCounter<ReplayOutcome>('outcome', NO_REPLAYS)
  #serviceErrors = 0

  requestEnded(record: RequestRecord): void {
    const { status, code, token } = record
    const durationMs = record.endedAt - record.startedAt
    this.#responses.add(record.method, status)
    this.#durations.record(durationMs)
    if (status !== SWITCHING_PROTOCOLS) this.#overheads.record(durationMs - waitedForOriginMs(record))
    if (token !== 'none') this.#lookups.add(token)
    if (code === undefined) {
      if (status >= 500) this.#serviceErrors++
    } else if (code !== 'client_closed') this.#refused.add(code)
  }

  replaySettled(outcome: ReplayOutcome): void {
    this.#replays.add(outcome)
  }

  get durations(): HistogramSnapshot {
    return this.#durations.snapshot()
  }

  totals(): RequestTotals {
    return {
      requests: this.#responses.total,
      refused: this.#refused.total,
      serviceErrors: this.#serviceErrors,
      lookups: this.#lookups.counts(),
      replays: this.#replays.counts(),
    }
  }

  families(): MetricFamily[] {
    return [
      labelled(
        'oap_requests_total',
        'counter',
        'Requests that have ended, by method and by status sent; 499 where the client had gone before.',
        this.#responses.samples(),
      ),
      histogramFamily(
        'oap_request_duration_seconds',
        'From the head of a request to the last byte of its response.',
        this.durations,
      ),
      histogramFamily(
        'oap_overhead_seconds',
        'The same without the wait for the head of the response of the service. Tunnels are left out.',
        this.#overheads.snapshot(),
      ),
      labelled(
        'oap_refused_total',
        'counter',
        'Requests that the proxy answered itself, by problem code.',
        this.#refused.samples(),
      ),
      labelled(
        'oap_token_lookups_total',
        'counter',
        'Requests that had a token, by how it was come by.',
        this.#lookups.samples(),
      ),
      labelled(
        'oap_replays_total',
        'counter',
        'Requests whose token was rejected, by what came of repeating them.',
        this.#replays.samples(),
      ),
    ]
  }
}

/** No longer than the record tells: of an origin that never answered, the wait lasted until the end. */
function waitedForOriginMs({ dispatchedAt, respondedAt, endedAt }: RequestRecord): number {
  return dispatchedAt === undefined ? 0 : (respondedAt ?? endedAt) - dispatchedAt
}
