/** A response that nobody wants: its connection reads it away, if that is soon done, and serves the next request. */

import { expect, test } from 'vitest'
import { eventually } from '../../support/changes.ts'
import { type OriginScript, writes } from '../../support/origin-connection.ts'
import { type OriginPool, startOriginPool } from '../../support/origin-pool.ts'
import type { Recorder } from '../../support/recorder.ts'

const KIB = 1024
const KEPT = { fields: ['Keep-Alive', 'timeout=600'] }

/** Discards the response with its head. */
async function discarded(pool: OriginPool, target: string): Promise<Recorder> {
  const recorder = pool.send(target)
  recorder.onTold = (what) => {
    if (what === 'head') recorder.attempt.discardResponse()
  }
  await recorder.waitFor(({ head }) => head !== undefined, 'the head')
  return recorder
}

test.each<[string, OriginScript]>([
  ['of 64 KiB', () => ({ ...KEPT, content: Buffer.alloc(64 * KIB) })],
  ['in chunks', () => ({ ...KEPT, content: 'content', isChunked: true })],
  ['without content', () => KEPT],
])('one %s leaves its connection to the next request, and tells nothing more', async (_, script) => {
  await using pool = await startOriginPool(script, { connections: 1 })
  const first = await discarded(pool, '/1')
  first.attempt.abort(new Error('too late'))
  const second = await discarded(pool, '/2')
  await eventually(() => pool.pool.stats.free === 1 || undefined, 'a free connection')
  expect(pool.server.connections).toHaveLength(1)
  expect([first.told, second.told]).toEqual([
    ['connected', 'head'],
    ['connected', 'head'],
  ])
})

test.each<[string, OriginScript]>([
  ['larger than that', () => ({ ...KEPT, content: Buffer.alloc(64 * KIB + 1) })],
  ['that never ends', writes('HTTP/1.1 200 OK\r\nKeep-Alive: timeout=600\r\nContent-Length: 10\r\n\r\nhalf')],
  ['behind which the service closes', () => ({ content: 'content', closes: true })],
  ['that breaks its framing', writes('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n')],
])('one %s costs its connection', async (_, script) => {
  await using pool = await startOriginPool(script)
  const recorder = await discarded(pool, '/')
  await pool.left(pool.connectionOf('/'), 5_000)
  expect(pool.pool.stats).toEqual({ connected: 0, free: 0, pending: 0 })
  expect(recorder.told).toEqual(['connected', 'head'])
})
