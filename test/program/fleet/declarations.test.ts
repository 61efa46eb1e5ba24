/** Replicas share the tokens of one declaration of the token request: another scope gives other tokens. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { lacks } from '../../support/programs.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'
import { RedisServer } from '../../units/fleet/redis-server.ts'
import { ask, untilState } from './fleet.ts'

const TWO = 'tokens: { form: { scope: readonly, audience: a } }'

let store: RedisServer
beforeAll(async () => {
  store = await RedisServer.start()
})
afterAll(() => store[Symbol.asyncDispose]())

describe.skipIf(lacks('redis-server')).each([
  ['the same', TWO, 1],
  ['the same, its members in another order', 'tokens: { form: { audience: a, scope: readonly } }', 1],
  ['another scope', 'tokens: { form: { scope: admin, audience: a } }', 2],
  ['no form', '{}', 2],
  ['the same as JSON', 'tokens: { json: { scope: readonly, audience: a } }', 2],
])('two replicas: %s', (_, other, mints) => {
  test(`mints: ${mints}`, async () => {
    await store.cli('flushall')
    await using service = await startService()
    await using one = await startProxy(service, { 'fleet.store': store.url }, { 'proxy.yaml': TWO })
    await using two = await startProxy(service, { 'fleet.store': store.url }, { 'proxy.yaml': other })
    await untilState({ replicas: [one, two] }, 'available')
    for (const replica of [one, two]) expect(await ask(replica, 'acme')).toBe(200)
    expect(service.tokens.mints).toHaveLength(mints)
  })
})
