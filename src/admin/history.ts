/** The last five minutes: a ring of intervals, shown as plots and as totals. */

import type { HistogramSnapshot } from './counts.ts'
import type { Metrics, Totals } from './metrics.ts'

export const SAMPLE_INTERVAL_MS = 2_000
const CAPACITY = 150

/** Parallel series, oldest first. */
export interface Series {
  readonly intervalMs: number
  readonly requestsPerSecond: readonly number[]
  /** Answered by the proxy itself, or by the service with a 5xx. */
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
  readonly failedMintsPerSecond: readonly number[]
}

type Counted = 'requests' | 'refused' | 'serviceErrors' | 'mints' | 'refusedMints' | 'failedMints'

/** Counts of the last five minutes, or since the start if that is more recent. */
export interface RecentTotals extends Pick<Totals, Counted> {
  readonly spanMs: number
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
    this.#intervals.push({ before: this.#last, after })
    this.#last = after
    if (this.#intervals.length > CAPACITY) this.#intervals.shift()
  }

  recent(now: number): RecentTotals {
    const before = this.#intervals[0]?.before ?? this.#last
    const after = read(this.#metrics, now)
    const durations = after.durations.since(before.durations)
    const [p50Ms, p99Ms] = [durations.quantileMs(0.5), durations.quantileMs(0.99)]
    const grown = (name: Counted) => after.totals[name] - before.totals[name]
    return {
      spanMs: Math.max(0, Math.round(now - before.at)),
      requests: grown('requests'),
      refused: grown('refused'),
      serviceErrors: grown('serviceErrors'),
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
      this.#intervals.map(({ before, after }) => {
        const ms = after.durations.since(before.durations).quantileMs(share)
        return ms === undefined ? null : rounded(ms)
      })
    return {
      intervalMs: SAMPLE_INTERVAL_MS,
      requestsPerSecond: perSecond(({ requests }) => requests),
      errorsPerSecond: perSecond(({ refused, serviceErrors }) => refused + serviceErrors),
      p50Ms: quantile(0.5),
      p99Ms: quantile(0.99),
      lookups: {
        ready: perSecond(({ lookups }) => lookups.hit + lookups.refreshing),
        waited: perSecond(({ lookups }) => lookups.miss + lookups.joined),
        stale: perSecond(({ lookups }) => lookups.stale),
        replayed: perSecond(({ lookups }) => lookups.replayed),
      },
      failedMintsPerSecond: perSecond(({ failedMints }) => failedMints),
    }
  }
}

function read(metrics: Metrics, now: number): Reading {
  return { at: now, totals: metrics.totals(), durations: metrics.requests.durations }
}

/** To three decimals, which keeps the document small. */
function rounded(value: number): number {
  return Math.round(value * 1000) / 1000
}
