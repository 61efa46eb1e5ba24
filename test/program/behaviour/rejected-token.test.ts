/** A token that the origin rejects is replaced once, and the rejected request is repeated once. */

import { createHash, randomBytes } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get, head } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { type Service, type ServiceOptions, startService } from '../../support/service.ts'
import { type ProxySettings, type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'

const HOST = 'Host: 127.0.0.1'

function post(target: string, org: string, content: Uint8Array): Buffer {
  const lines = head(`POST ${target} HTTP/1.1`, HOST, `X-Org-Id: ${org}`, `Content-Length: ${content.length}`)
  return Buffer.concat([Buffer.from(lines), content])
}

/** A proxy that has a token for `acme`, which the service accepts no longer. */
async function startWithDeadToken(service: Service, settings: ProxySettings = {}): Promise<ProxyUnderTest> {
  const proxy = await startProxy(service, settings)
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  return proxy
}

/** A service that sees bad tokens, too: it answers them with `rejection`, and good ones with the target. */
async function startStrictService(rejection: OriginScript, options: ServiceOptions = {}): Promise<Service> {
  const service: Service = await startService({
    ...options,
    acceptsAnyToken: true,
    script: (seen, connection) =>
      service.orgOf(seen) === undefined ? rejection(seen, connection) : { content: seen.target },
  })
  return service
}

/** Answers before it has the content. */
const early: OriginScript = () => ({ status: 401, isEarly: true })
const stalling: OriginScript = (_, connection) =>
  void connection.write('HTTP/1.1 401 Unauthorized\r\nContent-Length: 10\r\n\r\nhalf')

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

test('content that comes in pieces is repeated when its last piece is here, long after the new token', async () => {
  await using service = await startStrictService(early)
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

test.each([
  ['and here', 2_000, startService],
  ['though little of it is here', 25, () => startStrictService(early)],
])(
  'content too large to keep, %s: the rejection is passed on and counted, the next request has the new token',
  async (_, sent, start) => {
    await using service = await start()
    await using proxy = await startWithDeadToken(service, { 'replay.maxBody': '1KiB', 'admin.address': 'localhost:0' })
    const whole = post('/v2/second', 'acme', randomBytes(2_000))
    await using client = await RawClient.sending(proxy.port, whole.subarray(0, whole.length - 2_000 + sent))
    expect((await client.response('POST')).status).toBe(401)
    const metrics = (await request(proxy.adminPort, get('/metrics', 'acme'))).content.toString()
    const counts = [...metrics.matchAll(/^oap_replays_total\{outcome="(\w+)"\} ([1-9]\d*)$/gm)]
    expect(counts.map(([, outcome, count]) => [outcome, count])).toEqual([['refused', '1']])
    expect((await request(proxy.port, get('/v2/third', 'acme'))).status).toBe(200)
    expect(service.requests.filter((received) => received.target === '/v2/second')).toHaveLength(1)
    expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  },
)

test('a repeat is counted as accepted, rejected or failed, and the connection of a request with content stays open', async () => {
  const seen = new Set<string>()
  await using service = await startService({
    acceptsAnyToken: true,
    script: ({ target }, connection) => {
      const isRejected = target === '/v2/rejected' || !seen.has(target)
      seen.add(target)
      if (isRejected) return { status: 401 }
      if (target !== '/v2/failed') return { content: 'good' }
      connection.reset()
    },
  })
  await using proxy = await startProxy(service, { 'admin.address': 'localhost:0', 'replay.maxBody': '16MiB' })
  // Each takes more than half of what is left of the memory for kept content, and gives it back.
  const large = post('/v2/failed', 'third', Buffer.alloc(12 * 1024 * 1024)).toString('latin1')
  for (let i = 0; i < 2; i++) expect((await request(proxy.port, large)).status).toBe(502)
  await using client = await RawClient.sending(proxy.port, post('/v2/accepted', 'acme', Buffer.from('content')))
  expect((await client.response('POST')).status).toBe(200)
  client.send(post('/v2/rejected', 'other', Buffer.from('content')))
  expect((await client.response('POST')).status).toBe(401)
  for (const [outcome, count] of Object.entries({ accepted: 1, rejected: 1, failed: 1 })) {
    expect(await proxy.metric(`oap_replays_total{outcome="${outcome}"}`)).toBe(count)
  }
})

test('a rejection that stalls does not delay the repeat: its connection is closed', async () => {
  await using service = await startStrictService(stalling)
  await using proxy = await startWithDeadToken(service)
  const answer = await request(proxy.port, get('/v2/x', 'acme'))
  expect(answer).toMatchObject({ status: 200, isComplete: true })
  expect(answer.content.toString()).toBe('/v2/x')
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  const [, stalled, repeated] = service.requests
  expect(repeated?.connection).not.toBe(stalled?.connection)
  await service.origin.waitFor(() => stalled?.connection.peerEnd !== undefined, 'the end of the stalled connection')
})

test('a service that rejects an upload, and reads no more of it, does not keep the rest of it waiting', async () => {
  await using service = await startStrictService((seen, connection) => {
    connection.socket.pause()
    return stalling(seen, connection)
  })
  await using proxy = await startWithDeadToken(service, { 'replay.maxBody': '16MiB' })
  await using client = await RawClient.sending(proxy.port, post('/v2/x', 'acme', Buffer.alloc(16 * 1024 * 1024)))
  expect((await client.response('POST')).status).toBe(200)
})

test('a rejection that stalls before its mint has ended waits for the mint', async () => {
  const gate = new Gate()
  await using service = await startStrictService(stalling)
  const limits = { 'origin.idleTimeout': '100ms', 'origin.responseTimeout': '100ms' }
  await using proxy = await startWithDeadToken(service, limits)
  service.tokens.script = (mint) => gate.pass().then(() => mint.issue())
  const answer = request(proxy.port, get('/v2/x', 'acme'))
  await service.origin.waitFor(() => service.tokens.mintsOf('acme').length === 2, 'the mint')
  await setTimeout(300) // both time limits of the origin
  gate.open()
  expect((await answer).content.toString()).toBe('/v2/x')
})

// curl sends `Expect` with each large upload, and the content without a 100 a second later.
test('large uploads with Expect, which the service reads to the end: one gets the 401, the next a new token', async () => {
  const late: OriginScript = async (seen) => {
    await seen.ended
    return { status: 401 }
  }
  await using service = await startStrictService(late)
  await using proxy = await startWithDeadToken(service)
  const statuses: number[] = []
  for (let i = 0; i < 2; i++) {
    const lines = head('POST /v2/up HTTP/1.1', HOST, 'X-Org-Id: acme', 'Content-Length: 200000', 'Expect: 100-continue')
    await using client = await RawClient.sending(proxy.port, lines)
    expect((await client.nextHead('POST')).status).toBe(100)
    client.send(Buffer.alloc(200_000))
    statuses.push((await client.response('POST')).status)
  }
  expect(statuses).toEqual([401, 200])
})
