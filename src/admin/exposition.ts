/**
 * Metrics in Prometheus's text format, written by prom-client. It is imported at the first scrape, which keeps it out of the
 * start.
 */

import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Metric } from 'prom-client'
import type { MetricFamily } from './counts.ts'

export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

export async function renderFamilies(families: readonly MetricFamily[]): Promise<string> {
  const { Registry } = await import('prom-client')
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
  // A process without CPU may have no sample at all. A mean of nothing would make every average over it nothing, too.
  return async () => (await registry.metrics()).replace(/^.* Nan\n/gm, '')
}
