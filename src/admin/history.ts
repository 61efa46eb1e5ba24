/** The last minutes as series for the plots: a ring of samples, each what happened since the one before. */

import type { HistogramSnapshot } from './histogram.ts'
import type { Metrics, Totals } from './metrics.ts'

export const SAMPLE_INTERVAL_MS = 2_000
const CAPACITY = 150

/** Parallel series, oldest first. */
export interface Series {
  readonly intervalMs: number
  readonly requestsPerSecond: readonly number[]
  /** Answered by the proxy itself, or by the service with a 5xx. */
  readonly errorsPerSecond: readonly number[]
  /** `null` where no request ended. */
  readonly p50Ms: readonly (number | null)[]
  readonly p99Ms: readonly (number | null)[]
  /** Per second: at once; after a wait for a mint; with a token past its estimate; after a repeat with a new one. */
  readonly lookups: {
    readonly ready: readonly number[]
    readonly waited: readonly number[]
    readonly stale: readonly number[]
    readonly replayed: readonly number[]
  }
  readonly failedMintsPerSecond: readonly number[]
}

interface Reading {
  /** Monotonic milliseconds. */
  readonly at: number
  readonly totals: Totals
  readonly durations: HistogramSnapshot
}

interface Sample {
  readonly before: Reading
  readonly after: Reading
}

export class History {
  readonly #metrics: Metrics
  readonly #samples: Sample[] = []
  #last: Reading

  /** `now` in monotonic milliseconds, here and below. */
  constructor(metrics: Metrics, now: number) {
    this.#metrics = metrics
    this.#last = read(metrics, now)
  }

  sample(now: number): void {
    if (now <= this.#last.at) return
    const after = read(this.#metrics, now)
    this.#samples.push({ before: this.#last, after })
    this.#last = after
    if (this.#samples.length > CAPACITY) this.#samples.shift()
  }

  series(): Series {
    const perSecond = (count: (totals: Totals) => number) =>
      this.#samples.map(({ before, after }) =>
        rounded(((count(after.totals) - count(before.totals)) * 1000) / (after.at - before.at)),
      )
    const quantile = (share: number) =>
      this.#samples.map(({ before, after }) => {
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

/** To three decimals: it goes out with every look at the page. */
function rounded(value: number): number {
  return Math.round(value * 1000) / 1000
}
