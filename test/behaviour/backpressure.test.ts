/** Content streams: the slower side slows the faster one down, and the proxy buffers little. */

import { createHash } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { startFaultTable } from '../support/fault-table.ts'
import { RawClient } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

const table = await startFaultTable()

const MIB = 1024 * 1024
/** Larger than the pieces that the proxy appends to waiting bytes, and far smaller than one read. */
const SMALL = 10_000
const TOTAL = 64 * MIB
/** Room for the buffers of four sockets, in the system and in the proxy. Far less than the whole content. */
const MOST_UNDER_WAY = 32 * MIB

/** The mebibyte at `index`. Every four octets of the content differ from all others, so bytes in a wrong place are noticed. */
function piece(index: number): Buffer {
  const words = Uint32Array.from({ length: MIB / 4 }, (_, i) => (index * MIB) / 4 + i)
  return Buffer.from(words.buffer)
}

const SMALL_PIECE = Buffer.alloc(2 * 1024)
const SMALL_PIECES_TOTAL = 48 * MIB
/** More than ever waits at the service while the proxy keeps reading. */
const MOST_WAITING = 2 * MIB

const digest = createHash('sha256')
for (let i = 0; i < TOTAL / MIB; i++) digest.update(piece(i))
const expected = digest.digest('hex')

test('a client that does not read makes the origin wait, and then gets everything', async () => {
  const target = table.target(async (_, connection) => {
    connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${TOTAL}\r\n\r\n`)
    for (let i = 0; i < TOTAL / MIB; i++) if (!connection.socket.write(piece(i))) await connection.drained()
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

test('a client that does not read gets the right bytes, also when they come in small pieces', async () => {
  const whole = Buffer.concat(Array.from({ length: 16 }, (_, i) => piece(i)))
  const target = table.target(async (_, connection) => {
    connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${whole.length}\r\n\r\n`)
    for (let at = 0; at < whole.length; at += SMALL) {
      if (!connection.socket.write(whole.subarray(at, at + SMALL))) await connection.drained()
      // One piece in each turn of the event loop, so that the proxy reads them one by one.
      await new Promise((resolve) => setImmediate(resolve))
    }
    return undefined
  })
  await using client = await RawClient.connect(table.proxy.port)
  client.socket.pause()
  client.send(get(target, 'acme'))
  await table.service.origin.waitFor(() => table.requestsFor(target).length === 1)
  await settled(() => table.requestsFor(target)[0]?.connection.socket.bytesWritten ?? 0)
  client.socket.resume()
  const response = await client.response()
  expect(response.content.equals(whole)).toBe(true)
})

test('many small chunks for a client that does not read cause no warning of Node, and arrive whole', async () => {
  const CHUNK = `64\r\n${'c'.repeat(100)}\r\n`
  const CHUNKS = 200_000
  const target = table.target(async (_, connection) => {
    connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
    for (let sent = 0; sent < CHUNKS; sent += 1_000) {
      if (!connection.socket.write(CHUNK.repeat(1_000))) await connection.drained()
    }
    connection.write('0\r\n\r\n')
    return undefined
  })
  const warnings: Error[] = []
  const note = (warning: Error) => warnings.push(warning)
  process.on('warning', note)
  try {
    await using client = await RawClient.connect(table.proxy.port, { deadlineMs: 20_000 })
    client.socket.pause()
    client.send(get(target, 'acme'))
    await table.service.origin.waitFor(() => table.requestsFor(target).length === 1)
    await settled(() => table.requestsFor(target)[0]?.connection.socket.bytesWritten ?? 0)
    client.socket.resume()
    const response = await client.response()
    expect([response.isComplete, response.content.length]).toEqual([true, CHUNKS * 100])
  } finally {
    process.off('warning', note)
  }
  expect(warnings).toEqual([])
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
  await using client = await RawClient.sending(
    table.proxy.port,
    get(target, 'acme', `Content-Length: ${TOTAL}`).replace('GET', 'POST'),
    { deadlineMs: 20_000 },
  )
  const sending = (async () => {
    for (let i = 0; i < TOTAL / MIB; i++) {
      if (!client.socket.write(piece(i))) await new Promise((resolve) => client.socket.once('drain', resolve))
    }
  })()
  await table.service.origin.waitFor(() => table.requestsFor(target).length === 1)
  const sent = await settled(() => client.socket.bytesWritten - client.socket.writableLength)
  expect(sent).toBeLessThan(MOST_UNDER_WAY)
  resume()
  await sending
  expect((await client.response('POST')).content.toString()).toBe('thank you')
  expect(table.requestsFor(target)[0]).toMatchObject({ state: 'complete', contentBytes: TOTAL })
  expect(received.digest('hex')).toBe(expected)
})

/** Resolves with the number when it has stopped growing. */
async function settled(read: () => number): Promise<number> {
  for (let last = -1, still = 0; ; ) {
    await new Promise((resolve) => setTimeout(resolve, 50))
    const now = read()
    still = now === last ? still + 1 : 0
    last = now
    if (still === 6) return now
  }
}

test('small pieces do not pile up behind a client that reads none of them', async () => {
  let resolve = (_: boolean) => {}
  const ended = new Promise<boolean>((settle) => {
    resolve = settle
  })
  const { proxy } = await startBoth({
    script: async (_, connection) => {
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${SMALL_PIECES_TOTAL}\r\n\r\n`)
      for (
        let sent = 0;
        sent < SMALL_PIECES_TOTAL && connection.socket.writableLength < MOST_WAITING;
        sent += SMALL_PIECE.length
      ) {
        connection.socket.write(SMALL_PIECE)
        await turn()
      }
      resolve(connection.socket.writableLength >= MOST_WAITING)
      return undefined
    },
  })
  await using client = await RawClient.connect(proxy.port)
  client.socket.pause()
  client.send(get('/v2/x', 'acme'))
  expect(await ended, 'the origin has to wait').toBe(true)
})
