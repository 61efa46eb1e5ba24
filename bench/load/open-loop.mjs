/**
 * Open-loop load: requests leave at their times, whether earlier ones were answered or not, so that a slow answer
 * delays no later request and hides nothing. An own process; prints one line of JSON.
 *
 * node open-loop.mjs PORT PATH REQUESTS_PER_SECOND WARM_UP_SECONDS SECONDS
 */

import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { quantile } from '../harness/statistics.mjs'
import { Connection, get } from './connection.mjs'

const [port = 0, rate = 0, warmUpSeconds = 0, seconds = 0] = [2, 4, 5, 6].map((index) => Number(process.argv[index]))
const request = get(port, process.argv[3] ?? '/', 'acme')
const count = rate * (warmUpSeconds + seconds)
const firstMeasured = rate * warmUpSeconds

/** @type {Connection[]} */
const idle = []
/** @type {number[]} */
const latenciesMs = []
/** @type {number[]} */
const latenessMs = []
let failures = 0

/** @param {number} dueAt */
async function exchange(dueAt) {
  try {
    const connection = idle.pop() ?? (await Connection.open(port))
    // From here on it is the other side's time. How late this process was is its own, and told apart.
    const sentAt = performance.now()
    const status = await connection.send(request)
    const endedAt = performance.now()
    idle.push(connection)
    if (status !== 200) failures += 1
    return { latenessMs: sentAt - dueAt, latencyMs: endedAt - sentAt }
  } catch {
    failures += 1
    return undefined
  }
}

/** @param {number} index */
async function measure(index) {
  const measured = await exchange(startedAt + index * intervalMs)
  if (measured === undefined || index < firstMeasured) return
  latenciesMs.push(measured.latencyMs)
  latenessMs.push(measured.latenessMs)
}

const intervalMs = 1_000 / rate
const startedAt = performance.now()
/** @type {Promise<void>[]} */
const exchanges = []
while (exchanges.length < count) {
  const due = Math.min(count, Math.floor((performance.now() - startedAt) / intervalMs))
  while (exchanges.length < due) exchanges.push(measure(exchanges.length))
  await sleep(1)
}
await Promise.all(exchanges)
for (const connection of idle) connection.close()
const result = {
  failures,
  p50Ms: quantile(latenciesMs, 0.5),
  p99Ms: quantile(latenciesMs, 0.99),
  p999Ms: quantile(latenciesMs, 0.999),
  lateP99Ms: quantile(latenessMs, 0.99),
}
process.stdout.write(`${JSON.stringify(result)}\n`)
