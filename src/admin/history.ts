/** The last five minutes: a ring of intervals, shown as plots and as totals. */

import type { Histogram } from './counts.ts'
import type { Metrics, Totals } from './metrics.ts'

export const SAMPLE_INTERVAL_MS = 2_000
const CAPACITY = 150

interface Reading {
  /** Monotonic milliseconds. */
  readonly at: number
  readonly totals: Totals
  readonly timed: Readonly<Record<'durations' | 'serviceResponses' | 'overheads', Timed>>
}

interface Timed {
  readonly histogram: Histogram
  /** Number of requests in each bucket. */
  readonly counts: readonly number[]
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
    for (const { histogram } of Object.values(this.#readings.at(-1)?.timed ?? {})) histogram.maxMs = 0
    if (this.#readings.length > CAPACITY + 1) this.#readings.shift()
  }

  /** Counts of the last five minutes, or since the start if that is more recent. */
  recent(now: number) {
    const after = this.#read(now)
    const [before = after, ...later] = this.#readings
    const readings = [...later, after]
    const quantiles = (name: keyof Reading['timed']) => {
      const maxMs = Math.max(...readings.map(({ timed }) => timed[name].maxMs))
      return quantilesOf(before.timed[name], { ...after.timed[name], maxMs })
    }
    return {
      ...grownBetween(before, after),
      ...quantiles('durations'),
      /** To the first byte of its response. */
      service: quantiles('serviceResponses'),
      /** All but that. */
      proxy: quantiles('overheads'),
    }
  }

  /** Parallel series, oldest first. */
  series() {
    const intervals = this.#readings.slice(1).map((after, i) => between(this.#readings[i] ?? after, after))
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
    const { durations, serviceResponses, overheads } = this.#metrics.requests
    const timed = (histogram: Histogram) => ({ histogram, counts: histogram.counts(), maxMs: histogram.maxMs })
    return {
      at: now,
      totals: this.#metrics.totals(),
      timed: { durations: timed(durations), serviceResponses: timed(serviceResponses), overheads: timed(overheads) },
    }
  }
}

/** What happened between two readings. */
function between(before: Reading, after: Reading) {
  return { ...grownBetween(before, after), ...quantilesOf(before.timed.durations, after.timed.durations) }
}

function grownBetween(before: Reading, after: Reading) {
  return { spanMs: after.at - before.at, ...grown(after.totals, before.totals) }
}

/** Without a request, there are none. */
function quantilesOf(before: Timed, { histogram, counts, maxMs }: Timed) {
  const added = counts.map((count, i) => count - (before.counts[i] ?? 0))
  return { p50Ms: histogram.quantileMs(0.5, added, maxMs), p99Ms: histogram.quantileMs(0.99, added, maxMs) }
}

/** Each count of `after` less that of `before`. */
function grown<T extends object>(after: T, before: T): T {
  const entries = Object.entries(after).map(([name, value]) => {
    const earlier = before[name as keyof T]
    return [name, typeof value === 'number' ? value - Number(earlier) : grown(value, earlier as object)]
  })
  return Object.fromEntries(entries)
}
