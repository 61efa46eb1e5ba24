/** Compares many orgs with one org. The difference is a few percent, less than between two processes. */

import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxy } from '../candidates/org-access-proxy.mjs'
import { fillTokenCache } from '../harness/each-org.mjs'
import { failedSample } from '../harness/samples.mjs'
import { measureTurns } from '../harness/turns.mjs'
import { runWrk } from '../harness/wrk.mjs'
import { OTHERS_COLUMN } from './scenario.mjs'

const MANY = 1_000
/** In both orders, so that a machine that gets slower affects both. */
const LOAD = { path: '/v2/small', connections: 64, turns: { turnMs: 400, orgs: [1, MANY, MANY, 1] } }
/** The limits of minting would disturb the measurement. All other settings keep their defaults. */
const SETTINGS = { tokens: { mintRate: 100_000 } }
const WARM_UP_SECONDS = 5
const SECONDS = 60

/** @type {import('./scenario.mjs').Scenario} */
export const orgsInTurns = {
  name: 'orgs-in-turns',
  title: '1,000 orgs beside one',
  about: `This program alone, everything on, all tokens cached before. Both take turns of 0.4 s within one run of wrk; each round is a process of its own, measured for ${SECONDS} s.`,
  rowTitle: 'orgs',
  columns: [
    { title: 'CPU µs/request', metric: 'cpuMicros', digits: 1 },
    { title: `CPU: ${MANY} ÷ it`, ratioOf: 'cpuMicros', of: String(MANY) },
    { title: 'requests/s', metric: 'requestsPerSecond', digits: 0 },
    OTHERS_COLUMN,
  ],
  run: async (bench) => {
    /** @type {import('../harness/samples.mjs').Samples} */
    const samples = { 1: [], [MANY]: [] }
    for (let round = 0; round < bench.options.rounds; round++) {
      bench.say(`  round ${round + 1} of ${bench.options.rounds}`)
      /** @type {import('../harness/samples.mjs').Samples} */
      const measured = await measureProcess(bench).catch((error) => {
        const failed = failedSample(error, bench.say)
        return { 1: [failed], [MANY]: [failed] }
      })
      for (const [key, list] of Object.entries(samples)) list.push(...(measured[key] ?? []))
    }
    return samples
  },
}

/** @param {import('../harness/bench.mjs').Bench} bench */
async function measureProcess(bench) {
  const proxy = await startCandidate(bench, orgAccessProxy, { settings: SETTINGS })
  try {
    await fillTokenCache(proxy.port, MANY)
    await runWrk(proxy.url, LOAD, WARM_UP_SECONDS)
    const { url, pid } = proxy
    if (pid === undefined) throw new TypeError('this program is a process')
    return await measureTurns(bench, { url, pid }, LOAD, SECONDS)
  } finally {
    await proxy.stop()
  }
}
