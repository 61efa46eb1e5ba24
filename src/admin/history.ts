/** The last five minutes: a ring of intervals, shown as plots and as totals. */

import type { HistogramSnapshot } from './counts.ts'
import type { Metrics, Totals } from './metrics.ts'

export const SAMPLE_INTERVAL_MS = 2_000
const CAPACITY = 150

/** Parallel series, oldest first. */
export interface Series {
  readonly intervalMs: number
  readonly requestsPerSecond: readonly number[]
  /** Of the proxy and of the service, not of the apps. */
  readonly errorsPerSecond: readonly number[]
  /** `null` if no request ended. */
  readonly p50Ms: readonly (number | null)[]
  readonly p99Ms: readonly (number | null)[]
  /** Lookups per second by result; the names are those of the log and of `oap_token_lookups_total`. */
  readonly lookups: {
    /** `hit` and `refreshing`: a token was there. */
    readonly ready: readonly number[]
    /** `miss` and `joined`: the request waited for a mint. */
    readonly waited: readonly number[]
    readonly stale: readonly number[]
    readonly replayed: readonly number[]
  }
}

type Counted = 'requests' | 'mints' | 'refusedMints' | 'failedMints'

/** Counts of the last five minutes, or since the start if that is more recent. */
export interface RecentTotals extends Pick<Totals, Counted> {
  readonly spanMs: number
  readonly errors: Totals['errors']
  /** Absent if no request ended. */
  readonly p50Ms?: number
  readonly p99Ms?: number
}

interface Reading {
  /** Monotonic milliseconds. */
  readonly at: number
  readonly totals: Totals
  readonly durations: HistogramSnapshot
}

interface Interval {
  readonly before: Reading
  readonly after: Reading
  readonly maxMs: number
}

export class History {
  readonly #metrics: Metrics
  readonly #intervals: Interval[] = []
  #last: Reading

  /** `now` in monotonic milliseconds, here and below. */
  constructor(metrics: Metrics, now: number) {
    this.#metrics = metrics
    this.#last = read(metrics, now)
  }

  sample(now: number): void {
    if (now <= this.#last.at) return
    const after = read(this.#metrics, now)
    this.#intervals.push({ before: this.#last, after, maxMs: this.#metrics.requests.durations.takeMax() })
    this.#last = after
    if (this.#intervals.length > CAPACITY) this.#intervals.shift()
  }

  recent(now: number): RecentTotals {
    const before = this.#intervals[0]?.before ?? this.#last
    const after = read(this.#metrics, now)
    const durations = after.durations.since(before.durations)
    const maxMs = Math.max(this.#metrics.requests.durations.maxMs, ...this.#intervals.map((interval) => interval.maxMs))
    const [p50Ms, p99Ms] = [durations.quantileMs(0.5, maxMs), durations.quantileMs(0.99, maxMs)]
    const [{ errors }, earlier] = [after.totals, before.totals.errors]
    const grown = (name: Counted) => after.totals[name] - before.totals[name]
    return {
      spanMs: Math.max(0, Math.round(now - before.at)),
      requests: grown('requests'),
      errors: {
        proxy: errors.proxy - earlier.proxy,
        service: errors.service - earlier.service,
        app: errors.app - earlier.app,
      },
      mints: grown('mints'),
      refusedMints: grown('refusedMints'),
      failedMints: grown('failedMints'),
      ...(p50Ms === undefined ? {} : { p50Ms: rounded(p50Ms) }),
      ...(p99Ms === undefined ? {} : { p99Ms: rounded(p99Ms) }),
    }
  }

  series(): Series {
    const perSecond = (count: (totals: Totals) => number) =>
      this.#intervals.map(({ before, after }) =>
        rounded(((count(after.totals) - count(before.totals)) * 1000) / (after.at - before.at)),
      )
    const quantile = (share: number) =>
      this.#intervals.map(({ before, after, maxMs }) => {
        const ms = after.durations.since(before.durations).quantileMs(share, maxMs)
        return ms === undefined ? null : rounded(ms)
      })
    return {
      intervalMs: SAMPLE_INTERVAL_MS,
      requestsPerSecond: perSecond(({ requests }) => requests),
      errorsPerSecond: perSecond(({ errors }) => errors.proxy + errors.service),
      p50Ms: quantile(0.5),
      p99Ms: quantile(0.99),
      lookups: {
        ready: perSecond(({ lookups }) => lookups.hit + lookups.refreshing),
        waited: perSecond(({ lookups }) => lookups.miss + lookups.joined),
        stale: perSecond(({ lookups }) => lookups.stale),
        replayed: perSecond(({ lookups }) => lookups.replayed),
      },
    }
  }
}

function read(metrics: Metrics, now: number): Reading {
  return { at: now, totals: metrics.totals(), durations: metrics.requests.durations.snapshot() }
}

/** To three decimals, which keeps the document small. */
function rounded(value: number): number {
  return Math.round(value * 1000) / 1000
}
