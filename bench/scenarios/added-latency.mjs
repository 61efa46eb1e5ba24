/** The time that a proxy adds at a low load: 1,000 requests per second in an open loop. */

import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxyRefreshing } from '../candidates/org-access-proxy.mjs'
import { keepAwake } from '../harness/awake.mjs'
import { missingGo } from '../harness/go-programs.mjs'
import { runOpenLoop } from '../harness/open-loop.mjs'
import { alternate } from '../harness/samples.mjs'
import { quantile } from '../harness/statistics.mjs'
import { runWrk } from '../harness/wrk.mjs'
import { startTokenService } from '../origins/token-service.mjs'
import { FAILURES_COLUMN, ratioToDirect } from './scenario.mjs'

const REQUESTS_PER_SECOND = 1_000
/** At full speed, for the compilers. */
const PRESSING_SECONDS = 2
/** At the rate of the measurement. The compilers discard code that they made for full speed, and compile it again. */
const WARM_UP_SECONDS = 8
/** A token endpoint far away. */
const MINT_LATENCY_MS = 20

/** @typedef {import('../harness/bench.mjs').Bench} Bench */
/** @typedef {import('../harness/samples.mjs').Samples} Samples */

const ABOUT =
  'Open loop: each request leaves at its time, whatever became of the others. The client and its noise are the same ' +
  'for all: what counts is the difference to *direct* in the same round. How late the client itself was is told ' +
  `apart. A mint takes ${MINT_LATENCY_MS} ms.`

/** @type {readonly import('./scenario.mjs').Scenario[]} */
export const latencyScenarios = [
  scenario({
    name: 'added-latency',
    title: 'Added latency at 1,000 requests per second',
    about: `${ABOUT} The cores are kept awake; what it costs to wake them up shows the next table.`,
    measureAll: measureAwake,
  }),
  scenario({
    name: 'added-latency-asleep',
    title: 'Added latency at 1,000 requests per second, where cores fall asleep between them',
    about: `${ABOUT} A request through a proxy wakes up a core four times, one that goes direct never.`,
    measureAll,
  }),
]

/**
 * @param {object} description
 * @param {string} description.name
 * @param {string} description.title
 * @param {string} description.about
 * @param {(bench: Bench) => Promise<Samples>} description.measureAll
 * @returns {import('./scenario.mjs').Scenario}
 */
function scenario({ name, title, about, measureAll }) {
  return {
    name,
    title,
    about,
    missing: missingGo,
    rowTitle: 'candidate',
    columns: [
      { title: 'p50 ms', metric: 'p50Ms', digits: 3 },
      ratioToDirect('p50', 'p50Ms'),
      { title: 'p50 added', differenceOf: 'p50Ms', from: 'direct', digits: 3 },
      { title: 'p99 ms', metric: 'p99Ms', digits: 3 },
      { title: 'p99 added', differenceOf: 'p99Ms', from: 'direct', digits: 3 },
      { title: 'p99.9 ms', metric: 'p999Ms', digits: 2 },
      { title: 'client late, p99 ms', metric: 'lateP99Ms', digits: 2 },
      { title: 'mints', metric: 'mints', digits: 0 },
      FAILURES_COLUMN,
    ],
    run: measureAll,
  }
}

/** @param {Bench} bench */
async function measureAwake(bench) {
  const letSleep = keepAwake(bench.folder)
  try {
    return await measureAll(bench)
  } finally {
    await letSleep()
  }
}

/** @param {Bench} bench */
async function measureAll(bench) {
  const { origin, folder } = bench
  const tokenService = await startTokenService(origin.tokenServicePort, folder, { mintLatencyMs: MINT_LATENCY_MS })
  try {
    return await alternate(bench, [...bench.candidates, orgAccessProxyRefreshing], (candidate) =>
      measure(bench, candidate, tokenService),
    )
  } finally {
    await tokenService.stop()
  }
}

/**
 * @param {Bench} bench
 * @param {import('../candidates/candidate.mjs').Candidate} candidate
 * @param {import('../origins/token-service.mjs').TokenService} tokenService
 */
async function measure(bench, candidate, tokenService) {
  const isRefreshing = candidate === orgAccessProxyRefreshing
  const { origin, options } = bench
  const proxy = await startCandidate(bench, candidate, { originUrl: isRefreshing ? origin.countedUrl : origin.url })
  try {
    await runWrk(proxy.url, { path: '/v2/small', connections: 64 }, PRESSING_SECONDS)
    await latencies(proxy.port, WARM_UP_SECONDS)
    const mintsBefore = isRefreshing ? await tokenService.mints() : 0
    const measured = await latencies(proxy.port, options.seconds)
    const mints = isRefreshing ? { mints: (await tokenService.mints()) - mintsBefore } : {}
    return { ...measured, ...mints }
  } finally {
    await proxy.stop()
  }
}

/**
 * @param {number} port
 * @param {number} seconds
 */
async function latencies(port, seconds) {
  const { latenciesMs, latenessMs, failures } = await runOpenLoop(port, REQUESTS_PER_SECOND, seconds)
  return {
    failures,
    p50Ms: quantile(latenciesMs, 0.5),
    p99Ms: quantile(latenciesMs, 0.99),
    p999Ms: quantile(latenciesMs, 0.999),
    lateP99Ms: quantile(latenessMs, 0.99),
  }
}
