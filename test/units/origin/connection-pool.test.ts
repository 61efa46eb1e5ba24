/** The pool of connections to the origin: which connection is used, how many there are, and who waits. */

import { setImmediate, setTimeout } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import type { ContentUse } from '../../../src/http1/message-parser.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { FRESH, type OriginPool, onCue, startOriginPool } from '../../support/origin-pool.ts'
import { Recorder } from '../../support/recorder.ts'

describe('a connection', () => {
  test('is used again, and the request says so', async () => {
    await using pool = await startOriginPool()
    for (const target of ['/1', '/2', '/3']) await pool.send(target).ended()
    expect(pool.server.connections).toHaveLength(1)
    for (const seen of pool.server.requests) expect(seen.values('connection')).toEqual(['keep-alive'])
    expect(pool.pool.stats).toEqual({ connected: 1, free: 1, pending: 0 })
  })

  test('that is new is opened for a retry, and kept after it; one that breaks leaves the others alone', async () => {
    await using pool = await startOriginPool(({ target }, to) => (target === '/broken' ? to.reset() : {}))
    await pool.send('/pooled').ended()
    await pool.send('/broken', FRESH).failed()
    const fresh = await pool.send('/fresh', FRESH).ended()
    expect(fresh.attempt).toMatchObject({ isSent: true, isReused: false })
    expect(pool.connectionOf('/fresh')).not.toBe(pool.connectionOf('/pooled'))
    expect(pool.pool.stats).toEqual({ connected: 2, free: 2, pending: 0 })
  })

  test('for a retry replaces a free one if the pool is full', async () => {
    await using pool = await startOriginPool(() => ({ fields: ['Keep-Alive', 'timeout=600'] }), { connections: 1 })
    await pool.send('/pooled').ended()
    await pool.send('/fresh', FRESH).ended()
    await pool.left(pool.connectionOf('/pooled'))
    expect(pool.server.connections).toHaveLength(2)
    expect(pool.pool.stats).toEqual({ connected: 1, free: 1, pending: 0 })
  })

  test('never exceeds the limit: a retry waits for its turn in a full pool', async () => {
    const cue = onCue()
    await using pool = await startOriginPool(cue.script, { connections: 2 })
    const busy = ['/1', '/2'].map((target) => pool.send(target))
    await pool.seen(2)
    const retries = ['/3', '/4', '/5'].map((target) => pool.send(target, FRESH))
    expect(pool.pool.stats).toEqual({ connected: 2, free: 0, pending: 3 })
    for (const [i, recorder] of [...busy, ...retries].entries()) {
      await pool.seen(i + 1)
      expect(pool.server.openConnections.filter(({ peerEnd }) => peerEnd === undefined).length).toBeLessThanOrEqual(2)
      cue.answer(recorder.attempt.request.target)
      await recorder.ended()
    }
    expect(pool.server.connections, 'each retry came on a connection of its own').toHaveLength(5)
  })

  test('that was paused for a slow reader is read again for the next request', async () => {
    await using pool = await startOriginPool(() => ({ content: 'x'.repeat(100_000) }))
    const slow = pool.send('/slow')
    slow.use = 'pause'
    await slow.waitFor(({ content }) => content.length > 0, 'the first content')
    slow.attempt.resume()
    while (!slow.isOver) {
      const length = slow.content.length
      await slow.waitFor(({ content, isOver }) => content.length > length || isOver, 'more content')
      slow.attempt.resume()
    }
    while (pool.pool.stats.free === 0) await setImmediate() // its last piece has paused it
    const next = await pool.send('/next').ended()
    expect(next.content).toHaveLength(100_000)
    expect(pool.server.connections).toHaveLength(1)
  })
})

describe('bytes of content that their reader keeps', () => {
  const CONTENT = Buffer.from(Uint32Array.from({ length: 256 * 1024 }, (_, i) => i).buffer)

  /** Keeps the pieces that `keeps` selects, without a copy, and copies the others. */
  class Keeper extends Recorder {
    readonly pieces: Buffer[] = []
    #count = 0

    constructor(keeps: (piece: number) => ContentUse) {
      super({ target: '/' })
      this.responseContent = (bytes, start, end) => {
        const piece = bytes.subarray(start, end)
        const use = keeps(this.#count++)
        this.pieces.push(use === 'consumed' ? Buffer.from(piece) : piece)
        if (use === 'pause') void setImmediate().then(() => this.attempt.resume())
        return use
      }
    }
  }

  test.each<[string, (piece: number) => ContentUse]>([
    ['all', () => 'borrowed'],
    ['all, a pause behind each', () => 'pause'],
    ['every third', (piece) => (piece % 3 === 0 ? 'borrowed' : 'consumed')],
    ['every third, a pause behind each', (piece) => (piece % 3 === 0 ? 'pause' : 'consumed')],
  ])('are not overwritten: %s', async (_, keeps) => {
    await using pool = await startOriginPool(() => ({ content: CONTENT }))
    const keeper = new Keeper(keeps)
    pool.pool.dispatch(keeper.attempt)
    await keeper.ended()
    expect(keeper.pieces.length).toBeGreaterThan(3)
    expect(Buffer.concat(keeper.pieces).equals(CONTENT)).toBe(true)
  })
})

describe('the pool', () => {
  test('uses the connection that became free last', async () => {
    const cue = onCue()
    await using pool = await startOriginPool(cue.script)
    const [a, b, c] = [pool.send('/a'), pool.send('/b'), pool.send('/c')]
    await pool.seen(3)
    for (const recorder of [b, c, a]) {
      cue.answer(recorder.attempt.request.target)
      await recorder.ended()
    }
    pool.send('/d')
    pool.send('/e')
    await pool.seen(5)
    expect(pool.connectionOf('/d')).toBe(pool.connectionOf('/a'))
    expect(pool.connectionOf('/e')).toBe(pool.connectionOf('/c'))
    expect(pool.server.connections).toHaveLength(3)
  })

  test('opens no more connections than its limit, and serves waiting attempts in order', async () => {
    const cue = onCue()
    await using pool = await startOriginPool(cue.script, { connections: 1 })
    const targets = ['/1', '/2', '/3', '/4', '/5']
    const sent = targets.map((target) => pool.send(target))
    const given = pool.send('/given-up')
    for (let i = 0; i < 2; i++) given.attempt.abort(new Error('given up')) // the second time disturbs nobody
    expect(pool.pool.stats).toEqual({ connected: 0, free: 0, pending: 5 })
    for (const [i, target] of targets.entries()) {
      await pool.seen(i + 1)
      expect(pool.pool.stats).toEqual({ connected: 1, free: 0, pending: 4 - i })
      cue.answer(target)
      expect((await sent[i]?.ended())?.content.toString()).toBe(target)
    }
    expect(pool.server.requests.map(({ target }) => target)).toEqual(targets)
    expect(pool.server.connections).toHaveLength(1)
  })

  test('frees the place before it reports the end of a response', async () => {
    await using pool = await startOriginPool(undefined, { connections: 1 })
    const first = pool.send('/first')
    let second: Recorder | undefined
    first.onTold = (what) => {
      if (what === 'end') second = pool.send('/second')
    }
    await first.ended()
    expect((await second?.ended())?.content.toString()).toBe('hello from the origin')
    expect(pool.server.connections).toHaveLength(1)
  })
})

describe('one org', () => {
  /** Answers `/stream…` with a response that does not end, and everything else at once. */
  const script: OriginScript = ({ target }, connection) => {
    if (!target.startsWith('/stream')) return { content: target }
    connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n')
  }
  const streamsOf = (pool: OriginPool, org: string, count: number) =>
    Array.from({ length: count }, (_, i) => pool.send(`/stream/${i}`, { org }))
  const hasBegun = (recorders: readonly Recorder[]) =>
    Promise.all(recorders.map((recorder) => recorder.waitFor(({ head }) => head !== undefined, 'a head')))

  test.each([
    [8, 6],
    [3, 2],
    [2, 1],
    [1, 1],
  ])('of %i connections holds at most %i', async (connections, share) => {
    await using pool = await startOriginPool(script, { connections })
    const streams = streamsOf(pool, 'greedy', share + 2)
    await hasBegun(streams.slice(0, share))
    expect(pool.pool.stats).toMatchObject({ connected: share, pending: 2 })
    if (connections === 1) return
    for (let i = 0; i < 3; i++) await pool.send('/other', { org: 'other' }).ended()
    expect(pool.pool.stats, 'a free connection is not for an org at its share').toMatchObject({ free: 1, pending: 2 })
    streams[0]?.attempt.abort(new Error('the client has left'))
    await hasBegun(streams.slice(0, share + 1).slice(1))
    expect(pool.pool.stats).toMatchObject({ pending: 1 })
  })

  test('at its share holds up nobody who waits behind its requests', async () => {
    await using pool = await startOriginPool(script, { connections: 4 })
    const streams = [...streamsOf(pool, 'greedy', 5), ...streamsOf(pool, 'other', 1)]
    await hasBegun([...streams.slice(0, 3), ...streams.slice(5)])
    const waiting = pool.send('/waits', { org: 'third' })
    streams[5]?.attempt.abort(new Error('the client has left'))
    await waiting.ended()
    expect(pool.pool.stats).toMatchObject({ pending: 2 })
  })
})

test('a connection that is too old closes after its response, even if requests wait', async () => {
  const cue = onCue()
  await using pool = await startOriginPool(cue.script, { connections: 1, maxConnectionAgeMs: 1 })
  const sent = ['/1', '/2'].map((target) => pool.send(target))
  for (const [i, recorder] of sent.entries()) {
    await pool.seen(i + 1)
    await setTimeout(2) // older than the limit now
    cue.answer(recorder.attempt.request.target)
    await recorder.ended()
  }
  expect(pool.server.connections).toHaveLength(2)
  await pool.left(pool.connectionOf('/1'))
})

test('a fault of our own is reported as one', async () => {
  await using pool = await startOriginPool()
  for (const event of ['connected', 'head', 'end'] as const) {
    const recorder = new Recorder({ target: `/${event}` })
    recorder.onTold = (told) => {
      if (told === event) throw new TypeError('of our own')
    }
    pool.pool.dispatch(recorder.attempt)
    expect(await recorder.failed()).toBeInstanceOf(TypeError)
  }
  await pool.send('/next').ended()
})

describe('an aborted attempt', () => {
  const reason = new Error('given up')

  test('while it connects is never sent, and its place becomes free', async () => {
    await using pool = await startOriginPool(undefined, { connections: 1 })
    const given = pool.send('/given-up')
    given.attempt.abort(reason)
    expect(given.told).toEqual(['failed'])
    expect(pool.pool.stats).toEqual({ connected: 0, free: 0, pending: 0 })
    await pool.send('/next').ended()
    expect(pool.connectionOf('/given-up')).toBeUndefined()
  })

  test('after its end does not disturb the next attempt on the connection', async () => {
    const cue = onCue()
    await using pool = await startOriginPool(cue.script)
    const first = pool.send('/first')
    await pool.seen(1)
    cue.answer('/first')
    await first.ended()
    const second = pool.send('/second')
    await pool.seen(2)
    first.attempt.abort(reason)
    cue.answer('/second')
    await second.ended()
    expect(first.told).toEqual(['connected', 'head', 'end'])
  })
})
