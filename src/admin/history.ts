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
  /** The slowest request since the reading before. */
  readonly maxMs: number
}

type Interval = ReturnType<typeof between>

export type Series = ReturnType<History['series']>

export class History {
  readonly #metrics: Metrics
  /** Oldest first, one more than the intervals between them. */
  readonly #readings: Reading[]

  /** `now` in monotonic milliseconds, here and below. */
  constructor(metrics: Metrics, now: number) {
    this.#metrics = metrics
    this.#readings = [this.#read(now)]
  }

  sample(now: number): void {
    this.#readings.push(this.#read(now))
    this.#metrics.requests.durations.maxMs = 0
    if (this.#readings.length > CAPACITY + 1) this.#readings.shift()
  }

  /** Counts of the last five minutes, or since the start if that is more recent. */
  recent(now: number): Interval {
    const after = this.#read(now)
    const [before = after, ...later] = this.#readings
    const maxMs = Math.max(after.maxMs, ...later.map((reading) => reading.maxMs))
    return between(this.#metrics.requests.durations, before, { ...after, maxMs })
  }

  /** Parallel series, oldest first. */
  series() {
    const intervals = this.#readings
      .slice(1)
      .map((after, i) => between(this.#metrics.requests.durations, this.#readings[i] ?? after, after))
    const perSecond = (count: (interval: Interval) => number) =>
      intervals.map((interval) => (count(interval) * 1000) / interval.spanMs)
    return {
      requestsPerSecond: perSecond(({ requests }) => requests),
      /** Of the proxy and of the service, not of the apps. */
      errorsPerSecond: perSecond(({ errors }) => errors.proxy + errors.service),
      /** `null` if no request ended. */
      p50Ms: intervals.map(({ p50Ms = null }) => p50Ms),
      p99Ms: intervals.map(({ p99Ms = null }) => p99Ms),
    }
  }

  #read(now: number): Reading {
    const { durations } = this.#metrics.requests
    return { at: now, totals: this.#metrics.totals(), durations: durations.counts(), maxMs: durations.maxMs }
  }
}

/** What happened between two readings. Without a request, there are no quantiles. */
function between(histogram: Histogram, before: Reading, after: Reading) {
  const counts = after.durations.map((count, i) => count - (before.durations[i] ?? 0))
  return {
    spanMs: after.at - before.at,
    ...grown(after.totals, before.totals),
    p50Ms: histogram.quantileMs(0.5, counts, after.maxMs),
    p99Ms: histogram.quantileMs(0.99, counts, after.maxMs),
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
