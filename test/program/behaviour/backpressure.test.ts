/** Content streams: the slower side slows the faster one down, and the proxy buffers little. */

import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { startFaultTable } from '../../support/fault-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import type { OriginConnection } from '../../support/origin-connection.ts'
import { RawClient } from '../../support/raw-client.ts'

const IDLE_TIMEOUT_MS = 1_000
const table = await startFaultTable({ 'origin.idleTimeout': `${IDLE_TIMEOUT_MS}ms` })

const MIB = 1024 * 1024
const TOTAL = 64 * MIB
/** Room for the buffers of four sockets, in the system and in the proxy. Far less than the whole content. */
const MOST_UNDER_WAY = 32 * MIB
const LENGTH = `HTTP/1.1 200 OK\r\nContent-Length: ${TOTAL}\r\n\r\n`
/** Every four octets differ from all others, so bytes in a wrong place are noticed. */
const WHOLE = Buffer.from(Uint32Array.from({ length: TOTAL / 4 }, (_, i) => i).buffer)

/** Resolves with the number when it has stopped growing. */
async function settled(read: () => number): Promise<number> {
  for (let last = -1, still = 0; ; ) {
    await sleep(50)
    const now = read()
    still = now === last ? still + 1 : 0
    last = now
    if (still === 6) return now
  }
}

/** A client that reads nothing until the origin has sent what it can. Returns how much that was, and the response. */
async function readLate(write: (connection: OriginConnection) => Promise<void>, lines: readonly string[] = []) {
  let before = 0
  const target = table.target(async (_, connection) => {
    before = connection.socket.bytesWritten
    await write(connection)
  })
  await using client = await RawClient.connect(table.proxy.port, { deadlineMs: 20_000 })
  client.socket.pause()
  client.send(get(target, 'acme', ...lines))
  const { connection } = await table.arrival(target)
  const sent = await settled(() => connection.socket.bytesWritten - before)
  await sleep(IDLE_TIMEOUT_MS) // which does not count while the client is the one that is silent
  client.socket.resume()
  return { sent, response: await client.response(), target }
}

async function writePieces(connection: OriginConnection, whole: Buffer, pieceBytes: number): Promise<void> {
  for (let at = 0; at < whole.length; at += pieceBytes) {
    if (!connection.socket.write(whole.subarray(at, at + pieceBytes))) await connection.drained()
    // One piece in each turn of the event loop, so that the proxy reads them one by one.
    if (pieceBytes < MIB) await turn()
  }
}

test.each([
  ['a request', [], MIB],
  ['a handshake', HANDSHAKE, MIB],
  // Larger than the pieces that the proxy appends to waiting bytes, and far smaller than one read.
  ['a request, answered in small pieces', [], 10_000],
])('a client that does not read makes the origin wait, and then gets everything: %s', async (_, lines, pieceBytes) => {
  const { sent, response, target } = await readLate(async (connection) => {
    connection.write(LENGTH)
    await writePieces(connection, WHOLE, pieceBytes)
  }, lines)
  expect(sent).toBeLessThan(MOST_UNDER_WAY)
  expect(response.content.equals(WHOLE)).toBe(true)
  expect(await table.proxy.logOf(target)).toMatchObject({ status: 200, bytesOut: TOTAL })
})

test('many small chunks for a client that does not read cause no warning of Node, and arrive whole', async () => {
  const CHUNK = `64\r\n${'c'.repeat(100)}\r\n`
  const CHUNKS = 200_000
  const warnings: Error[] = []
  const note = (warning: Error) => warnings.push(warning)
  process.on('warning', note)
  const { response } = await readLate(async (connection) => {
    connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
    await writePieces(connection, Buffer.from(CHUNK.repeat(CHUNKS)), CHUNK.length * 10_000)
    connection.write('0\r\n\r\n')
  })
  process.off('warning', note)
  expect([response.isComplete, response.content.length]).toEqual([true, CHUNKS * 100])
  expect(warnings).toEqual([])
})

test('small pieces do not pile up behind a client that reads none of them', async () => {
  const PIECE = Buffer.alloc(2 * 1024)
  let isHeldUp = false
  const target = table.target(async (_, connection) => {
    connection.write(LENGTH)
    const { socket } = connection
    for (let sent = 0; sent < TOTAL && !isHeldUp && connection.peerEnd === undefined; sent += PIECE.length) {
      socket.write(PIECE)
      await turn()
      // More than ever waits here while the proxy keeps reading.
      isHeldUp = socket.writableLength >= 2 * MIB
    }
  })
  await using client = await RawClient.connect(table.proxy.port)
  client.socket.pause()
  client.send(get(target, 'acme'))
  const { connection } = await table.arrival(target)
  await settled(() => connection.socket.bytesWritten + connection.socket.writableLength)
  expect(isHeldUp, 'the origin has to wait').toBe(true)
})

test('an origin that does not read makes the client wait, and then gets everything', async () => {
  let resume = () => {}
  const received = createHash('sha256')
  const target = table.target(async (seen, connection) => {
    connection.socket.pause()
    resume = () => connection.socket.resume()
    seen.record = (bytes) => {
      seen.contentBytes += bytes.length
      received.update(bytes)
    }
    await seen.ended
    return { content: 'thank you' }
  })
  const lines = get(target, 'acme', `Content-Length: ${TOTAL}`).replace('GET', 'POST')
  await using client = await RawClient.sending(table.proxy.port, lines, { deadlineMs: 20_000 })
  const sending = (async () => {
    for (let at = 0; at < TOTAL; at += MIB) {
      if (!client.socket.write(WHOLE.subarray(at, at + MIB))) await once(client.socket, 'drain')
    }
  })()
  const seen = await table.arrival(target)
  expect(await settled(() => client.socket.bytesWritten - client.socket.writableLength)).toBeLessThan(MOST_UNDER_WAY)
  resume()
  await sending
  expect((await client.response('POST')).content.toString()).toBe('thank you')
  expect(seen).toMatchObject({ state: 'complete', contentBytes: TOTAL })
  expect(received.digest('hex')).toBe(createHash('sha256').update(WHOLE).digest('hex'))
})
