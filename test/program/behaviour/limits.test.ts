/** The limits of the listener: the proxy answers or drops what exceeds them at once, and serves everything else. */

import { expect, test } from 'vitest'
import { ConnectionLimit } from '../../../src/listener/connection-limit.ts'
import { get } from '../../support/case-table.ts'
import { certificateFiles } from '../../support/certificates.ts'
import { Gate } from '../../support/changes.ts'
import { type OriginScript, writes } from '../../support/origin-connection.ts'
import { scaledSetting } from '../../support/pace.ts'
import { fieldOf, problemOf, RawClient, request, tlsPorts } from '../../support/raw-client.ts'
import { startBoth } from '../../support/start-proxy.ts'

/** Requests are answered when the gate opens, those for `/v2/first` at once. */
function gated() {
  const gate = new Gate()
  const script: OriginScript = async ({ target }) => {
    if (target !== '/v2/first') await gate.pass()
    return { content: 'done' }
  }
  return { gate, script }
}

test('one request too many gets 503, until a place is free', async () => {
  const { gate, ...options } = gated()
  const { service, proxy } = await startBoth(options, { 'listen.maxInFlight': '8' })
  expect((await request(proxy.port, get('/v2/first', 'acme'))).status).toBe(200) // few may wait for a token
  expect((await request(proxy.port, get('/v2/first', 'globex'))).status).toBe(200)
  const inFlight = Array.from({ length: 8 }, (_, i) => request(proxy.port, get('/v2/x', i < 4 ? 'acme' : 'globex')))
  await service.origin.waitFor(() => service.requests.length === 10)
  // Answered at once, while all of those are still open.
  const refused = await request(proxy.port, get('/v2/refused', 'acme'))
  expect(refused.status).toBe(503)
  const limit = 'listen.maxInFlight'
  expect(problemOf(refused)).toMatchObject({ code: 'overloaded', detail: expect.stringContaining(limit) })
  expect(await proxy.logOf('/v2/refused')).toMatchObject({ code: 'overloaded', reason: limit })
  expect(Number(fieldOf(refused, 'retry-after'))).toBeGreaterThan(0)
  gate.open()
  for (const response of await Promise.all(inFlight)) expect(response.status).toBe(200)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
})

test.each([
  ['one slow Org', 'acme', '/v2/x'],
  ['slow requests of the App', undefined, '/v2/app'],
])('%s gets three quarters of listen.maxInFlight, and another Org is served', async (_, org, target) => {
  const { gate, ...options } = gated()
  const settings = { 'listen.maxInFlight': '9', appRoutes: 'GET /v2/app' }
  const { service, proxy } = await startBoth({ ...options, acceptsAnyToken: true }, settings)
  const raw = org === undefined ? `GET ${target} HTTP/1.1\r\nHost: localhost\r\n\r\n` : get(target, org)
  for (const each of ['acme', 'globex']) {
    expect((await request(proxy.port, get('/v2/first', each))).status).toBe(200) // few may wait for a token
  }
  const slow = Array.from({ length: 7 }, () => request(proxy.port, raw))
  await service.origin.waitFor(() => service.requests.length === 9)
  const refused = await request(proxy.port, raw)
  expect(refused.status).toBe(503)
  const detail = expect.stringContaining('three quarters of listen.maxInFlight')
  expect(problemOf(refused)).toMatchObject({ code: 'overloaded', detail })
  expect(proxy.logs.find(({ status }) => status === 503)).toMatchObject({ reason: 'requests of one Org' })
  expect((await request(proxy.port, get('/v2/first', 'globex'))).status).toBe(200)
  gate.open()
  for (const response of await Promise.all(slow)) expect(response.status).toBe(200)
  expect((await request(proxy.port, raw)).status).toBe(200)
})

test.each([
  ['over TLS', 'HTTP/1.1', true],
  ['to a client of HTTP/1.0', 'HTTP/1.0', false],
  ['to a client of HTTP/1.0 over TLS', 'HTTP/1.0', true],
])('a response that breaks off %s ends its request once, and its place is free once', async (_, version, isTls) => {
  const { certificate, key } = certificateFiles('localhost')
  const { proxy } = await startBoth(
    { script: writes('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\nnonsense') },
    {
      'admin.address': 'localhost:0',
      'listen.address': 'localhost:0',
      ...(isTls && { 'listen.tls.certFile': certificate, 'listen.tls.keyFile': key }),
    },
  )
  if (isTls) tlsPorts.add(proxy.port)
  for (let i = 0; i < 5; i++) {
    await using client = await RawClient.sending(proxy.port, get('/v2/x', 'acme').replace('HTTP/1.1', version))
    await client.untilClosed().catch(() => undefined)
  }
  const lines = () => proxy.logs.filter(({ msg }) => msg === 'request')
  await proxy.until(() => lines().length >= 5, 'five lines')
  expect(lines().map(({ code }) => code)).toEqual(Array(5).fill('http_response_incomplete'))
  expect(await proxy.metric('oap_requests_in_flight')).toBe(0)
})

test('beyond maxConnections the proxy closes the connection that was idle for the longest time', async () => {
  const { proxy } = await startBoth({}, { 'listen.maxConnections': '10' })
  const idle: RawClient[] = []
  for (let i = 0; i < 10; i++) {
    const client = await RawClient.sending(proxy.port, get('/v2/x', 'acme'))
    await client.response()
    idle.push(client)
  }
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  await idle[0]?.untilClosed()
  expect(idle.slice(2).every((client) => client.end === undefined)).toBe(true)
  expect(proxy.logs).toContainEqual(expect.objectContaining({ connections: 10 }))
  for (const client of idle) await client[Symbol.asyncDispose]()
})

test('beyond maxConnections a busy connection stays open', async () => {
  const { gate, ...options } = gated()
  const { service, proxy } = await startBoth(options, { 'listen.maxConnections': '4', 'admin.address': 'localhost:0' })
  const busy = Array.from({ length: 4 }, () => request(proxy.port, get('/v2/x', 'acme')))
  await service.origin.waitFor(() => service.requests.length === 4)
  for (let i = 0; i < 3; i++) {
    await using late = await RawClient.plain(proxy.port)
    await late.untilClosed()
  }
  gate.open()
  for (const response of await Promise.all(busy)) expect(response.status).toBe(200)
  const told = proxy.logs.filter(({ msg }) => msg === 'client connections refused: too many are open')
  expect(told.map(({ connections, limit }) => [connections, limit])).toEqual([[4, 'listen.maxConnections']])
  const metrics = await (await fetch(`http://127.0.0.1:${proxy.adminPort}/metrics`)).text()
  expect(metrics).toContain('\noap_connections_refused_total 3\n')
  expect(metrics).toContain('\noap_warnings{code="connections_refused"} 1\n')
})

// Under TLS they have finished their handshake.
test.each([
  ['silent', ''],
  ['in the middle of a head', 'GET /v2/x HTTP/1.1\r\nHost: lo'],
  ['refused', get('/v2/x', 'acme').replace('X-Org-Id: acme\r\n', '')],
])(
  'beyond maxConnections, strangers (%s) take no place of a connection that carried an admitted request',
  async (_, bytes) => {
    const { proxy } = await startBoth({}, { 'listen.maxConnections': '10' })
    const kept = await Promise.all(Array.from({ length: 5 }, () => RawClient.sending(proxy.port, get('/v2/x', 'acme'))))
    for (const client of kept) expect((await client.response()).status).toBe(200)
    const strangers: RawClient[] = []
    for (let i = 0; i < 20; i++) {
      const stranger = await RawClient.sending(proxy.port, bytes)
      if (bytes.endsWith('\r\n\r\n')) expect((await stranger.response()).status).toBe(400)
      strangers.push(stranger)
    }
    for (const client of kept) {
      client.send(get('/v2/x', 'acme'))
      expect((await client.response()).status).toBe(200)
    }
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
    for (const client of [...kept, ...strangers]) await client[Symbol.asyncDispose]()
  },
)

test('a tunnel takes a descriptor for its client and one for the service', () => {
  let tunnels = 0
  const limit = new ConnectionLimit(4_096, 284, () => tunnels, 1_024)
  expect(limit.most).toBe(700)
  tunnels = 350
  expect(limit.most).toBe(350)
})

test('many slow heads do not keep a good client waiting', async () => {
  const { proxy } = await startBoth({}, { 'listen.headersTimeout': scaledSetting(500) })
  const slowHead = () => RawClient.sending(proxy.port, 'GET /v2/x HTTP/1.1\r\nHost: lo')
  const slow = await Promise.all(Array.from({ length: 500 }, slowHead))
  const response = await request(proxy.port, get('/v2/x', 'acme'), { deadlineMs: 1000 })
  expect(response.status).toBe(200)
  for (const client of slow) {
    const late = await client.response()
    expect([late.status, problemOf(late).code]).toEqual([408, 'request_timeout'])
    await client.untilClosed()
  }
})

test.each([
  ['', '2603ms'], // a limit may be any number of milliseconds
  ['\r\n', '50ms'], // some clients send an empty line behind their content: no head begins with it
])(
  'an idle connection, with %j behind its request, is closed after keepAliveTimeout, without an answer',
  async (line, headersTimeout) => {
    const settings = { 'listen.keepAliveTimeout': '300ms', 'listen.headersTimeout': headersTimeout }
    const { proxy } = await startBoth({}, settings)
    await using client = await RawClient.sending(proxy.port, get('/v2/x', 'acme'))
    expect((await client.response()).status).toBe(200)
    client.send(line)
    expect((await client.untilClosed()).bytes.toString()).toBe('')
  },
)

test.each([
  ['^org-[0-9]+$', 'org-1', ['acme', 'org-', 'org-1x', 'ORG-1']],
  ['^a*$', 'a'.repeat(256), ['a'.repeat(257)]],
])('orgs.pattern %s decides which ids are accepted, up to 256 characters', async (pattern, accepted, others) => {
  const { service, proxy } = await startBoth({}, { 'orgs.pattern': pattern })
  expect((await request(proxy.port, get('/v2/x', accepted))).status).toBe(200)
  for (const id of others) {
    const refused = await request(proxy.port, get('/v2/x', id))
    expect([refused.status, problemOf(refused).code]).toEqual([400, 'org_id_invalid'])
  }
  expect(service.tokens.mints.map(({ org }) => org)).toEqual([accepted])
})
