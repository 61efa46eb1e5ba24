/**
 * Sends a fixed number of requests for a fixed number of orgs, equally many for each org. It fills the token cache, or makes
 * the storm on a cold cache. It is a separate process and prints one line of JSON.
 *
 * node each-org.mjs PORT PATH REQUESTS ORGS CONNECTIONS
 */

import { performance } from 'node:perf_hooks'
import { quantile, shuffled } from '../harness/statistics.mjs'
import { Connection, get } from './connection.mjs'

const SEED = 20_261_120

const [port = 0, requests = 0, orgs = 0, connections = 0] = [2, 4, 5, 6].map((index) => Number(process.argv[index]))
const path = process.argv[3] ?? '/'

const numbers = shuffled(
  Array.from({ length: requests }, (_, index) => index % orgs),
  SEED,
)
/** @type {number[]} */
const latenciesMs = []
/** @type {Record<string, number>} */
const answers = {}
let next = 0

async function worker() {
  let connection = await Connection.open(port)
  while (next < requests) {
    const number = numbers[next++]
    const sentAt = performance.now()
    const answer = await connection.send(get(port, path, orgId(number))).catch(() => 'broken')
    latenciesMs.push(performance.now() - sentAt)
    answers[answer] = (answers[answer] ?? 0) + 1
    if (!connection.isOpen) connection = await Connection.open(port)
  }
  connection.close()
}

/**
 * As in request.lua.
 * @param {number | undefined} number
 */
function orgId(number) {
  return `org-${String(number).padStart(5, '0')}`
}

const startedAt = performance.now()
await Promise.all(Array.from({ length: connections }, worker))
const result = {
  seconds: (performance.now() - startedAt) / 1_000,
  answers,
  p50Ms: quantile(latenciesMs, 0.5),
  p99Ms: quantile(latenciesMs, 0.99),
}
process.stdout.write(`${JSON.stringify(result)}\n`)
