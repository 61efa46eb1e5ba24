/** All candidates at full speed: many connections, each sending its next request as soon as it has its answer. */

import { direct } from '../candidates/direct.mjs'
import { orgAccessProxy, orgAccessProxyTls } from '../candidates/org-access-proxy.mjs'
import { alternate } from '../harness/samples.mjs'
import { measureThroughput } from '../harness/throughput.mjs'
import {
  CPU_RATIO_COLUMN,
  FAILURES_COLUMN,
  LATENCY_COLUMNS,
  OTHERS_COLUMN,
  PEAK_COLUMN,
  ratioToDirect,
} from './scenario.mjs'

/** @typedef {import('./scenario.mjs').Scenario} Scenario */

const SMALL = '/v2/small'
/** Raises the limits of this program for so many connections. */
export const MANY_CONNECTIONS = { listen: { maxConnections: 20_000, maxInFlight: 20_000 } }
/** Raises the limits of tokens, so that all tokens can be cached quickly before the measurement. */
export const MANY_ORGS = { tokens: { maxOrgs: 200_000, mintRate: 100_000 } }

/** @type {Scenario[]} */
export const throughputScenarios = [
  throughput('small-get', 'Small GET, 64 connections', { load: { path: SMALL, connections: 64 } }),
  throughput('post-1kib', 'POST of 1 KiB, 64 connections', {
    load: { path: '/v2/upload', connections: 64, method: 'POST', contentBytes: 1_024 },
  }),
  throughput('download-64kib', 'Download of 64 KiB, 64 connections', {
    load: { path: '/v2/content/65536', connections: 64 },
  }),
  throughput('upload-64kib', 'Upload of 64 KiB, 64 connections', {
    load: { path: '/v2/upload', connections: 64, method: 'POST', contentBytes: 65_536 },
  }),
  throughput('download-10mib', 'Download of 10 MiB, 8 connections', {
    load: { path: '/v2/content/10485760', connections: 8, makesFewRequests: true },
  }),
  throughput('upload-10mib', 'Upload of 10 MiB, 8 connections', {
    load: { path: '/v2/upload', connections: 8, method: 'POST', contentBytes: 10_485_760, makesFewRequests: true },
  }),
  throughput('orgs-1000', 'Small GET for one of 1,000 orgs at random, 64 connections', {
    load: { path: SMALL, connections: 64, orgs: 1_000 },
    settings: MANY_ORGS,
  }),
  throughput('connections-5000', 'Small GET, 5,000 connections', {
    load: { path: SMALL, connections: 5_000 },
    settings: MANY_CONNECTIONS,
  }),
  throughput('https-origin', 'Small GET to an https origin, 64 connections', {
    load: { path: SMALL, connections: 64 },
    isSecure: true,
  }),
  throughput(
    'tls-listener',
    'Small GET over TLS, 64 kept connections',
    { load: { path: SMALL, connections: 64 } },
    () => [direct, orgAccessProxy, orgAccessProxyTls],
  ),
]

/**
 * @param {string} name
 * @param {string} title
 * @param {import('../harness/throughput.mjs').ThroughputOptions} options
 * @param {(bench: import('../harness/bench.mjs').Bench) => readonly import('../candidates/candidate.mjs').Candidate[]} candidates
 * @returns {Scenario}
 */
function throughput(name, title, options, candidates = (bench) => bench.candidates) {
  return {
    name,
    title,
    about: '',
    rowTitle: 'candidate',
    columns: [
      { title: 'CPU µs/request', metric: 'cpuMicros', digits: 1 },
      CPU_RATIO_COLUMN,
      { title: 'requests/s', metric: 'requestsPerSecond', digits: 0 },
      ratioToDirect('requests/s', 'requestsPerSecond'),
      ...LATENCY_COLUMNS,
      PEAK_COLUMN,
      OTHERS_COLUMN,
      FAILURES_COLUMN,
    ],
    run: (bench) => alternate(bench, candidates(bench), (candidate) => measureThroughput(bench, candidate, options)),
  }
}
