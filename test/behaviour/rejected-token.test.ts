/** A token that the origin rejects is replaced once, and the request that found out is repeated once. */

import { createHash, randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { get, head } from '../support/case-table.ts'
import { KeepAliveClient } from '../support/keep-alive-client.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const HOST = 'Host: 127.0.0.1'

function post(target: string, org: string, content: Uint8Array): Buffer {
  const lines = head(`POST ${target} HTTP/1.1`, HOST, `X-Org-Id: ${org}`, `Content-Length: ${content.length}`)
  return Buffer.concat([Buffer.from(lines), content])
}

test('the client sees nothing of it', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  const answer = await request(proxy.port, get('/v2/second', 'acme'))
  expect(answer).toMatchObject({ status: 200, isComplete: true })
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  expect(await proxy.logOf('/v2/second')).toMatchObject({ token: 'replayed' })
  expect(service.requests.map((received) => received.target)).toEqual(['/v2/first', '/v2/second', '/v2/second'])
})

test.each([1, 1_000, 60_000])('content of %i octets is repeated byte for byte', async (length) => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  const content = randomBytes(length)
  await using client = await RawClient.connect(proxy.port)
  client.send(post('/v2/second', 'acme', content))
  expect((await client.response('POST')).status).toBe(200)
  const [, , repeated] = service.requests
  const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')
  expect(digest(repeated?.content ?? Buffer.alloc(0))).toBe(digest(content))
})

test('content that comes in pieces, with its length declared, is repeated too', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  await using client = await RawClient.connect(proxy.port)
  const whole = post('/v2/second', 'acme', Buffer.from('0123456789'))
  client.send(whole.subarray(0, -4))
  await service.origin.waitFor(() => service.requests.length >= 2)
  client.send(whole.subarray(-4))
  expect((await client.response('POST')).status).toBe(200)
  expect(service.requests.at(-1)?.content.toString()).toBe('0123456789')
})

test('T-TK-22 content too large to keep: the rejection is passed on, the next request has the new token', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'replay.maxBody': '1KiB' })
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  await using client = await RawClient.connect(proxy.port)
  client.send(post('/v2/second', 'acme', randomBytes(2_000)))
  expect((await client.response('POST')).status).toBe(401)
  expect((await request(proxy.port, get('/v2/third', 'acme'))).status).toBe(200)
  expect(service.requests.filter((received) => received.target === '/v2/second')).toHaveLength(1)
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
})

test('T-TK-19 an origin that always rejects a thousand requests costs one mint and one repeat in a cool-down', async () => {
  await using service = await startService({ acceptsAnyToken: true, script: () => ({ status: 401 }) })
  await using proxy = await startProxy(service)
  using client = new KeepAliveClient(proxy.port)
  for (let i = 0; i < 1_000; i++) expect((await client.get('/v2/x', 'acme')).status).toBe(401)
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  expect(service.requests).toHaveLength(1_001)
})

test('T-TK-20 a thousand rejected at once: one mint, and all are repeated', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  const answers = await Promise.all(
    Array.from({ length: 1000 }, () => request(proxy.port, get('/v2/x', 'acme'), { deadlineMs: 15_000 })),
  )
  expect(answers.map((answer) => answer.status).filter((status) => status !== 200)).toEqual([])
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
})

test('T-TK-23 another refusal of the origin says nothing about the token', async () => {
  await using service = await startService({ script: () => ({ status: 403 }) })
  await using proxy = await startProxy(service)
  for (let i = 0; i < 5; i++) expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(403)
  expect(service.tokens.mintsOf('acme')).toHaveLength(1)
})

test('a replacement that cannot be had is a failure of ours, not a 401', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { 'tokens.mintTimeout': '300ms' })
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  service.tokens.script = () => ({ status: 500 })
  const answer = await request(proxy.port, get('/v2/x', 'acme'))
  expect([503, 504]).toContain(answer.status)
})

test('a large rejection is not read to its end', async () => {
  const large = Buffer.alloc(1024 * 1024)
  await using service = await startService({
    acceptsAnyToken: true,
    script: (received) =>
      service.orgOf(received) === undefined ? { status: 401, content: large } : { content: 'welcome' },
  })
  await using proxy = await startProxy(service)
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  const answer = await request(proxy.port, get('/v2/x', 'acme'))
  expect(answer.content.toString()).toBe('welcome')
})
