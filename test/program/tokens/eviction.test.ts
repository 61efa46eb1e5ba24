/** More orgs than tokens in the cache: the least recently used token is evicted, and requests in flight keep theirs. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { RawClient } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

test('a request whose org is evicted meanwhile ends with the token that it began with', async () => {
  const gate = new Gate()
  await using service = await startService({
    script: async (received) => {
      if (received.target === '/v2/held') await gate.pass()
      return { content: service.orgOf(received) ?? '' }
    },
  })
  await using proxy = await startProxy(service, { 'tokens.maxOrgs': '2' })
  await using held = await RawClient.sending(proxy.port, get('/v2/held', 'held'))
  await service.origin.waitFor(() => service.requests.length === 1)
  using client = new KeepAliveClient(proxy.port)
  for (let i = 0; i < 5; i++) expect((await client.get('/v2/x', `org-${i}`)).content).toBe(`org-${i}`)
  gate.open()
  expect((await held.response()).content.toString()).toBe('held')
  expect(service.tokens.mintsOf('held')).toHaveLength(1)
})

test('an org that is evicted while its token is rejected gets one new token, however many requests are rejected', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'tokens.maxOrgs': '1' })
  using client = new KeepAliveClient(proxy.port)
  expect((await client.get('/v2/x', 'acme')).status).toBe(200)
  service.tokens.revoke('acme')
  const clients = Array.from({ length: 50 }, () => new KeepAliveClient(proxy.port))
  const answers = await Promise.all(clients.map((each, i) => each.get('/v2/x', i % 5 === 4 ? `other-${i}` : 'acme')))
  for (const each of clients) each[Symbol.dispose]()
  expect(answers.filter((answer) => answer.status !== 200)).toEqual([])
  // acme is evicted again and again, so it may need a few mints, but never one for each of its forty requests.
  expect(service.tokens.mintsOf('acme').length).toBeLessThanOrEqual(12)
})
