/** `check` tries the store and prints the result, and a process that is ready has reached it. */

import { expect, test } from 'vitest'
import { check } from '../../../src/cli/check.ts'
import { scaledSetting } from '../../support/pace.ts'
import { lacks } from '../../support/programs.ts'
import { startService } from '../../support/service.ts'
import { environmentFor, spawnProxy } from '../../support/spawn-proxy.ts'
import { GOOD } from '../../units/config/refusal.ts'
import { RedisServer } from '../../units/fleet/redis-server.ts'
import { ask } from './fleet.ts'

async function checkWith(
  store: string,
  more: Record<string, string> = {},
): Promise<{ readonly code: number | null; readonly line: string | undefined }> {
  let printed = ''
  const env = { ...GOOD, OAP_FLEET_STORE: store, OAP_FLEET_TIMEOUT: '2s', ...more }
  const code = await check({}, env, (text) => (printed += text))
  return { code, line: printed.split('\n').find((line) => line.startsWith('fleet.store: ')) }
}

test.skipIf(lacks('redis-server'))('a store that can be used, and one that refuses', async () => {
  await using server = await RedisServer.start()
  const { port } = server
  expect(await checkWith(server.url)).toEqual({ code: 0, line: `fleet.store: redis://127.0.0.1:${port} can be used` })
  await server.cli('config', 'set', 'requirepass', 'sesame')
  const line = `fleet.store: redis://127.0.0.1:${port} cannot be used: it asks for a password: set fleet.passwordFile (NOAUTH)`
  expect(await checkWith(server.url)).toEqual({ code: 0, line })
})

test.skipIf(lacks('redis-server'))('a store that does not match the settings', async () => {
  await using server = await RedisServer.start()
  const refused = (address: string, why: string) => ({
    code: 0,
    line: `fleet.store: ${address} cannot be used: ${why}`,
  })
  expect(await checkWith(`${server.url}/99`)).toEqual(
    refused(`${server.url}/99`, 'it has no database of this number (ERR)'),
  )
  expect(await checkWith(server.url, { OAP_FLEET_CLUSTER: 'true' })).toEqual(
    refused(server.url, 'it is no cluster, but fleet.cluster is true (ERR)'),
  )
  await using node = await RedisServer.start({ args: ['--cluster-enabled', 'yes'] })
  await node.cli('cluster', 'addslotsrange', '0', '8000')
  const { line } = await checkWith(node.url)
  expect(line).toMatch(/CLUSTERDOWN|it is a cluster/)
})

test('a store that cannot be reached', async () => {
  const line = 'fleet.store: redis://127.0.0.1:1 cannot be used: ECONNREFUSED'
  expect(await checkWith('redis://127.0.0.1:1')).toEqual({ code: 0, line })
})

test.skipIf(lacks('redis-server'))(
  'a process that is asked as soon as it is ready takes its token from the store',
  async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    await using env = await environmentFor(service)
    const settings = { ...env, OAP_FLEET_STORE: server.url, OAP_FLEET_TIMEOUT: scaledSetting(60) }
    await using first = spawnProxy({ env: settings })
    await first.waitForLine(/"msg":"fleet store available"/, 60_000)
    expect(await ask(await first.ready(60_000), 'acme')).toBe(200)
    for (let i = 0; i < 3; i += 1) {
      await using next = spawnProxy({ env: settings })
      expect(await ask(await next.ready(60_000), 'acme')).toBe(200)
    }
    expect(service.tokens.mints).toHaveLength(1)
  },
)
