/**
 * Random hours of a fleet, by a virtual clock: replicas get tokens, lose them, die and pause, while the store answers late,
 * loses writes, and forgets. `TEST_SEED` repeats one run.
 */

import { describe, expect, test } from 'vitest'
import type { AccessToken } from '../../src/token/token-source.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { type Replica, World } from './fleet-world.ts'

const ORGS = ['acme', 'globex', 'initech'] as const
const MINT_TIMEOUT_MS = 5_000
const LEASE_MS = MINT_TIMEOUT_MS / 2
const HORIZON_MS = 60_000
const ROUNDS = 40

interface Held {
  readonly replica: Replica
  readonly tokens: Map<string, AccessToken>
}

interface Wait {
  readonly org: string
  readonly token: string | undefined
  readonly waitedMs: number
  readonly wasFrozen: boolean
}

/** Each replica needs tokens at random moments: a first one, or a replacement. */
async function runHour(world: World, random: Random, freezes: Set<Replica>): Promise<Wait[]> {
  const waits: Wait[] = []
  for (const replica of world.replicas) {
    const held: Held = { replica, tokens: new Map() }
    const underway = new Set<string>()
    for (let i = 0; i < random.integer(5, 15); i += 1) {
      const org = random.pick(ORGS)
      world.time.at(random.integer(0, HORIZON_MS), () => {
        if (replica.isDead || underway.has(org)) return
        underway.add(org)
        const startedAt = world.time.now
        const done = (token: AccessToken | undefined) => {
          underway.delete(org)
          if (token !== undefined) held.tokens.set(org, token)
          waits.push({
            org,
            token: token?.reveal(),
            waitedMs: world.time.now - startedAt,
            wasFrozen: freezes.has(replica),
          })
        }
        replica.mint(org, { replaces: held.tokens.get(org) }).then(done, () => done(undefined))
      })
    }
  }
  await world.time.run()
  return waits
}

function newWorld(random: Random): World {
  const world = new World({ random: () => random.next(), mintTimeoutMs: MINT_TIMEOUT_MS })
  for (let i = 0; i < random.integer(2, 12); i += 1) world.addReplica()
  world.endpoint.latencyMs = () => random.integer(5, 400)
  return world
}

function expectOwnTokens(waits: readonly Wait[]): void {
  for (const { org, token } of waits) if (token !== undefined) expect(token).toMatch(`Bearer tok.${org}.`)
}

describe('a thousand moments of a fleet', () => {
  test('without a fault: never two mints of one org at a time, and each token serves all replicas that need one', async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      await withSeed(async (random) => {
        const world = newWorld(random)
        world.passage = () => ({ kind: 'ok', delayMs: random.integer(1, 40) })
        const waits = await runHour(world, random, new Set())
        expectOwnTokens(waits)
        expect(waits.every(({ token }) => token !== undefined)).toBe(true)
        expect(world.endpoint.mostAtOnce, 'mints of one org at a time').toBe(1)
        expect(world.unusable).toBe(0)
      })
    }
  })

  test('with faults of all kinds: never a wrong org, never a wait beyond the deadline, never a stall after the fault', async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      await withSeed(async (random) => {
        const world = newWorld(random)
        const share = random.next() / 3
        world.passage = () => {
          if (random.chance(share))
            return { kind: random.pick(['lost', 'answer lost'] as const), delayMs: random.integer(0, 300) }
          return { kind: 'ok', delayMs: random.chance(share) ? random.integer(50, 3_000) : random.integer(1, 40) }
        }
        const frozen = new Set<Replica>()
        for (const replica of world.replicas) {
          const fate = random.next()
          if (fate < 0.3) {
            world.time.at(random.integer(0, HORIZON_MS), () => {
              replica.isDead = true
            })
          } else if (fate < 0.5) {
            frozen.add(replica)
            world.time.at(random.integer(0, HORIZON_MS), () => replica.freeze(10_000))
          }
        }
        if (random.chance(0.5)) {
          world.time.at(random.integer(0, HORIZON_MS), () => {
            world.store.tokens.clear()
            world.store.leases.clear()
          })
        }
        const waits = await runHour(world, random, frozen)
        expectOwnTokens(waits)
        for (const { waitedMs, wasFrozen } of waits) {
          if (!wasFrozen) expect(waitedMs).toBeLessThanOrEqual(MINT_TIMEOUT_MS)
        }
        // Afterwards, the fleet works as before.
        world.passage = () => ({ kind: 'ok', delayMs: 2 })
        world.time.now += LEASE_MS + 10_000
        const before = world.endpoint.calls.length
        const living = world.replicas.filter(({ isDead }) => !isDead)
        const fresh = Promise.all(living.map((replica) => replica.mint('hooli')))
        await world.time.run()
        await fresh
        expect(world.endpoint.calls.length - before).toBe(living.length === 0 ? 0 : 1)
      })
    }
  })
})
