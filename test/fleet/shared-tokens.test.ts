/** Replicas that share one store, by a virtual clock. */

import { describe, expect, test } from 'vitest'
import { TokenError } from '../../src/errors.ts'
import { FleetKeys } from '../../src/fleet/sealing.ts'
import { SharedTokens } from '../../src/fleet/shared-tokens.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { Secret } from '../../src/secret.ts'
import { AccessToken, OverBudget } from '../../src/token/token-source.ts'
import { chooseSeed, Random } from '../support/seed.ts'
import { type Passage, World } from './fleet-world.ts'
import { MemoryStore } from './memory-store.ts'

function newWorld(replicas: number): World {
  const random = new Random(chooseSeed())
  const world = new World({ random: () => random.next() })
  for (let i = 0; i < replicas; i += 1) world.addReplica()
  return world
}

/** Runs the world until all of these have settled. */
async function outcome<T>(world: World, work: Promise<T>): Promise<T> {
  const settled = work.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  )
  await world.time.run()
  const result = await settled
  if ('error' in result) throw result.error
  return result.value
}

const texts = (tokens: readonly AccessToken[]) => tokens.map((token) => token.reveal())

describe('a good store', () => {
  test('20 cold replicas mint once, and all get that token', async () => {
    const world = newWorld(20)
    const tokens = await outcome(world, Promise.all(world.replicas.map((replica) => replica.mint('acme'))))
    expect(world.endpoint.calls).toHaveLength(1)
    expect(new Set(texts(tokens))).toEqual(new Set(['Bearer tok.acme.1']))
  })

  test('the age of a token needs no shared clock', async () => {
    const world = newWorld(2)
    const [one, two] = world.replicas
    await outcome(world, one!.mint('acme'))
    const mintedAt = world.endpoint.calls[0]!.startedAt
    world.time.now += 60_000
    const token = await outcome(world, two!.mint('acme'))
    const ageMs = two!.now() - token.mintedAt
    expect(Math.abs(ageMs - (world.time.now - mintedAt))).toBeLessThan(10)
  })

  test('one mint after a rejection: the other replicas take the successor', async () => {
    const world = newWorld(5)
    const held = await outcome(world, Promise.all(world.replicas.map((replica) => replica.mint('acme'))))
    const next = world.replicas.map((replica, index) =>
      replica.mint('acme', { replaces: held[index], reason: 'rejected' }),
    )
    const tokens = await outcome(world, Promise.all(next))
    expect(world.endpoint.calls).toHaveLength(2)
    expect(new Set(texts(tokens))).toEqual(new Set(['Bearer tok.acme.2']))
  })

  test('a token older than the own one is not used', async () => {
    const world = newWorld(2)
    const [one, two] = world.replicas
    await outcome(world, one!.mint('acme'))
    world.time.now += 10_000
    // Minted while the store was away.
    const younger = new AccessToken('tok.acme.own', two!.now() - 1_000)
    const token = await outcome(world, two!.mint('acme', { replaces: younger }))
    expect(token.reveal()).toBe('Bearer tok.acme.2')
  })

  test('a token past the lifetime is not used, also by a replica without one', async () => {
    const world = newWorld(2)
    const [one, two] = world.replicas
    await outcome(world, one!.mint('acme'))
    world.time.now += 300_000
    await outcome(world, two!.mint('acme'))
    expect(world.endpoint.calls).toHaveLength(2)
  })

  test('tokens from before a purge are not used', async () => {
    const world = newWorld(2)
    const [one, two] = world.replicas
    await outcome(world, one!.mint('acme'))
    world.time.now += 1_000
    two!.purgedAt = two!.now()
    await outcome(world, two!.mint('acme'))
    expect(world.endpoint.calls).toHaveLength(2)
  })

  test('the stated end of a token is shared with it', async () => {
    const world = newWorld(2)
    const [one, two] = world.replicas
    world.endpoint.issue = (token, mintedAt) => new AccessToken(token, mintedAt, mintedAt + 40_000)
    await outcome(world, one!.mint('acme'))
    world.time.now += 39_000
    expect((await outcome(world, two!.mint('acme'))).statedLifeMs).toBe(40_000)
    world.time.now += 1_000
    expect((await outcome(world, two!.mint('acme'))).reveal()).toBe('Bearer tok.acme.2')
  })

  test('a refusal reaches replicas that wait, and does not count as their mint', async () => {
    const world = newWorld(20)
    world.endpoint.failure = () => new TokenError('org_access_refused', 'no', { tokenEndpointStatus: 404 })
    const outcomes = Promise.allSettled(world.replicas.map((replica) => replica.mint('acme')))
    for (const result of await outcome(world, outcomes)) {
      expect(result).toMatchObject({ reason: { code: 'org_access_refused', tokenEndpointStatus: 404 } })
    }
    expect(world.endpoint.calls).toHaveLength(1)
  })

  test('an endpoint that issues the same token again is not called by each replica', async () => {
    const world = newWorld(5)
    world.endpoint.issue = (_, mintedAt) => new AccessToken('same', mintedAt)
    const held = await outcome(world, Promise.all(world.replicas.map((replica) => replica.mint('acme'))))
    const again = world.replicas.map((replica, index) => replica.mint('acme', { replaces: held[index] }))
    const tokens = await outcome(world, Promise.all(again))
    expect(new Set(texts(tokens))).toEqual(new Set(['Bearer same']))
    expect(world.endpoint.calls).toHaveLength(2)
  })

  test('a passing failure frees the lease at once, and the next replica tries itself', async () => {
    const world = newWorld(3)
    let failures = 0
    world.endpoint.failure = () =>
      failures++ === 0 ? new TokenError('token_endpoint_unavailable', 'it failed') : undefined
    const results = await outcome(world, Promise.allSettled(world.replicas.map((replica) => replica.mint('acme'))))
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
    expect(world.endpoint.calls).toHaveLength(2)
    expect(world.time.now, 'not the end of a lease').toBeLessThan(1_000)
  })
})

describe('a replica that fails', () => {
  // An endpoint may take as long as `tokens.mintTimeout`. Without a fleet, each replica would get its token.
  test.each([2_000, 3_000, 4_000, 4_700])('waits for an endpoint that takes %d ms: all get a token', async (ms) => {
    const world = newWorld(6)
    world.endpoint.latencyMs = () => ms
    await outcome(world, Promise.all(world.replicas.map((replica) => replica.mint('acme'))))
  })

  test('has no budget left after its wait: it takes the token of another', async () => {
    const world = newWorld(6)
    let calls = 0
    world.endpoint.latencyMs = () => (calls++ === 0 ? 4_500 : 5)
    world.endpoint.failure = () =>
      world.time.now < 4_000 ? new OverBudget('token_endpoint_unavailable', 'over the budget') : undefined
    const tokens = await outcome(world, Promise.all(world.replicas.map((replica) => replica.mint('acme'))))
    expect(new Set(texts(tokens))).toEqual(new Set(['Bearer tok.acme.1']))
  })

  test('dies with the lease: another mints when the lease ends, and in time', async () => {
    const world = newWorld(3)
    const [dying, ...others] = world.replicas
    dying!.mint('acme').catch(() => undefined)
    world.time.at(20, () => {
      dying!.isDead = true
    })
    const startedAt = world.time.now
    const tokens = await outcome(world, Promise.all(others.map((replica) => replica.mint('acme'))))
    expect(texts(tokens)).toEqual(['Bearer tok.acme.2', 'Bearer tok.acme.2'])
    expect(world.time.now - startedAt).toBeLessThan(5_000)
  })

  test('pauses for 10 s with the lease: it does not replace the younger token with its older one', async () => {
    const world = newWorld(2)
    const [paused, other] = world.replicas
    const late = paused!.mint('acme')
    world.time.at(20, () => paused!.freeze(10_000))
    await outcome(world, other!.mint('acme'))
    await outcome(world, late)
    const name = other!.keys.orgName('acme' as OrgId)
    const younger = other!.keys.markOf('acme' as OrgId, 'tok.acme.2')
    expect(world.store.tokens.get(name)?.value.mark).toBe(younger)
  })
})

describe('a bad store', () => {
  test.each<[string, Passage]>([
    ['gone', { kind: 'lost', delayMs: 0 }],
    ['silent, but at work', { kind: 'answer lost', delayMs: 0 }],
    ['too slow', { kind: 'ok', delayMs: 5_000 }],
  ])('%s: each replica mints, one timeout later at most', async (_, passage) => {
    const world = newWorld(3)
    world.passage = () => passage
    const done: number[] = []
    const mints = world.replicas.map(async (replica) => {
      await replica.mint('acme')
      done.push(world.time.now)
    })
    await outcome(world, Promise.all(mints))
    expect(world.endpoint.calls).toHaveLength(3)
    expect(Math.max(...done)).toBeLessThanOrEqual(100 + 50)
  })

  test('slow but alive: replicas still share through it', async () => {
    const world = newWorld(20)
    world.passage = () => ({ kind: 'ok', delayMs: 90 })
    await outcome(world, Promise.all(world.replicas.map((replica) => replica.mint('acme'))))
    expect(world.endpoint.calls).toHaveLength(1)
  })

  test.each([
    ['changed', (sealed: string) => `${sealed.slice(0, 40)}${sealed[40] === 'A' ? 'B' : 'A'}${sealed.slice(41)}`],
    ['cut', (sealed: string) => sealed.slice(0, 40)],
    ['foreign', () => 'hello'],
    ['empty', () => ''],
  ])('a value that was %s counts as absent', async (_, change) => {
    const world = newWorld(2)
    const [one, two] = world.replicas
    await outcome(world, one!.mint('acme'))
    const name = one!.keys.orgName('acme' as OrgId)
    const { value, endsAt } = world.store.tokens.get(name)!
    world.store.tokens.set(name, { value: { ...value, sealed: change(value.sealed) }, endsAt })
    expect((await outcome(world, two!.mint('acme'))).reveal()).toBe('Bearer tok.acme.2')
    expect(world.unusable).toBe(1)
    // The unusable value does not block the new one.
    expect((await outcome(world, one!.mint('acme'))).reveal()).toBe('Bearer tok.acme.2')
  })

  test('a value moved to the key of another org counts as absent', async () => {
    const world = newWorld(2)
    const [one, two] = world.replicas
    await outcome(world, one!.mint('acme'))
    const moved = world.store.tokens.get(one!.keys.orgName('acme' as OrgId))!
    world.store.tokens.set(one!.keys.orgName('globex' as OrgId), moved)
    expect((await outcome(world, two!.mint('globex'))).reveal()).toBe('Bearer tok.globex.2')
    expect(world.unusable).toBe(1)
  })

  test('a span or mark that was changed counts as absent', async () => {
    const world = newWorld(2)
    const [one, two] = world.replicas
    await outcome(world, one!.mint('acme'))
    const name = one!.keys.orgName('acme' as OrgId)
    const stored = world.store.tokens.get(name)!
    for (const change of [{ spanMs: 9_000_000 }, { mark: 'x'.repeat(22) }]) {
      const value = { ...stored.value, ...change }
      world.store.tokens.set(name, { value, endsAt: world.time.now + value.spanMs })
      await outcome(world, two!.mint('acme'))
    }
    expect(world.unusable).toBe(2)
  })

  test('a value that was rolled back is not used by a replica that has seen it replaced', async () => {
    const world = newWorld(1)
    const [one] = world.replicas
    const name = one!.keys.orgName('acme' as OrgId)
    const first = await outcome(world, one!.mint('acme'))
    const old = world.store.tokens.get(name)!
    world.time.now += 1_000
    const second = await outcome(world, one!.mint('acme', { replaces: first }))
    world.time.now += 1_000
    // With a new expiry, so that it looks young.
    world.store.tokens.set(name, { value: old.value, endsAt: world.time.now + old.value.spanMs })
    const third = await outcome(world, one!.mint('acme', { replaces: second }))
    expect(third.reveal()).toBe('Bearer tok.acme.3')
  })

  test('a lease without an end blocks nobody for ever', async () => {
    const world = newWorld(1)
    const [one] = world.replicas
    const name = one!.keys.orgName('acme' as OrgId)
    world.store.leases.set(name, { value: { owner: 'stranger' }, endsAt: Number.POSITIVE_INFINITY })
    await outcome(world, one!.mint('acme'))
    expect(world.time.now).toBeLessThan(5_000)
  })
})

test('replicas with different secrets neither see nor disturb each other', async () => {
  const world = newWorld(0)
  const [old, young] = [world.addReplica('old'), world.addReplica('new')]
  await outcome(world, Promise.all([old.mint('acme'), young.mint('acme')]))
  expect(world.endpoint.calls).toHaveLength(2)
  expect(world.unusable).toBe(0)
})

test('many waits at once, by a real clock, cause no warning of Node, and end with the replica', async () => {
  const warnings: Error[] = []
  const note = (warning: Error) => warnings.push(warning)
  process.on('warning', note)
  const now = () => performance.now()
  const store = new MemoryStore(now)
  const keys = new FleetKeys({ appId: 'app', baseUrl: 'https://api.example', appSecret: new Secret('x') })
  const orgs = Array.from({ length: 20 }, (_, i) => `org-${i}` as OrgId)
  for (const org of orgs) {
    store.leases.set(keys.orgName(org), { value: { owner: 'another' }, endsAt: Number.POSITIVE_INFINITY })
  }
  const source = { mint: () => Promise.reject(new Error('nobody should mint')) }
  const tokens = new SharedTokens(
    {
      store,
      keys,
      timeoutMs: 100,
      mintTimeoutMs: 60_000,
      maxLifetimeMs: 3_600_000,
      maxOrgs: 100,
      lifetimeMs: () => 300_000,
      purgedAt: () => Number.NEGATIVE_INFINITY,
      onUnusable: () => undefined,
      now,
      random: Math.random,
    },
    source,
  )
  const waits = Promise.allSettled(orgs.map((org) => tokens.mint(org)))
  await new Promise((resolve) => setTimeout(resolve, 50))
  await tokens.close()
  for (const wait of await waits) expect(wait).toMatchObject({ reason: { code: 'token_endpoint_unavailable' } })
  await new Promise((resolve) => setImmediate(resolve)) // warnings come later
  process.off('warning', note)
  expect(warnings).toEqual([])
})
