/**
 * The token endpoint refuses an org: the refusal is remembered for a while, for that org alone, apart from the
 * tokens.
 */

import { expect, test } from 'vitest'
import { eventually } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const TTL_MS = 1_000

test.concurrent('one mint per tokens.refusalTtl; other orgs are served; after it, an org that was linked meanwhile, too', async () => {
  let isLinked = false
  await using service = await startService({
    mint: (mint) => (mint.org === 'acme' && !isLinked ? { status: 403 } : mint.issue()),
  })
  await using proxy = await startProxy(service, { 'tokens.refusalTtl': `${TTL_MS}ms` })
  using client = new KeepAliveClient(proxy.port)
  const startedAt = performance.now()
  expect((await client.get('/v2/x', 'acme')).status).toBe(403)
  const refusedAt = performance.now()
  while (performance.now() < startedAt + TTL_MS / 2) {
    const refused = await client.get('/v2/x', 'acme')
    expect(refused.content).toContain('"org_access_refused"')
    expect((await client.get('/v2/x', 'other')).status).toBe(200)
  }
  expect(service.tokens.mintsOf('acme')).toHaveLength(1)
  isLinked = true
  await eventually(async () => (await client.get('/v2/x', 'acme')).status === 200 || undefined, 'the org served')
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  expect(performance.now() - refusedAt).toBeLessThan(TTL_MS + 1_000)
})
