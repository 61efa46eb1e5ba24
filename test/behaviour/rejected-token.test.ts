/** A token that the origin rejects is replaced once, and the rejected request is repeated once. */

import { createHash, randomBytes } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get, head } from '../support/case-table.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { problemOf, RawClient, request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { type ProxySettings, type ProxyUnderTest, startBoth, startProxy } from '../support/start-proxy.ts'

const HOST = 'Host: 127.0.0.1'

function post(target: string, org: string, content: Uint8Array): Buffer {
  const lines = head(`POST ${target} HTTP/1.1`, HOST, `X-Org-Id: ${org}`, `Content-Length: ${content.length}`)
  return Buffer.concat([Buffer.from(lines), content])
}

test('the client does not notice the rejection', async () => {
  await using service = await startService()
  await using proxy = await startWithDeadToken(service)
  const answer = await request(proxy.port, get('/v2/second', 'acme'))
  expect(answer).toMatchObject({ status: 200, isComplete: true })
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  expect(await proxy.logOf('/v2/second')).toMatchObject({ token: 'replayed' })
  // The service accepted the old token a moment ago, so it is tried once more before a new one is minted.
  const again = ['/v2/second', '/v2/second', '/v2/second']
  expect(service.requests.map((received) => received.target)).toEqual(['/v2/first', ...again])
})

test.each([1, 1_000, 60_000])('content of %i octets is repeated byte for byte', async (length) => {
  await using service = await startService()
  await using proxy = await startWithDeadToken(service)
  const content = randomBytes(length)
  await using client = await RawClient.sending(proxy.port, post('/v2/second', 'acme', content))
  expect((await client.response('POST')).status).toBe(200)
  const [, , repeated] = service.requests
  const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')
  expect(digest(repeated?.content ?? Buffer.alloc(0))).toBe(digest(content))
})

/** A proxy that has a token for `acme`, which the service accepts no longer. */
async function startWithDeadToken(service: Service, settings: ProxySettings = {}): Promise<ProxyUnderTest> {
  const proxy = await startProxy(service, settings)
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  return proxy
}

/** Answers a bad token with 401 before it has the content. */
async function startImpatientService(): Promise<Service> {
  const service = await startService({
    acceptsAnyToken: true,
    script: (seen) => (service.orgOf(seen) === undefined ? { status: 401, isEarly: true } : { content: 'good' }),
  })
  return service
}

test('content that comes in pieces is repeated when its last piece is here, long after the new token', async () => {
  await using service = await startImpatientService()
  await using proxy = await startWithDeadToken(service, { 'replay.maxBody': '1KiB' })
  await using client = await RawClient.connect(proxy.port)
  const content = randomBytes(1_024) // the most that is kept
  const whole = post('/v2/second', 'acme', content)
  client.send(whole.subarray(0, -4))
  await service.origin.waitFor(() => service.requests.length >= 2)
  // The second client waits for the same mint, so the new token is here when it has its answer.
  expect((await request(proxy.port, get('/v2/third', 'acme'))).status).toBe(200)
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  client.send(whole.subarray(-4))
  expect((await client.response('POST')).status).toBe(200)
  expect(service.requests.at(-1)?.content.equals(content)).toBe(true)
})

test('a declared length that is too large: the rejection is passed on although little of the content is here', async () => {
  await using service = await startImpatientService()
  await using proxy = await startWithDeadToken(service, { 'replay.maxBody': '1KiB' })
  await using client = await RawClient.sending(
    proxy.port,
    post('/v2/second', 'acme', randomBytes(1_025)).subarray(0, -1_000),
  )
  expect((await client.response('POST')).status).toBe(401)
  expect((await request(proxy.port, get('/v2/third', 'acme'))).status).toBe(200)
})

test('content too large to keep: the rejection is passed on, the next request has the new token', async () => {
  await using service = await startService()
  await using proxy = await startWithDeadToken(service, { 'replay.maxBody': '1KiB' })
  await using client = await RawClient.sending(proxy.port, post('/v2/second', 'acme', randomBytes(2_000)))
  expect((await client.response('POST')).status).toBe(401)
  expect((await request(proxy.port, get('/v2/third', 'acme'))).status).toBe(200)
  expect(service.requests.filter((received) => received.target === '/v2/second')).toHaveLength(1)
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
})

test('a rejection that cannot be answered by a repeat is counted as refused', async () => {
  await using service = await startService()
  await using proxy = await startWithDeadToken(service, { 'replay.maxBody': '1KiB', 'admin.address': 'localhost:0' })
  await using client = await RawClient.sending(proxy.port, post('/v2/too-large', 'acme', randomBytes(2_000)))
  expect((await client.response('POST')).status).toBe(401)
  const metrics = (await request(proxy.adminPort, get('/metrics', 'acme'))).content.toString()
  const counts = [...metrics.matchAll(/^oap_replays_total\{outcome="(\w+)"\} ([1-9]\d*)$/gm)]
  expect(counts.map(([, outcome, count]) => [outcome, count])).toEqual([['refused', '1']])
})

test('a repeat is counted as accepted or rejected, and the connection of a request with content stays open', async () => {
  const seen = new Set<string>()
  const { proxy } = await startBoth(
    {
      acceptsAnyToken: true,
      script: ({ target }) => {
        const isRejected = target === '/v2/rejected' || !seen.has(target)
        seen.add(target)
        return isRejected ? { status: 401 } : { content: 'good' }
      },
    },
    { 'admin.address': 'localhost:0' },
  )
  await using client = await RawClient.sending(proxy.port, post('/v2/accepted', 'acme', Buffer.from('content')))
  expect((await client.response('POST')).status).toBe(200)
  client.send(post('/v2/rejected', 'other', Buffer.from('content')))
  expect((await client.response('POST')).status).toBe(401)
  const metrics = (await request(proxy.adminPort, get('/metrics', 'acme'))).content.toString()
  expect(metrics).toContain('\noap_replays_total{outcome="accepted"} 1\n')
  expect(metrics).toContain('\noap_replays_total{outcome="rejected"} 1\n')
})

test('an origin that always rejects a thousand requests costs one mint and one repeat in a cool-down', async () => {
  const { service, proxy } = await startBoth({ acceptsAnyToken: true, script: () => ({ status: 401 }) })
  using client = new KeepAliveClient(proxy.port)
  for (let i = 0; i < 1_000; i++) expect((await client.get('/v2/x', 'acme')).status).toBe(401)
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  expect(service.requests).toHaveLength(1_001)
})

test('a thousand requests rejected at once: one mint, and all are repeated', async () => {
  await using service = await startService()
  await using proxy = await startWithDeadToken(service)
  const answers = await Promise.all(
    Array.from({ length: 1000 }, () => request(proxy.port, get('/v2/x', 'acme'), { deadlineMs: 15_000 })),
  )
  expect(answers.map((answer) => answer.status).filter((status) => status !== 200)).toEqual([])
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
})

test('a refusal with another status does not retire the token', async () => {
  const { service, proxy } = await startBoth({ script: () => ({ status: 403 }) })
  for (let i = 0; i < 5; i++) expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(403)
  expect(service.tokens.mintsOf('acme')).toHaveLength(1)
})

test('if no new token can be had, the client gets the error of the mint, not a 401', async () => {
  await using service = await startService()
  await using proxy = await startWithDeadToken(service, { 'tokens.mintTimeout': '2s' })
  service.tokens.script = () => ({ status: 500 })
  const answer = await request(proxy.port, get('/v2/x', 'acme'))
  expect([answer.status, problemOf(answer).code]).toEqual([503, 'token_endpoint_unavailable'])
})

test('a rejection that stalls does not delay the repeat: its connection is closed', async () => {
  await using service = await startService({
    acceptsAnyToken: true,
    script: (received, connection) => {
      if (service.orgOf(received) !== undefined) return { content: 'welcome' }
      connection.write('HTTP/1.1 401 Unauthorized\r\nContent-Length: 10\r\n\r\nhalf')
      return undefined
    },
  })
  await using proxy = await startWithDeadToken(service)
  const answer = await request(proxy.port, get('/v2/x', 'acme'))
  expect(answer).toMatchObject({ status: 200, isComplete: true })
  expect(answer.content.toString()).toBe('welcome')
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  const [, stalled, repeated] = service.requests
  expect(repeated?.connection).not.toBe(stalled?.connection)
  await service.origin.waitFor(() => stalled?.connection.peerEnd !== undefined, 'the end of the stalled connection')
})

test('a rejection that stalls before its mint has ended waits for the mint', async () => {
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  await using service = await startService({
    acceptsAnyToken: true,
    mint: async (mint) => {
      if (service.tokens.mintsOf('acme').length > 1) await released
      return mint.issue()
    },
    script: (received, connection) => {
      if (service.orgOf(received) !== undefined) return { content: 'welcome' }
      connection.write('HTTP/1.1 401 Unauthorized\r\nContent-Length: 10\r\n\r\nhalf')
      return undefined
    },
  })
  await using proxy = await startWithDeadToken(service, {
    'origin.idleTimeout': '100ms',
    'origin.responseTimeout': '100ms',
  })
  const answer = request(proxy.port, get('/v2/x', 'acme'))
  await service.origin.waitFor(() => service.tokens.mintsOf('acme').length === 2, 'the mint')
  await setTimeout(300) // both time limits of the origin
  release()
  expect((await answer).content.toString()).toBe('welcome')
})

test.each([
  ['is read to its end, and its connection is used again', 64 * 1024, true],
  ['costs its connection', 64 * 1024 + 1, false],
])('a rejection of %s', async (_, length, isReused) => {
  await using service = await startService({
    acceptsAnyToken: true,
    script: (received) =>
      service.orgOf(received) === undefined
        ? { status: 401, content: Buffer.alloc(length) }
        : { content: received.target },
  })
  await using proxy = await startWithDeadToken(service)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).content.toString()).toBe('/v2/x')
  const [, rejected, repeated] = service.requests
  expect(repeated?.connection === rejected?.connection).toBe(isReused)
})

test('tokens.rejectedStatuses lists all statuses that reject a token: without 401 in it, a 401 does not', async () => {
  let status = 419
  const { service, proxy } = await startBoth(
    {
      acceptsAnyToken: true,
      script: (received) => (service.orgOf(received) === undefined ? { status } : { content: 'welcome' }),
    },
    {
      'tokens.rejectedStatuses': '419,498',
      'tokens.rejectedCooldown': '1ms',
    },
  )
  const answer = async () => (await request(proxy.port, get('/v2/x', 'acme'))).status
  const mints = () => service.tokens.mintsOf('acme').length
  expect([await answer(), mints()]).toEqual([200, 1])
  service.tokens.revoke('acme')
  expect([await answer(), mints()]).toEqual([200, 2])
  status = 498
  service.tokens.revoke('acme')
  expect([await answer(), mints()]).toEqual([200, 3])
  status = 401
  service.tokens.revoke('acme')
  expect([await answer(), mints()], 'passed on, and nothing is minted').toEqual([401, 3])
})
