/** Steady traffic over several lifetimes. */

import { describe, expect, test } from 'vitest'
import { lacks } from '../support/programs.ts'
import { startService } from '../support/service.ts'
import { FleetUnderTest, untilState } from './fleet.ts'
import { RedisServer } from './redis-server.ts'

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
    const lifetime = {
      'tokens.lifetime': `${LIFETIME_MS}ms`,
    }
    // Without trials, which use a few tokens beyond their lifetime and would lower the counts.
    const settings = { 'fleet.timeout': '2s', ...lifetime, 'tokens.learn': ends ? 'true' : 'false' }
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
    for (const replica of fleet.replicas) {
      // Tokens that their successor ended do not show a shorter lifetime.
      expect(await replica.metric('oap_token_lifetime_estimate_seconds')).toBeGreaterThanOrEqual(
        LIFETIME_MS / 1_000 - 0.1,
      )
    }
  })
})
