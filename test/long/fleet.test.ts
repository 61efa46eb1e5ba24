/** Steady traffic over several lifetimes. */

import { describe, expect, test } from 'vitest'
import { FleetUnderTest, untilState } from '../program/fleet/fleet.ts'
import { lacks } from '../support/programs.ts'
import { startService } from '../support/service.ts'
import { RedisServer } from '../units/fleet/redis-server.ts'

const REPLICAS = 10
const LIFETIME_MS = 2_000
const LIFETIMES = 5

describe.skipIf(lacks('redis-server'))('steady traffic through ten replicas', () => {
  test.concurrent.each([
    ['a service that keeps a token for its lifetime', false],
    ['a service that ends a token when it issues the next', true],
  ])('%s: every request is answered, and an org costs about one mint per lifetime', async (_, ends) => {
    await using service = await startService({
      mint: (mint) => {
        if (ends) service.tokens.revoke(mint.org)
        return mint.issue()
      },
    })
    await using server = await RedisServer.start()
    // Where a new token ends the one before, the life is learned: such ends must not show a shorter one.
    const settings = { 'fleet.timeout': '2s', 'tokens.lifetime': ends ? 'auto' : `${LIFETIME_MS}ms` }
    await using fleet = await FleetUnderTest.start(REPLICAS, service, server, settings)
    await untilState(fleet, 'available')
    const statuses = new Map<number, number>()
    const startedAt = performance.now()
    while (performance.now() - startedAt < LIFETIMES * LIFETIME_MS) {
      for (const status of await fleet.askAll('acme')) statuses.set(status, (statuses.get(status) ?? 0) + 1)
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
    const lifetimes = (performance.now() - startedAt) / LIFETIME_MS
    expect([...statuses.keys()]).toEqual([200])
    // The first mint counts, and the last lifetime has not ended.
    expect(service.tokens.mintsOf('acme').length).toBeLessThanOrEqual(1 + 1.1 * lifetimes)
  })
})
