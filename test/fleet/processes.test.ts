/** The built program, as many processes with one real Redis. */

import { expect, test } from 'vitest'
import { scaledSetting } from '../support/pace.ts'
import { lacks } from '../support/programs.ts'
import { startService } from '../support/service.ts'
import { environmentFor, type SpawnedProxy, spawnProxy } from '../support/spawn-proxy.ts'
import { ask } from './fleet.ts'
import { RedisServer } from './redis-server.ts'

const REPLICAS = 20
/** Processes that are started at a time, for a machine with two cores. */
const AT_A_TIME = 5
const FLEET = { OAP_FLEET_TIMEOUT: '5s' }

async function portOf(proxy: SpawnedProxy): Promise<number> {
  const line = await proxy.waitForLine(/"msg":"ready"/, 60_000)
  await proxy.waitForLine(/"msg":"fleet store available"/, 60_000)
  return Number(/:(\d+)$/.exec(JSON.parse(line).address)?.[1])
}

test.skipIf(lacks('redis-server'))('20 cold processes asked for 3 orgs at the same moment: 3 mints', async () => {
  await using service = await startService({
    mint: async (mint) => {
      await new Promise((resolve) => setTimeout(resolve, 30)) // gives others time to mint, too
      return mint.issue()
    },
  })
  await using server = await RedisServer.start()
  await using env = await environmentFor(service)
  const processes: SpawnedProxy[] = []
  try {
    const ports: number[] = []
    while (ports.length < REPLICAS) {
      const batch = Array.from({ length: AT_A_TIME }, () =>
        spawnProxy({
          env: { ...env, ...FLEET, OAP_FLEET_STORE: server.url, OAP_TOKENS_MINT_TIMEOUT: '30s' },
        }),
      )
      processes.push(...batch)
      ports.push(...(await Promise.all(batch.map(portOf))))
    }
    const asked = ports.flatMap((port) => ['acme', 'globex', 'initech'].map((org) => ask({ port }, org)))
    expect(await Promise.all(asked)).toEqual(Array(3 * REPLICAS).fill(200))
  } finally {
    await Promise.all(processes.map((proxy) => proxy[Symbol.asyncDispose]()))
  }
  expect(service.tokens.mints.map(({ org }) => org).toSorted()).toEqual(['acme', 'globex', 'initech'])
})

test.skipIf(lacks('redis-server'))(
  'a process that is asked as soon as it is ready takes its token from the store',
  async () => {
    await using service = await startService()
    await using server = await RedisServer.start()
    await using env = await environmentFor(service)
    const settings = { ...env, OAP_FLEET_STORE: server.url, OAP_FLEET_TIMEOUT: scaledSetting(60) }
    await using first = spawnProxy({ env: settings })
    expect(await ask({ port: await portOf(first) }, 'acme')).toBe(200)
    for (let i = 0; i < 3; i += 1) {
      await using next = spawnProxy({ env: settings })
      expect(await ask(await next.ready(60_000), 'acme')).toBe(200)
    }
    expect(service.tokens.mints).toHaveLength(1)
  },
)
