/** The memory of 100,000 cached tokens. */

import { setTimeout as sleep } from 'node:timers/promises'
import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxy } from '../candidates/org-access-proxy.mjs'
import { askForEachOrg, fillTokenCache } from '../harness/each-org.mjs'
import { alternate } from '../harness/samples.mjs'
import { residentBytes } from '../harness/usage.mjs'
import { MEBIBYTE } from './scenario.mjs'
import { MANY_ORGS } from './throughput.mjs'

const ORGS = 100_000
const SETTLE_MS = 5_000

/** @type {import('./scenario.mjs').Scenario} */
export const cachedOrgs = {
  name: 'cached-orgs',
  title: '100,000 cached orgs',
  about:
    'Resident memory after 100,000 requests for one org; then every org got its token and was asked for once more, so ' +
    'that the difference is what the tokens hold, and what minting them has left behind.',
  rowTitle: 'candidate',
  columns: [
    { title: 'MiB more', metric: 'moreBytes', digits: 1, divisor: MEBIBYTE },
    { title: 'RSS with one org MiB', metric: 'oneOrgBytes', digits: 1, divisor: MEBIBYTE },
    { title: 'RSS with all MiB', metric: 'allOrgsBytes', digits: 1, divisor: MEBIBYTE },
  ],
  run: (bench) => alternate(bench, [orgAccessProxy], (candidate) => measure(bench, candidate)),
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {import('../candidates/candidate.mjs').Candidate} candidate
 */
async function measure(bench, candidate) {
  const proxy = await startCandidate(bench, candidate, { settings: MANY_ORGS })
  const pid = proxy.pid ?? Number.NaN
  try {
    await askForEachOrg(proxy.port, { requests: ORGS, orgs: 1 })
    await sleep(SETTLE_MS)
    const oneOrgBytes = residentBytes(pid)
    await fillTokenCache(proxy.port, ORGS)
    await askForEachOrg(proxy.port, { requests: ORGS, orgs: ORGS })
    await sleep(SETTLE_MS)
    const allOrgsBytes = residentBytes(pid)
    return { moreBytes: allOrgsBytes - oneOrgBytes, oneOrgBytes, allOrgsBytes }
  } finally {
    await proxy.stop()
  }
}
