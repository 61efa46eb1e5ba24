/** The last minutes as series for the plots: a ring of samples, each what happened since the one before. */

import type { HistogramSnapshot } from './histogram.ts'
import type { LookupResult, Totals } from './metrics.ts'

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
}

interface Sample {
  readonly seconds: number
  readonly requests: number
  readonly errors: number
  readonly lookups: Readonly<Record<LookupResult, number>>
  readonly durations: HistogramSnapshot
}

export class History {
  readonly #samples: Sample[] = []
  #before: Totals
  #sampledAt: number

  /** `now` in monotonic milliseconds, here and below. */
  constructor(totals: Totals, now: number) {
    this.#before = totals
    this.#sampledAt = now
  }

  sample(totals: Totals, now: number): void {
    const before = this.#before
    const seconds = (now - this.#sampledAt) / 1000
    if (seconds <= 0) return
    this.#samples.push({
      seconds,
      requests: totals.requests - before.requests,
      errors: totals.refused - before.refused + totals.serviceErrors - before.serviceErrors,
      lookups: difference(totals.lookups, before.lookups),
      durations: totals.durations.since(before.durations),
    })
    if (this.#samples.length > CAPACITY) this.#samples.shift()
    this.#before = totals
    this.#sampledAt = now
  }

  series(): Series {
    const perSecond = (count: (sample: Sample) => number) =>
      this.#samples.map((sample) => rounded(count(sample) / sample.seconds))
    const quantile = (share: number) =>
      this.#samples.map(({ durations }) => {
        const ms = durations.quantileMs(share)
        return ms === undefined ? null : rounded(ms)
      })
    return {
      intervalMs: SAMPLE_INTERVAL_MS,
      requestsPerSecond: perSecond(({ requests }) => requests),
      errorsPerSecond: perSecond(({ errors }) => errors),
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

function difference(after: Sample['lookups'], before: Sample['lookups']): Sample['lookups'] {
  return {
    hit: after.hit - before.hit,
    refreshing: after.refreshing - before.refreshing,
    miss: after.miss - before.miss,
    joined: after.joined - before.joined,
    stale: after.stale - before.stale,
    replayed: after.replayed - before.replayed,
  }
}

function rounded(value: number): number {
  return Math.round(value * 1000) / 1000
}
