/** Proxies beside each other in short turns: what disturbs the machine disturbs all of them. */

import { startCandidate } from '../candidates/candidate.mjs'
import { PROXY_CORE } from '../harness/children.mjs'
import { failedSample } from '../harness/samples.mjs'
import { busyMicros, threadMicros } from '../harness/usage.mjs'
import { runWrk } from '../harness/wrk.mjs'
import { CPU_RATIO_COLUMN, OTHERS_COLUMN } from './scenario.mjs'

const LOAD = { path: '/v2/small', connections: 64 }
const MEASURED = ['nginx', 'go', 'org-access-proxy']
const WARM_UP_SECONDS = 5
const TURN_SECONDS = 1
/** Of each, in a round. */
const TURNS = 20

/** @typedef {import('../candidates/candidate.mjs').RunningProxy & { readonly name: string }} Running */

/** @type {import('./scenario.mjs').Scenario} */
export const inTurns = {
  name: 'in-turns',
  title: 'Small GET in turns, 64 connections',
  about:
    `All run and are warm, and take turns of ${TURN_SECONDS} s in alternating order; ${TURNS} turns of each in a round. Half of ` +
    'the ratios of neighbouring turns are between the quartiles.',
  rowTitle: 'candidate',
  columns: [
    { title: 'CPU µs/request', metric: 'cpuMicros', digits: 1 },
    CPU_RATIO_COLUMN,
    { title: 'quartiles', quartilesOf: 'cpuMicros', of: 'org-access-proxy' },
    { title: 'requests/s', metric: 'requestsPerSecond', digits: 0 },
    OTHERS_COLUMN,
  ],
  run: async (bench) => {
    const candidates = bench.candidates.filter(({ name, isVariant }) => isVariant || MEASURED.includes(name))
    /** @type {import('../harness/samples.mjs').Samples} */
    const samples = Object.fromEntries(candidates.map(({ name }) => [name, []]))
    for (let round = 0; round < bench.options.rounds; round++) {
      bench.say(`  round ${round + 1} of ${bench.options.rounds}`)
      await measureRound(bench, candidates, samples).catch((error) => {
        for (const list of Object.values(samples)) list.push(failedSample(error, bench.say))
      })
    }
    return samples
  },
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {readonly import('../candidates/candidate.mjs').Candidate[]} candidates
 * @param {import('../harness/samples.mjs').Samples} samples
 */
async function measureRound(bench, candidates, samples) {
  /** @type {Running[]} */
  const running = []
  try {
    for (const candidate of candidates) {
      const proxy = await startCandidate(bench, candidate)
      running.push({ ...proxy, name: candidate.name })
      await runWrk(proxy.url, LOAD, WARM_UP_SECONDS)
    }
    for (let turn = 0; turn < TURNS; turn++) {
      for (const proxy of turn % 2 === 0 ? running : running.toReversed()) {
        samples[proxy.name]?.push(await measureTurn(proxy).catch((error) => failedSample(error, bench.say)))
      }
    }
  } finally {
    await Promise.all(running.map((proxy) => proxy.stop()))
  }
}

/**
 * @param {Running} proxy
 * @returns {Promise<import('../harness/samples.mjs').Sample>}
 */
async function measureTurn({ url, pid = Number.NaN }) {
  const before = { cpu: threadMicros(pid), busy: busyMicros(PROXY_CORE), at: performance.now() }
  const { requests, refused, broken } = await runWrk(url, LOAD, TURN_SECONDS)
  const cpuMicros = threadMicros(pid) - before.cpu
  const windowMicros = (performance.now() - before.at) * 1_000
  if (refused + broken > 0) throw new Error(`${refused} requests were refused and ${broken} broke`)
  return {
    cpuMicros: cpuMicros / requests,
    requestsPerSecond: (requests / windowMicros) * 1_000_000,
    othersShare: (busyMicros(PROXY_CORE) - before.busy - cpuMicros) / windowMicros,
  }
}
