/**
 * Counters and histograms: plain numbers that a request updates cheaply. prom-client gets them only at a scrape, and writes
 * Prometheus's text format. Every known label value starts at zero, so that `rate()` sees the first event, too.
 */

import type { Metric, Registry } from 'prom-client'

/** As prom-client takes it. */
interface Sample {
  readonly labels: Readonly<Record<string, string>>
  value: number
  /** The name with its suffix, for the parts of a histogram. */
  readonly metricName?: string
}

export interface MetricFamily {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly values: readonly Sample[]
}

/** The compiler checks that an object of type `Record<L, …>` misses no value of `L`. */
export function keysOf<L extends string>(values: Readonly<Record<L, unknown>>): L[] {
  return Object.keys(values) as L[]
}

/** A counter with one or two labels: a row for each value of the first, with a count for each value of the second. */
export class Counter<First extends string, Second extends string | number = ''> {
  readonly #name: string
  readonly #help: string
  readonly #labels: readonly [string, string?]
  readonly #seconds: readonly Second[]
  readonly #rows = new Map<First, Map<Second, Sample>>()

  /** `firsts` and `seconds` are the values that are known of each label. Every new row starts with all `seconds`. */
  constructor(
    name: string,
    help: string,
    labels: readonly [string, string?],
    firsts: readonly First[] = [],
    seconds: readonly Second[] = [],
  ) {
    this.#name = name
    this.#help = help
    this.#labels = labels
    this.#seconds = labels.length === 1 ? ['' as Second] : seconds
    this.know(firsts)
  }

  /** Starts the counts of these values at zero. */
  know(firsts: readonly First[]): void {
    for (const first of firsts) if (!this.#rows.has(first)) this.#openRow(first)
  }

  add(first: First, second = '' as Second): void {
    const sample = this.#rows.get(first)?.get(second) ?? this.#open(first, second)
    sample.value++
  }

  /** The sum of the counts with these labels; undefined stands for all values. */
  total(first?: First, second?: Second): number {
    let total = 0
    for (const [inRow, row] of this.#rows) {
      if (first !== undefined && inRow !== first) continue
      for (const [value, sample] of row) if (second === undefined || value === second) total += sample.value
    }
    return total
  }

  family(): MetricFamily {
    const values = [...this.#rows.values()].flatMap((row) => [...row.values()])
    return { name: this.#name, type: 'counter', help: this.#help, values }
  }

  #open(first: First, second: Second): Sample {
    const row = this.#rows.get(first) ?? this.#openRow(first)
    const [one, other] = this.#labels
    const labels = other === undefined ? { [one]: first } : { [one]: first, [other]: String(second) }
    const sample = row.get(second) ?? { labels, value: 0 }
    row.set(second, sample)
    return sample
  }

  #openRow(first: First): Map<Second, Sample> {
    const row = new Map<Second, Sample>()
    this.#rows.set(first, row)
    for (const second of this.#seconds) this.#open(first, second)
    return row
  }
}

/** Durations, counted in fixed buckets. */
export class Histogram {
  readonly #name: string
  readonly #help: string
  /** Upper bounds, ascending. Ends with infinity, so that every duration finds a bucket. */
  readonly #boundsMs: readonly number[]
  readonly #counts: Float64Array
  #sumMs = 0
  /** The longest so far. The history sets it back after each reading. */
  maxMs = 0

  constructor(name: string, help: string, boundsMs: readonly number[]) {
    this.#name = name
    this.#help = help
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
    if (durationMs > this.maxMs) this.maxMs = durationMs
  }

  /** A copy, one count per bucket. The difference of two tells what happened between them. */
  counts(): number[] {
    return [...this.#counts]
  }

  /**
   * The quantile of these counts for a share from 0 to 1, interpolated inside its bucket; at most `maxMs`. Undefined if nothing
   * was counted.
   */
  quantileMs(share: number, counts: readonly number[], maxMs: number): number | undefined {
    const total = counts.reduce((sum, count) => sum + count, 0)
    if (total === 0) return undefined
    let rank = share * total
    let lowerMs = 0
    for (const [i, upperMs] of this.#boundsMs.entries()) {
      const count = counts[i] ?? 0
      if (count > 0 && count >= rank) return Math.min(lowerMs + (upperMs - lowerMs) * (rank / count), maxMs)
      rank -= count
      lowerMs = upperMs
    }
    return maxMs
  }

  /** In seconds; each bucket counts all shorter durations, too. */
  family(): MetricFamily {
    const name = this.#name
    let count = 0
    const buckets = this.#boundsMs.map((boundMs, i) => {
      count += this.#counts[i] ?? 0
      const le = boundMs === Number.POSITIVE_INFINITY ? '+Inf' : String(boundMs / 1000)
      return { metricName: `${name}_bucket`, labels: { le }, value: count }
    })
    const sum = { metricName: `${name}_sum`, labels: {}, value: this.#sumMs / 1000 }
    const values = [...buckets, sum, { metricName: `${name}_count`, labels: {}, value: count }]
    return { name, type: 'histogram', help: this.#help, values }
  }
}

/** In Prometheus's text format. */
export async function renderFamilies(families: readonly MetricFamily[]): Promise<string> {
  const { Registry } = await import('prom-client') // at the first scrape, which keeps it out of the start
  const registry = new Registry()
  // A registry asks each metric for its values by `get`, and needs nothing else.
  for (const family of families) registry.registerMetric({ ...family, get: () => family } as unknown as Metric)
  return registry.metrics()
}

/** promtool refuses these gauges, because their names are those of counters. Other gauges have the same values by type. */
const LEFT_OUT = ['nodejs_active_resources_total', 'nodejs_active_handles_total', 'nodejs_active_requests_total']

let runtime: Promise<Registry> | undefined

/** The usual `process_*` and `nodejs_*` metrics. The process has one set of them. */
export async function runtimeMetrics(): Promise<string> {
  runtime ??= import('prom-client').then(({ collectDefaultMetrics, Registry }) => {
    const registry = new Registry()
    collectDefaultMetrics({ register: registry })
    for (const name of LEFT_OUT) registry.removeSingleMetric(name)
    return registry
  })
  const text = await (await runtime).metrics()
  // The event loop's delay has no value before its first sample. NaN would turn every average over it into NaN,
  // and the least of none is 2^63 nanoseconds.
  return text.replace(/^(?:.* Nan|nodejs_eventloop_lag_min_seconds 9\d{9}\..*)\n/gm, '')
}
