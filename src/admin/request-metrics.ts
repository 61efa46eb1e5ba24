/** Counts of requests. Each request is counted once, when it ends. */

import type { ErrorCode } from '../errors.ts'
import { PROBLEMS } from '../http/problem.ts'
import type { GatewayObserver, RepeatOutcome, RequestRecord, TokenResult } from '../http/request-record.ts'
import { LabelledCounter } from './counters.ts'
import { histogramFamily, labelled, type MetricFamily, type Sample } from './exposition.ts'
import { Histogram, type HistogramSnapshot } from './histogram.ts'

export interface RequestTotals {
  readonly requests: number
  /** Answered by the proxy itself with an error. */
  readonly refused: number
  /** Answered by the service with a 5xx. */
  readonly serviceErrors: number
  readonly lookups: Readonly<Record<TokenResult, number>>
  readonly replays: Readonly<Record<RepeatOutcome, number>>
}

export const BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000]
const OVERHEAD_BOUNDS_MS = [0.05, 0.1, 0.25, ...BOUNDS_MS]

const NO_LOOKUPS: RequestTotals['lookups'] = { hit: 0, refreshing: 0, miss: 0, joined: 0, stale: 0, replayed: 0 }
const NO_REPLAYS: RequestTotals['replays'] = { accepted: 0, rejected: 0, failed: 0, refused: 0, passed: 0 }

const SWITCHING_PROTOCOLS = 101

/** 1xx to 5xx; the first stays empty. */
const STATUS_CLASSES = 6

export class RequestMetrics implements GatewayObserver {
  readonly #responses = new ResponseCounter()
  readonly #durations = new Histogram(BOUNDS_MS)
  readonly #overheads = new Histogram(OVERHEAD_BOUNDS_MS)
  readonly #refused = new LabelledCounter<ErrorCode>('code', PROBLEMS)
  readonly #lookups = new LabelledCounter<TokenResult>('result', NO_LOOKUPS)
  readonly #replays = new LabelledCounter<RepeatOutcome>('outcome', NO_REPLAYS)
  readonly #callers = new Map<string, Float64Array>()
  #serviceErrors = 0

  requestEnded(record: RequestRecord): void {
    const { status, code, token } = record
    const durationMs = record.endedAt - record.startedAt
    this.#responses.add(record.method, status)
    this.#durations.record(durationMs)
    // A tunnel stays open as long as its two ends like; that is no overhead.
    if (status !== SWITCHING_PROTOCOLS) this.#overheads.record(durationMs - waitedForOriginMs(record))
    if (token !== 'none') this.#lookups.add(token)
    if (record.caller !== undefined) this.#countCaller(record.caller, status)
    if (code === undefined) {
      if (status >= 500) this.#serviceErrors++
    } else if (code !== 'client_closed') this.#refused.add(code)
  }

  repeatSettled(outcome: RepeatOutcome): void {
    this.#replays.add(outcome)
  }

  #countCaller(name: string, status: number): void {
    let counts = this.#callers.get(name)
    if (counts === undefined) {
      counts = new Float64Array(STATUS_CLASSES)
      this.#callers.set(name, counts)
    }
    const statusClass = Math.floor(status / 100)
    counts[statusClass] = (counts[statusClass] ?? 0) + 1
  }

  /** Requests of one caller since the start. */
  requestsOf(caller: string): number {
    return this.#callers.get(caller)?.reduce((sum, count) => sum + count, 0) ?? 0
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

  #callerSamples(): Sample[] {
    return [...this.#callers].flatMap(([caller, counts]) =>
      [...counts.entries()]
        .filter(([, value]) => value > 0)
        .map(([statusClass, value]) => ({ labels: { caller, status: `${statusClass}xx` }, value })),
    )
  }

  families(): MetricFamily[] {
    return [
      labelled(
        'oap_requests_total',
        'counter',
        'Requests that have ended, by method and status sent; 499 if the client closed first.',
        this.#responses.samples(),
      ),
      histogramFamily(
        'oap_request_duration_seconds',
        'Time from the request head to the last byte of the response.',
        this.durations,
      ),
      histogramFamily(
        'oap_overhead_seconds',
        'The same without the wait for the response head of the service. Tunnels are left out.',
        this.#overheads.snapshot(),
      ),
      labelled(
        'oap_refused_total',
        'counter',
        'Requests that the proxy answered itself, by problem code.',
        this.#refused.samples(),
      ),
      labelled(
        'oap_caller_requests_total',
        'counter',
        'Requests of each caller that have ended, by class of status.',
        this.#callerSamples(),
      ),
      labelled(
        'oap_token_lookups_total',
        'counter',
        'Requests that needed a token, by how they got it.',
        this.#lookups.samples(),
      ),
      labelled(
        'oap_replays_total',
        'counter',
        'Requests whose token the service rejected, by outcome of the repeat.',
        this.#replays.samples(),
      ),
    ]
  }
}

/** If the service never answered, the wait lasted until the end. */
function waitedForOriginMs({ dispatchedAt, respondedAt, endedAt }: RequestRecord): number {
  return dispatchedAt === undefined ? 0 : (respondedAt ?? endedAt) - dispatchedAt
}

/** Clients may invent methods; those share one label, because labels must stay few. */
const METHODS: readonly string[] = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'CONNECT', 'TRACE']
const OTHER = 'OTHER'

/** Status codes have three digits (RFC 9110 §15). */
const STATUSES = 1000

/** Requests by method and status: one map lookup and one increment per request. */
class ResponseCounter {
  readonly #countsByMethod = new Map<string, Float64Array>()
  total = 0

  add(method: string, status: number): void {
    const counts = this.#countsByMethod.get(method) ?? this.#countsOfNew(method)
    counts[status] = (counts[status] ?? 0) + 1
    this.total++
  }

  #countsOfNew(method: string): Float64Array {
    const known = METHODS.includes(method) ? method : OTHER
    const counts = this.#countsByMethod.get(known) ?? new Float64Array(STATUSES)
    this.#countsByMethod.set(known, counts)
    return counts
  }

  samples(): Sample[] {
    const samples: Sample[] = []
    for (const [method, counts] of this.#countsByMethod) {
      for (const [status, value] of counts.entries()) {
        if (value > 0) samples.push({ labels: { method, status: String(status) }, value })
      }
    }
    return samples
  }
}
