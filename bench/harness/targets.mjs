/** The targets of the project, and the comparison of the results with them. */

import { differencesOf, failuresOf, medianOf, ratiosOf, valuesOf } from './samples.mjs'
import { median, quantile } from './statistics.mjs'
import { markdownTable, shown } from './table.mjs'

/** @typedef {import('./results.mjs').Results} Results */
/** @typedef {import('./samples.mjs').Samples} Samples */

/**
 * @typedef {object} Target
 * @property {string} text
 * @property {string} unit
 * @property {number} digits
 * @property {(results: Results) => number} limit The largest value that meets the target. NaN: it is only told.
 * @property {readonly string[]} scenarios Where it is measured.
 * @property {(results: Results) => readonly number[]} values Of each round or pair of turns; NaN or none if it was not measured.
 */

/**
 * `cannot decide`: the limit lies between the quartiles of the values, or others were at work on the machine.
 * @typedef {'holds' | 'falls short' | 'cannot decide' | 'not measured' | 'no limit'} Verdict
 */

const OURS = 'org-access-proxy'
/** `--node` of the bench adds it; the image runs 24. */
const OURS_ON_24 = 'this program on Node 24'
const OURS_TLS = 'org-access-proxy-tls'
const REFRESHING = 'org-access-proxy-refreshing'
const MEBIBYTE = 1_048_576
const KIBIBYTE = 1_024
/** The target for peak memory covers the scenarios with a usual number of connections. */
const USUAL_LOADS = [
  'small-get',
  'post-1kib',
  'download-64kib',
  'upload-64kib',
  'download-10mib',
  'upload-10mib',
  'orgs-1000',
  'https-origin',
]
/** Node 24 needs more than Node 20 before it does anything. */
const IDLE_MIB_ON_24 = 75
const IS_NODE_20 = process.versions.node.startsWith('20.')
const IDLE_MIB = IS_NODE_20 ? 62 : IDLE_MIB_ON_24
/** The same for the small GET beside nginx: it needs less. */
const TO_NGINX_ON_24 = 1.35
const TO_NGINX = IS_NODE_20 ? 1.6 : TO_NGINX_ON_24
/** The exponent of linear growth. The part above 1 allows for noise. */
const LINEAR = 1.1
const DISTURBING_SHARE = 0.1
/** On a quiet machine, the open-loop client is late by some tenths of a millisecond. */
const DISTURBING_LATENESS_MS = 5
/** The client of the latency scenario cannot measure smaller differences. */
const RESOLUTION_MS = 0.02

/** @type {readonly Target[]} */
export const TARGETS = [
  cpuRatio('small GET, everything on: CPU, to http-proxy', 'in-turns', 'http-proxy', 0.35),
  cpuRatio("small GET, everything on: CPU, to Go's ReverseProxy", 'in-turns', 'go', 0.45),
  cpuRatio('small GET, everything on: CPU, to nginx with its log', 'in-turns', 'nginx', TO_NGINX),
  cpuRatio(
    'small GET, everything on, Node 24: CPU, to nginx with its log',
    'in-turns',
    'nginx',
    TO_NGINX_ON_24,
    OURS_ON_24,
  ),
  cpuRatio(
    'small GET, everything on: CPU, to joined sockets with our parsers',
    'small-get',
    'splice-parsed',
    Number.NaN,
  ),
  cpuRatio('small GET, everything on: CPU, to joined sockets', 'small-get', 'splice', Number.NaN),
  cpuRatio("POST of 1 KiB: CPU, to Go's", 'turns-post-1kib', 'go', 0.5),
  cpuRatio('small GET over TLS on kept connections: CPU, to the small GET', 'tls-listener', OURS, 1.5, OURS_TLS),
  cpuRatio("download of 64 KiB: CPU, to Go's", 'turns-download-64kib', 'go', 0.85),
  cpuRatio("upload of 64 KiB: CPU, to Go's", 'turns-upload-64kib', 'go', 0.85),
  cpuRatio("download of 10 MiB: CPU, to Go's", 'download-10mib', 'go', 1.2),
  cpuRatio("upload of 10 MiB: CPU, to Go's", 'upload-10mib', 'go', 1.2),
  addedLatency('1,000 requests/s: added p50', 'p50Ms', 0.1),
  addedLatency('1,000 requests/s: added p99', 'p99Ms', 0.5),
  cpuRatio('1,000 requests/s, warm: CPU, to nginx with its log', 'steady-load', 'nginx', 1.4),
  cpuRatio(
    '1,000 requests/s, warm: CPU, to joined sockets with our parsers',
    'steady-load',
    'splice-parsed',
    Number.NaN,
  ),
  ofOurs('1,000 requests/s: turns of the event loop per request', 'steady-load', 'turns', {
    unit: '',
    digits: 2,
    limit: 3,
  }),
  refreshLatency('tokens refreshed every 2 s: p50 more than without', 'p50Ms'),
  refreshLatency('tokens refreshed every 2 s: p99 more than without', 'p99Ms'),
  cpuRatio('1,000 orgs: CPU, to one org', 'orgs-in-turns', '1', 1.1, '1000'),
  {
    text: 'cold request through a sidecar of a minter: p50, to a proxy alone',
    unit: '×',
    digits: 2,
    limit: () => 1.5,
    scenarios: ['minter'],
    values: (results) => ratiosOf(samplesOf(results, 'minter'), 'coldP50Ms', 'a sidecar of a minter', 'a proxy alone'),
  },
  memory('100,000 cached orgs: memory more', 'cached-orgs', 'moreBytes', 64),
  {
    text: 'peak memory under load, at most 64 connections',
    unit: 'MiB',
    digits: 1,
    limit: () => 140,
    scenarios: USUAL_LOADS,
    values: (results) => [
      Math.max(...USUAL_LOADS.map((name) => medianOf(samplesOf(results, name), OURS, 'peakBytes'))) / MEBIBYTE,
    ],
  },
  memory('idle memory', 'start-up', 'idleBytes', IDLE_MIB),
  memory('idle memory, Node 24', 'start-up', 'idleBytes', IDLE_MIB_ON_24, OURS_ON_24),
  ofOurs('spawn to first proxied answer', 'start-up', 'startMs', { unit: 'ms', digits: 0, limit: 180 }),
  ofOurs('10,000 idle connections, each', 'idle-connections', 'bytesPerConnection', {
    unit: 'KiB',
    digits: 1,
    limit: 10,
    divisor: KIBIBYTE,
  }),
  growth('growth over orgs', 'growth-orgs'),
  growth('growth over connections', 'growth-connections'),
  growth('growth over request fields', 'growth-fields'),
  growth('growth over response content', 'growth-download'),
  growth('growth over request content', 'growth-upload'),
]

/**
 * @param {Target} target
 * @param {Results} results
 * @returns {Verdict}
 */
export function verdict({ limit, scenarios, values }, results) {
  const measured = valuesThatAre(values(results))
  const most = limit(results)
  if (measured.length === 0) return 'not measured'
  if (Number.isNaN(most)) return 'no limit'
  if (scenarios.some((name) => isDisturbed(samplesOf(results, name)))) return 'cannot decide'
  if (quantile(measured, 0.75) <= most) return 'holds'
  return quantile(measured, 0.25) > most ? 'falls short' : 'cannot decide'
}

/** @param {readonly number[]} values */
function valuesThatAre(values) {
  return values.filter((value) => Number.isFinite(value))
}

/** @param {Results} results */
export function targetTable(results) {
  const rows = TARGETS.map((target) => {
    const { text, unit, digits } = target
    const limit = target.limit(results)
    const values = valuesThatAre(target.values(results))
    const quartiles = [0.25, 0.75].map((share) => shown(quantile(values, share), digits)).join(' to ')
    return [
      text,
      Number.isNaN(limit) ? '–' : `≤ ${shown(limit, digits)} ${unit}`,
      values.length === 0 ? '–' : `${shown(median(values), digits)} ${unit}`,
      values.length < 2 ? '–' : quartiles,
      verdict(target, results),
    ]
  })
  const disturbed = Object.keys(results).filter((scenario) => isDisturbed(samplesOf(results, scenario)))
  const reason = "others had more than a tenth of the proxy's core, or held up the client"
  const warning = `Disturbed, and no proof of anything, because ${reason}: ${disturbed.join(', ')}.`
  const failed = failedIn(results)
  return [
    markdownTable(['target', 'limit', 'median', 'quartiles', 'verdict'], rows),
    ...(disturbed.length === 0 ? [] : [warning]),
    ...(failed.length === 0
      ? []
      : [`Failed at least once, so measured less often or not at all: ${failed.join(', ')}.`]),
  ].join('\n\n')
}

/**
 * The rows with a round that failed.
 * @param {Results} results
 */
export function failedIn(results) {
  return Object.entries(results).flatMap(([scenario, { samples }]) =>
    Object.keys(samples)
      .filter((key) => failuresOf(samples, key).length > 0)
      .map((key) => `${key} in ${scenario}`),
  )
}

/** @param {Samples} samples */
function isDisturbed(samples) {
  return Object.keys(samples).some(
    (key) =>
      medianOf(samples, key, 'othersShare') > DISTURBING_SHARE ||
      medianOf(samples, key, 'lateP99Ms') > DISTURBING_LATENESS_MS,
  )
}

/**
 * @param {Results} results
 * @param {string} scenario
 * @returns {Samples}
 */
function samplesOf(results, scenario) {
  return results[scenario]?.samples ?? {}
}

/**
 * @param {string} text
 * @param {string} scenario
 * @param {string} peer
 * @param {number} limit
 * @param {string} [candidate]
 * @returns {Target}
 */
function cpuRatio(text, scenario, peer, limit, candidate = OURS) {
  const values = (/** @type {Results} */ results) =>
    ratiosOf(samplesOf(results, scenario), 'cpuMicros', candidate, peer)
  return { text, unit: '×', digits: 2, limit: () => limit, scenarios: [scenario], values }
}

/**
 * @param {string} text
 * @param {'p50Ms' | 'p99Ms'} metric
 * @param {number} limit
 * @returns {Target}
 */
function addedLatency(text, metric, limit) {
  const values = (/** @type {Results} */ results) =>
    differencesOf(samplesOf(results, 'added-latency'), metric, OURS, 'direct')
  return { text, unit: 'ms', digits: 3, limit: () => limit, scenarios: ['added-latency'], values }
}

/**
 * The limit is the difference between the rounds without a refresh.
 * @param {string} text
 * @param {'p50Ms' | 'p99Ms'} metric
 * @returns {Target}
 */
function refreshLatency(text, metric) {
  return {
    text,
    unit: 'ms',
    digits: 3,
    limit: (results) => {
      const values = valuesOf(samplesOf(results, 'added-latency'), OURS, metric)
      return values.length === 0 ? Number.NaN : Math.max(RESOLUTION_MS, Math.max(...values) - Math.min(...values))
    },
    scenarios: ['added-latency'],
    values: (results) => differencesOf(samplesOf(results, 'added-latency'), metric, REFRESHING, OURS),
  }
}

/**
 * @param {string} text
 * @param {string} scenario
 * @param {string} metric
 * @param {{ unit: string, digits: number, limit: number, divisor?: number }} more
 * @param {string} [candidate]
 * @returns {Target}
 */
function ofOurs(text, scenario, metric, { unit, digits, limit, divisor = 1 }, candidate = OURS) {
  const values = (/** @type {Results} */ results) =>
    valuesOf(samplesOf(results, scenario), candidate, metric).map((value) => value / divisor)
  return { text, unit, digits, limit: () => limit, scenarios: [scenario], values }
}

/**
 * @param {string} text
 * @param {string} scenario
 * @param {string} metric
 * @param {number} limit In MiB.
 * @param {string} [candidate]
 */
function memory(text, scenario, metric, limit, candidate) {
  return ofOurs(text, scenario, metric, { unit: 'MiB', digits: 1, limit, divisor: MEBIBYTE }, candidate)
}

/**
 * The exponent with which the cost of a request grows, between the two neighbouring sizes with the largest growth: 0 means
 * no growth, 1 growth in proportion.
 * @param {string} text
 * @param {string} scenario
 * @returns {Target}
 */
function growth(text, scenario) {
  const values = (/** @type {Results} */ results) => {
    const samples = samplesOf(results, scenario)
    const sizes = Object.keys(samples)
      .map(Number)
      .filter((size) => size > 0)
      .sort((a, b) => a - b)
    const powers = sizes.slice(1).map((size, index) => {
      const smaller = sizes[index] ?? Number.NaN
      const cost = medianOf(samples, String(size), 'cpuMicros') / medianOf(samples, String(smaller), 'cpuMicros')
      return Math.log(cost) / Math.log(size / smaller)
    })
    return [Math.max(...powers)]
  }
  return { text: `${text}: largest power`, unit: '', digits: 2, limit: () => LINEAR, scenarios: [scenario], values }
}
