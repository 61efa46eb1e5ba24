import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

test('10,000 requests for 100 orgs make exactly 100 mints', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  const sendMany = async (connection: number) => {
    using client = new KeepAliveClient(proxy.port)
    for (let i = 0; i < 200; i++) {
      expect((await client.get('/v2/x', `org-${(connection + i) % 100}`)).status).toBe(200)
    }
  }
  await Promise.all(Array.from({ length: 50 }, (_, connection) => sendMany(connection)))
  expect(service.requests).toHaveLength(10_000)
  expect(service.tokens.mints).toHaveLength(100)
})

test('with room for two tokens in the cache, ten cold orgs at once all get tokens', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'tokens.maxOrgs': '2' })
  const orgs = Array.from({ length: 10 }, (_, i) => `org-${i}`)
  const answers = await Promise.all(orgs.map((org) => request(proxy.port, get('/v2/x', org))))
  expect(answers.map((answer) => answer.status)).toEqual(orgs.map(() => 200))
  expect(new Set(service.requests.map((received) => service.orgOf(received)))).toEqual(new Set(orgs))
})
