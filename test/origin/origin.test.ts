/** The pool of connections to the origin: which is used, how many there are, and who waits. */

import { readFileSync } from 'node:fs'
import { createSecureContext } from 'node:tls'
import { describe, expect, test } from 'vitest'
import { CA_FILE } from '../support/certificates.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { onCue, startOriginPool } from '../support/origin-pool.ts'

const BROKEN = { code: 'connection_terminated' }

describe('a connection', () => {
  test('is used again, and says that it will be', async () => {
    await using pool = await startOriginPool()
    for (const target of ['/1', '/2', '/3']) await pool.send(target).ended()
    expect(pool.server.connections).toHaveLength(1)
    for (const seen of pool.server.requests) expect(seen.values('connection')).toEqual(['keep-alive'])
    expect(pool.origin.stats).toEqual({ connected: 1, free: 1, pending: 0 })
  })

  test('over TLS is used again, too', async () => {
    await using pool = await startOriginPool(undefined, {
      secureContext: createSecureContext({ ca: readFileSync(CA_FILE, 'utf8') }),
    })
    for (const target of ['/1', '/2']) await pool.send(target).ended()
    expect(pool.server.connections).toHaveLength(1)
  })

  test('opened for one attempt says so, serves no other, and is closed behind it', async () => {
    await using pool = await startOriginPool()
    await pool.send('/pooled').ended()
    const fresh = await pool.sendFresh('/fresh').ended()
    expect(fresh.attempt).toMatchObject({ isConnected: true, isReused: false })
    const connection = pool.connectionOf('/fresh')
    expect(connection).not.toBe(pool.connectionOf('/pooled'))
    expect(connection?.requests[0]?.values('connection')).toEqual(['close'])
    await pool.left(connection)
    expect(pool.origin.stats).toEqual({ connected: 1, free: 1, pending: 0 })
  })

  test('tells whether it has served before, and whether an answer has begun', async () => {
    const script: OriginScript = ({ target }, connection) => {
      if (target === '/good') return { content: '' }
      if (target === '/begun') connection.write('HTTP/1.1 200')
      connection.end()
      return undefined
    }
    await using pool = await startOriginPool(script)
    const good = await pool.send('/good').ended()
    expect(good.attempt).toMatchObject({ isConnected: true, isReused: false, hasResponse: true })
    const stale = pool.send('/stale')
    expect(await stale.failed()).toMatchObject(BROKEN)
    expect(stale.attempt).toMatchObject({ isConnected: true, isReused: true, hasResponse: false })
    const begun = pool.send('/begun')
    expect(await begun.failed()).toMatchObject(BROKEN)
    expect(begun.attempt).toMatchObject({ isConnected: true, isReused: false, hasResponse: true })
  })

  test('that was held up by a slow reader is read again for the next request', async () => {
    await using pool = await startOriginPool(() => ({ content: 'x'.repeat(100_000) }))
    const slow = pool.send('/slow')
    slow.fate = 'full'
    await slow.waitFor(({ content }) => content.length > 0, 'the first content')
    slow.attempt.resume()
    while (!slow.isOver) {
      const length = slow.content.length
      await slow.waitFor(({ content, isOver }) => content.length > length || isOver, 'more content')
      slow.attempt.resume()
    }
    const next = await pool.send('/next').ended()
    expect(next.content).toHaveLength(100_000)
    expect(pool.server.connections).toHaveLength(1)
  })
})

test('a connection whose origin answers without taking the content serves no other', async () => {
  const script: OriginScript = ({ target }, connection) => {
    if (target !== '/upload') return { content: 'good' }
    connection.socket.pause()
    return { status: 413, content: 'early', isEarly: true }
  }
  await using pool = await startOriginPool(script, { connections: 1 })
  const upload = pool.send('/upload', { method: 'PUT', content: Buffer.alloc(32 * 1024 * 1024) })
  expect((await upload.ended()).head?.status).toBe(413)
  expect((await pool.send('/next').ended()).content.toString()).toBe('good')
  expect(pool.server.connections).toHaveLength(2)
})

describe('the pool', () => {
  test('takes the connection that was free last', async () => {
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

  test('opens no more connections than it may, and who waits comes in turn', async () => {
    const cue = onCue()
    await using pool = await startOriginPool(cue.script, { connections: 1 })
    const targets = ['/1', '/2', '/3', '/4', '/5']
    const sent = targets.map((target) => pool.send(target))
    expect(pool.origin.stats).toEqual({ connected: 0, free: 0, pending: 5 })
    for (const [i, target] of targets.entries()) {
      await pool.seen(i + 1)
      expect(pool.origin.stats).toEqual({ connected: 1, free: 0, pending: 4 - i })
      cue.answer(target)
      expect((await sent[i]?.ended())?.content.toString()).toBe(target)
    }
    expect(pool.server.requests.map(({ target }) => target)).toEqual(targets)
    expect(pool.server.connections).toHaveLength(1)
  })

  test('gives the place of a connection that breaks to who waits', async () => {
    const script: OriginScript = ({ target }, connection) => {
      if (target !== '/breaks') return { content: 'good' }
      connection.reset()
      return undefined
    }
    await using pool = await startOriginPool(script, { connections: 1 })
    const broken = pool.send('/breaks')
    const waiting = pool.send('/waits')
    await broken.failed()
    expect((await waiting.ended()).content.toString()).toBe('good')
  })

  test('has the place free when it tells the end of a response', async () => {
    await using pool = await startOriginPool(undefined, { connections: 1 })
    const first = pool.send('/first')
    const second = new Promise<string>((resolve, reject) => {
      first.onTold = (what) => {
        if (what === 'end')
          resolve(
            pool
              .send('/second')
              .ended()
              .then(({ content }) => content.toString()),
          )
        if (what === 'failed') reject(first.error)
      }
    })
    expect(await second).toBe('hello from the origin')
    expect(pool.server.connections).toHaveLength(1)
  })
})

describe('an attempt that is given up', () => {
  const reason = new Error('given up')

  test('in the queue is never sent, and leaves its turn to the next', async () => {
    const cue = onCue()
    await using pool = await startOriginPool(cue.script, { connections: 1 })
    const first = pool.send('/first')
    const given = pool.send('/given-up')
    const next = pool.send('/next')
    await pool.seen(1)
    given.attempt.abort(reason)
    expect(await given.failed()).toBe(reason)
    expect(given.attempt.isConnected).toBe(false)
    cue.answer('/first')
    await first.ended()
    await pool.seen(2)
    cue.answer('/next')
    await next.ended()
    expect(pool.connectionOf('/given-up')).toBeUndefined()
  })

  test('while it connects is never sent, and its place is free', async () => {
    await using pool = await startOriginPool(undefined, { connections: 1 })
    const given = pool.send('/given-up')
    given.attempt.abort(reason)
    expect(given.told).toEqual(['failed'])
    expect(pool.origin.stats).toEqual({ connected: 0, free: 0, pending: 0 })
    await pool.send('/next').ended()
    expect(pool.connectionOf('/given-up')).toBeUndefined()
  })

  test('in its exchange takes the connection with it, and tells nothing more', async () => {
    const cue = onCue()
    await using pool = await startOriginPool(cue.script, { connections: 1 })
    const given = pool.send('/given-up')
    const next = pool.send('/next')
    await pool.seen(1)
    given.attempt.abort(reason)
    given.attempt.abort(reason)
    expect(given.told).toEqual(['connected', 'failed'])
    await pool.left(pool.connectionOf('/given-up'))
    await pool.seen(2)
    cue.answer('/given-up')
    cue.answer('/next')
    await next.ended()
    expect(given.told).toEqual(['connected', 'failed'])
    expect(pool.connectionOf('/next')).not.toBe(pool.connectionOf('/given-up'))
  })

  test('behind its end does no harm to who has the connection then', async () => {
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
