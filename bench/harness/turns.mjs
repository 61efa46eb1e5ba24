/**
 * Loads that take turns within one run of wrk. So a disturbance of the machine, and the memory layout and compiled code of
 * this process, affect all of them.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { PROXY_CORE } from './children.mjs'
import { busyMicros, threadMicros } from './usage.mjs'
import { runWrk } from './wrk.mjs'

/**
 * Between the start of a turn and its window: answers to requests of the turn before are still on their way, and what
 * belongs to this one has to come back to the processor's caches.
 */
const SETTLE_MS = 100
/** Between the end of a window and that of its turn: a reading takes some milliseconds where the load has the core. */
const MARGIN_MS = 15

/**
 * @typedef {object} TurnsLoad
 * @property {string} path
 * @property {number} connections
 * @property {import('./wrk.mjs').Turns} turns
 */

/**
 * One sample for each number of orgs and each time that it was the turn of all. The load must have run before.
 * @param {import('./bench.mjs').Bench} bench
 * @param {{ readonly url: string, readonly pid: number }} proxy
 * @param {TurnsLoad} load
 * @param {number} seconds
 * @returns {Promise<import('./samples.mjs').Samples>}
 */
export async function measureTurns({ origin }, proxy, load, seconds) {
  const { turnMs, orgs } = load.turns
  /** @type {import('./samples.mjs').Samples} */
  const samples = Object.fromEntries(orgs.map((count) => [String(count), []]))
  const running = runWrk(proxy.url, load, seconds + 1)
  running.catch(() => undefined) // it is awaited below
  await sleep(turnMs)
  const end = monotonicMs() + seconds * 1_000
  const cycleMs = turnMs * orgs.length
  let start = Math.ceil(monotonicMs() / cycleMs) * cycleMs
  for (; start + cycleMs < end; start += cycleMs) {
    const windows = await windowsOfCycle(origin, proxy.pid, start, load.turns)
    if (windows === undefined) continue
    for (const key of Object.keys(samples)) {
      samples[key]?.push(sampleOf(windows.filter((_, turn) => String(orgs[turn]) === key)))
    }
  }
  const { refused, broken } = await running
  if (refused + broken > 0) throw new Error(`${refused} requests were refused and ${broken} broke`)
  return samples
}

/**
 * What was used in the window of each turn of a cycle; undefined where a reading came too late.
 * @param {import('../origins/nginx-origin.mjs').Origin} origin
 * @param {number} pid
 * @param {number} start Of the cycle, by the monotonic clock.
 * @param {import('./wrk.mjs').Turns} turns
 */
async function windowsOfCycle(origin, pid, start, { turnMs, orgs }) {
  const windows = []
  for (const turn of orgs.keys()) {
    const turnStart = start + turn * turnMs
    await sleep(turnStart + SETTLE_MS - monotonicMs())
    const before = await reading(origin, pid)
    await sleep(turnStart + turnMs - MARGIN_MS - monotonicMs())
    const after = await reading(origin, pid)
    if (after.atMs > turnStart + turnMs) return undefined
    windows.push({
      cpuMicros: after.cpuMicros - before.cpuMicros,
      requests: after.requests - before.requests,
      busyMicros: after.busyMicros - before.busyMicros,
      ms: after.atMs - before.atMs,
    })
  }
  return windows
}

/**
 * @param {readonly { cpuMicros: number, requests: number, busyMicros: number, ms: number }[]} windows
 * @returns {import('./samples.mjs').Sample}
 */
function sampleOf(windows) {
  const sum = (/** @type {'cpuMicros' | 'requests' | 'busyMicros' | 'ms'} */ what) =>
    windows.reduce((total, window) => total + window[what], 0)
  return {
    cpuMicros: sum('cpuMicros') / sum('requests'),
    requestsPerSecond: (sum('requests') / sum('ms')) * 1_000,
    othersShare: (sum('busyMicros') - sum('cpuMicros')) / (sum('ms') * 1_000),
  }
}

/**
 * @param {import('../origins/nginx-origin.mjs').Origin} origin
 * @param {number} pid
 */
async function reading(origin, pid) {
  const cpuBefore = threadMicros(pid)
  const requests = await origin.requests()
  const cpuAfter = threadMicros(pid)
  return {
    cpuMicros: (cpuBefore + cpuAfter) / 2,
    busyMicros: busyMicros(PROXY_CORE),
    requests,
    atMs: monotonicMs(),
  }
}

/** The clock that the load takes its turns by. */
function monotonicMs() {
  return Number(process.hrtime.bigint()) / 1e6
}
