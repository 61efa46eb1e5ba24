import { describe, expect, test } from 'vitest'
import { loadConfig } from '../../src/config/load.ts'
import { makeFolder } from './folder.ts'
import { GOOD, refusalWith } from './refusal.ts'

async function fleetWith(variables: Record<string, string>) {
  const { config, warnings } = await loadConfig({ env: { ...GOOD, ...variables } })
  return { fleet: config.fleet, warnings: warnings.filter((line) => line.startsWith('fleet.')) }
}

describe('fleet.store', () => {
  test.each([
    ['redis://localhost', { kind: 'tcp', host: 'localhost', port: 6379, tls: false, database: 0 }],
    ['redis://127.0.0.1:7000/3', { kind: 'tcp', host: '127.0.0.1', port: 7000, tls: false, database: 3 }],
    ['rediss://cache.internal:6380/', { kind: 'tcp', host: 'cache.internal', port: 6380, tls: true, database: 0 }],
    ['redis://[::1]:6379', { kind: 'tcp', host: '::1', port: 6379, tls: false, database: 0 }],
    ['redis+unix:///run/redis.sock', { kind: 'unix', path: '/run/redis.sock', database: 0 }],
  ])('%s', async (store, expected) => {
    expect((await fleetWith({ OAP_FLEET_STORE: store })).fleet.store).toEqual(expected)
  })

  test.each(['redis://user:hunter2@host', 'redis://:hunter2@host', 'rediss://hunter2@host', 'redis://@host'])(
    '%s is refused, and its password is not repeated',
    async (store) => {
      const [line, ...others] = await refusalWith({ OAP_FLEET_STORE: store })
      expect(others).toEqual([])
      expect(line).toContain('fleet.store (OAP_FLEET_STORE): holds a user name or password')
      expect(line).not.toContain('hunter2')
    },
  )

  test.each([
    'localhost:6379',
    'http://localhost:6379',
    'redis://',
    'redis://host/name',
    'redis://host?db=1',
    'redis+unix://run/redis.sock',
    'redis+unix:///',
    'redis://host:0',
  ])('%s is refused', async (store) => {
    expect(await refusalWith({ OAP_FLEET_STORE: store })).toEqual([expect.stringContaining('fleet.store (')])
  })
})

test.each([
  [{ OAP_FLEET_STORE: 'redis://host/1', OAP_FLEET_CLUSTER: 'true' }, 'names a database'],
  [{ OAP_FLEET_STORE: 'redis+unix:///run/a', OAP_FLEET_CLUSTER: 'true' }, 'is a unix socket'],
  [{ OAP_FLEET_PREFIX: 'a{b}' }, 'is not 1 to 64 letters'],
  [{ OAP_FLEET_PASSWORD_FILE: '/nowhere/password' }, 'fleet.passwordFile (OAP_FLEET_PASSWORD_FILE): '],
])('%j is refused', async (variables, expected) => {
  expect(await refusalWith(variables as unknown as Record<string, string>)).toEqual([expect.stringContaining(expected)])
})

test('the password comes from its file', async () => {
  await using folder = await makeFolder()
  const file = await folder.write('password', 'sesame\n')
  const { fleet } = await fleetWith({ OAP_FLEET_STORE: 'redis://localhost', OAP_FLEET_PASSWORD_FILE: file })
  expect(fleet.password?.reveal()).toBe('sesame')
})

test.each([
  [{ OAP_FLEET_STORE: 'redis://cache.internal' }, 'is not encrypted'],
  [{ OAP_FLEET_USERNAME: 'oap' }, 'has no effect without fleet.store'],
])('%j is permitted with a warning', async (variables, expected) => {
  const { warnings } = await fleetWith(variables as unknown as Record<string, string>)
  expect(warnings).toEqual([expect.stringContaining(expected)])
})

test('there is no store by default', async () => {
  expect((await fleetWith({})).fleet).toMatchObject({ store: undefined, timeout: 100, prefix: 'oap', cluster: false })
})
