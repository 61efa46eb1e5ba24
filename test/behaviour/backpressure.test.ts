/** Content streams: whoever is slow holds up the other side, and the proxy keeps next to nothing of it. */

import { createHash } from 'node:crypto'
import { afterAll, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { startFaultTable } from '../support/fault-table.ts'
import { RawClient } from '../support/raw-client.ts'

const table = await startFaultTable()
afterAll(() => table[Symbol.asyncDispose]())

const MIB = 1024 * 1024
const TOTAL = 64 * MIB
/** Four sockets' buffers, those of the system included, and what the proxy holds; far below the whole. */
const MOST_UNDER_WAY = 32 * MIB

const piece = Buffer.alloc(MIB, 'abcdefgh')
const digest = createHash('sha256')
for (let i = 0; i < TOTAL / MIB; i++) digest.update(piece)
const expected = digest.digest('hex')

test('T-UP-25 a client that does not read holds up the origin, and then gets everything', {
  timeout: 30_000,
}, async () => {
  const target = table.target(async (_, connection) => {
    connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${TOTAL}\r\n\r\n`)
    for (let i = 0; i < TOTAL / MIB; i++) if (!connection.socket.write(piece)) await connection.drained()
    return undefined
  })
  await using client = await RawClient.connect(table.proxy.port)
  client.socket.pause()
  client.send(get(target, 'acme'))
  await table.service.origin.waitFor(() => table.requestsFor(target).length === 1)
  const sent = await settled(() => table.requestsFor(target)[0]?.connection.socket.bytesWritten ?? 0)
  expect(sent).toBeLessThan(MOST_UNDER_WAY)
  client.socket.resume()
  const response = await client.response()
  expect(createHash('sha256').update(response.content).digest('hex')).toBe(expected)
})

test('T-RL-01 an origin that does not read holds up the client, and then gets everything', {
  timeout: 30_000,
}, async () => {
  let resume = () => {}
  const target = table.target(async (seen, connection) => {
    connection.socket.pause()
    resume = () => connection.socket.resume()
    await seen.ended
    return { content: 'thank you' }
  })
  await using client = await RawClient.connect(table.proxy.port, { deadlineMs: 20_000 })
  client.send(get(target, 'acme', `Content-Length: ${TOTAL}`).replace('GET', 'POST'))
  const sending = (async () => {
    for (let i = 0; i < TOTAL / MIB; i++) {
      if (!client.socket.write(piece)) await new Promise((resolve) => client.socket.once('drain', resolve))
    }
  })()
  await table.service.origin.waitFor(() => table.requestsFor(target).length === 1)
  const sent = await settled(() => client.socket.bytesWritten - client.socket.writableLength)
  expect(sent).toBeLessThan(MOST_UNDER_WAY)
  resume()
  await sending
  expect((await client.response('POST')).content.toString()).toBe('thank you')
  expect(table.requestsFor(target)[0]).toMatchObject({ state: 'complete', contentBytes: TOTAL })
})

/** The number once it has stopped growing. */
async function settled(read: () => number): Promise<number> {
  for (let last = -1, still = 0; ; ) {
    await new Promise((resolve) => setTimeout(resolve, 50))
    const now = read()
    still = now === last ? still + 1 : 0
    last = now
    if (still === 6) return now
  }
}
