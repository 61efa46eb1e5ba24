/**
 * Counters and histograms: plain numbers that a request updates cheaply. prom-client gets them only at a scrape, and writes
 * Prometheus's text format. Every known label value starts at zero, so that `rate()` sees the first event, too.
 */

import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Metric } from 'prom-client'

/** As prom-client takes it. */
export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
  /** The name with its suffix, for the parts of a histogram. */
  readonly metricName?: string
}

export interface MetricFamily {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly values: readonly Sample[]
}

/** A metric without labels. */
export function single(name: string, type: 'counter' | 'gauge', help: string, value: number): MetricFamily {
  return { name, type, help, values: [{ labels: {}, value }] }
}

/** The compiler checks that an object of type `Record<L, …>` misses no value of `L`. */
export function keysOf<L extends string>(values: Readonly<Record<L, unknown>>): L[] {
  return Object.keys(values) as L[]
}

interface Named {
  readonly name: string
  readonly help: string
}

/** A counter with one label. */
export class LabelledCounter<L extends string> {
  readonly #named: Named
  readonly #label: string
  readonly #counts: Map<L, number>
  total = 0

  constructor(named: Named, label: string, values: readonly L[]) {
    this.#named = named
    this.#label = label
    this.#counts = new Map(values.map((value) => [value, 0]))
  }

  add(value: L): void {
    this.#counts.set(value, (this.#counts.get(value) ?? 0) + 1)
    this.total++
  }

  counts(): Record<L, number> {
    return Object.fromEntries(this.#counts) as Record<L, number>
  }

  family(): MetricFamily {
    const values = Array.from(this.#counts, ([value, count]) => ({ labels: { [this.#label]: value }, value: count }))
    return { ...this.#named, type: 'counter', values }
  }
}

/** A counter with two labels: a row for each value of the first, with the values that the second can have there. */
export class PairCounter<A extends string, B extends string> {
  readonly #named: Named
  readonly #labels: readonly [string, string]
  readonly #rows = new Map<A, Map<B, number>>()

  constructor(named: Named, labels: readonly [string, string]) {
    this.#named = named
    this.#labels = labels
  }

  /** Adds a row, unless it is there. */
  open(first: A, seconds: readonly B[]): void {
    if (!this.#rows.has(first)) this.#rows.set(first, new Map(seconds.map((second) => [second, 0])))
  }

  add(first: A, second: B): void {
    const row = this.#rows.get(first)
    row?.set(second, (row.get(second) ?? 0) + 1)
  }

  totalOf(first: A): number {
    let total = 0
    for (const count of this.#rows.get(first)?.values() ?? []) total += count
    return total
  }

  totalWith(second: B): number {
    let total = 0
    for (const row of this.#rows.values()) total += row.get(second) ?? 0
    return total
  }

  family(): MetricFamily {
    const [one, other] = this.#labels
    const values = [...this.#rows].flatMap(([first, row]) =>
      Array.from(row, ([second, value]) => ({ labels: { [one]: first, [other]: second }, value })),
    )
    return { ...this.#named, type: 'counter', values }
  }
}

/** Durations, counted in fixed buckets. */
export class Histogram {
  readonly #named: Named
  /** Upper bounds, ascending. Ends with infinity, so that every duration finds a bucket. */
  readonly #boundsMs: readonly number[]
  readonly #counts: Float64Array
  #sumMs = 0
  /** Since `takeMax` was last called. */
  #maxMs = 0

  constructor(named: Named, boundsMs: readonly number[]) {
    this.#named = named
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
    if (durationMs > this.#maxMs) this.#maxMs = durationMs
  }

  get maxMs(): number {
    return this.#maxMs
  }

  takeMax(): number {
    const maxMs = this.#maxMs
    this.#maxMs = 0
    return maxMs
  }

  snapshot(): HistogramSnapshot {
    return new HistogramSnapshot(this.#boundsMs, Array.from(this.#counts), this.#sumMs)
  }

  /** In seconds; each bucket counts all shorter durations, too. */
  family(): MetricFamily {
    const { name } = this.#named
    const values: Sample[] = []
    let count = 0
    for (const [i, boundMs] of this.#boundsMs.entries()) {
      count += this.#counts[i] ?? 0
      const le = boundMs === Number.POSITIVE_INFINITY ? '+Inf' : String(boundMs / 1000)
      values.push({ metricName: `${name}_bucket`, labels: { le }, value: count })
    }
    values.push({ metricName: `${name}_sum`, labels: {}, value: this.#sumMs / 1000 })
    values.push({ metricName: `${name}_count`, labels: {}, value: count })
    return { ...this.#named, type: 'histogram', values }
  }
}

/** The content of a histogram at one moment. The difference of two tells what happened between them. */
export class HistogramSnapshot {
  readonly boundsMs: readonly number[]
  /** One count per bucket, not cumulative. */
  readonly counts: readonly number[]
  readonly sumMs: number

  constructor(boundsMs: readonly number[], counts: readonly number[], sumMs: number) {
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
   * The quantile in milliseconds for a share from 0 to 1, interpolated inside its bucket; at most `maxMs`. Undefined if
   * nothing was counted.
   */
  quantileMs(share: number, maxMs: number): number | undefined {
    const total = this.count
    if (total === 0) return undefined
    const rank = share * total
    let below = 0
    let lowerMs = 0
    for (const [i, upperMs] of this.boundsMs.entries()) {
      const count = this.counts[i] ?? 0
      if (upperMs === Number.POSITIVE_INFINITY) break
      const interpolatedMs = lowerMs + (upperMs - lowerMs) * ((rank - below) / count)
      if (count > 0 && below + count >= rank) return Math.min(interpolatedMs, maxMs)
      below += count
      lowerMs = upperMs
    }
    return maxMs
  }
}

export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

export async function renderFamilies(families: readonly MetricFamily[]): Promise<string> {
  const { Registry } = await import('prom-client') // at the first scrape, which keeps it out of the start
  const registry = new Registry()
  // A registry asks each metric for its values by `get`, and needs nothing else.
  for (const family of families) registry.registerMetric({ ...family, get: () => family } as unknown as Metric)
  return registry.metrics()
}

/** promtool refuses these gauges, because their names are those of counters. Other gauges have the same values by type. */
const LEFT_OUT = ['nodejs_active_resources_total', 'nodejs_active_handles_total', 'nodejs_active_requests_total']

/** Interval at which prom-client samples the event loop's delay. It has no value before the first sample. */
const SAMPLING_MS = 20

/** A scrape empties the samples, so a second scrape within this time gets the same text. */
const FRESH_MS = 1_000

interface Rendered {
  readonly text: Promise<string>
  readonly at: number
}

let runtime: Promise<() => Promise<string>> | undefined
let last: Rendered | undefined

/** The usual `process_*` and `nodejs_*` metrics. The process has one set of them. */
export function runtimeMetrics(): Promise<string> {
  const now = performance.now()
  if (last === undefined || now - last.at >= FRESH_MS) {
    runtime ??= collectRuntime()
    last = { text: runtime.then((render) => render()), at: now }
  }
  return last.text
}

async function collectRuntime(): Promise<() => Promise<string>> {
  const { collectDefaultMetrics, Registry } = await import('prom-client')
  const registry = new Registry()
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: SAMPLING_MS })
  for (const name of LEFT_OUT) registry.removeSingleMetric(name)
  await sleep(2 * SAMPLING_MS)
  // A process without CPU may have no sample at all. Its mean, NaN, would turn every average over it into NaN.
  return async () => (await registry.metrics()).replace(/^.* Nan\n/gm, '')
}
