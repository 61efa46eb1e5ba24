/** Proxies beside each other in short turns: what disturbs the machine disturbs all of them. */

import { startCandidate } from '../candidates/candidate.mjs'
import { PROXY_CORE } from '../harness/children.mjs'
import { failedSample } from '../harness/samples.mjs'
import { busyMicros, threadMicros } from '../harness/usage.mjs'
import { runWrk } from '../harness/wrk.mjs'
import { CPU_RATIO_COLUMN, OTHERS_COLUMN } from './scenario.mjs'

const WARM_UP_SECONDS = 5
const TURN_SECONDS = 1
/** Of each, in a round. */
const TURNS = 10

const OURS = 'org-access-proxy'
const SMALL = { path: '/v2/small', connections: 64 }

/** @typedef {import('../candidates/candidate.mjs').Candidate} Candidate */
/** @typedef {import('../candidates/candidate.mjs').RunningProxy & { readonly name: string }} Running */

/**
 * A turn is too short for 10 MiB, of which many are under way at its end, and for TLS, which begins with 64 handshakes.
 * @type {readonly import('./scenario.mjs').Scenario[]}
 */
export const turnScenarios = [
  inTurns('in-turns', 'Small GET', SMALL, ['nginx', 'haproxy', 'go', 'http-proxy']),
  inTurns('turns-post-1kib', 'POST of 1 KiB', upload(1_024)),
  inTurns('turns-download-64kib', 'Download of 64 KiB', { path: '/v2/content/65536', connections: 64 }),
  inTurns('turns-upload-64kib', 'Upload of 64 KiB', upload(65_536)),
]

/**
 * @param {number} contentBytes
 * @returns {import('../harness/wrk.mjs').Load}
 */
function upload(contentBytes) {
  return { path: '/v2/upload', connections: 64, method: 'POST', contentBytes }
}

/**
 * @param {string} name
 * @param {string} title
 * @param {import('../harness/wrk.mjs').Load} load
 * @param {readonly string[]} peers
 * @returns {import('./scenario.mjs').Scenario}
 */
function inTurns(name, title, load, peers = ['go']) {
  return {
    name,
    title: `${title}, in turns, ${load.connections} connections`,
    about:
      `All run and are warm, and take turns of ${TURN_SECONDS} s in alternating order; ${TURNS} turns of each in a round. ` +
      'Half of the ratios of neighbouring turns are between the quartiles.',
    rowTitle: 'candidate',
    columns: [
      { title: 'CPU µs/request', metric: 'cpuMicros', digits: 1 },
      CPU_RATIO_COLUMN,
      { title: 'quartiles', quartilesOf: 'cpuMicros', of: OURS },
      { title: 'requests/s', metric: 'requestsPerSecond', digits: 0 },
      OTHERS_COLUMN,
    ],
    run: async (bench) => {
      const measured = [OURS, ...peers]
      const candidates = bench.candidates.filter((each) => each.isVariant || measured.includes(each.name))
      /** @type {import('../harness/samples.mjs').Samples} */
      const samples = Object.fromEntries(candidates.map((candidate) => [candidate.name, []]))
      for (let round = 0; round < bench.options.rounds; round++) {
        bench.say(`  round ${round + 1} of ${bench.options.rounds}`)
        await measureRound(bench, candidates, load, samples).catch((error) => {
          for (const list of Object.values(samples)) list.push(failedSample(error, bench.say))
        })
      }
      return samples
    },
  }
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {readonly Candidate[]} candidates
 * @param {import('../harness/wrk.mjs').Load} load
 * @param {import('../harness/samples.mjs').Samples} samples
 */
async function measureRound(bench, candidates, load, samples) {
  /** @type {Running[]} */
  const running = []
  try {
    for (const candidate of candidates) {
      const proxy = await startCandidate(bench, candidate)
      running.push({ ...proxy, name: candidate.name })
      await runWrk(proxy.url, load, WARM_UP_SECONDS)
    }
    for (let turn = 0; turn < TURNS; turn++) {
      for (const proxy of turn % 2 === 0 ? running : running.toReversed()) {
        samples[proxy.name]?.push(await measureTurn(proxy, load).catch((error) => failedSample(error, bench.say)))
      }
    }
  } finally {
    await Promise.all(running.map((proxy) => proxy.stop()))
  }
}

/**
 * @param {Running} proxy
 * @param {import('../harness/wrk.mjs').Load} load
 * @returns {Promise<import('../harness/samples.mjs').Sample>}
 */
async function measureTurn({ url, pid = Number.NaN }, load) {
  const before = { cpu: threadMicros(pid), busy: busyMicros(PROXY_CORE), at: performance.now() }
  const { requests, refused, broken } = await runWrk(url, load, TURN_SECONDS)
  const cpuMicros = threadMicros(pid) - before.cpu
  const windowMicros = (performance.now() - before.at) * 1_000
  if (refused + broken > 0) throw new Error(`${refused} requests were refused and ${broken} broke`)
  return {
    cpuMicros: cpuMicros / requests,
    requestsPerSecond: (requests / windowMicros) * 1_000_000,
    othersShare: (busyMicros(PROXY_CORE) - before.busy - cpuMicros) / windowMicros,
  }
}
