/** Durations counted in fixed buckets: plain integers on the request path, everything else when somebody asks. */

/** Upper bounds in milliseconds, ascending; what lies above the last one is counted too. */
export type Bounds = readonly number[]

export class Histogram {
  /** Infinity comes last, so that every duration finds its bucket without a second condition. */
  readonly #boundsMs: Bounds
  readonly #counts: Float64Array
  #sumMs = 0

  constructor(boundsMs: Bounds) {
    this.#boundsMs = [...boundsMs, Number.POSITIVE_INFINITY]
    this.#counts = new Float64Array(this.#boundsMs.length)
  }

  /** Half of all requests end in the first buckets: counting up from below is cheaper than halving. */
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

/** What a histogram held at one moment; two of them give what came between. */
export class HistogramSnapshot {
  readonly boundsMs: Bounds
  /** For each bound: how many lay above the bound before it and not above this one. */
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
   * The duration in milliseconds that a share of all stays below, assuming an even spread inside a bucket. Never above
   * the last finite bound. Undefined where nothing was counted.
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
