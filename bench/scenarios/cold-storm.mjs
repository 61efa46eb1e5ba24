/** A cold cache: 10,000 requests at once for 1,000 orgs that have no token yet. */

import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxy } from '../candidates/org-access-proxy.mjs'
import { askForEachOrg } from '../harness/each-org.mjs'
import { alternate } from '../harness/samples.mjs'
import { startTokenService } from '../origins/token-service.mjs'
import { LATENCY_COLUMNS } from './scenario.mjs'

const STORM = { requests: 10_000, orgs: 1_000, connections: 256 }
const MINT_LATENCY_MS = 20

/** @typedef {{ name: string, settings: Readonly<Record<string, unknown>> }} Budget */

/** @type {Budget[]} */
const BUDGETS = [
  { name: 'no budget in the way', settings: { tokens: { mintRate: 100_000, mintConcurrency: 32 } } },
  { name: 'the budget as it comes (100 mints/s)', settings: {} },
]

/** @type {import('./scenario.mjs').Scenario} */
export const coldStorm = {
  name: 'cold-storm',
  title: 'Cold storm: 10,000 requests for 1,000 orgs without a token, 256 connections',
  about:
    `Each org is asked for ten times, in a random order; a mint takes ${MINT_LATENCY_MS} ms. One mint per org is the ` +
    'least. A request that would have to wait too long for its turn at the token endpoint is refused with 503 and ' +
    '`Retry-After`; this client does not come back.',
  rowTitle: 'budget for mints',
  columns: [
    { title: 'seconds', metric: 'seconds', digits: 2 },
    { title: 'mints', metric: 'mints', digits: 0 },
    { title: 'answered 200', metric: 'answered', digits: 0 },
    { title: 'refused 503', metric: 'refused', digits: 0 },
    { title: 'anything else', metric: 'others', digits: 0 },
    ...LATENCY_COLUMNS,
  ],
  run: (bench) => alternate(bench, BUDGETS, (budget) => measure(bench, budget)),
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {Budget} budget
 */
async function measure(bench, { settings }) {
  const { origin, folder } = bench
  const tokenService = await startTokenService(origin.tokenServicePort, folder, { mintLatencyMs: MINT_LATENCY_MS })
  try {
    const proxy = await startCandidate(bench, orgAccessProxy, { originUrl: origin.countedUrl, settings })
    try {
      const mintsBefore = await tokenService.mints()
      const { seconds, answers, p50Ms, p99Ms } = await askForEachOrg(proxy.port, STORM)
      const mints = (await tokenService.mints()) - mintsBefore
      const { 200: answered = 0, 503: refused = 0 } = answers
      return { seconds, mints, answered, refused, others: STORM.requests - answered - refused, p50Ms, p99Ms }
    } finally {
      await proxy.stop()
    }
  } finally {
    await tokenService.stop()
  }
}
