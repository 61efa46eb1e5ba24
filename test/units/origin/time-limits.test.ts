/** The time limits of the service: each ends its own kind of silence, and no wait for anybody else. */

import { createServer } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { ContentSource, ContentWriter } from '../../../src/origin/attempt.ts'
import { listening } from '../../support/listening.ts'
import { type OriginScript, writes } from '../../support/origin-connection.ts'
import { startOriginPool } from '../../support/origin-pool.ts'

/** Milliseconds. */
const LIMIT = 300
const LONGER = 3 * LIMIT
const OF_RESPONSE = { responseTimeoutMs: LIMIT, idleTimeoutMs: 60_000 }
const OF_SILENCE = { responseTimeoutMs: 60_000, idleTimeoutMs: LIMIT }
const HEAD = 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n'

const silent: OriginScript = () => new Promise(() => {})

/** Content that the test writes. */
class Upload implements ContentSource {
  writer: ContentWriter | undefined
  streamTo(writer: ContentWriter): void {
    this.writer = writer
  }
  resume(): void {}
  detach(): void {}
}

test.each<[string, OriginScript, object, string]>([
  ['before a response', silent, OF_RESPONSE, 'http_response_timeout'],
  ['inside a head', writes(HEAD.slice(0, 20)), OF_RESPONSE, 'http_response_timeout'],
  ['behind interim responses', writes('HTTP/1.1 103 Early Hints\r\n\r\n'), OF_RESPONSE, 'http_response_timeout'],
  ['inside content', writes(`${HEAD}begun`), OF_SILENCE, 'http_response_timeout'],
])('silence %s ends the attempt and its connection', async (_, script, limits, code) => {
  await using pool = await startOriginPool(script, limits)
  const sentAt = performance.now()
  expect(await pool.send('/').failed()).toMatchObject({ code })
  expect(performance.now() - sentAt).toBeGreaterThanOrEqual(LIMIT)
  await pool.left(pool.connectionOf('/'))
  expect(pool.pool.stats).toEqual({ connected: 0, free: 0, pending: 0 })
})

test('interim responses without end are no progress', async () => {
  await using pool = await startOriginPool(async (_, connection) => {
    while (connection.peerEnd === undefined) {
      connection.write('HTTP/1.1 103 Early Hints\r\n\r\n')
      await setTimeout(10)
    }
  }, OF_RESPONSE)
  expect(await pool.send('/').failed()).toMatchObject({ code: 'http_response_timeout' })
})

test.each([false, true])(
  'a connection that does not open in the time for a response, isHandshake: %s',
  async (isHandshake) => {
    await using server = await listening(createServer())
    const baseUrl = new URL(`https://127.0.0.1:${server.port}`)
    await using pool = await startOriginPool(undefined, { ...OF_RESPONSE, baseUrl })
    const expected = { code: 'connection_timeout', hint: expect.stringContaining('origin.responseTimeout') }
    expect(await pool.send('/', { isHandshake }).failed()).toMatchObject(expected)
  },
)

test('attempts that wait for a connection name the limit, and none of them is sent when a place becomes free', async () => {
  await using pool = await startOriginPool(silent, { ...OF_RESPONSE, connections: 1 })
  const first = pool.send('/first', { org: 'acme' })
  const waiting = ['/a', '/b'].map((target) => pool.send(target, { org: 'acme' }))
  const other = pool.send('/c', { org: 'other' })
  expect(await first.failed()).toMatchObject({ code: 'http_response_timeout' })
  for (const recorder of waiting) {
    expect(await recorder.failed()).toMatchObject({ code: 'overloaded', limit: 'org share' })
  }
  expect(await other.failed()).toMatchObject({ code: 'overloaded', limit: 'origin.connections' })
  expect(pool.server.requests).toHaveLength(1)
})

test('an attempt names the limit that holds it up at last, not the one that it met', async () => {
  const script: OriginScript = (asked, connection) => (asked.target === '/first' ? {} : silent(asked, connection))
  await using pool = await startOriginPool(script, { ...OF_RESPONSE, connections: 1 })
  const first = pool.send('/first', { org: 'acme' })
  pool.send('/holds', { org: 'other' })
  const waiting = pool.send('/waits', { org: 'acme' })
  await first.ended()
  expect(await waiting.failed()).toMatchObject({ code: 'overloaded', limit: 'origin.connections' })
})

test('a reader that pauses has all the time, and from then on the service has its own again', async () => {
  await using pool = await startOriginPool(writes(`${HEAD}begun`), OF_SILENCE)
  const slow = pool.send('/')
  slow.use = 'pause'
  await slow.waitFor(({ content }) => content.length > 0, 'the first content')
  await setTimeout(LONGER)
  expect(slow.isOver).toBe(false)
  slow.attempt.resume()
  const resumedAt = performance.now()
  expect(await slow.failed()).toMatchObject({ code: 'http_response_timeout' })
  expect(performance.now() - resumedAt).toBeGreaterThanOrEqual(LIMIT)
})

test('a client that is quiet inside its content is not the service', async () => {
  await using pool = await startOriginPool(undefined, OF_RESPONSE)
  const upload = new Upload()
  const sent = pool.send('/', { method: 'PUT', content: upload, contentLength: 4 })
  await sent.waitFor(({ told }) => told.includes('connected'), 'a connection')
  upload.writer?.write(Buffer.from('ha'), false)
  await setTimeout(LONGER)
  upload.writer?.write(Buffer.from('lf'), false)
  upload.writer?.end()
  await sent.ended()
})
