/** The cost of a request to this program while one property of the load grows. */

import { orgAccessProxy } from '../candidates/org-access-proxy.mjs'
import { alternate } from '../harness/samples.mjs'
import { measureThroughput } from '../harness/throughput.mjs'
import { FAILURES_COLUMN, LATENCY_COLUMNS, OTHERS_COLUMN, PEAK_COLUMN } from './scenario.mjs'
import { MANY_CONNECTIONS, MANY_ORGS } from './throughput.mjs'

/** @typedef {import('./scenario.mjs').Scenario} Scenario */

const SMALL = '/v2/small'
const CONTENT_BYTES = [0, 1_024, 65_536, 1_048_576, 10_485_760, 104_857_600]
/** wrk sends Host and X-Org-Id by itself. */
const OWN_FIELDS = 2

/** @type {Scenario[]} */
export const growthScenarios = [
  growth('growth-orgs', 'Growth: orgs', 'orgs', [1, 10, 100, 1_000, 10_000, 100_000], (orgs) => ({
    load: { path: SMALL, connections: 64, orgs },
    settings: MANY_ORGS,
  })),
  growth('growth-connections', 'Growth: connections', 'connections', [1, 10, 100, 1_000, 10_000], (connections) => ({
    load: { path: SMALL, connections },
    settings: MANY_CONNECTIONS,
  })),
  growth('growth-fields', 'Growth: request fields', 'fields', [5, 10, 25, 50, 100], (fields) => ({
    load: { path: SMALL, connections: 64, furtherFields: fields - OWN_FIELDS },
  })),
  growth('growth-download', 'Growth: response content', 'bytes', CONTENT_BYTES, (bytes) => ({
    load: { path: `/v2/content/${bytes}`, ...paceFor(bytes) },
  })),
  growth('growth-upload', 'Growth: request content', 'bytes', CONTENT_BYTES, (contentBytes) => ({
    load: { path: '/v2/upload', method: 'POST', contentBytes, ...paceFor(contentBytes) },
  })),
]

/**
 * One request at a time: with several, the kernel's queues would grow along with the content. Large contents get more time,
 * so that many requests end within a measurement.
 * @param {number} contentBytes
 */
function paceFor(contentBytes) {
  if (contentBytes <= 65_536) return { connections: 1 }
  return { connections: 1, makesFewRequests: true, leastSeconds: contentBytes <= 10_485_760 ? 5 : 10 }
}

/**
 * @param {string} name
 * @param {string} title
 * @param {string} rowTitle
 * @param {readonly number[]} values
 * @param {(value: number) => import('../harness/throughput.mjs').ThroughputOptions} optionsFor
 * @returns {Scenario}
 */
function growth(name, title, rowTitle, values, optionsFor) {
  return {
    name,
    title,
    about: 'This program alone, everything on.',
    rowTitle,
    columns: [
      { title: 'CPU µs/request', metric: 'cpuMicros', digits: 1 },
      { title: 'requests/s', metric: 'requestsPerSecond', digits: 0 },
      ...LATENCY_COLUMNS,
      PEAK_COLUMN,
      OTHERS_COLUMN,
      FAILURES_COLUMN,
    ],
    run: (bench) => alternate(bench, values, (value) => measureThroughput(bench, orgAccessProxy, optionsFor(value))),
  }
}
