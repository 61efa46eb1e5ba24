/** A service that copies new tokens to its back ends: a young token that it rejects is not dead (`tokens.settleTime`). */

import { expect, test } from 'vitest'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

/** Tokens work so long after their mint. */
async function startSlowCopies(delayMs: number) {
  const mintedAt = new Map<string, number>()
  return startService({
    mint: (mint) => {
      const reply = mint.issue()
      mintedAt.set(mint.org, performance.now())
      return reply
    },
    script: (received) => {
      const at = mintedAt.get(received.target.split('/').at(-1) ?? '') ?? 0
      return performance.now() - at < delayMs ? { status: 401 } : { content: 'good' }
    },
  })
}

test('requests wait until the service knows the token: one mint, no rejection, few tries', async () => {
  await using service = await startSlowCopies(600)
  await using proxy = await startProxy(service, { 'tokens.settleTime': '5s' })
  const clients = Array.from({ length: 20 }, () => new KeepAliveClient(proxy.port))
  const answers = await Promise.all(clients.map((client) => client.get('/v2/as/acme', 'acme')))
  for (const client of clients) client[Symbol.dispose]()
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]))
  expect(service.tokens.mintsOf('acme')).toHaveLength(1)
  // Each tries again after a quarter of the token's age, at least 50 ms.
  expect(service.requests.length).toBeLessThanOrEqual(20 * 15)
})
