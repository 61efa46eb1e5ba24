/**
 * The token endpoint is down: orgs with a token notice nothing, others get the error within `tokens.mintTimeout`, then at once, and
 * a recovery is noticed within five seconds.
 */

import { expect, test } from 'vitest'
import { eventually } from '../support/changes.ts'
import { type Answer, KeepAliveClient } from '../support/keep-alive-client.ts'
import { scaled } from '../support/pace.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import type { MintScript } from '../support/token-endpoint.ts'

const FAST_MS = 100
const MINT_TIMEOUT_MS = 2_000
const RECOVERY_MS = 5_000
const ORGS = 8

const outages: [string, MintScript][] = [
  ['resets', ({ request }) => void request.connection.reset()],
  ['answers 503', () => ({ status: 503, closes: true })],
  ['hangs', () => undefined],
]

test.concurrent.each(outages)('it %s', async (_, script) => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'tokens.mintTimeout': `${MINT_TIMEOUT_MS}ms` })
  using warm = new KeepAliveClient(proxy.port)
  expect((await warm.get('/v2/x', 'warm')).status).toBe(200)

  service.tokens.script = script
  let isDown = true
  const fast = Array.from({ length: ORGS }, () => 0)
  const answers: Answer[] = []
  const cold = fast.map(async (_, i) => {
    using client = new KeepAliveClient(proxy.port)
    while (isDown) {
      const answer = await client.get('/v2/x', `cold-${i}`)
      if (!isDown) break
      answers.push(answer)
      if (answer.durationMs < FAST_MS) fast[i] = (fast[i] ?? 0) + 1
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    await eventually(async () => (await client.get('/v2/x', `cold-${i}`)).status === 200, 'a token', 10_000)
    return performance.now()
  })
  const startedAt = performance.now()
  await eventually(
    async () => {
      expect((await warm.get('/v2/x', 'warm')).status).toBe(200)
      return fast.every((count) => count > 20) || undefined
    },
    'answers at once',
    30_000,
  )
  // At most three calls, then a pause of one, two or four seconds.
  const most = 3 * (2 + (performance.now() - startedAt) / 1_000)
  for (const i of fast.keys()) expect(service.tokens.mintsOf(`cold-${i}`).length).toBeLessThanOrEqual(most)
  for (const { content, durationMs } of answers) {
    expect(content).toMatch(/"token_endpoint_(unavailable|timeout)"/)
    expect(durationMs).toBeLessThan(scaled(MINT_TIMEOUT_MS + 500))
  }
  isDown = false
  service.tokens.script = (mint) => mint.issue()
  const backAt = performance.now()
  for (const servedAt of await Promise.all(cold)) expect(servedAt - backAt).toBeLessThan(scaled(RECOVERY_MS))
})
