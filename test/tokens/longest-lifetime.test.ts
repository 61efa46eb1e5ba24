/** `tokens.maxLifetime`: however long tokens live, each is replaced at this age. */

import { expect, test } from 'vitest'
import { eventually } from '../support/changes.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

test('tokens that never die are replaced at that age', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, {
    'tokens.lifetime': '1s',
    'tokens.minLifetime': '1s',
    'tokens.maxLifetime': '1s',
    'admin.address': 'localhost:0',
  })
  using client = new KeepAliveClient(proxy.port)
  await eventually(
    async () => {
      expect((await client.get('/v2/x', 'acme')).status).toBe(200)
      return service.tokens.mintsOf('acme').length > 4 || undefined
    },
    'four renewals',
    15_000,
  )
  const metrics = await (await fetch(`http://127.0.0.1:${proxy.adminPort}/metrics`)).text()
  expect(metrics).toContain('\noap_token_lifetime_estimate_seconds 1\n')
})
