/**
 * The token endpoint is down: orgs with a token notice nothing, others get an error at once, and a recovery is
 * noticed soon.
 */

import { expect, test } from 'vitest'
import { eventually } from '../support/changes.ts'
import { type Answer, KeepAliveClient } from '../support/keep-alive-client.ts'
import { scaled, scaledSetting } from '../support/pace.ts'
import { type Service, startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import type { MintScript } from '../support/token-endpoint.ts'

const OUTAGE_MS = Math.min(10_000, scaled(2_000))
const FAST_MS = 100
const MINT_TIMEOUT_MS = 1_000
const RECOVERY_MS = 5_000

/** The most mints that are at the endpoint at one time, from now on. */
function concurrencyOf(service: Service, script: MintScript): { peak: number } {
  const seen = { peak: 0 }
  let underway = 0
  service.tokens.script = async (mint) => {
    seen.peak = Math.max(seen.peak, ++underway)
    mint.request.connection.socket.once('close', () => underway--)
    return await script(mint)
  }
  return seen
}

function median(answers: readonly Answer[]): number {
  return answers.map((answer) => answer.durationMs).toSorted((a, b) => a - b)[Math.floor(answers.length / 2)] ?? 0
}

const outages: [string, MintScript][] = [
  ['resets', ({ request }) => void request.connection.reset()],
  ['answers 503', () => ({ status: 503, closes: true })],
  ['hangs', () => undefined],
]

test.concurrent.each(outages)('it %s', async (_, script) => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'tokens.mintTimeout': scaledSetting(MINT_TIMEOUT_MS) })
  using warm = new KeepAliveClient(proxy.port)
  using cold = new KeepAliveClient(proxy.port)
  expect((await warm.get('/v2/x', 'warm')).status).toBe(200)

  service.tokens.script = script
  let orgs = 0
  const failing = () =>
    Promise.all(
      Array.from({ length: 8 }, async () => {
        using client = new KeepAliveClient(proxy.port)
        return await client.get('/v2/x', `first-${++orgs}`)
      }),
    )
  await eventually(
    async () => {
      expect((await failing()).filter((answer) => answer.status < 500)).toEqual([])
      return proxy.output.includes('"msg":"mints paused"') || undefined
    },
    'the endpoint given up',
    10_000,
  )

  const seen = concurrencyOf(service, script)
  const mintsBefore = service.tokens.mints.length
  const answers: Answer[] = []
  const startedAt = performance.now()
  const endsAt = startedAt + OUTAGE_MS
  let warmed = 0
  while (performance.now() < endsAt) {
    const [mine, other] = await Promise.all([warm.get('/v2/x', 'warm'), cold.get('/v2/x', `cold-${++orgs}`)])
    expect(mine.status).toBe(200)
    expect(other.status).toBe(503)
    expect(other.content).toContain('"token_endpoint_unavailable"')
    expect(other.head).toMatch(/\r\nretry-after: \d+\r\n/i)
    answers.push(other)
    warmed += 1
    await new Promise((resolve) => setTimeout(resolve, 3))
  }
  expect(warmed).toBeGreaterThan(25)
  expect(median(answers)).toBeLessThan(scaled(FAST_MS / 2))
  // Only probes wait for the endpoint, and a busy machine may delay a few others. None waits the second that a mint may take.
  const probes = service.tokens.mints.length - mintsBefore
  const slow = answers.filter((answer) => answer.durationMs > scaled(FAST_MS)).map((answer) => answer.durationMs)
  expect(slow.length, `slower than ${FAST_MS} ms: ${slow}`).toBeLessThanOrEqual(probes + answers.length / 20)
  expect(Math.max(0, ...slow)).toBeLessThan(scaled(MINT_TIMEOUT_MS * 0.75))
  // Orgs that have failed and those that have not take turns of their own. A probe that hangs makes way for the next.
  expect(seen.peak, 'probes at a time').toBeLessThanOrEqual(2 + OUTAGE_MS / scaled(MINT_TIMEOUT_MS))
  // Pauses of a quarter of a second and more, each with one probe at its end.
  expect(probes).toBeLessThanOrEqual((performance.now() - startedAt) / 180 + 1)

  service.tokens.script = (mint) => mint.issue()
  const wellAt = performance.now()
  await eventually(
    async () => (await cold.get('/v2/x', `new-${++orgs}`)).status === 200 || undefined,
    'recovery',
    scaled(8_000),
  )
  expect(performance.now() - wellAt).toBeLessThan(scaled(RECOVERY_MS))
})

test.concurrent('the whole service stops and comes back: few mints at once, and every org is served', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'tokens.mintTimeout': scaledSetting(1_000) })
  const { port } = service.origin
  await service.origin.stop()
  using client = new KeepAliveClient(proxy.port)
  const startedAt = performance.now()
  for (let i = 0; performance.now() - startedAt < 2_000; i++) {
    expect((await client.get('/v2/x', `org-${i % 40}`)).status).toBe(503)
  }
  await service.origin.listen(port)
  const backAt = performance.now()
  const clients = Array.from({ length: 40 }, () => new KeepAliveClient(proxy.port))
  await Promise.all(
    clients.map((each, i) =>
      eventually(async () => (await each.get('/v2/x', `org-${i}`)).status === 200 || undefined, `org-${i}`, 8_000),
    ),
  )
  expect(performance.now() - backAt).toBeLessThan(scaled(RECOVERY_MS))
  // Nobody waits for a slow probe; its org asks again.
  expect(service.tokens.mints.length).toBeLessThanOrEqual(45)
  for (const each of clients) each[Symbol.dispose]()
})
