/** Durations counted in fixed buckets: a request adds to plain numbers, and quantiles are computed on demand. */

/** Upper bounds in milliseconds, ascending. A last bucket for longer durations is added. */
export type Bounds = readonly number[]

export class Histogram {
  /** Ends with infinity, so that every duration finds a bucket. */
  readonly #boundsMs: Bounds
  readonly #counts: Float64Array
  #sumMs = 0

  constructor(boundsMs: Bounds) {
    this.#boundsMs = [...boundsMs, Number.POSITIVE_INFINITY]
    this.#counts = new Float64Array(this.#boundsMs.length)
  }

  /** Searches from below: half of all requests end in the first buckets. */
  record(durationMs: number): void {
    const bounds = this.#boundsMs
    let bucket = 0
    while (durationMs > (bounds[bucket] ?? Number.POSITIVE_INFINITY)) bucket++
    this.#counts[bucket] = (this.#counts[bucket] ?? 0) + 1
    if (durationMs > 0) this.#sumMs += durationMs
  }

  snapshot(): HistogramSnapshot {
    return new HistogramSnapshot(this.#boundsMs, Array.from(this.#counts), this.#sumMs)
  }
}

/** The content of a histogram at one moment. The difference of two tells what happened between them. */
export class HistogramSnapshot {
  readonly boundsMs: Bounds
  /** One count per bucket, not cumulative. */
  readonly counts: readonly number[]
  readonly sumMs: number

  constructor(boundsMs: Bounds, counts: readonly number[], sumMs: number) {
    this.boundsMs = boundsMs
    this.counts = counts
    this.sumMs = sumMs
  }

  get count(): number {
    return this.counts.reduce((sum, count) => sum + count, 0)
  }

  since(earlier: HistogramSnapshot): HistogramSnapshot {
    const counts = this.counts.map((count, i) => count - (earlier.counts[i] ?? 0))
    return new HistogramSnapshot(this.boundsMs, counts, this.sumMs - earlier.sumMs)
  }

  /**
   * The quantile in milliseconds for a share from 0 to 1, interpolated inside its bucket; at most the last finite bound.
   * Undefined if nothing was counted.
   */
  quantileMs(share: number): number | undefined {
    const total = this.count
    if (total === 0) return undefined
    const rank = share * total
    let below = 0
    let lowerMs = 0
    for (const [i, upperMs] of this.boundsMs.entries()) {
      const count = this.counts[i] ?? 0
      if (upperMs === Number.POSITIVE_INFINITY) break
      if (count > 0 && below + count >= rank) return lowerMs + (upperMs - lowerMs) * ((rank - below) / count)
      below += count
      lowerMs = upperMs
    }
    return lowerMs
  }
}
