/** The time that a proxy adds at a low load: 1,000 requests per second in an open loop. */

import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxyRefreshing } from '../candidates/org-access-proxy.mjs'
import { keepAwake } from '../harness/awake.mjs'
import { runLoad } from '../harness/children.mjs'
import { goProgram, missingGo } from '../harness/go-programs.mjs'
import { alternate } from '../harness/samples.mjs'
import { quantile } from '../harness/statistics.mjs'
import { runWrk } from '../harness/wrk.mjs'
import { startTokenService } from '../origins/token-service.mjs'

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
      { title: 'p50 added', differenceOf: 'p50Ms', from: 'direct', digits: 3 },
      { title: 'p99 ms', metric: 'p99Ms', digits: 3 },
      { title: 'p99 added', differenceOf: 'p99Ms', from: 'direct', digits: 3 },
      { title: 'p99.9 ms', metric: 'p999Ms', digits: 2 },
      { title: 'client late, p99 ms', metric: 'lateP99Ms', digits: 2 },
      { title: 'mints', metric: 'mints', digits: 0 },
      { title: 'failures', metric: 'failures', digits: 0 },
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
  const tokenService = await startTokenService({
    port: origin.tokenServicePort,
    folder,
    mintLatencyMs: MINT_LATENCY_MS,
  })
  try {
    return await alternate(
      bench,
      [...bench.candidates, orgAccessProxyRefreshing],
      (candidate) => candidate.name,
      (candidate) => measure(bench, candidate, tokenService),
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
async function measure({ origin, folder, options }, candidate, tokenService) {
  const isRefreshing = candidate === orgAccessProxyRefreshing
  const proxy = await startCandidate(candidate, {
    originUrl: isRefreshing ? origin.countedUrl : origin.url,
    caFile: origin.caFile,
    folder,
  })
  try {
    await runWrk(proxy.url, { path: '/v2/small', connections: 64 }, PRESSING_SECONDS)
    await runOpenLoop(proxy.port, WARM_UP_SECONDS)
    const mintsBefore = isRefreshing ? await tokenService.mints() : 0
    const latencies = await runOpenLoop(proxy.port, options.seconds)
    const mints = isRefreshing ? { mints: (await tokenService.mints()) - mintsBefore } : {}
    return { ...latencies, ...mints }
  } finally {
    await proxy.stop()
  }
}

/**
 * @param {number} port
 * @param {number} seconds
 */
async function runOpenLoop(port, seconds) {
  const flags = { port, path: '/v2/small', rate: REQUESTS_PER_SECOND, for: `${seconds}s` }
  const args = Object.entries(flags).flatMap(([flag, value]) => [`-${flag}`, String(value)])
  const lines = await runLoad({ command: goProgram('open-loop'), args })
  const { latenciesMs, latenessMs, failures } = JSON.parse(lines.at(-1) ?? '')
  return {
    failures,
    p50Ms: quantile(latenciesMs, 0.5),
    p99Ms: quantile(latenciesMs, 0.99),
    p999Ms: quantile(latenciesMs, 0.999),
    lateP99Ms: quantile(latenessMs, 0.99),
  }
}
