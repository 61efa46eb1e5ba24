/** Whether many orgs cost more than one: a difference of some percent, for which two processes are too different. */

import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxy } from '../candidates/org-access-proxy.mjs'
import { fillTokenCache } from '../harness/each-org.mjs'
import { alternate } from '../harness/samples.mjs'
import { measureWindow } from '../harness/throughput.mjs'
import { runWrk } from '../harness/wrk.mjs'
import { OTHERS_COLUMN } from './scenario.mjs'
import { MANY_ORGS } from './throughput.mjs'

const MANY = 1_000
const PAIRS = 24
const SECONDS = 2

/** @type {import('./scenario.mjs').Scenario} */
export const orgsInPairs = {
  name: 'orgs-in-pairs',
  title: '1,000 orgs beside one',
  about: `This program alone, everything on: ${PAIRS} pairs of ${SECONDS} s each in one process, all tokens cached before.`,
  rowTitle: 'orgs',
  columns: [
    { title: 'CPU µs/request', metric: 'cpuMicros', digits: 1 },
    { title: `CPU: ${MANY} ÷ it`, ratioOf: 'cpuMicros', of: String(MANY) },
    { title: 'requests/s', metric: 'requestsPerSecond', digits: 0 },
    OTHERS_COLUMN,
    { title: 'failures', metric: 'failures', digits: 0 },
  ],
  run: async (bench) => {
    const { origin, folder } = bench
    const site = { originUrl: origin.url, caFile: origin.caFile, folder, settings: MANY_ORGS }
    const proxy = await startCandidate(orgAccessProxy, site)
    try {
      await fillTokenCache(proxy.port, MANY)
      for (const orgs of [1, MANY]) await runWrk(proxy.url, load(orgs), SECONDS)
      const inPairs = { ...bench, options: { ...bench.options, rounds: PAIRS, seconds: SECONDS } }
      return await alternate(inPairs, [1, MANY], String, (orgs) => measureWindow(inPairs, proxy, load(orgs)))
    } finally {
      await proxy.stop()
    }
  },
}

/** @param {number} orgs */
function load(orgs) {
  return { path: '/v2/small', connections: 64, orgs }
}
