/** The price of traces: this program without them, with them for no request, and for each. */

import { fileURLToPath } from 'node:url'
import { orgAccessProxy } from '../candidates/org-access-proxy.mjs'
import { Child, LOAD_CORE } from '../harness/children.mjs'
import { freePort } from '../harness/ports.mjs'
import { untilAnswering } from '../harness/readiness.mjs'
import { alternate } from '../harness/samples.mjs'
import { measureThroughput } from '../harness/throughput.mjs'
import { FAILURES_COLUMN, OTHERS_COLUMN } from './scenario.mjs'

const COLLECTOR = fileURLToPath(new URL('../origins/collector.mjs', import.meta.url))
const LOAD = { path: '/v2/small', connections: 64 }
const OFF = 'off'

/** @type {import('./scenario.mjs').Scenario} */
export const traces = {
  name: 'traces',
  title: 'Traces: small GET, 64 connections',
  about:
    'Requests without `traceparent`. Without a collector, spans are made and dropped. With one, it gets as many as one call ' +
    'at a time can bring; the others are dropped.',
  rowTitle: 'traces',
  columns: [
    { title: 'CPU µs/request', metric: 'cpuMicros', digits: 1 },
    { title: 'CPU: without ÷ it', ratioOf: 'cpuMicros', of: OFF },
    { title: 'CPU µs more than without', differenceOf: 'cpuMicros', from: OFF, digits: 1 },
    { title: 'requests/s', metric: 'requestsPerSecond', digits: 0 },
    OTHERS_COLUMN,
    FAILURES_COLUMN,
  ],
  run: async (bench) => {
    const [port, closed] = [await freePort(), await freePort()]
    const program = { command: process.execPath, args: [COLLECTOR, String(port)] }
    const collector = new Child(program, { core: LOAD_CORE, folder: bench.folder, name: 'collector' })
    const at = (/** @type {number} */ to) => `http://127.0.0.1:${to}/v1/traces`
    const rows = [
      { name: OFF, settings: {} },
      { name: 'on, no request sampled', settings: { traces: { endpoint: at(port), sample: 0 } } },
      { name: 'each request, no collector', settings: { traces: { endpoint: at(closed), sample: 1 } } },
      { name: 'each request, with a collector', settings: { traces: { endpoint: at(port), sample: 1 } } },
    ]
    try {
      await untilAnswering(port, '/', collector)
      return await alternate(bench, rows, ({ settings }) =>
        measureThroughput(bench, orgAccessProxy, { load: LOAD, settings }),
      )
    } finally {
      await collector.stop()
    }
  },
}
