/** The time that a proxy adds at a load that does not press it: 1,000 requests per second, open loop. */

import { fileURLToPath } from 'node:url'
import { startCandidate } from '../candidates/candidate.mjs'
import { orgAccessProxyRefreshing } from '../candidates/org-access-proxy.mjs'
import { runLoad } from '../harness/children.mjs'
import { alternate } from '../harness/samples.mjs'
import { runWrk } from '../harness/wrk.mjs'
import { startTokenService } from '../origins/token-service.mjs'

const SCRIPT = fileURLToPath(new URL('../load/open-loop.mjs', import.meta.url))
const REQUESTS_PER_SECOND = 1_000
const WARM_UP_SECONDS = 2
/** A token endpoint far away. */
const MINT_LATENCY_MS = 20

/** @typedef {import('../harness/bench.mjs').Bench} Bench */

/** @type {import('./scenario.mjs').Scenario} */
export const addedLatency = {
  name: 'added-latency',
  title: 'Added latency at 1,000 requests per second',
  about:
    'Open loop: each request leaves at its time, whatever became of the others. The client and its noise are the same ' +
    'for all: what counts is the difference to *direct* in the same round. How late the client itself was is told ' +
    `apart. A mint takes ${MINT_LATENCY_MS} ms.`,
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
  run: async (bench) => {
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
  },
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
    await runWrk(proxy.url, { path: '/v2/small', connections: 64 }, WARM_UP_SECONDS)
    const mintsBefore = isRefreshing ? await tokenService.mints() : 0
    const times = [WARM_UP_SECONDS, options.seconds]
    const args = [SCRIPT, proxy.port, '/v2/small', REQUESTS_PER_SECOND, ...times].map(String)
    const lines = await runLoad({ command: process.execPath, args })
    const mints = isRefreshing ? { mints: (await tokenService.mints()) - mintsBefore } : {}
    return { ...JSON.parse(lines.at(-1) ?? ''), ...mints }
  } finally {
    await proxy.stop()
  }
}
