/** The usual `process_*` and `nodejs_*` metrics. prom-client is loaded when they are first asked for: a start must be quick. */

import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

/** Gauges whose names end like those of counters: promtool refuses them, and the same is told by type. */
const LEFT_OUT = ['nodejs_active_resources_total', 'nodejs_active_handles_total', 'nodejs_active_requests_total']

/** The event loop's delay is sampled at this interval; before the first sample there is none to report. */
const SAMPLING_MS = 20

/** Reading empties the samples: for who asks right after another, the answer is the same. */
const FRESH_MS = 1_000

interface Rendered {
  readonly text: Promise<string>
  readonly at: number
}

let render: Promise<() => Promise<string>> | undefined
let last: Rendered | undefined

/** In the text format. They are those of the process, so there is one set of them, whoever asks. */
export function runtimeMetrics(): Promise<string> {
  const now = performance.now()
  if (last === undefined || now - last.at >= FRESH_MS) {
    render ??= load()
    last = { text: render.then((rendered) => rendered()), at: now }
  }
  return last.text
}

async function load(): Promise<() => Promise<string>> {
  const { collectDefaultMetrics, Registry } = await import('prom-client')
  const registry = new Registry()
  collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: SAMPLING_MS })
  for (const name of LEFT_OUT) registry.removeSingleMetric(name)
  await sleep(2 * SAMPLING_MS)
  return () => registry.metrics()
}
