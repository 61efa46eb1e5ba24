/** Counts of requests. Each request is counted once, when it ends. */

import type { ErrorCode, Limit } from '../errors.ts'
import { PROBLEMS } from '../http/problem.ts'
import type { GatewayObserver, RepeatOutcome, RequestRecord, TokenResult } from '../http/request-record.ts'
import { Histogram, keysOf, LabelledCounter, type MetricFamily, PairCounter, type Sample } from './counts.ts'
import { type ErrorKind, errorKindOf } from './recent-errors.ts'

export interface RequestTotals {
  readonly requests: number
  readonly errors: Readonly<Record<ErrorKind, number>>
  readonly lookups: Readonly<Record<TokenResult, number>>
  readonly replays: Readonly<Record<RepeatOutcome, number>>
}

export const BOUNDS_MS = [0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000]
const OVERHEAD_BOUNDS_MS = [0.05, 0.1, 0.25, ...BOUNDS_MS]

const NO_LOOKUPS: RequestTotals['lookups'] = { hit: 0, refreshing: 0, miss: 0, joined: 0, stale: 0, replayed: 0 }
const NO_REPLAYS: RequestTotals['replays'] = { accepted: 0, rejected: 0, failed: 0, refused: 0, passed: 0 }

const LIMITS = keysOf<Limit>({
  'listen.maxConnections': 0,
  'listen.maxInFlight': 0,
  'callers[].maxInFlight': 0,
  'origin.connections': 0,
  'org share': 0,
  'file descriptors': 0,
})

const SWITCHING_PROTOCOLS = 101

/** The first digit of a status, from 2 on. */
const STATUS_CLASSES = ['2xx', '3xx', '4xx', '5xx'] as const
type StatusClass = (typeof STATUS_CLASSES)[number]

export class RequestMetrics implements Omit<GatewayObserver, 'programFailed'> {
  readonly #responses = new ResponseCounter()
  readonly durations = new Histogram(
    {
      name: 'oap_request_duration_seconds',
      help: 'Time from the request head to the last byte of the response.',
    },
    BOUNDS_MS,
  )
  readonly #overheads = new Histogram(
    {
      name: 'oap_overhead_seconds',
      help: 'Time of a request without the wait for the response head of the service. WebSockets are left out.',
    },
    OVERHEAD_BOUNDS_MS,
  )
  readonly #refused = new LabelledCounter<ErrorCode>(
    { name: 'oap_refused_total', help: 'Requests that the proxy answered itself, by problem code.' },
    'code',
    keysOf(PROBLEMS),
  )
  readonly #overloads = new LabelledCounter<string>(
    { name: 'oap_overloaded_total', help: 'Requests that were refused because of a limit, by that limit.' },
    'limit',
    LIMITS,
  )
  readonly #callers = new PairCounter<string, StatusClass>(
    { name: 'oap_caller_requests_total', help: 'Requests of each caller that have ended, by class of status.' },
    ['caller', 'status'],
  )
  readonly #refusedCallers = new LabelledCounter<string>(
    { name: 'oap_callers_refused_total', help: 'Requests that came from no known caller, by what was wrong.' },
    'reason',
    [],
  )
  readonly #lookups = new LabelledCounter<TokenResult>(
    { name: 'oap_token_lookups_total', help: 'Requests that needed a token, by how they got it.' },
    'result',
    keysOf(NO_LOOKUPS),
  )
  readonly #replays = new LabelledCounter<RepeatOutcome>(
    { name: 'oap_replays_total', help: 'Requests whose token the service rejected, by outcome of the repeat.' },
    'outcome',
    keysOf(NO_REPLAYS),
  )
  readonly #errors: Record<ErrorKind, number> = { proxy: 0, service: 0, app: 0 }

  requestEnded(record: RequestRecord): void {
    const { status, code, token } = record
    const durationMs = record.endedAt - record.startedAt
    this.#responses.add(record.method, status)
    this.durations.record(durationMs)
    // A tunnel stays open for as long as its ends want. Its duration is no overhead.
    if (status !== SWITCHING_PROTOCOLS) this.#overheads.record(durationMs - waitedForOriginMs(record))
    if (token !== 'none') this.#lookups.add(token)
    if (record.caller !== undefined) this.#countCaller(record.caller, status)
    if (code === 'caller_refused' && record.reason !== undefined) this.#refusedCallers.add(record.reason)
    if (code === 'overloaded' && record.reason !== undefined) this.#overloads.add(record.reason)
    if (code !== undefined && code !== 'client_closed') this.#refused.add(code)
    if (code === undefined && status < 400) return
    const kind = errorKindOf(record)
    if (kind !== undefined) this.#errors[kind]++
  }

  repeatSettled(outcome: RepeatOutcome): void {
    this.#replays.add(outcome)
  }

  #countCaller(name: string, status: number): void {
    this.#callers.open(name, STATUS_CLASSES)
    this.#callers.add(name, statusClassOf(status))
  }

  /** Requests of one caller since the start. */
  requestsOf(caller: string): number {
    return this.#callers.totalOf(caller)
  }

  totals(): RequestTotals {
    return {
      requests: this.#responses.total,
      errors: { ...this.#errors },
      lookups: this.#lookups.counts(),
      replays: this.#replays.counts(),
    }
  }

  families(): MetricFamily[] {
    return [
      this.#responses.family(),
      this.durations.family(),
      this.#overheads.family(),
      this.#refused.family(),
      this.#overloads.family(),
      this.#callers.family(),
      this.#refusedCallers.family(),
      this.#lookups.family(),
      this.#replays.family(),
    ]
  }
}

/** An opened WebSocket (101) is a success. Status 0 stands for a request that the proxy broke off when it stopped. */
function statusClassOf(status: number): StatusClass {
  if (status === 0) return '5xx'
  return STATUS_CLASSES[Math.floor(status / 100) - 2] ?? '2xx'
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

  family(): MetricFamily {
    const values: Sample[] = []
    for (const [method, counts] of this.#countsByMethod) {
      for (const [status, value] of counts.entries()) {
        if (value > 0) values.push({ labels: { method, status: String(status) }, value })
      }
    }
    const help = 'Requests that have ended, by method and status sent; 499 if the client closed first.'
    return { name: 'oap_requests_total', type: 'counter', help, values }
  }
}
