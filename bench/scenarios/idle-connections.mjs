/** The memory of an idle connection. */

import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { startCandidate } from '../candidates/candidate.mjs'
import { runLoad } from '../harness/children.mjs'
import { askForEachOrg } from '../harness/each-org.mjs'
import { alternate } from '../harness/samples.mjs'
import { residentBytes } from '../harness/usage.mjs'
import { KIBIBYTE, MEBIBYTE } from './scenario.mjs'
import { MANY_CONNECTIONS } from './throughput.mjs'

const SCRIPT = fileURLToPath(new URL('../load/idle-connections.mjs', import.meta.url))
const CONNECTIONS = 10_000
const KEPT_SECONDS = 6
const SETTLE_MS = 4_000

/** @type {import('./scenario.mjs').Scenario} */
export const idleConnections = {
  name: 'idle-connections',
  title: '10,000 idle connections',
  about:
    'Each has made one request and waits. Before, as many requests went over a few connections, so that what they ' +
    'leave behind is not charged to the connections.',
  rowTitle: 'candidate',
  columns: [
    { title: 'KiB per connection', metric: 'bytesPerConnection', digits: 1, divisor: KIBIBYTE },
    { title: 'RSS before MiB', metric: 'beforeBytes', digits: 0, divisor: MEBIBYTE },
    { title: 'RSS with them MiB', metric: 'withBytes', digits: 0, divisor: MEBIBYTE },
    { title: 'lost connections', metric: 'lost', digits: 0 },
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
  const proxy = await startCandidate(bench, candidate, { settings: MANY_CONNECTIONS })
  const pid = proxy.pid ?? Number.NaN
  try {
    await askForEachOrg(proxy.port, { requests: CONNECTIONS, orgs: 1 })
    await sleep(SETTLE_MS)
    const beforeBytes = residentBytes(pid)
    let withBytes = Number.NaN
    const args = [SCRIPT, proxy.port, '/v2/small', CONNECTIONS, KEPT_SECONDS].map(String)
    const lines = await runLoad({ command: process.execPath, args }, (line) => {
      if ('open' in JSON.parse(line)) setTimeout(() => (withBytes = residentBytes(pid)), SETTLE_MS)
    })
    const { lost } = JSON.parse(lines.at(-1) ?? '')
    return { bytesPerConnection: (withBytes - beforeBytes) / CONNECTIONS, beforeBytes, withBytes, lost }
  } finally {
    await proxy.stop()
  }
}
