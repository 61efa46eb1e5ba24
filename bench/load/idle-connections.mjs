/**
 * Opens connections, makes one request on each, and keeps them open for a while. It is a separate process and prints a
 * line of JSON once all are open.
 *
 * node idle-connections.mjs PORT PATH CONNECTIONS SECONDS
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { Connection, get } from './connection.mjs'

/** Small steps: a listener's backlog is no part of the question. */
const OPENED_AT_ONCE = 100

const [port = 0, connections = 0, seconds = 0] = [2, 4, 5].map((index) => Number(process.argv[index]))
const request = get(port, process.argv[3] ?? '/', 'acme')

async function openOne() {
  const connection = await Connection.open(port)
  const status = await connection.send(request)
  if (status !== 200) throw new Error(`a request on a new connection got ${status}`)
  return connection
}

/** @type {Connection[]} */
const open = []
while (open.length < connections) {
  const step = Math.min(OPENED_AT_ONCE, connections - open.length)
  open.push(...(await Promise.all(Array.from({ length: step }, openOne))))
}
process.stdout.write(`${JSON.stringify({ open: open.length })}\n`)
await sleep(seconds * 1_000)
const lost = open.filter((connection) => !connection.isOpen).length
process.stdout.write(`${JSON.stringify({ lost })}\n`)
for (const connection of open) connection.close()
