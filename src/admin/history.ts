/** The last five minutes: a ring of intervals, shown as plots and as totals. */

import type { Histogram } from './counts.ts'
import type { Metrics, Totals } from './metrics.ts'

export const SAMPLE_INTERVAL_MS = 2_000
const CAPACITY = 150

interface Reading {
  /** Monotonic milliseconds. */
  readonly at: number
  readonly totals: Totals
  /** Number of requests in each bucket. */
  readonly durations: readonly number[]
}

type Interval = ReturnType<typeof between> & { readonly before: Reading; readonly maxMs: number }

export type Series = ReturnType<History['series']>

export class History {
  readonly #metrics: Metrics
  readonly #durations: Histogram
  /** Oldest first. */
  readonly #intervals: Interval[] = []
  #last: Reading

  /** `now` in monotonic milliseconds, here and below. */
  constructor(metrics: Metrics, now: number) {
    this.#metrics = metrics
    this.#durations = metrics.requests.durations
    this.#last = this.#read(now)
  }

  sample(now: number): void {
    const before = this.#last
    if (now < before.at + 1) return // no rate over no time
    this.#last = this.#read(now)
    const maxMs = this.#durations.takeMax()
    this.#intervals.push({ before, maxMs, ...between(this.#durations, before, this.#last, maxMs) })
    if (this.#intervals.length > CAPACITY) this.#intervals.shift()
  }

  /** Counts of the last five minutes, or since the start if that is more recent. */
  recent(now: number) {
    const maxMs = Math.max(this.#durations.maxMs, ...this.#intervals.map((interval) => interval.maxMs))
    return between(this.#durations, this.#intervals[0]?.before ?? this.#last, this.#read(now), maxMs)
  }

  /** Parallel series, oldest first. */
  series() {
    const perSecond = (count: (interval: Interval) => number) =>
      this.#intervals.map((interval) => (count(interval) * 1000) / interval.spanMs)
    return {
      intervalMs: SAMPLE_INTERVAL_MS,
      requestsPerSecond: perSecond(({ requests }) => requests),
      /** Of the proxy and of the service, not of the apps. */
      errorsPerSecond: perSecond(({ errors }) => errors.proxy + errors.service),
      /** `null` if no request ended. */
      p50Ms: this.#intervals.map(({ p50Ms = null }) => p50Ms),
      p99Ms: this.#intervals.map(({ p99Ms = null }) => p99Ms),
      /** Lookups per second by result; the names are those of the log and of `oap_token_lookups_total`. */
      lookups: {
        /** A token was there. */
        ready: perSecond(({ lookups }) => lookups.hit + lookups.refreshing),
        /** The request waited for a mint. */
        waited: perSecond(({ lookups }) => lookups.miss + lookups.joined),
        stale: perSecond(({ lookups }) => lookups.stale),
        replayed: perSecond(({ lookups }) => lookups.replayed),
      },
    }
  }

  #read(now: number): Reading {
    return { at: now, totals: this.#metrics.totals(), durations: this.#durations.counts() }
  }
}

/** What happened between two readings. `maxMs`: the slowest request. Without a request, there are no quantiles. */
function between(histogram: Histogram, before: Reading, after: Reading, maxMs: number) {
  const counts = after.durations.map((count, i) => count - (before.durations[i] ?? 0))
  return {
    spanMs: after.at - before.at,
    ...grown(after.totals, before.totals),
    p50Ms: histogram.quantileMs(0.5, counts, maxMs),
    p99Ms: histogram.quantileMs(0.99, counts, maxMs),
  }
}

/** Each count of `after` less that of `before`. */
function grown<T extends object>(after: T, before: T): T {
  const entries = Object.entries(after).map(([name, value]) => {
    const earlier = before[name as keyof T]
    return [name, typeof value === 'number' ? value - Number(earlier) : grown(value, earlier as object)]
  })
  return Object.fromEntries(entries)
}
