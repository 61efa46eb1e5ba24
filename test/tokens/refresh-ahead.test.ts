/** Under steady traffic nobody waits for a token after the first request, and no client sees an aged one rejected. */

import { afterAll, expect, test } from 'vitest'
import { type OrgStats, type Sandbox, startSandbox } from '../../src/sandbox/sandbox.ts'
import { eventually } from '../support/changes.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { type ProxyProcess, type ProxyProcessOptions, startProxyProcess } from '../support/proxy-process.ts'

const LIFETIME_MS = 2_000
const TRAFFIC_MS = 8_000
const MINT_LATENCY_MS = 50

const clients: KeepAliveClient[] = []
afterAll(() => {
  for (const client of clients.splice(0)) client[Symbol.dispose]()
})

function startBefore(sandbox: Sandbox, settings: ProxyProcessOptions['settings'] = {}): Promise<ProxyProcess> {
  return startProxyProcess(sandbox, {
    settings: { 'tokens.lifetime': `${LIFETIME_MS}ms`, 'tokens.minLifetime': '500ms', ...settings },
  })
}

/** Statuses that came, by how often. Each client has a pause behind each answer, so that there is always a next request soon. */
async function sendSteadily(
  proxy: ProxyProcess,
  connections: number,
  durationMs: number,
): Promise<Map<number, number>> {
  const statuses = new Map<number, number>()
  const endsAt = performance.now() + durationMs
  const one = async () => {
    const client = new KeepAliveClient(proxy.port)
    clients.push(client)
    while (performance.now() < endsAt) {
      const { status } = await client.get('/v2/example/endpoint', 'acme')
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }
  await Promise.all(Array.from({ length: connections }, one))
  return statuses
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

// A tenth of two seconds is all the time there is: a machine that stalls for longer than that gets another try.
test.concurrent.each(['true', 'false'])(
  'tokens of two seconds, tokens.learn %s',
  { timeout: 60_000, retry: 2 },
  async (learn) => {
    await using sandbox = await startSandbox({ tokenLifetimeMs: LIFETIME_MS, mintLatencyMs: MINT_LATENCY_MS })
    await using proxy = await startBefore(sandbox, { 'tokens.learn': learn })
    const statuses = await sendSteadily(proxy, 1, 50)
    expect(statuses).toEqual(new Map([[200, expect.any(Number)]]))
    const more = await sendSteadily(proxy, 8, TRAFFIC_MS)
    expect([...more.keys()]).toEqual([200])

    const acme = statsOf(sandbox)
    const results = lookups(proxy)
    expect(results.get('miss'), 'requests that waited for a mint').toBe(1)
    expect(results.get('joined'), 'requests that waited for the mint of another').toBeUndefined()
    expect(results.get('refreshing') ?? 0).toBeGreaterThan(0)
    expect(acme?.peakConcurrentMints).toBe(1)
    // One for each life of at least nine tenths, and the first; while learning, the lives may be found out anew.
    const lives = TRAFFIC_MS / (LIFETIME_MS * 0.9)
    expect(acme?.mints).toBeLessThanOrEqual(Math.ceil(lives * 1.25) + 1)
    expect(acme?.mints).toBeGreaterThanOrEqual(Math.floor(TRAFFIC_MS / LIFETIME_MS))
    // Tokens are tried past their end only where their lifetime is being learned, and then the repeat has a new one at hand.
    if (learn === 'false') expect(acme?.rejected).toBe(0)
    else expect(acme?.rejected).toBeLessThanOrEqual(Math.ceil(lives))
  },
)

test.concurrent('a refresh that fails is tried again after growing pauses, not for each request', {
  timeout: 30_000,
}, async () => {
  await using sandbox = await startSandbox({ tokenLifetimeMs: 60_000 })
  // Ten minutes would pass before the first refresh: the estimate is made short instead, the token stays good.
  await using proxy = await startBefore(sandbox, {
    'tokens.lifetime': '1s',
    'tokens.learn': 'false',
    'tokens.mintTimeout': '100ms',
  })
  await sendSteadily(proxy, 1, 50)
  sandbox.set({ mintFaults: [{ kind: 'status', status: 503 }] })
  const statuses = await sendSteadily(proxy, 4, 6_000)
  expect([...statuses.keys()]).toEqual([200])
  expect([...statuses.values()][0]).toBeGreaterThan(100)
  const failing = statsOf(sandbox)?.mints ?? 0
  expect(failing).toBeGreaterThanOrEqual(3)
  expect(failing, 'mints in five seconds of failing').toBeLessThanOrEqual(14)
  expect(statsOf(sandbox)?.peakConcurrentMints).toBe(1)

  sandbox.set({ mintFaults: [] })
  await eventually(
    async () => {
      await sendSteadily(proxy, 1, 100)
      return statsOf(sandbox)?.tokens === 2 || undefined
    },
    'the refresh done',
    8_000,
  )
})
