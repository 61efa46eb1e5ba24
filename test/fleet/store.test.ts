/** The operations of the store. The same table tests the real store and the one in memory: both answer alike. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { RedisStore } from '../../src/fleet/redis-store.ts'
import type { FleetStore, StoredToken } from '../../src/fleet/store.ts'
import { eventually } from '../support/changes.ts'
import { MemoryStore } from './memory-store.ts'
import { hasRedis, hasValkey, RedisServer } from './redis-server.ts'

const SPAN_MS = 60_000
const LEASE_MS = 2_500

function tokenMarked(letter: string): StoredToken {
  return { mark: letter.repeat(22), spanMs: SPAN_MS, sealed: `sealed-${letter}` }
}
const A = tokenMarked('a')
const B = tokenMarked('b')

interface Open {
  readonly store: FleetStore
  close(): Promise<void>
}

function storeOn({ port }: RedisServer, timeoutMs: number, storeLost: (reason: string) => void = () => undefined) {
  return new RedisStore({
    address: { kind: 'tcp', host: '127.0.0.1', port, tls: false, database: 0 },
    isCluster: false,
    username: undefined,
    password: () => undefined,
    secureContext: undefined,
    prefix: 'test',
    timeoutMs,
    observer: { storeAsked: () => undefined, storeLost, storeBack: () => undefined },
    now: () => performance.now(),
    random: Math.random,
  })
}

async function openRedis(program: string): Promise<Open> {
  const server = await RedisServer.start({ program })
  const store = storeOn(server, 5_000)
  return {
    store,
    close: async () => {
      store.close()
      await server[Symbol.asyncDispose]()
    },
  }
}

async function openMemory(): Promise<Open> {
  return { store: new MemoryStore(() => performance.now()), close: async () => undefined }
}

describe.each([
  ['in memory', true, openMemory],
  ['in Redis', hasRedis, () => openRedis('redis-server')],
  ['in Valkey', hasValkey, () => openRedis('valkey-server')],
] as const)('%s', (_, isThere, open) => {
  let opened: Open
  let names = 0
  let store: FleetStore
  const newName = () => `org${++names}`
  beforeAll(async () => {
    if (!isThere) return
    opened = await open()
    store = opened.store
  })
  afterAll(async () => {
    await opened?.close()
  })
  const it = test.skipIf(!isThere)

  const claim = (name: string, owner: string, except: readonly string[] = [], maxAgeMs = SPAN_MS) =>
    store.claim(name, { owner, leaseMs: LEASE_MS, except, maxAgeMs }, 5_000)

  it('the first who claims gets the lease, the others see it held', async () => {
    const name = newName()
    expect(await claim(name, 'one')).toEqual({ kind: 'acquired' })
    const second = await claim(name, 'two')
    expect(second.kind).toBe('held')
    if (second.kind === 'held') {
      expect(second.restMs).toBeGreaterThan(0)
      expect(second.restMs).toBeLessThanOrEqual(LEASE_MS)
    }
    expect(await claim(name, 'one')).toEqual({ kind: 'acquired' })
  })

  it('a lease that has ended goes to the next', async () => {
    const name = newName()
    await store.claim(name, { owner: 'one', leaseMs: 20, except: [], maxAgeMs: SPAN_MS }, 5_000)
    const reply = await eventually(async () => {
      const seen = await claim(name, 'two')
      return seen.kind === 'held' ? undefined : seen
    }, 'the end of the lease')
    expect(reply).toEqual({ kind: 'acquired' })
    expect((await claim(name, 'three')).kind).toBe('held')
  })

  it('what the owner publishes is what the others get, with its age', async () => {
    const name = newName()
    await claim(name, 'one')
    expect(await store.publish(name, { owner: 'one', token: A, ageMs: 1_000 })).toEqual({ kind: 'published' })
    const reply = await claim(name, 'two')
    expect(reply).toMatchObject({ kind: 'token', token: A })
    if (reply.kind === 'token') {
      expect(reply.ageMs).toBeGreaterThanOrEqual(1_000)
      expect(reply.ageMs).toBeLessThan(6_000)
    }
  })

  it('a token is no answer for those who except it, nor one that is too old', async () => {
    const name = newName()
    await claim(name, 'one')
    await store.publish(name, { owner: 'one', token: A, ageMs: 1_000 })
    expect(await claim(name, 'two', [B.mark, A.mark])).toEqual({ kind: 'acquired' })
    await store.release(name, 'two')
    expect(await claim(name, 'two', [], 1_000)).toEqual({ kind: 'acquired' })
    // The token stays for replicas that can use it.
    expect(await claim(name, 'three', [B.mark])).toMatchObject({ kind: 'token', token: A })
  })

  it('who has no lease publishes over no younger token', async () => {
    const name = newName()
    expect(await store.publish(name, { owner: 'late', token: A, ageMs: 5_000 })).toEqual({ kind: 'published' })
    expect(await store.publish(name, { owner: 'later', token: B, ageMs: 9_000 })).toEqual({ kind: 'lost' })
    expect(await store.publish(name, { owner: 'later', token: B, ageMs: 100 })).toEqual({ kind: 'published' })
  })

  it('who was slower than its lease publishes, and the next owner keeps the lease', async () => {
    const name = newName()
    await claim(name, 'next')
    expect(await store.publish(name, { owner: 'slow', token: A, ageMs: 3_000 })).toEqual({ kind: 'published' })
    expect(await claim(name, 'waiting')).toMatchObject({ kind: 'token', token: A })
    expect((await claim(name, 'waiting', [A.mark])).kind).toBe('held')
    expect(await store.publish(name, { owner: 'next', token: B, ageMs: 4_000 })).toEqual({ kind: 'published' })
  })

  it('only the owner can release, and a released lease is free', async () => {
    const name = newName()
    await claim(name, 'one')
    await store.release(name, 'stranger')
    expect((await claim(name, 'two')).kind).toBe('held')
    await store.release(name, 'one')
    expect(await claim(name, 'two')).toEqual({ kind: 'acquired' })
  })

  it('a note stands for its time, and does not keep anyone from publishing', async () => {
    const name = newName()
    await claim(name, 'one')
    await store.release(name, 'one', { text: 'refused', noteMs: 60_000 })
    expect(await claim(name, 'two')).toEqual({ kind: 'noted', note: 'refused' })
    expect(await store.publish(name, { owner: 'two', token: A, ageMs: 0 })).toEqual({ kind: 'published' })
    expect(await claim(name, 'three')).toMatchObject({ kind: 'token' })
    expect(await claim(name, 'three', [A.mark])).toEqual({ kind: 'acquired' })
    await store.release(name, 'three', { text: 'brief', noteMs: 10 })
    await eventually(async () => (await claim(name, 'four', [A.mark])).kind === 'acquired' || undefined, 'its end')
  })

  it('forgetting takes the token and a note, and leaves a mint alone', async () => {
    const name = newName()
    await store.publish(name, { owner: 'one', token: A, ageMs: 0 })
    await store.forget(name)
    expect(await claim(name, 'one')).toEqual({ kind: 'acquired' })
    await store.forget(name)
    expect((await claim(name, 'two')).kind).toBe('held')
    await store.release(name, 'one', { text: 'note', noteMs: 60_000 })
    await store.forget(name)
    expect(await claim(name, 'two')).toEqual({ kind: 'acquired' })
  })

  it('permits so many calls in a window, and tells how long to wait', async () => {
    const name = newName()
    const request = { calls: 3, windowMs: 60_000 }
    const kinds = [0, 1, 2].map(async () => (await store.permit(name, request, 5_000)).kind)
    expect(await Promise.all(kinds)).toEqual(['granted', 'granted', 'granted'])
    const reply = await store.permit(name, request, 5_000)
    expect(reply.kind).toBe('wait')
    if (reply.kind === 'wait') {
      expect(reply.waitMs).toBeGreaterThan(50_000)
      expect(reply.waitMs).toBeLessThanOrEqual(60_000)
    }
    const brief = newName()
    await store.permit(brief, { calls: 1, windowMs: 20 }, 5_000)
    await eventually(
      async () => (await store.permit(brief, { calls: 1, windowMs: 20 }, 5_000)).kind === 'granted' || undefined,
      'the end of the window',
    )
  })

  it('a limit is kept by all, and the longer one stays', async () => {
    const name = newName()
    await store.setLimit(name, 'long', 30_000)
    await store.setLimit(name, 'short', 1_000)
    const reply = await store.permit(name, { calls: 100, windowMs: 1_000 }, 5_000)
    expect(reply).toMatchObject({ kind: 'limited', limit: { sealed: 'long' } })
    const board = await store.readBoard(name, undefined)
    expect(board).toMatchObject({ kind: 'ok', limit: { sealed: 'long' } })
  })

  it('the board tells the lifetime, and each purge once to those who were there before', async () => {
    const name = newName()
    const first = await store.readBoard(name, undefined)
    expect(first).toMatchObject({ kind: 'ok', lifetime: undefined, limit: undefined, purges: [] })
    await store.setLifetime(name, 'learned')
    await store.addPurge(name, 'one')
    await store.addPurge(name, 'two')
    const since = first.kind === 'ok' ? first.until : undefined
    const second = await store.readBoard(name, since)
    expect(second).toMatchObject({ lifetime: 'learned', purges: [{ sealed: 'one' }, { sealed: 'two' }] })
    const third = await store.readBoard(name, second.kind === 'ok' ? second.until : undefined)
    expect(third).toMatchObject({ lifetime: 'learned', purges: [] })
    expect(await store.readBoard(name, undefined)).toMatchObject({ purges: [] })
  })
})

describe.skipIf(!hasRedis)('a burst of operations', () => {
  const claim = (store: FleetStore, name: string) =>
    store.claim(name, { owner: name, leaseMs: LEASE_MS, except: [], maxAgeMs: SPAN_MS }, Number.POSITIVE_INFINITY)

  test('one short stall of the store does not count as its loss', async () => {
    await using server = await RedisServer.start()
    const losses: string[] = []
    const store = storeOn(server, 100, (reason) => losses.push(reason))
    await eventually(() => store.state === 'available' || undefined, 'the store')
    await server.cli('client', 'pause', '1000', 'all')
    const replies = await Promise.all(Array.from({ length: 50 }, (_, i) => claim(store, `stalled${i}`)))
    expect(new Set(replies.map(({ kind }) => kind))).toEqual(new Set(['error']))
    await server.cli('client', 'unpause')
    expect(await claim(store, 'after')).toEqual({ kind: 'acquired' })
    expect(losses).toEqual([])
    store.close()
  })

  test('a proxy that is busy for longer than the limit still gets its answers', async () => {
    await using server = await RedisServer.start()
    const store = storeOn(server, 400)
    await eventually(() => store.state === 'available' || undefined, 'the store')
    await server.cli('client', 'pause', '700', 'all')
    const reply = claim(store, 'busy')
    const startedAt = performance.now()
    while (performance.now() - startedAt < 450);
    expect(await reply).toEqual({ kind: 'acquired' })
    store.close()
  })
})

if (!hasValkey) console.warn('skipped: no valkey-server 7 here (Debian has one from its next release on)')
