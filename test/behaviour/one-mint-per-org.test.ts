import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

test('10,000 requests for 100 orgs make exactly 100 mints', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  const sendMany = async (connection: number) => {
    await using client = await RawClient.connect(proxy.port, { deadlineMs: 60_000 })
    for (let i = 0; i < 200; i++) {
      client.send(get('/v2/x', `org-${(connection + i) % 100}`))
      expect((await client.response()).status).toBe(200)
    }
  }
  await Promise.all(Array.from({ length: 50 }, (_, connection) => sendMany(connection)))
  expect(service.requests).toHaveLength(10_000)
  expect(service.tokens.mints).toHaveLength(100)
})

test('T-TK-03 a thousand at once for one cold org share one mint', async () => {
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  await using service = await startService({
    mint: async (mint) => {
      await released
      return mint.issue()
    },
  })
  await using proxy = await startProxy(service)
  const clients = await Promise.all(
    Array.from({ length: 1000 }, () => RawClient.connect(proxy.port, { deadlineMs: 60_000 })),
  )
  try {
    for (const client of clients) client.send(get('/v2/x', 'acme'))
    release()
    const answers = await Promise.all(clients.map((client) => client.response()))
    expect(answers.filter((answer) => answer.status !== 200)).toEqual([])
    expect(service.tokens.mints).toHaveLength(1)
  } finally {
    await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()))
  }
})

test('with room for two tokens, ten cold orgs at once all get theirs', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'tokens.maxOrgs': '2' })
  const orgs = Array.from({ length: 10 }, (_, i) => `org-${i}`)
  const answers = await Promise.all(orgs.map((org) => request(proxy.port, get('/v2/x', org))))
  expect(answers.map((answer) => answer.status)).toEqual(orgs.map(() => 200))
  expect(new Set(service.requests.map((received) => service.orgOf(received)))).toEqual(new Set(orgs))
})
