/** CPU time and turns of the event loop at 1,000 requests per second, where sidecars live. */

import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { startCandidate } from '../candidates/candidate.mjs'
import { keepAwake } from '../harness/awake.mjs'
import { runLoad } from '../harness/children.mjs'
import { goProgram, missingGo } from '../harness/go-programs.mjs'
import { alternate } from '../harness/samples.mjs'
import { cpuMicros } from '../harness/usage.mjs'

const REQUESTS_PER_SECOND = 1_000
/** V8 has not compiled everything yet. */
const COLD_SECONDS = 10
/** Together with the cold requests, 40,000. */
const WARM_UP_SECONDS = 30
/** Under strace, each call of the system costs more, so its seconds are apart. */
const TRACED_SECONDS = 5

/** @type {import('./scenario.mjs').Scenario} */
export const steadyLoad = {
  name: 'steady-load',
  title: 'CPU at 1,000 requests per second',
  about:
    `Open loop. Cold: the first ${COLD_SECONDS} s after the start. Warm: after 40,000 requests. Turns of the event loop are ` +
    'calls of `epoll_pwait` (for nginx `epoll_wait`), counted by strace in a run of its own behind the others.',
  missing: () =>
    missingGo() ?? (spawnSync('strace', ['-V']).error === undefined ? undefined : 'strace is not installed'),
  rowTitle: 'candidate',
  columns: [
    { title: 'CPU µs per request, cold', metric: 'coldCpuMicros', digits: 0 },
    { title: 'warm', metric: 'cpuMicros', digits: 0 },
    { title: 'warm: this program ÷ it', ratioOf: 'cpuMicros', of: 'org-access-proxy' },
    { title: 'turns per request', metric: 'turns', digits: 2 },
    { title: 'failures', metric: 'failures', digits: 0 },
  ],
  run: async (bench) => {
    const letSleep = keepAwake(bench.folder)
    try {
      return await alternate(
        bench,
        bench.candidates.filter(({ name }) => name === 'org-access-proxy' || name === 'nginx'),
        ({ name }) => name,
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
async function measure({ origin, folder, options }, candidate) {
  const proxy = await startCandidate(candidate, { originUrl: origin.url, caFile: origin.caFile, folder })
  const pid = proxy.pid ?? Number.NaN
  try {
    const cold = await runFor(proxy.port, pid, COLD_SECONDS)
    const warmUp = await runFor(proxy.port, pid, WARM_UP_SECONDS)
    const warm = await runFor(proxy.port, pid, options.seconds)
    const traced = runFor(proxy.port, pid, TRACED_SECONDS + 2)
    const turns = await countTurns(pid)
    const failures = [cold, warmUp, warm, await traced].reduce((sum, run) => sum + run.failures, 0)
    return { coldCpuMicros: cold.cpuMicros, cpuMicros: warm.cpuMicros, turns, failures }
  } finally {
    await proxy.stop()
  }
}

/**
 * @param {number} port
 * @param {number} pid
 * @param {number} seconds
 */
async function runFor(port, pid, seconds) {
  const flags = { port, path: '/v2/small', rate: REQUESTS_PER_SECOND, for: `${seconds}s` }
  const args = Object.entries(flags).flatMap(([flag, value]) => [`-${flag}`, String(value)])
  const before = workerMicros(pid)
  const lines = await runLoad({ command: goProgram('open-loop'), args })
  const { failures } = JSON.parse(lines.at(-1) ?? '')
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

/** Per request. @param {number} pid */
async function countTurns(pid) {
  await sleep(1_000) // the load has begun
  const targets = processesOf(pid).flatMap((id) => ['-p', String(id)])
  const strace = spawn('strace', ['-c', '-f', '-e', 'trace=epoll_pwait,epoll_wait', ...targets], {
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  let summary = ''
  strace.stderr.setEncoding('utf8').on('data', (text) => {
    summary += text
  })
  await sleep(TRACED_SECONDS * 1_000)
  strace.kill('SIGINT')
  await once(strace, 'close')
  const calls = [...summary.matchAll(/^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+).*epoll_p?wait$/gm)]
  return calls.reduce((sum, [, count]) => sum + Number(count), 0) / (REQUESTS_PER_SECOND * TRACED_SECONDS)
}
