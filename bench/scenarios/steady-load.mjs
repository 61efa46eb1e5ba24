/** CPU time and turns of the event loop at 1,000 requests per second, where sidecars live. */

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { startCandidate } from '../candidates/candidate.mjs'
import { keepAwake } from '../harness/awake.mjs'
import { missingGo } from '../harness/go-programs.mjs'
import { runOpenLoop } from '../harness/open-loop.mjs'
import { alternate } from '../harness/samples.mjs'
import { cpuMicros } from '../harness/usage.mjs'
import { FAILURES_COLUMN } from './scenario.mjs'

const REQUESTS_PER_SECOND = 1_000
/** V8 has not compiled everything yet. */
const COLD_SECONDS = 10
/** Together with the cold requests, 40,000. */
const WARM_UP_SECONDS = 30
const COUNTED_SECONDS = 5
const MEASURED = ['splice', 'splice-parsed', 'nginx', 'org-access-proxy']
const LOOP_COUNT = new URL('../load/loop-count.mjs', import.meta.url).href

/** @type {import('./scenario.mjs').Scenario} */
export const steadyLoad = {
  name: 'steady-load',
  title: 'CPU at 1,000 requests per second',
  about:
    `Open loop. Cold: the first ${COLD_SECONDS} s after the start. Warm: after 40,000 requests. The turns of the event loop ` +
    'are counted by libuv, in a run of its own behind the others.',
  missing: missingGo,
  rowTitle: 'candidate',
  columns: [
    { title: 'CPU µs per request, cold', metric: 'coldCpuMicros', digits: 0 },
    { title: 'warm', metric: 'cpuMicros', digits: 0 },
    { title: 'warm: this program ÷ it', ratioOf: 'cpuMicros', of: 'org-access-proxy' },
    { title: 'turns per request', metric: 'turns', digits: 2 },
    FAILURES_COLUMN,
  ],
  run: async (bench) => {
    const letSleep = keepAwake(bench.folder)
    try {
      return await alternate(
        bench,
        bench.candidates.filter(({ name, isVariant }) => isVariant || MEASURED.includes(name)),
        (candidate) => measure(bench, candidate),
      )
    } finally {
      await letSleep()
    }
  },
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {import('../candidates/candidate.mjs').Candidate} candidate
 */
async function measure(bench, candidate) {
  const { folder, options } = bench
  const isOurs = candidate.isVariant || candidate.name === 'org-access-proxy'
  const file = join(folder, 'loop-count')
  const counted = {
    ...candidate,
    program: (/** @type {import('../candidates/candidate.mjs').Site} */ site) => counting(candidate, site, file),
  }
  const proxy = await startCandidate(bench, isOurs ? counted : candidate)
  const pid = proxy.pid ?? Number.NaN
  try {
    const cold = await runFor(proxy.port, pid, COLD_SECONDS)
    const warmUp = await runFor(proxy.port, pid, WARM_UP_SECONDS)
    const warm = await runFor(proxy.port, pid, options.seconds)
    const last = isOurs ? await turnsPerRequest(pid, file, proxy.port) : { turns: Number.NaN, failures: 0 }
    const failures = [cold, warmUp, warm, last].reduce((sum, run) => sum + run.failures, 0)
    return { coldCpuMicros: cold.cpuMicros, cpuMicros: warm.cpuMicros, turns: last.turns, failures }
  } finally {
    await proxy.stop()
  }
}

/**
 * The candidate with `loop-count.mjs` in its process.
 * @param {import('../candidates/candidate.mjs').Candidate} candidate
 * @param {import('../candidates/candidate.mjs').Site} site
 * @param {string} file
 */
async function counting({ program }, site, file) {
  if (program === undefined) throw new Error('no program')
  const { env, ...rest } = await program(site)
  return { ...rest, env: { ...env, NODE_OPTIONS: `--import=${LOOP_COUNT}`, LOOP_COUNT_FILE: file } }
}

/**
 * @param {number} port
 * @param {number} pid
 * @param {number} seconds
 */
async function runFor(port, pid, seconds) {
  const before = workerMicros(pid)
  const { failures } = await runOpenLoop(port, REQUESTS_PER_SECOND, seconds)
  return { cpuMicros: (workerMicros(pid) - before) / (REQUESTS_PER_SECOND * seconds), failures }
}

/** Of the process and its children: the worker of nginx is one. @param {number} pid */
function workerMicros(pid) {
  return processesOf(pid).reduce((sum, id) => sum + cpuMicros(id), 0)
}

/** @param {number} pid */
function processesOf(pid) {
  const { stdout } = spawnSync('pgrep', ['-P', String(pid)], { encoding: 'utf8' })
  return [pid, ...stdout.split('\n').filter(Boolean).map(Number)]
}

/**
 * Of this program, while it serves the load; per request.
 * @param {number} pid
 * @param {string} file Where `loop-count.mjs` writes.
 * @param {number} port
 */
async function turnsPerRequest(pid, file, port) {
  const before = await loopCount(pid, file)
  const { failures } = await runFor(port, pid, COUNTED_SECONDS)
  const turns = (await loopCount(pid, file)) - before
  return { turns: turns / (REQUESTS_PER_SECOND * COUNTED_SECONDS), failures }
}

/**
 * @param {number} pid
 * @param {string} file
 */
async function loopCount(pid, file) {
  rmSync(file, { force: true })
  process.kill(pid, 'SIGUSR2')
  while (!existsSync(file)) await sleep(5)
  return Number(readFileSync(file, 'utf8'))
}
