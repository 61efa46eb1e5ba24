/** Real proxies and a real Redis: a fleet as clients and the token endpoint see it. */

import { writeFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { randomSecret } from '../support/canaries.ts'
import { eventually } from '../support/changes.ts'
import { lacks } from '../support/programs.ts'
import { type Service, startService } from '../support/service.ts'
import { ask, FleetUnderTest, untilState } from './fleet.ts'
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
