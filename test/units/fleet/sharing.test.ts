/** What replicas that share a store get, and how often they mint. */

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { TokenError } from '../../../src/errors.ts'
import type { OrgId } from '../../../src/org-id.ts'
import { Secret } from '../../../src/secret.ts'
import { AccessToken, type MintOptions } from '../../../src/token/token-source.ts'
import { during, eventually, Gate } from '../../support/changes.ts'
import { scaled } from '../../support/pace.ts'
import { lacks } from '../../support/programs.ts'
import { RedisServer } from './redis-server.ts'
import { Endpoint, passed, Replica } from './replicas.ts'

const ACME = 'acme' as OrgId

let server: RedisServer
let endpoint: Endpoint

beforeAll(async () => {
  server = await RedisServer.start()
})

beforeEach(async () => {
  await server.cli('flushall')
  endpoint = new Endpoint()
})

afterAll(() => server[Symbol.asyncDispose]())

async function tokenKeys(): Promise<string[]> {
  return (await server.cli('--scan', '--pattern', '*:t')).split('\n').filter((key) => key !== '')
}

async function leaseKeys(): Promise<string[]> {
  return (await server.cli('--scan', '--pattern', '*:l')).split('\n').filter((key) => key !== '')
}

/** Resolves when somebody has a lease, with its key. */
async function untilHeld(): Promise<string> {
  return await eventually(async () => (await leaseKeys())[0], 'a lease')
}

/** Resolves when nobody has a lease: its end is told behind the answer. Long before the lease would end by itself. */
async function untilFree(): Promise<void> {
  await eventually(async () => (await leaseKeys()).length === 0 || undefined, 'the end of the lease', 2_000)
}

/** Resolves when so many tokens are in the store: a publication may come after the answer. */
async function untilPublished(count = 1): Promise<string[]> {
  return await eventually(async () => {
    const keys = await tokenKeys()
    return keys.length === count && (await leaseKeys()).length === 0 ? keys : undefined
  }, 'the token in the store')
}

describe.skipIf(lacks('redis-server'))('replicas with one store', () => {
  test('a token is not told if the Org has become another one meanwhile, neither as this one nor as that', async () => {
    let id = '4711'
    const sharedAs = (org: OrgId) => `${org} ${id}`
    endpoint.gate = new Gate()
    await using replicas = await Replica.start(2, server.port, endpoint, { sharedAs })
    const [one, two] = replicas
    const minted = one?.text('acme')
    await untilHeld()
    id = '4712'
    endpoint.gate.open()
    expect(await minted).toBe('acme.1')
    await untilFree()
    expect([await tokenKeys(), await two?.text('acme')]).toEqual([[], 'acme.2'])
    id = '4711'
    expect(await two?.text('acme')).toBe('acme.3')
  })

  test('20 cold replicas mint once, and all get that token', async () => {
    await using replicas = await Replica.start(20, server.port, endpoint)
    const tokens = await Promise.all(replicas.map((replica) => replica.text('acme')))
    expect(new Set(tokens)).toEqual(new Set(['acme.1']))
    expect(endpoint.calls).toHaveLength(1)
  })

  test('a shared token has its real age and its stated end', async () => {
    endpoint.issue = (token, mintedAt) => new AccessToken(token, mintedAt, 40_000)
    endpoint.latencyMs = 400
    await using replicas = await Replica.start(2, server.port, endpoint)
    const [one, two] = replicas
    const minted = await one!.mint('acme')
    await untilPublished()
    await passed(300)
    const shared = await two!.mint('acme')
    // The sum of a clock's time and a whole number loses its last bits.
    expect(shared).toMatchObject({ statedLifeMs: expect.closeTo(40_000, -1) })
    // Never younger than it is, and older only by the time of the store.
    expect(shared.mintedAt).toBeLessThanOrEqual(minted.mintedAt + 1)
    expect(shared.mintedAt).toBeGreaterThan(minted.mintedAt - 250)
    const [key = ''] = await tokenKeys()
    expect(Number(await server.cli('pttl', key))).toBeLessThanOrEqual(40_000)
  })

  test('a rejected token: one mint, and the others take its successor', async () => {
    await using replicas = await Replica.start(5, server.port, endpoint)
    const held = await Promise.all(replicas.map((replica) => replica.mint('acme')))
    const rejected = replicas.map((replica, i) => replica.text('acme', { reason: 'rejected', replaces: held[i] }))
    expect(new Set(await Promise.all(rejected))).toEqual(new Set(['acme.2']))
    expect(endpoint.calls).toHaveLength(2)
  })

  test.each<[string, (held: AccessToken) => MintOptions]>([
    ['the one to be replaced', (held) => ({ replaces: held })],
    ['older than the one to be replaced', () => ({ replaces: new AccessToken('own', performance.now() - 50) })],
  ])('no answer is a token that is %s', async (_, options) => {
    await using replicas = await Replica.start(2, server.port, endpoint)
    const [one, two] = replicas
    const held = await one!.mint('acme')
    await untilPublished()
    await passed(250)
    expect(await two!.text('acme', options(held))).toBe('acme.2')
  })

  test('a failure frees the lease at once', async () => {
    // A lease would last for 30 s.
    await using replicas = await Replica.start(3, server.port, endpoint, { mintTimeoutMs: 60_000 })
    endpoint.failure = () =>
      endpoint.calls.length === 1 ? new TokenError('token_endpoint_unavailable', 'it failed') : undefined
    const startedAt = performance.now()
    const results = await Promise.allSettled(replicas.map((replica) => replica.mint('acme')))
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
    expect(endpoint.calls).toHaveLength(2)
    expect(performance.now() - startedAt).toBeLessThan(15_000)
    await untilFree()
  })

  test('an endpoint that issues the same token again: its answer is no answer of the store', async () => {
    endpoint.issue = (_, mintedAt) => new AccessToken('same', mintedAt)
    await using replicas = await Replica.start(2, server.port, endpoint)
    const held = await Promise.all(replicas.map((replica) => replica.mint('acme')))
    for (const [i, replica] of replicas.entries()) {
      expect(await replica.text('acme', { replaces: held[i], reason: 'refresh' })).toBe('same')
    }
    expect(endpoint.calls).toHaveLength(3)
    await untilFree()
    endpoint.issue = (token, mintedAt) => new AccessToken(token, mintedAt)
    expect(await replicas[0]!.text('acme', { replaces: held[0], reason: 'rejected' })).toBe('acme.4')
  })
})

describe.skipIf(lacks('redis-server'))('a mint that is slow', () => {
  test('as a call may be: all wait for it', async () => {
    endpoint.latencyMs = 2_100
    await using replicas = await Replica.start(6, server.port, endpoint, { mintTimeoutMs: scaled(3_000) })
    await Promise.all(replicas.map((replica) => replica.mint('acme')))
    expect(endpoint.calls).toHaveLength(1)
  })

  test('and outlives its request: the token is published', async () => {
    endpoint.latencyMs = 700
    await using replicas = await Replica.start(2, server.port, endpoint, { mintTimeoutMs: 400 })
    const [one, two] = replicas
    const request = Promise.race([one!.mint('acme'), passed(400)])
    expect(await request).toBeUndefined()
    await untilPublished()
    expect(await two!.text('acme')).toBe('acme.1')
  })

  test('because a stranger has one lease after the other: a mint comes all the same', async () => {
    await using replicas = await Replica.start(1, server.port, endpoint, { mintTimeoutMs: 2_000 })
    endpoint.gate = new Gate()
    const first = replicas[0]!.mint('acme')
    const key = await untilHeld()
    endpoint.gate.open()
    const held = await first
    await untilFree()
    await during([() => server.cli('set', key, 'stranger', 'px', '1500')], async () => {
      await untilHeld()
      const startedAt = performance.now()
      expect(await replicas[0]!.text('acme', { replaces: held })).toBe('acme.2')
      expect(performance.now() - startedAt).toBeGreaterThanOrEqual(1_800)
    })
  })

  test('because its replica is dead: another mints when the lease ends, in time, and asks no more after a failure', async () => {
    const silent = Object.assign(new Endpoint(), { latencyMs: 60_000 })
    for (const fails of [false, true]) {
      const org = `org-${fails}`
      await using dying = new Replica(server.port, silent, { mintTimeoutMs: 2_000 })
      dying.mint(org).catch(() => undefined)
      await untilHeld()
      await using replicas = await Replica.start(2, server.port, endpoint, { mintTimeoutMs: 2_000 })
      if (fails) endpoint.failure = () => new TokenError('token_endpoint_unavailable', 'it failed')
      const startedAt = performance.now()
      const results = await Promise.allSettled(replicas.map((replica) => replica.mint(org)))
      expect(performance.now() - startedAt).toBeLessThan(scaled(2_000))
      expect(results.map(({ status }) => status)).toEqual(Array(2).fill(fails ? 'rejected' : 'fulfilled'))
      const claims = () =>
        replicas.flatMap(({ told }) => told.asked.filter((asked) => asked.startsWith('claim'))).length
      await passed(200) // a claim may be under way
      const before = claims()
      await passed(400)
      expect(claims(), 'claims after the mint').toBe(before)
    }
  })
})

describe.skipIf(lacks('redis-server'))('nobody waits for a lease for which nobody mints:', () => {
  /** A lease would last for 48 s. */
  const mintTimeoutMs = 60_000

  test('the store gave it too late', async () => {
    await using replicas = await Replica.start(1, server.port, endpoint, { mintTimeoutMs, timeoutMs: 100 })
    await server.cli('client', 'pause', '700', 'all')
    expect(await replicas[0]!.text('acme')).toBe('acme.1')
    // Behind the claim that was paused.
    await server.cli('ping')
    await untilFree()
  })

  test('the connection ended meanwhile', async () => {
    endpoint.gate = new Gate()
    await using replicas = await Replica.start(1, server.port, endpoint, { mintTimeoutMs })
    const minted = replicas[0]!.mint('acme')
    await untilHeld()
    await server.cli('client', 'kill', 'type', 'normal')
    await eventually(() => replicas[0]!.told.lost.length > 0 || undefined, 'the loss of the store')
    endpoint.gate.open()
    await minted
    await untilFree()
  })

  test('the store takes no writes, so that nobody can give it back', async () => {
    endpoint.gate = new Gate()
    await using replicas = await Replica.start(2, server.port, endpoint, { mintTimeoutMs })
    const [one, two] = replicas
    const minted = one!.mint('acme')
    await untilHeld()
    await server.cli('replicaof', '127.0.0.1', '1')
    const other = two!.mint('acme')
    await eventually(() => endpoint.calls.length === 2 || undefined, 'the mint of the other')
    endpoint.gate.open()
    await Promise.all([minted, other])
    await server.cli('replicaof', 'no', 'one')
    await untilFree()
  })
})

describe.skipIf(lacks('redis-server'))('the end of a replica', () => {
  test('waits until its token is published', async () => {
    endpoint.gate = new Gate()
    const [replica] = await Replica.start(1, server.port, endpoint, { timeoutMs: 5_000 })
    const minted = replica!.mint('acme')
    await untilHeld()
    await server.cli('client', 'pause', '1500', 'all')
    endpoint.gate.open()
    await minted
    expect(replica!.told.asked).toEqual(['probe ok', 'claim acquired'])
    await replica!.fleet.close()
    expect(replica!.told.asked).toEqual(['probe ok', 'claim acquired', 'publish ok'])
    expect(await tokenKeys()).toHaveLength(1)
  })
})

describe.skipIf(lacks('redis-server'))('a purge', () => {
  test('of one org deletes its shared token, and touches no other', async () => {
    await using replicas = await Replica.start(2, server.port, endpoint)
    const [one, two] = replicas
    for (const org of ['acme', 'globex']) await one!.mint(org)
    await untilPublished(2)
    two!.fleet.purge([ACME])
    await untilPublished(1)
    expect(await two!.text('globex')).toBe('globex.2')
    expect(await two!.text('acme')).toBe('acme.3')
  })

  test('of all: the replica takes no older token, nor one of an org that it did not hold', async () => {
    await using replicas = await Replica.start(2, server.port, endpoint)
    const [one, two] = replicas
    await one!.mint('acme')
    await untilPublished()
    two!.fleet.purge([], 'all')
    expect(await two!.text('acme')).toBe('acme.2')
  })

  test.each<[string, OrgId[], 'all'?]>([
    ['of its org', [ACME]],
    ['of all', [], 'all'],
  ])('%s overtakes a mint under way: its token is not told', async (_, orgs, all) => {
    endpoint.gate = new Gate()
    await using replicas = await Replica.start(2, server.port, endpoint)
    const [one, two] = replicas
    const minted = one!.text('acme')
    await untilHeld()
    one!.fleet.purge(orgs, all)
    await passed(100) // so that the answer is younger than the purge
    endpoint.gate.open()
    expect(await minted).toBe('acme.1')
    await untilFree()
    expect([await one!.text('acme'), await two!.text('acme')]).toEqual(['acme.2', 'acme.2'])
  })

  test('lasts: neither a rotation nor a store that was away brings the token back', async () => {
    await using replicas = await Replica.start(1, server.port, endpoint, { secret: 'a' })
    const [one] = replicas
    await one!.mint('acme')
    const [key = ''] = await untilPublished()
    const saved = await server.cli('get', key)
    one!.fleet.secretReplaced(new Secret('b'))
    one!.fleet.purge([ACME])
    one!.fleet.secretReplaced(new Secret('a'))
    expect(await server.cli('get', key)).toBe(saved)
    expect(await one!.text('acme')).toBe('acme.2')
  })
})

describe.skipIf(lacks('redis-server'))('a rotation of the App secret', () => {
  test('costs one mint more, and replicas with different secrets neither see nor disturb each other', async () => {
    await using replicas = await Replica.start(4, server.port, endpoint, { secret: 'old' })
    const [one, two, three, stranger] = replicas
    await Promise.all(replicas.map((replica) => replica.mint('acme')))
    for (const { fleet } of [one!, two!, three!]) fleet.secretReplaced(new Secret('new'))
    const rotated = await Promise.all([one!, two!, three!].map((replica) => replica.text('acme')))
    expect(new Set(rotated)).toEqual(new Set(['acme.2']))
    await untilPublished(2)
    // Whoever holds the old secret finds the old token.
    expect(await stranger!.text('acme')).toBe('acme.1')
  })

  test('during a mint: its token is shared under the new secret only, and its lease ends', async () => {
    endpoint.gate = new Gate()
    await using replicas = await Replica.start(3, server.port, endpoint, { secret: 'old' })
    const [one, two, stranger] = replicas
    const minted = one!.text('acme')
    await untilHeld()
    one!.fleet.secretReplaced(new Secret('new'))
    two!.fleet.secretReplaced(new Secret('new'))
    endpoint.gate.open()
    expect(await minted).toBe('acme.1')
    await untilPublished()
    expect(await two!.text('acme')).toBe('acme.1')
    expect(await stranger!.text('acme')).toBe('acme.2')
  })

  test('and back: mints never wait for a lease of before', async () => {
    await using replicas = await Replica.start(1, server.port, endpoint, { secret: 'a', mintTimeoutMs: 60_000 })
    const [one] = replicas
    const startedAt = performance.now()
    let held: AccessToken | undefined
    for (const secret of ['b', 'a', 'b', 'a']) {
      const minted = one!.mint('acme', { replaces: held, reason: 'rejected' })
      one!.fleet.secretReplaced(new Secret(secret))
      held = await minted
    }
    expect(await one!.text('acme', { replaces: held })).toBe('acme.5')
    expect(performance.now() - startedAt).toBeLessThan(15_000)
  })
})
