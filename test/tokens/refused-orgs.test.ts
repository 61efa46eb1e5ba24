/**
 * The token endpoint refuses an org: the refusal is remembered for a while, for that org alone, apart from the
 * tokens.
 */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { problemOf, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const TTL_MS = 1_000

test.concurrent('one mint per tokens.refusalTtl; other orgs are served', async () => {
  await using service = await startService({
    mint: (mint) => (mint.org === 'unlinked' ? { status: 403 } : mint.issue()),
  })
  await using proxy = await startProxy(service, { 'tokens.refusalTtl': `${TTL_MS}ms` })
  using client = new KeepAliveClient(proxy.port)
  const startedAt = performance.now()
  expect((await client.get('/v2/x', 'unlinked')).status).toBe(403)
  const firstMintedAt = performance.now()
  while (performance.now() < startedAt + TTL_MS / 2) {
    const refused = await client.get('/v2/x', 'unlinked')
    expect(refused.content).toContain('"org_access_refused"')
    expect((await client.get('/v2/x', 'linked')).status).toBe(200)
  }
  expect(service.tokens.mintsOf('unlinked')).toHaveLength(1)
  await eventually(async () => {
    expect((await client.get('/v2/x', 'unlinked')).status).toBe(403)
    return service.tokens.mintsOf('unlinked').length === 2 || undefined
  }, 'the endpoint asked again')
  expect(performance.now() - firstMintedAt).toBeLessThan(TTL_MS + 1_000)
})

test.concurrent('an org that was linked meanwhile is served after tokens.refusalTtl', async () => {
  let isLinked = false
  await using service = await startService({ mint: (mint) => (isLinked ? mint.issue() : { status: 404 }) })
  await using proxy = await startProxy(service, { 'tokens.refusalTtl': `${TTL_MS}ms` })
  using client = new KeepAliveClient(proxy.port)
  expect((await client.get('/v2/x', 'acme')).status).toBe(403)
  isLinked = true
  await eventually(async () => (await client.get('/v2/x', 'acme')).status === 200 || undefined, 'the org served')
  expect(service.tokens.mints).toHaveLength(2)
})

test.concurrent('many waiting requests share the refusal', async () => {
  await using service = await startService({ mint: () => ({ status: 403 }) })
  await using proxy = await startProxy(service, { 'tokens.refusalTtl': '10m' })
  const answers = await Promise.all(Array.from({ length: 200 }, () => request(proxy.port, get('/v2/x', 'acme'))))
  expect(new Set(answers.map((answer) => problemOf(answer).code))).toEqual(new Set(['org_access_refused']))
  expect(service.tokens.mints).toHaveLength(1)
})

test.concurrent('refusals evict no token', async () => {
  await using service = await startService({
    mint: (mint) => (mint.org.startsWith('known') ? mint.issue() : { status: 404 }),
  })
  await using proxy = await startProxy(service, { 'tokens.maxOrgs': '5', 'tokens.mintRate': '10000' })
  using client = new KeepAliveClient(proxy.port)
  const known = Array.from({ length: 5 }, (_, i) => `known-${i}`)
  for (const org of known) expect((await client.get('/v2/x', org)).status).toBe(200)
  for (let i = 0; i < 500; i++) expect((await client.get('/v2/x', `unknown-${i}`)).status).toBe(403)
  for (const org of known) expect((await client.get('/v2/x', org)).status).toBe(200)
  for (const org of known) expect(service.tokens.mintsOf(org)).toHaveLength(1)
})
