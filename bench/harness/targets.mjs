/** The targets of the project, and the comparison of the results with them. */

import { failuresOf, medianDifference, medianOf, medianRatio, valuesOf } from './samples.mjs'
import { markdownTable, shown } from './table.mjs'

/** @typedef {import('./results.mjs').Results} Results */
/** @typedef {import('./samples.mjs').Samples} Samples */

/**
 * @typedef {object} Target
 * @property {string} text
 * @property {string} unit
 * @property {number} digits
 * @property {(results: Results) => number} limit The largest value that meets the target. NaN: it is only told.
 * @property {(results: Results) => number} value NaN if it was not measured.
 */

/** @typedef {'holds' | 'falls short' | 'not measured' | 'no limit'} Verdict */

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
const IDLE_MIB = process.versions.node.startsWith('20.') ? 60 : IDLE_MIB_ON_24
/** The exponent of linear growth. The part above 1 allows for noise. */
const LINEAR = 1.1
const DISTURBING_SHARE = 0.1
/** On a quiet machine, the open-loop client is late by some tenths of a millisecond. */
const DISTURBING_LATENESS_MS = 5
/** The client of the latency scenario cannot measure smaller differences. */
const RESOLUTION_MS = 0.02

/** @type {readonly Target[]} */
export const TARGETS = [
  cpuRatio('small GET, everything on: CPU, to http-proxy', 'small-get', 'http-proxy', 0.45),
  cpuRatio("small GET, everything on: CPU, to Go's ReverseProxy", 'small-get', 'go', 0.5),
  cpuRatio('small GET, everything on: CPU, to nginx with its log', 'small-get', 'nginx', 1.5),
  cpuRatio('small GET, everything on, Node 24: CPU, to nginx with its log', 'small-get', 'nginx', 1.4, OURS_ON_24),
  cpuRatio(
    'small GET, everything on: CPU, to joined sockets with our parsers',
    'small-get',
    'splice-parsed',
    Number.NaN,
  ),
  cpuRatio('small GET, everything on: CPU, to joined sockets', 'small-get', 'splice', Number.NaN),
  cpuRatio("POST of 1 KiB: CPU, to Go's", 'post-1kib', 'go', 0.5),
  {
    text: 'POST of 1 KiB: CPU, to the small GET',
    unit: '×',
    digits: 2,
    limit: () => 1.25,
    value: (results) => median(results, 'post-1kib', 'cpuMicros') / median(results, 'small-get', 'cpuMicros'),
  },
  {
    text: 'small GET over TLS on kept connections: CPU, to the small GET',
    unit: '×',
    digits: 2,
    limit: () => 1.5,
    value: (results) => medianRatio(samplesOf(results, 'tls-listener'), 'cpuMicros', OURS_TLS, OURS),
  },
  cpuRatio("download of 64 KiB: CPU, to Go's", 'download-64kib', 'go', 0.85),
  cpuRatio("upload of 64 KiB: CPU, to Go's", 'upload-64kib', 'go', 0.85),
  cpuRatio("download of 10 MiB: CPU, to Go's", 'download-10mib', 'go', 1.2),
  cpuRatio("upload of 10 MiB: CPU, to Go's", 'upload-10mib', 'go', 1.2),
  addedLatency('1,000 requests/s: added p50', 'p50Ms', OURS, 0.1),
  addedLatency('1,000 requests/s: added p99', 'p99Ms', OURS, 0.5),
  cpuRatio('1,000 requests/s, warm: CPU, to nginx with its log', 'steady-load', 'nginx', 1.4),
  cpuRatio(
    '1,000 requests/s, warm: CPU, to joined sockets with our parsers',
    'steady-load',
    'splice-parsed',
    Number.NaN,
  ),
  {
    text: '1,000 requests/s: turns of the event loop per request',
    unit: '',
    digits: 2,
    limit: () => 3,
    value: (results) => median(results, 'steady-load', 'turns'),
  },
  refreshLatency('tokens refreshed every 2 s: p50 more than without', 'p50Ms'),
  refreshLatency('tokens refreshed every 2 s: p99 more than without', 'p99Ms'),
  {
    text: '1,000 orgs: CPU, to one org',
    unit: '×',
    digits: 2,
    limit: () => 1.1,
    value: (results) => medianRatio(samplesOf(results, 'orgs-in-turns'), 'cpuMicros', '1000', '1'),
  },
  {
    text: 'cold request through a sidecar of a minter: p50, to a proxy alone',
    unit: '×',
    digits: 2,
    limit: () => 1.5,
    value: (results) =>
      medianRatio(samplesOf(results, 'minter'), 'coldP50Ms', 'a sidecar of a minter', 'a proxy alone'),
  },
  memory('100,000 cached orgs: memory more', 64, (results) => median(results, 'cached-orgs', 'moreBytes')),
  memory('peak memory under load, at most 64 connections', 140, (results) =>
    Math.max(...USUAL_LOADS.map((name) => median(results, name, 'peakBytes'))),
  ),
  memory('idle memory', IDLE_MIB, (results) => median(results, 'start-up', 'idleBytes')),
  memory('idle memory, Node 24', IDLE_MIB_ON_24, (results) =>
    medianOf(samplesOf(results, 'start-up'), OURS_ON_24, 'idleBytes'),
  ),
  {
    text: 'spawn to first proxied answer',
    unit: 'ms',
    digits: 0,
    limit: () => 180,
    value: (results) => median(results, 'start-up', 'startMs'),
  },
  {
    text: '10,000 idle connections, each',
    unit: 'KiB',
    digits: 1,
    limit: () => 10,
    value: (results) => median(results, 'idle-connections', 'bytesPerConnection') / KIBIBYTE,
  },
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
export function verdict({ limit, value }, results) {
  const measured = value(results)
  if (!Number.isFinite(measured)) return 'not measured'
  if (Number.isNaN(limit(results))) return 'no limit'
  return measured <= limit(results) ? 'holds' : 'falls short'
}

/** @param {Results} results */
export function targetTable(results) {
  const rows = TARGETS.map((target) => [
    target.text,
    Number.isNaN(target.limit(results)) ? '–' : `≤ ${shown(target.limit(results), target.digits)} ${target.unit}`,
    Number.isFinite(target.value(results)) ? `${shown(target.value(results), target.digits)} ${target.unit}` : '–',
    verdict(target, results),
  ])
  const disturbed = Object.keys(results).filter((scenario) => isDisturbed(samplesOf(results, scenario)))
  const reason = "others had more than a tenth of the proxy's core, or held up the client"
  const warning = `Disturbed, and no proof of anything, because ${reason}: ${disturbed.join(', ')}.`
  const failed = failedIn(results)
  return [
    markdownTable(['target', 'limit', 'measured', 'verdict'], rows),
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
 * @param {Results} results
 * @param {string} scenario
 * @param {string} metric
 */
function median(results, scenario, metric) {
  return medianOf(samplesOf(results, scenario), OURS, metric)
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
  const value = (/** @type {Results} */ results) =>
    medianRatio(samplesOf(results, scenario), 'cpuMicros', candidate, peer)
  return { text, unit: '×', digits: 2, limit: () => limit, value }
}

/**
 * @param {string} text
 * @param {'p50Ms' | 'p99Ms'} metric
 * @param {string} candidate
 * @param {number} limit
 * @returns {Target}
 */
function addedLatency(text, metric, candidate, limit) {
  const value = (/** @type {Results} */ results) =>
    medianDifference(samplesOf(results, 'added-latency'), metric, candidate, 'direct')
  return { text, unit: 'ms', digits: 3, limit: () => limit, value }
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
    value: (results) => medianDifference(samplesOf(results, 'added-latency'), metric, REFRESHING, OURS),
  }
}

/**
 * @param {string} text
 * @param {number} limitMib
 * @param {(results: Results) => number} bytes
 * @returns {Target}
 */
function memory(text, limitMib, bytes) {
  return { text, unit: 'MiB', digits: 1, limit: () => limitMib, value: (results) => bytes(results) / MEBIBYTE }
}

/**
 * The exponent with which the cost of a request grows, between the two neighbouring sizes with the largest growth: 0 means
 * no growth, 1 growth in proportion.
 * @param {string} text
 * @param {string} scenario
 * @returns {Target}
 */
function growth(text, scenario) {
  const value = (/** @type {Results} */ results) => {
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
    return Math.max(...powers)
  }
  return { text: `${text}: largest power`, unit: '', digits: 2, limit: () => LINEAR, value }
}
