/** The usual `process_*` and `nodejs_*` metrics. prom-client is loaded when they are first asked for: a start must be quick. */

import { setTimeout as sleep } from 'node:timers/promises'

/** Gauges whose names end like counters, which promtool refuses; and they walk every open handle. */
const LEFT_OUT = ['nodejs_active_resources_total', 'nodejs_active_handles_total', 'nodejs_active_requests_total']

/** The event loop's delay is sampled at this interval; before the first sample there is none to report. */
const SAMPLING_MS = 20

let loading: Promise<() => Promise<string>> | undefined

/** In the text format. They are those of the process, so there is one set of them, whoever asks. */
export async function runtimeMetrics(): Promise<string> {
  loading ??= load()
  const render = await loading
  return render()
}

async function load(): Promise<() => Promise<string>> {
  const { collectDefaultMetrics, Registry } = await import('prom-client')
  const registry = new Registry()
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: SAMPLING_MS })
  for (const name of LEFT_OUT) registry.removeSingleMetric(name)
  await sleep(2 * SAMPLING_MS)
  return () => registry.metrics()
}
