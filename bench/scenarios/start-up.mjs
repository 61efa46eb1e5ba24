/** The time from the start of the process to its first proxied answer, and the memory at that moment. */

import { setTimeout as sleep } from 'node:timers/promises'
import { startCandidate } from '../candidates/candidate.mjs'
import { alternate } from '../harness/samples.mjs'
import { residentBytes } from '../harness/usage.mjs'
import { MEBIBYTE } from './scenario.mjs'

const IDLE_MS = 2_000

/** @type {import('./scenario.mjs').Scenario} */
export const startUp = {
  name: 'start-up',
  title: 'Start-up, and idle memory',
  about:
    'From the call that starts the process to the end of the first answer from the origin, a request being tried ' +
    `every millisecond; for this program with the mint in it. Idle memory is resident ${IDLE_MS / 1_000} s later.`,
  rowTitle: 'candidate',
  columns: [
    { title: 'first answer after ms', metric: 'startMs', digits: 0 },
    { title: 'idle RSS MiB', metric: 'idleBytes', digits: 1, divisor: MEBIBYTE },
  ],
  run: (bench) =>
    alternate(
      bench,
      bench.candidates.filter((candidate) => candidate.program !== undefined),
      (candidate) => measure(bench, candidate),
    ),
}

/**
 * @param {import('../harness/bench.mjs').Bench} bench
 * @param {import('../candidates/candidate.mjs').Candidate} candidate
 */
async function measure(bench, candidate) {
  const proxy = await startCandidate(bench, candidate)
  try {
    await sleep(IDLE_MS)
    return { startMs: proxy.startMs, idleBytes: residentBytes(proxy.pid ?? Number.NaN) }
  } finally {
    await proxy.stop()
  }
}
