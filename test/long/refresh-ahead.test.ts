/** With a known lifetime and steady traffic, tokens are replaced before they end. */

import { afterAll, expect, test } from 'vitest'
import { type OrgStats, type Sandbox, startSandbox } from '../../src/sandbox/sandbox.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { type ProxyProcess, startProxyProcess } from '../support/proxy-process.ts'

const MINT_LATENCY_MS = 50

const clients: KeepAliveClient[] = []
afterAll(() => {
  for (const client of clients.splice(0)) client[Symbol.dispose]()
})

/**
 * The number of answers by status, and the duration of the slowest request. Each client makes a short pause after each
 * answer.
 */
async function sendSteadily(
  proxy: ProxyProcess,
  connections: number,
  durationMs: number,
): Promise<{ statuses: Map<number, number>; slowestMs: number }> {
  const statuses = new Map<number, number>()
  let slowestMs = 0
  const endsAt = performance.now() + durationMs
  const one = async () => {
    const client = new KeepAliveClient(proxy.port)
    clients.push(client)
    while (performance.now() < endsAt) {
      const { status, durationMs } = await client.get('/v2/example/endpoint', 'acme')
      slowestMs = Math.max(slowestMs, durationMs)
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }
  await Promise.all(Array.from({ length: connections }, one))
  return { statuses, slowestMs }
}

function statsOf(sandbox: Sandbox): OrgStats | undefined {
  return new Map(Object.entries(sandbox.stats().orgs)).get('acme')
}

function lookups(proxy: ProxyProcess): Map<unknown, number> {
  const results = new Map<unknown, number>()
  for (const { msg, token } of proxy.spawned.logs) {
    if (msg === 'request') results.set(token, (results.get(token) ?? 0) + 1)
  }
  return results
}

// The refresh has a tenth of the lifetime. On a busy machine, it may pass between two requests. So the lifetime is doubled
// until no request took a quarter of that tenth.
test('with tokens.lifetime, only the first request waits for a token, and none is rejected', async () => {
  for (const lifetimeMs of [2_000, 4_000, 8_000]) {
    if (await wasQuietRun(lifetimeMs)) return
  }
})

/** False if the machine was too busy to judge times. Assertions that do not depend on time are made in any case. */
async function wasQuietRun(lifetimeMs: number): Promise<boolean> {
  await using sandbox = await startSandbox({ tokenLifetimeMs: lifetimeMs, mintLatencyMs: MINT_LATENCY_MS })
  await using proxy = await startProxyProcess(sandbox, { settings: { 'tokens.lifetime': `${lifetimeMs}ms` } })
  const first = await sendSteadily(proxy, 1, 50)
  const more = await sendSteadily(proxy, 8, 4 * lifetimeMs)
  const acme = statsOf(sandbox)
  expect([...first.statuses.keys()]).toEqual([200])
  if (more.slowestMs > lifetimeMs / 40) return false

  expect([...more.statuses.keys()]).toEqual([200])
  const results = lookups(proxy)
  // The first mint, and one for each nine tenths of a life.
  const lives = 4 / 0.9
  expect(results.get('miss'), 'requests that waited for a mint').toBeLessThanOrEqual(1)
  expect(results.get('joined') ?? 0, 'requests that waited for the mint of another').toBe(0)
  expect(results.get('refreshing') ?? 0).toBeGreaterThan(0)
  expect(acme?.mints).toBeLessThanOrEqual(Math.ceil(lives * 1.25) + 1)
  expect(acme?.mints).toBeGreaterThanOrEqual(4)
  expect(acme?.rejected).toBe(0)
  return true
}
