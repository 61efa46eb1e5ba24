/**
 * WebSocket messages: each connection sends its next message when it has received the echo of the last one. It is a
 * separate process and prints a line of JSON when the measured time begins, and one when it ends.
 *
 * node websocket-messages.mjs URL CONNECTIONS MESSAGE_BYTES WARM_UP_SECONDS SECONDS
 */

import { once } from 'node:events'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { quantile } from '../harness/statistics.mjs'

const [connections = 0, messageBytes = 0, warmUpSeconds = 0, seconds = 0] = process.argv.slice(3).map(Number)
const message = Buffer.alloc(messageBytes, 'x')

/** @type {number[]} */
const latenciesMs = []
let messages = 0

async function open() {
  const socket = new WebSocket(process.argv[2] ?? '', {
    headers: { 'x-org-id': 'acme' },
    perMessageDeflate: false,
  })
  await once(socket, 'open')
  return socket
}

/** @param {WebSocket} socket */
function keepEchoing(socket) {
  let sentAt = performance.now()
  socket.on('message', () => {
    const now = performance.now()
    latenciesMs.push(now - sentAt)
    messages += 1
    sentAt = now
    socket.send(message)
  })
  socket.send(message)
}

/** @param {Record<string, unknown>} fields */
function print(fields) {
  process.stdout.write(`${JSON.stringify(fields)}\n`)
}

const sockets = await Promise.all(Array.from({ length: connections }, open))
for (const socket of sockets) keepEchoing(socket)
await sleep(warmUpSeconds * 1_000)
latenciesMs.length = 0
const startedAt = performance.now()
print({ messages })
await sleep(seconds * 1_000)
print({
  messages,
  seconds: (performance.now() - startedAt) / 1_000,
  p50Ms: quantile(latenciesMs, 0.5),
  p99Ms: quantile(latenciesMs, 0.99),
})
for (const socket of sockets) socket.terminate()
