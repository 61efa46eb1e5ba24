/** One measurement of one proxy under the load of wrk. */

import { setTimeout as sleep } from 'node:timers/promises'
import { startCandidate } from '../candidates/candidate.mjs'
import { PROXY_CORE } from './children.mjs'
import { fillTokenCache } from './each-org.mjs'
import { busyMicros, cpuMicros, peakResidentBytes } from './usage.mjs'
import { runWrk } from './wrk.mjs'

/** After this time, a dynamic compiler has compiled the request path. */
const WARM_UP_SECONDS = 2
/** These come first if the load makes too few requests for that. */
const REHEARSAL = { path: '/v2/small', connections: 64 }
/** The measured window opens when all connections are open: their cost is no part of a request. */
const SETTLE_SECONDS = 0.3
const CONNECTIONS_PER_SECOND = 4_000
const QUIET_DEADLINE_MS = 5_000

/**
 * @typedef {object} ThroughputOptions
 * @property {import('./wrk.mjs').Load} load
 * @property {boolean} [isSecure] The origin speaks TLS.
 * @property {Readonly<Record<string, unknown>>} [settings] Of this program, where the defaults forbid the load.
 */

/**
 * @param {import('./bench.mjs').Bench} bench
 * @param {import('../candidates/candidate.mjs').Candidate} candidate
 * @param {ThroughputOptions} options
 * @returns {Promise<import('./samples.mjs').Sample>}
 */
export async function measureThroughput(bench, candidate, { load, isSecure = false, settings = {} }) {
  const { url, secureUrl } = bench.origin
  const proxy = await startCandidate(bench, candidate, { originUrl: isSecure ? secureUrl : url, settings })
  try {
    if (proxy.pid !== undefined && load.orgs !== undefined) await fillTokenCache(proxy.port, load.orgs)
    if (load.makesFewRequests) await runWrk(proxy.url, REHEARSAL, WARM_UP_SECONDS)
    await runWrk(proxy.url, load, Math.min(WARM_UP_SECONDS, bench.options.seconds))
    await untilQuiet(bench.origin)
    return await measureWindow(bench, proxy, load)
  } finally {
    await proxy.stop()
  }
}

/**
 * One run of wrk against a warm proxy.
 * @param {import('./bench.mjs').Bench} bench
 * @param {import('../candidates/candidate.mjs').RunningProxy} proxy
 * @param {import('./wrk.mjs').Load} load
 * @returns {Promise<import('./samples.mjs').Sample>}
 */
async function measureWindow({ origin, options }, proxy, load) {
  const seconds = Math.max(options.seconds, load.leastSeconds ?? 0)
  const settleSeconds = SETTLE_SECONDS + load.connections / CONNECTIONS_PER_SECOND
  const running = runWrk(proxy.url, load, Math.ceil(settleSeconds + seconds + 0.1))
  running.catch(() => undefined) // it is awaited below
  await sleep(settleSeconds * 1_000)
  const before = await reading(origin, proxy.pid)
  await sleep(seconds * 1_000)
  const after = await reading(origin, proxy.pid)
  const result = await running
  const requests = after.requests - before.requests
  const windowMs = after.at - before.at
  const proxyMicros = after.cpuMicros - before.cpuMicros
  return {
    ...(proxy.pid !== undefined && {
      cpuMicros: proxyMicros / requests,
      peakBytes: peakResidentBytes(proxy.pid),
      othersShare: (after.busyMicros - before.busyMicros - proxyMicros) / (windowMs * 1_000),
    }),
    requestsPerSecond: (requests / windowMs) * 1_000,
    p50Ms: result.p50Ms ?? Number.NaN,
    p99Ms: result.p99Ms ?? Number.NaN,
    failures: result.refused + result.broken,
  }
}

/**
 * Waits until the proxy has worked off the warm-up, which is no part of the measurement.
 * @param {import('../origins/nginx-origin.mjs').Origin} origin
 */
async function untilQuiet(origin) {
  const deadline = performance.now() + QUIET_DEADLINE_MS
  let requests = await origin.requests()
  while (performance.now() < deadline) {
    await sleep(100)
    const later = await origin.requests()
    if (later - requests <= 1) return // the question itself is a request, too
    requests = later
  }
}

/**
 * Uses the origin's count of requests, because it can be read at any time. wrk reports its count only at the end.
 * @param {import('../origins/nginx-origin.mjs').Origin} origin
 * @param {number | undefined} pid
 */
async function reading(origin, pid) {
  const cpuBefore = pid === undefined ? 0 : cpuMicros(pid)
  const requests = await origin.requests()
  const cpuAfter = pid === undefined ? 0 : cpuMicros(pid)
  const at = performance.now()
  return { cpuMicros: (cpuBefore + cpuAfter) / 2, busyMicros: busyMicros(PROXY_CORE), requests, at }
}
