/** The limits of the listener: the proxy answers or drops what exceeds them at once, and serves everything else. */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { Gate } from '../support/changes.ts'
import { scaledSetting } from '../support/pace.ts'
import { fieldOf, problemOf, RawClient, request } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

test('one request too many gets 503, until a place is free', async () => {
  const gate = new Gate()
  const { service, proxy } = await startBoth(
    {
      script: async () => {
        await gate.pass()
        return { content: 'done' }
      },
    },
    { 'listen.maxInFlight': '8' },
  )
  const inFlight = Array.from({ length: 8 }, () => request(proxy.port, get('/v2/x', 'acme')))
  await service.origin.waitFor(() => service.requests.length === 8)
  // Answered at once, while all of those are still open.
  const refused = await request(proxy.port, get('/v2/x', 'acme'))
  expect(refused.status).toBe(503)
  expect(problemOf(refused)).toMatchObject({
    code: 'overloaded',
    detail: expect.stringContaining('listen.maxInFlight'),
  })
  expect(Number(fieldOf(refused, 'retry-after'))).toBeGreaterThan(0)
  gate.open()
  for (const response of await Promise.all(inFlight)) expect(response.status).toBe(200)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
})

test('beyond maxConnections the proxy closes the connection that was idle for the longest time', async () => {
  const { proxy } = await startBoth({}, { 'listen.maxConnections': '10' })
  const idle: RawClient[] = []
  for (let i = 0; i < 10; i++) {
    const client = await RawClient.connect(proxy.port)
    client.send(get('/v2/x', 'acme'))
    await client.response()
    idle.push(client)
  }
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  await idle[0]?.untilClosed()
  expect(idle.slice(2).every((client) => client.end === undefined)).toBe(true)
  expect(proxy.logs).toContainEqual(expect.objectContaining({ setting: 'listen.maxConnections', connections: 10 }))
  for (const client of idle) await client[Symbol.asyncDispose]()
})

test('beyond maxConnections a busy connection stays open', async () => {
  const gate = new Gate()
  const { service, proxy } = await startBoth(
    {
      script: async () => {
        await gate.pass()
        return { content: 'done' }
      },
    },
    { 'listen.maxConnections': '4', 'admin.address': 'localhost:0' },
  )
  const busy = Array.from({ length: 4 }, () => request(proxy.port, get('/v2/x', 'acme')))
  await service.origin.waitFor(() => service.requests.length === 4)
  for (let i = 0; i < 3; i++) {
    await using late = await RawClient.plain(proxy.port)
    await late.untilClosed()
  }
  gate.open()
  for (const response of await Promise.all(busy)) expect(response.status).toBe(200)
  const told = proxy.logs.filter(({ msg }) => msg === 'client connections refused: too many are open')
  expect(told.map(({ setting, connections }) => [setting, connections])).toEqual([['listen.maxConnections', 4]])
  const metrics = await (await fetch(`http://127.0.0.1:${proxy.adminPort}/metrics`)).text()
  expect(metrics).toContain('\noap_connections_refused_total 3\n')
  expect(metrics).toContain('\noap_warnings{code="connections_refused"} 1\n')
})

/** Sends at once: a connection that was never used ends without an answer. */
async function slowHead(port: number): Promise<RawClient> {
  const client = await RawClient.connect(port)
  client.send('GET /v2/x HTTP/1.1\r\nHost: lo')
  return client
}

test('many slow heads do not keep a good client waiting', async () => {
  const { proxy } = await startBoth({}, { 'listen.headersTimeout': scaledSetting(500) })
  const slow = await Promise.all(Array.from({ length: 500 }, () => slowHead(proxy.port)))
  const response = await request(proxy.port, get('/v2/x', 'acme'), { deadlineMs: 1000 })
  expect(response.status).toBe(200)
  for (const client of slow) expect((await client.response()).status).toBe(408)
  for (const client of slow) await client[Symbol.asyncDispose]()
})

test('an idle connection is closed after keepAliveTimeout', async () => {
  const { proxy } = await startBoth({}, { 'listen.keepAliveTimeout': '200ms' })
  await using client = await RawClient.sending(proxy.port, get('/v2/x', 'acme'))
  expect((await client.response()).status).toBe(200)
  expect((await client.untilClosed()).bytes.length).toBe(0)
})

test('the log line of a request that was refused for its Org names the Org, if the id is valid', async () => {
  const { proxy } = await startBoth({}, { 'orgs.allow': 'acme' })
  expect((await request(proxy.port, get('/v2/other', 'globex'))).status).toBe(403)
  expect(await proxy.logOf('/v2/other')).toMatchObject({ code: 'org_not_allowed', orgId: 'globex' })
  expect((await request(proxy.port, get('/v2/none', 'a/b'))).status).toBe(400)
  expect(await proxy.logOf('/v2/none')).not.toHaveProperty('orgId')
})

test('listen.headersTimeout may be any number of milliseconds', async () => {
  const { proxy } = await startBoth({}, { 'listen.headersTimeout': '2603ms' })
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
})

test('orgs.pattern decides which ids are accepted', async () => {
  const { service, proxy } = await startBoth({}, { 'orgs.pattern': '^org-[0-9]+$' })
  expect((await request(proxy.port, get('/v2/x', 'org-1'))).status).toBe(200)
  for (const id of ['acme', 'org-', 'org-1x', 'ORG-1']) {
    const refused = await request(proxy.port, get('/v2/x', id))
    expect([refused.status, problemOf(refused).code]).toEqual([400, 'org_id_invalid'])
  }
  expect(service.tokens.mints.map(({ org }) => org)).toEqual(['org-1'])
})

test('an id of 256 characters is the longest, whatever orgs.pattern says', async () => {
  const { proxy } = await startBoth({}, { 'orgs.pattern': '^a*$' })
  expect((await request(proxy.port, get('/v2/x', 'a'.repeat(256)))).status).toBe(200)
  expect((await request(proxy.port, get('/v2/x', 'a'.repeat(257)))).status).toBe(400)
})
