/** The operations of the store, and when it counts as lost. */

import { createServer } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { RedisStore } from '../../../src/fleet/redis-store.ts'
import { CLAIM, FORGET, PUBLISH, RELEASE, type StoredToken, storedValue } from '../../../src/fleet/scripts.ts'
import { Secret } from '../../../src/secret.ts'
import { eventually } from '../../support/changes.ts'
import { listening } from '../../support/listening.ts'
import { lacks } from '../../support/programs.ts'
import { hasValkey, RedisServer } from './redis-server.ts'
import { openStore } from './replicas.ts'

const SPAN_MS = 60_000
const LEASE_MS = 2_500

/** The store's clock is ours. */
function tokenMarked(letter: string, ageMs = 1_000): StoredToken {
  return { mark: letter.repeat(22), mintedAtMs: Date.now() - ageMs, sealed: `sealed-${letter}` }
}

interface ClaimChanges {
  readonly except?: string
  readonly maxAgeMs?: number
  readonly leaseMs?: number
}

async function claimFrom(store: RedisStore, name: string, owner: string, changes: ClaimChanges = {}) {
  const { leaseMs = LEASE_MS, maxAgeMs = SPAN_MS, except = '' } = changes
  return await store.ask(CLAIM, name, [owner, `${leaseMs}`, `${maxAgeMs}`, except])
}

async function publishTo(store: RedisStore, name: string, owner: string, token: StoredToken) {
  return await store.ask(PUBLISH, name, [owner, storedValue(token), `${SPAN_MS}`])
}

describe.each([
  ['Redis', 'redis-server', !lacks('redis-server')],
  ['Valkey', 'valkey-server', hasValkey],
] as const)('%s', (_, program, isThere) => {
  let server: RedisServer
  let opened: ReturnType<typeof openStore>
  let store: RedisStore
  let names = 0
  const newName = () => `org${++names}`
  beforeAll(async () => {
    if (!isThere) return
    server = await RedisServer.start({ program })
    opened = openStore(server.port)
    store = opened.store
  })
  afterAll(async () => {
    opened?.[Symbol.dispose]()
    await server?.[Symbol.asyncDispose]()
  })
  const it = test.skipIf(!isThere)
  const claim = (name: string, owner: string, changes?: ClaimChanges) => claimFrom(store, name, owner, changes)
  const ACQUIRED = { kind: 'acquired', storeTimeMs: expect.any(Number) }

  it('the first claimer gets the lease, and the others see it held until it ends', async () => {
    const name = newName()
    expect(await claim(name, 'one')).toEqual(ACQUIRED)
    const second = await claim(name, 'two')
    expect(second).toEqual({ kind: 'held', restMs: expect.any(Number), storeTimeMs: expect.any(Number) })
    if (second.kind === 'held') expect(second.restMs).toBeLessThanOrEqual(LEASE_MS)
    expect(await claim(name, 'one', { leaseMs: 20 })).toEqual(ACQUIRED)
    await eventually(async () => (await claim(name, 'two')).kind === 'acquired' || undefined, 'the end of the lease')
    expect((await claim(name, 'three')).kind).toBe('held')
  })

  it('a replica without the lease publishes over no younger token', async () => {
    const name = newName()
    const [old, young, youngest] = [tokenMarked('a', 9_000), tokenMarked('b', 5_000), tokenMarked('c', 100)]
    await publishTo(store, name, 'first', young)
    expect(await publishTo(store, name, 'late', old)).toEqual({ kind: 'lost' })
    expect(await claim(name, 'reader')).toMatchObject(young)
    await publishTo(store, name, 'later', youngest)
    expect(await claim(name, 'reader')).toMatchObject(youngest)
  })

  it('a replica that was slower than its lease publishes, and the next owner keeps the lease', async () => {
    const name = newName()
    const [slow, next] = [tokenMarked('a', 3_000), tokenMarked('b', 4_000)]
    await claim(name, 'next')
    await publishTo(store, name, 'slow', slow)
    expect(await claim(name, 'waiting')).toMatchObject({ kind: 'token', ...slow })
    expect((await claim(name, 'waiting', { except: slow.mark })).kind).toBe('held')
    await publishTo(store, name, 'next', next)
    expect(await claim(name, 'waiting', { except: next.mark })).toEqual(ACQUIRED)
  })

  it('only the owner can release, and forgetting deletes the token but leaves a mint alone', async () => {
    const name = newName()
    await claim(name, 'one')
    await store.ask(RELEASE, name, ['stranger'])
    await store.ask(FORGET, name)
    expect((await claim(name, 'two')).kind).toBe('held')
    await store.ask(RELEASE, name, ['one'])
    await publishTo(store, name, 'one', tokenMarked('a'))
    expect(await store.ask(FORGET, name)).toEqual({ kind: 'ok' })
    expect(await claim(name, 'two')).toEqual(ACQUIRED)
  })
})

describe.skipIf(lacks('redis-server'))('a store counts as lost', () => {
  const untilAvailable = async (store: RedisStore) => {
    await eventually(() => store.status.state === 'available' || undefined, 'the store')
  }
  const pauseFor = async (server: RedisServer, work: () => Promise<unknown>) => {
    server.signal('SIGSTOP')
    await work()
    server.signal('SIGCONT')
  }

  test('after failures in a row, not after a failure now and then', async () => {
    await using server = await RedisServer.start()
    using opened = openStore(server.port, { timeoutMs: 150 })
    const { store, lost } = opened
    await untilAvailable(store)
    for (let i = 0; i < 5; i += 1) {
      await pauseFor(server, async () => expect(await claimFrom(store, `paused${i}`, 'one')).toEqual({ kind: 'error' }))
      await eventually(async () => (await claimFrom(store, 'between', 'one')).kind === 'acquired' || undefined, 'it')
    }
    expect(lost).toEqual([])
    await pauseFor(server, async () => {
      for (let i = 0; i < 3; i += 1) await claimFrom(store, `row${i}`, 'one')
    })
    expect(lost).toEqual(['no answer in time'])
  })

  test('not after one short stall, however many operations it fails', async () => {
    await using server = await RedisServer.start()
    using opened = openStore(server.port, { timeoutMs: 100 })
    await untilAvailable(opened.store)
    await pauseFor(server, async () => {
      const claims = Array.from({ length: 50 }, (_, i) => claimFrom(opened.store, `stalled${i}`, 'one'))
      expect(new Set((await Promise.all(claims)).map(({ kind }) => kind))).toEqual(new Set(['error']))
    })
    expect(opened.lost).toEqual([])
  })

  test('at once when its connection ends, without a question', async () => {
    await using server = await RedisServer.start()
    using opened = openStore(server.port)
    expect(opened.store.status).toEqual({ state: 'connecting', reason: '' })
    await untilAvailable(opened.store)
    await server.kill()
    await eventually(() => opened.lost.length > 0 || undefined, 'its loss')
    expect(opened.asked).toEqual(['probe ok'])
  })

  test('not because this process was busy for longer than the limit', async () => {
    await using server = await RedisServer.start()
    using opened = openStore(server.port, { timeoutMs: 400 })
    await untilAvailable(opened.store)
    await server.cli('client', 'pause', '700', 'all')
    const reply = claimFrom(opened.store, 'busy', 'one')
    const startedAt = performance.now()
    while (performance.now() - startedAt < 450);
    expect(await reply).toMatchObject({ kind: 'acquired' })
  })
})

describe('probes', () => {
  test.each([
    ['a server', false],
    ['a cluster', true],
  ])('of %s that says nothing: one at a time, and none keeps its connection', async (_, cluster) => {
    let connections = 0
    let mostAtOnce = 0
    const server = createServer((socket) => {
      connections += 1
      socket.resume()
      mostAtOnce = Math.max(mostAtOnce, silent.sockets.size)
    })
    await using silent = await listening(server)
    {
      using opened = openStore(silent.port, { timeoutMs: 100, cluster })
      await eventually(() => connections >= 4 || undefined, 'three probes', 30_000)
      expect(opened.lost).toHaveLength(1)
      expect(mostAtOnce).toBeLessThanOrEqual(2) // the next may begin before the end of the last is seen
    }
    await eventually(() => silent.sockets.size === 0, 'the end of the last connection')
  })
})

test.skipIf(lacks('redis-server'))(
  'a rejected password is the reason, told once; a corrected one is used',
  async () => {
    await using server = await RedisServer.start({ args: ['--requirepass', 'right'] })
    let password = 'wrong'
    using opened = openStore(server.port, { password: () => new Secret(password) })
    await eventually(() => opened.asked.length >= 3 || undefined, 'probes')
    expect(opened.lost).toEqual([
      'it rejects the user name or password: correct fleet.username or fleet.passwordFile (WRONGPASS)',
    ])
    password = 'right'
    await eventually(() => opened.store.status.state === 'available' || undefined, 'the store')
  },
)

if (!hasValkey) console.warn('skipped: no valkey-server 7 here (Debian has one from its next release on)')
