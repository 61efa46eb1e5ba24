/** The protocol of sharing under random faults of a real store. `FLEET_SEED` repeats a run. */

import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer, connect as open, type Socket } from 'node:net'
import { expect, test } from 'vitest'
import type { AccessToken } from '../../src/token/token-source.ts'
import { scaled } from '../support/pace.ts'
import { lacks } from '../support/programs.ts'
import { RedisServer } from './redis-server.ts'
import { Endpoint, passed, Replica, textOf } from './replicas.ts'

const { FLEET_SEED } = process.env
const SEEDS = [FLEET_SEED ?? String(Date.now() % 100_000), '1', '2']
const REPLICAS = 5
const ORGS = ['acme', 'globex', 'initech']
const LIFE_MS = 800
const ROUNDS = 60

/** Mulberry32. */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

/** Stands between the replicas and the store, to delay what they say and to end connections. */
async function startRelay(storePort: number) {
  const sockets = new Set<Socket>()
  let delayMs = 0
  const pass = (from: Socket, to: Socket) => {
    let passedOn = Promise.resolve()
    sockets.add(from)
    from.on('error', () => undefined)
    from.on('close', () => sockets.delete(from) && passedOn.then(() => to.destroy()))
    from.on('data', (chunk) => {
      const dueAt = performance.now() + delayMs
      passedOn = passedOn.then(() => passed(dueAt - performance.now())).then(() => void to.write(chunk))
    })
  }
  const server = createServer((client) => {
    const store = open(storePort, '127.0.0.1')
    pass(client, store)
    pass(store, client)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const endConnections = () => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: (server.address() as AddressInfo).port,
    slowDown: (ms: number) => {
      delayMs = ms
    },
    endConnections,
    [Symbol.asyncDispose]: async () => {
      endConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

test.skipIf(lacks('redis-server')).each(SEEDS)(
  'random faults of the store, seed %s: no request fails, none gets a token past its life, and mints stay few',
  async (seed) => {
    const random = seeded(Number(seed))
    await using server = await RedisServer.start()
    await using relay = await startRelay(server.port)
    const endpoint = new Endpoint()
    const issuedAt = new Map<string, number>()
    const issue = endpoint.issue
    endpoint.issue = (text, mintedAt) => {
      issuedAt.set(text, performance.now())
      return issue(text, mintedAt)
    }
    const timeoutMs = scaled(100)
    await using replicas = await Replica.start(REPLICAS, relay.port, endpoint, { timeoutMs })
    const held = new Map<string, AccessToken>()
    let faults = 0

    async function use(replica: Replica, i: number, org: string): Promise<void> {
      const key = `${i} ${org}`
      const before = held.get(key)
      if (before !== undefined && performance.now() - before.mintedAt < LIFE_MS) return
      const askedAt = performance.now()
      const token = await replica.mint(org, { replaces: before, reason: 'expired', expectedLifeMs: LIFE_MS })
      expect(askedAt - (issuedAt.get(textOf(token)) ?? Number.NaN), 'the age when it was asked for').toBeLessThan(
        LIFE_MS,
      )
      // Never younger than it is, but for the time of one answer of the store.
      expect(token.mintedAt - (issuedAt.get(textOf(token)) ?? Number.NaN)).toBeLessThan(timeoutMs + 20)
      held.set(key, token)
    }

    const startedAt = performance.now()
    for (let round = 0; round < ROUNDS; round += 1) {
      const fault = random()
      if (fault < 0.3) faults += 1
      if (fault < 0.1) relay.endConnections()
      else if (fault < 0.2) relay.slowDown(timeoutMs * 4 * random())
      else if (fault < 0.3) await server.cli('flushall')
      else if (fault > 0.6) relay.slowDown(0)
      const asked = replicas.flatMap((replica, i) =>
        ORGS.filter(() => random() < 0.5).map((org) => use(replica, i, org)),
      )
      await Promise.all(asked)
      await passed(random() * 60)
    }
    const lives = Math.ceil((performance.now() - startedAt) / LIFE_MS)
    // Without a store, each replica mints for each org and life.
    expect(endpoint.calls.length).toBeLessThan(lives * ORGS.length * REPLICAS)
    console.log(`${faults} faults: ${endpoint.calls.length} mints in ${lives} lives of ${ORGS.length} orgs`)
  },
)
