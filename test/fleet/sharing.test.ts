/** Real proxies and a real Redis: a fleet as clients and the token endpoint see it. */

import { writeFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { Fleet } from '../../src/fleet/fleet.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { Secret } from '../../src/secret.ts'
import { AccessToken, OverBudget } from '../../src/token/token-source.ts'
import { randomSecret } from '../support/canaries.ts'
import { eventually } from '../support/changes.ts'
import { lacks } from '../support/programs.ts'
import { request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { ask, FleetUnderTest, metric, untilState } from './fleet.ts'
import { RedisServer } from './redis-server.ts'

describe.skipIf(lacks('redis-server'))('replicas that share a store', () => {
  test.concurrent('one mint after a rejection: the other replicas take the successor', async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    await using fleet = await FleetUnderTest.start(6, service, server, { 'fleet.timeout': '5s' })
    await untilState(fleet, 'available')
    await fleet.askAll('acme')
    service.tokens.revoke('acme')
    expect(await fleet.askAll('acme')).toEqual(Array(6).fill(200))
    expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  })

  test.concurrent('a purge reaches all replicas', async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    await using fleet = await FleetUnderTest.start(4, service, server, { 'fleet.timeout': '5s' })
    await untilState(fleet, 'available')
    await Promise.all(
      fleet.replicas.map((replica) => eventually(async () => (await reads(replica)) > 0 || undefined, 'its board')),
    )
    await fleet.askAll('acme')
    const [first, ...others] = fleet.replicas
    for (const org of ['acme', 'all']) {
      const before = service.tokens.mintsOf('acme').length
      await request(first!.adminPort, `POST /tokens/purge?org=${org} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
      for (const replica of others) {
        await eventually(
          async () => (await metric(replica, 'oap_cached_tokens')) === 0 || undefined,
          'the purge',
          10_000,
        )
      }
      await fleet.askAll('acme')
      expect(service.tokens.mintsOf('acme')).toHaveLength(before + 1)
    }
  })

  test.concurrent('the mints of all replicas together stay within the rate', async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    const settings = { 'fleet.timeout': '5s', 'tokens.mintRate': '10', 'tokens.mintTimeout': '5s' }
    await using fleet = await FleetUnderTest.start(3, service, server, settings)
    await untilState(fleet, 'available')
    const sinceMs: number[] = []
    const startedAt = performance.now()
    service.tokens.script = (mint) => {
      sinceMs.push(performance.now() - startedAt)
      return mint.issue()
    }
    // Each replica would send 9 of these at once: 27 calls in the first second.
    await Promise.all(
      fleet.replicas.flatMap((replica, r) => [...Array(9).keys()].map((i) => ask(replica, `org-${r}-${i}`))),
    )
    // A call may arrive late on a busy machine, but none before its turn.
    sinceMs.forEach((ms, i) => {
      expect(ms, `call ${i + 1}`).toBeGreaterThan(Math.floor(i / 10) * 1_000 - 50)
    })
    expect(sinceMs.length).toBeGreaterThan(10)
  })

  // Warming tries again after `OverBudget`, and after no other failure.
  test.concurrent('a mint beyond the common rate is over the budget, like one beyond the own rate', async () => {
    await using server = await RedisServer.start()
    const fleet = new Fleet({
      appId: 'app',
      baseUrl: 'https://api.example.com',
      appSecret: new Secret('secret'),
      store: {
        address: { kind: 'tcp', host: '127.0.0.1', port: server.port, tls: false, database: 0 },
        isCluster: false,
        username: undefined,
        password: () => undefined,
        secureContext: undefined,
        prefix: 'oap',
        timeoutMs: 5_000,
      },
      mintTimeoutMs: 1_000,
      mintRate: 0.1,
      maxLifetimeMs: 60_000,
      maxOrgs: 10,
      lifetimeMs: () => 60_000,
      observer: {
        storeAsked: () => undefined,
        storeLost: () => undefined,
        storeBack: () => undefined,
        valueUnusable: () => undefined,
      },
    })
    const source = fleet.rationing({ mint: async (org) => new AccessToken(`token-${org}`, 0) })
    await source.mint('a' as OrgId)
    await expect(source.mint('b' as OrgId)).rejects.toBeInstanceOf(OverBudget)
    await fleet.close()
  })

  test.concurrent('a limit for all orgs that one replica gets applies to all replicas', async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    await using fleet = await FleetUnderTest.start(3, service, server, { 'fleet.timeout': '5s' })
    await untilState(fleet, 'available')
    service.tokens.script = () => ({ status: 429, fields: ['Retry-After', '30'], content: '' })
    const [first, ...others] = fleet.replicas
    // The same answer for a second org shows that the limit is for all.
    expect([await ask(first!, 'a'), await ask(first!, 'b')]).toEqual([503, 503])
    await eventually(async () => (await server.cli('--scan', '--pattern', '*:limit')) !== '' || undefined, 'the limit')
    const before = service.tokens.mints.length
    for (const replica of others) expect(await ask(replica, 'c')).toBe(503)
    expect(service.tokens.mints.length).toBe(before)
  })

  test.concurrent('a new replica gets the lifetime that the others have learned', async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    await using fleet = await FleetUnderTest.start(1, service, server, {
      'fleet.timeout': '5s',
      'tokens.minLifetime': '1s',
    })
    await untilState(fleet, 'available')
    const [first] = fleet.replicas
    const estimate = 'oap_token_lifetime_estimate_seconds'
    for (let death = 0; death < 8; death += 1) {
      for (const org of ['a', 'b', 'c']) await ask(first!, org)
      await new Promise((resolve) => setTimeout(resolve, 1_100))
      service.tokens.revoke()
      if ((await metric(first!, estimate)) < 100) break
    }
    const learned = await metric(first!, estimate)
    expect(learned).toBeLessThan(100)
    const second = await fleet.add(server, { 'fleet.timeout': '5s', 'tokens.minLifetime': '1s' })
    await eventually(
      async () => Math.abs((await metric(second, estimate)) - learned) < learned / 10 || undefined,
      'the lifetime',
    )
    expect(service.tokens.mints.length).toBeGreaterThan(3)
  })

  test.concurrent('replicas with the old and the new secret work side by side, and a replica with both passes tokens on', async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    const settings = { 'fleet.timeout': '5s' }
    await using fleet = await FleetUnderTest.start(2, service, server, settings)
    await untilState(fleet, 'available')
    const [old, both] = fleet.replicas
    expect([await ask(old!, 'proof'), await ask(both!, 'proof')]).toEqual([200, 200])

    // The service accepts both. Only one replica learns of the new one, and a third starts with it.
    const before = service.tokens.appSecret
    const after = randomSecret()
    Object.defineProperty(service.tokens, 'apiKey', {
      get: () => (latestKey === 'before' ? keyOf(service, before) : keyOf(service, after)),
    })
    latestKey = 'after'
    await writeFile(both!.secretFile, after)
    await both!.app.reload()
    await eventually(() => both!.logs.some(({ msg }) => msg === 'secret replaced') || undefined, 'the new secret')
    Object.defineProperty(service.tokens, 'appSecret', { value: after })
    const young = await fleet.add(server, settings)
    await untilState(fleet, 'available')

    expect(await ask(young, 'acme')).toBe(200)
    expect(await ask(both!, 'acme')).toBe(200)
    // The replica that knows both finds the token under the new secret. No other with the new secret mints.
    expect(service.tokens.mintsOf('acme')).toHaveLength(1)
    latestKey = 'before'
    expect(await ask(old!, 'globex')).toBe(200)
    latestKey = 'after'
    expect(await ask(both!, 'globex')).toBe(200)
    expect(await ask(young, 'globex')).toBe(200)
    expect(service.tokens.mintsOf('globex')).toHaveLength(1)
  })
})

let latestKey: 'before' | 'after' = 'before'

function keyOf({ tokens }: Service, secret: string): string {
  return Buffer.from(`${tokens.appId}:${secret}`).toString('base64')
}

async function reads(replica: Parameters<typeof metric>[0]): Promise<number> {
  return await metric(replica, 'oap_fleet_requests_total{operation="board",outcome="ok"}')
}
