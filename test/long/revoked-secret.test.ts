/** The service revokes the App secret under load: an operator is told within two minutes, and no replica leaves its Service. */

import { expect, test } from 'vitest'
import { eventually } from '../support/changes.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

test('the warning comes after a minute, and ends with the first token', { timeout: 180_000 }, async () => {
  let isRevoked = false
  await using service = await startService({
    mint: ({ org }) => {
      if (isRevoked) return { status: 401 }
      return { content: JSON.stringify({ orgAccessToken: service.tokens.issueToken(org), expires_in: 10 }) }
    },
  })
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0' })
  using client = new KeepAliveClient(proxy.port)
  const ask = async () => [(await client.get('/v2/x', 'a')).status, (await client.get('/v2/x', 'b')).status]
  const isTold = () => proxy.metric('oap_warnings{code="app_credentials_rejected"}')
  expect(await ask()).toEqual([200, 200])
  isRevoked = true
  const startedAt = performance.now()
  await eventually(async () => ((await ask()) && (await isTold()) === 1 ? true : undefined), 'the warning', 110_000)
  expect(performance.now() - startedAt).toBeGreaterThan(60_000)
  expect((await proxy.askAdmin('/status')).content).toContain('It accepted them before')
  expect((await proxy.askAdmin('/readyz')).status).toBe(200)
  isRevoked = false
  await eventually(async () => ((await ask()).join() === '200,200' ? true : undefined), 'tokens', 15_000)
  expect(await isTold()).toBe(0)
})
