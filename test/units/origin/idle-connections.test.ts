/** Idle connections to the origin: how long they are kept, and what closes them. */

import { expect, test } from 'vitest'
import type { ContentSource, ContentWriter } from '../../../src/origin/attempt.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { FRESH, startOriginPool } from '../../support/origin-pool.ts'

const announcing =
  (...fields: string[]): OriginScript =>
  () => ({ fields })

test.each([
  ['no Keep-Alive field: as long as it is set', 2_000, [], 2_000],
  ['a longer one: as long as it is set', 1_000, ['Keep-Alive', 'timeout=600'], 1_000],
  ['a shorter one: a second less', 60_000, ['Keep-Alive', 'timeout=2, max=100'], 1_000],
])('how long an idle connection is kept with %s', async (_, keepAliveTimeoutMs, fields, keptMs) => {
  await using pool = await startOriginPool(announcing(...fields), { keepAliveTimeoutMs })
  await pool.send('/').ended()
  const freeAt = performance.now()
  await pool.left(pool.connectionOf('/'))
  expect(performance.now() - freeAt).toBeGreaterThan(keptMs - 100)
  expect(performance.now() - freeAt).toBeLessThan(keptMs + 1_900)
  expect(pool.pool.stats).toEqual({ connected: 0, free: 0, pending: 0 })
})

test.each([
  ['Keep-Alive', 'timeout=0'],
  ['Keep-Alive', 'timeout=1'],
  ['Connection', 'close'],
  ['Connection', 'Keep-Alive, CLOSE'],
])('%s: %s leaves no time to use it again', async (...fields) => {
  await using pool = await startOriginPool(announcing(...fields))
  await pool.send('/1').ended()
  expect(pool.pool.stats).toEqual({ connected: 0, free: 0, pending: 0 })
  await pool.left(pool.connectionOf('/1'))
  await pool.send('/2').ended()
  expect(pool.server.connections).toHaveLength(2)
})

test('a connection past its time is not used again, even before it is closed', async () => {
  await using pool = await startOriginPool(announcing('Keep-Alive', 'timeout=2'))
  await pool.send('/1').ended()
  // Nothing runs meanwhile, so the timer does not close it either.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_001)
  expect(pool.pool.stats.free).toBe(1)
  await pool.send('/2').ended()
  expect(pool.connectionOf('/2')).not.toBe(pool.connectionOf('/1'))
  await pool.left(pool.connectionOf('/1'))
  expect(pool.pool.stats).toMatchObject({ connected: 1, free: 1 })
})

test.each([
  ['is used before a third is opened', {}],
  ['is kept when a full pool needs a new one', FRESH],
])('a good connection below one past its time %s', async (_, request) => {
  const script: OriginScript = ({ target }) => ({ fields: ['Keep-Alive', `timeout=${target === '/short' ? 2 : 600}`] })
  await using pool = await startOriginPool(script, { connections: 2 })
  const [good, short] = [pool.send('/good', FRESH), pool.send('/short', FRESH)]
  await good.ended()
  await short.ended()
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_001)
  await pool.send('/next', request).ended()
  await pool.left(pool.connectionOf('/short'))
  expect(pool.connectionOf('/good')?.peerEnd).toBeUndefined()
  expect(pool.connectionOf('/next') === pool.connectionOf('/good')).toBe(request !== FRESH)
})

test('a connection lives for 80 to 100 percent of its longest age', async () => {
  const maxConnectionAgeMs = 6_000
  await using pool = await startOriginPool(announcing('Keep-Alive', 'timeout=600'), { maxConnectionAgeMs })
  const block = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
  await Promise.all(Array.from({ length: 7 }, (_, i) => pool.send(`/${i}`).ended()))
  block(4_200)
  const { attempt } = await pool.send('/again').ended()
  expect([attempt.isReused, pool.pool.stats.connected]).toEqual([true, 7])
  block(maxConnectionAgeMs - 4_200)
  await pool.send('/later').ended()
  expect(pool.pool.stats.connected).toBe(1)
})

test.each([
  ['what nobody asked for', 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'],
  ['an empty line', '\r\n'],
  ['a farewell', 'HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n'],
])('%s on an idle connection closes it', async (_, bytes) => {
  // It would stay open for ten minutes.
  await using pool = await startOriginPool(() => ({ fields: ['Keep-Alive', 'timeout=600'], content: 'good' }))
  await pool.send('/1').ended()
  const connection = pool.connectionOf('/1')
  connection?.write(bytes)
  await pool.left(connection)
  expect(pool.pool.stats).toEqual({ connected: 0, free: 0, pending: 0 })
  expect((await pool.send('/2').ended()).content.toString()).toBe('good')
  expect(pool.connectionOf('/2')).not.toBe(connection)
})

test.each([
  ['a response', 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison'],
  ['an end', ''],
])('%s that waits on an idle connection is seen before a request is written to it', async (_, bytes) => {
  await using pool = await startOriginPool(({ target }) => ({ content: target }))
  await pool.send('/1').ended()
  const connection = pool.connectionOf('/1')
  // The kernel has it now, and we cannot read it before the next turn of the event loop.
  if (bytes === '') connection?.end()
  else connection?.write(bytes)
  const post = await pool.send('/2', { method: 'POST', content: Buffer.from('content') }).ended()
  expect(post.content.toString()).toBe('/2')
  expect(post.attempt.isReused).toBe(false)
  expect(connection?.requests).toHaveLength(1)
})

test('a request that is given up before it was written leaves no trace at the origin', async () => {
  await using pool = await startOriginPool()
  await pool.send('/1').ended()
  const second = pool.send('/2')
  second.attempt.abort(new Error('the client has left'))
  expect((await second.failed()).message).toBe('the client has left')
  await pool.send('/3').ended()
  expect(pool.server.requests.map(({ target }) => target)).toEqual(['/1', '/3'])
})

test('an answer that began before the end of the content is the last, even if the content ends in time', async () => {
  await using pool = await startOriginPool(async (request, connection) => {
    connection.write('HTTP/1.1 200 OK\r\nKeep-Alive: timeout=600\r\nContent-Length: 4\r\n\r\n')
    await request.ended
    connection.write('done')
  })
  let writer: ContentWriter | undefined
  const source: ContentSource = {
    streamTo: (given) => {
      writer = given
    },
    resume: () => {},
    detach: () => {},
  }
  const early = pool.send('/early', { method: 'POST', content: source, contentLength: 4 })
  await early.waitFor(({ head }) => head !== undefined, 'the head')
  writer?.write(Buffer.from('rest'), false)
  writer?.end()
  expect((await early.ended()).content.toString()).toBe('done')
  await pool.left(pool.connectionOf('/early'))
})
