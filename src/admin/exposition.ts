/**
 * Metrics in Prometheus's text format, written by prom-client. The counts live in plain arrays and maps of ours, which are
 * cheap to update on every request; they become prom-client's only at a scrape. prom-client is imported at the first one,
 * which keeps it out of the start.
 */

import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Metric } from 'prom-client'
import type { HistogramSnapshot } from './histogram.ts'

export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

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

export function labelled(
  name: string,
  type: 'counter' | 'gauge',
  help: string,
  values: readonly Sample[],
): MetricFamily {
  return { name, type, help, values }
}

/** In seconds; each bucket counts all shorter durations, too. */
export function histogramFamily(name: string, help: string, snapshot: HistogramSnapshot): MetricFamily {
  const values: Sample[] = []
  let count = 0
  for (const [i, boundMs] of snapshot.boundsMs.entries()) {
    count += snapshot.counts[i] ?? 0
    const le = boundMs === Number.POSITIVE_INFINITY ? '+Inf' : String(boundMs / 1000)
    values.push({ metricName: `${name}_bucket`, labels: { le }, value: count })
  }
  values.push({ metricName: `${name}_sum`, labels: {}, value: snapshot.sumMs / 1000 })
  values.push({ metricName: `${name}_count`, labels: {}, value: count })
  return { name, type: 'histogram', help, values }
}

export async function renderFamilies(families: readonly MetricFamily[]): Promise<string> {
  const { Registry } = await import('prom-client')
  const registry = new Registry()
  // A registry asks each metric for its values by `get`, and needs nothing else.
  for (const family of families) registry.registerMetric({ ...family, get: () => family } as unknown as Metric)
  return registry.metrics()
}

/** promtool refuses these gauges, because counters are named like that. prom-client has the same by type. */
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
  return () => registry.metrics()
}
