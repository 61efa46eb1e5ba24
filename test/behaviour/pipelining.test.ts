/** Several requests on one connection: each for itself, answered in their order, whoever they are for. */

import { afterAll, describe, expect, test } from 'vitest'
import { type Case, type CaseTable, get, HOST, head, ORG, startTable } from '../support/case-table.ts'
import { Changes } from '../support/changes.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

describe('in one segment', async () => {
  const table: CaseTable = await startTable({}, { script: (seen) => ({ content: seen.target }) })
  afterAll(() => table[Symbol.asyncDispose]())
  const contents: Case['also'] = ({ responses, requests }) =>
    expect(responses.map((response) => response.content.toString())).toEqual(requests.map((seen) => seen.target))

  test('T-FR-25 two Orgs, each with its own token', () =>
    table.run({
      name: 'T-FR-25',
      send: get('/v2/1', '{org}') + get('/v2/2', '{other}'),
      status: 200,
      responses: 2,
      forwards: ['GET /v2/1', 'GET /v2/2'],
      also: (seen) => {
        contents(seen)
        expect(seen.requests.map((at) => table.service.orgOf(at))).toEqual([seen.org, seen.other])
      },
    }))

  test.each([
    ['a length', ['Content-Length: 2'], 'hi'],
    ['chunks', ['Transfer-Encoding: chunked'], '2\r\nhi\r\n0\r\n\r\n'],
    ['T-FR-21 chunk extensions, which go no further', ['Transfer-Encoding: chunked'], '2;a=b\r\nhi\r\n0;c="d"\r\n\r\n'],
    ['no content', ['Content-Length: 0'], ''],
  ])('T-FR-26 a POST with %s, another request behind it', (name, lines, content) =>
    table.run({
      name,
      send: head('POST /v2/1 HTTP/1.1', HOST, ORG, ...lines) + content + get('/v2/2', '{other}'),
      status: 200,
      responses: 2,
      forwards: ['POST /v2/1', 'GET /v2/2'],
      also: contents,
    }),
  )

  test('a refused one between two good ones', () =>
    table.run({
      name: 'refused',
      send: get('/v2/1', '{org}') + head('GET /v2/2 HTTP/1.1', HOST) + get('/v2/3', '{other}'),
      status: 200,
      responses: 3,
      forwards: ['GET /v2/1', 'GET /v2/3'],
      also: ({ responses }) => expect(responses.map((response) => response.status)).toEqual([200, 400, 200]),
    }))

  test('T-FR-27 nothing behind a request that closes is a request', () =>
    table.run({
      name: 'T-FR-27',
      send: get('/v2/1', '{org}', 'Connection: close') + get('/v2/2', '{other}'),
      status: [200, 400],
      closes: true,
      forwards: ['GET /v2/1'],
    }))
})

test('many at once are served one after the other, in their order', async () => {
  const changes = new Changes()
  let isReleased = false
  let atOnce = 0
  let most = 0
  await using service = await startService({
    script: async (seen) => {
      most = Math.max(most, ++atOnce)
      await changes.until(() => isReleased, 'the release')
      atOnce--
      return { content: seen.target }
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  const targets = Array.from({ length: 100 }, (_, i) => `/v2/${i}`)
  client.send(targets.map((target) => get(target, 'acme')).join(''))
  await service.origin.waitFor(() => service.requests.length > 0)
  isReleased = true
  changes.notify()
  for (const target of targets) expect((await client.response()).content.toString()).toBe(target)
  expect(most, 'requests of one connection at once').toBeLessThanOrEqual(2)
  expect(service.requests.map((seen) => seen.target)).toEqual(targets)
})

describe('what is no request behind one that is under way', async () => {
  const changes = new Changes()
  let isReleased = false
  const service = await startService({
    script: async (seen) => {
      if (seen.target === '/v2/slow') await changes.until(() => isReleased, 'the release')
      return { content: seen.target }
    },
  })
  const proxy = await startProxy(service, { 'listen.headersTimeout': '200ms' })
  afterAll(async () => {
    await proxy[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  })

  test.each([
    ['T-FR-27 garbage', 'garbage\r\n\r\n'],
    ['T-FR-40 the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    [
      'two framings',
      `${head('POST /v2/2 HTTP/1.1', HOST, 'X-Org-Id: acme', 'Content-Length: 5', 'Transfer-Encoding: chunked')}0\r\n\r\n`,
    ],
    ['a head that is too large', get('/v2/2', 'acme', `F: ${'a'.repeat(17_000)}`)],
    ['T-CL-07 half a head, for ever', 'GET /v2/2 HTTP/1.1\r\nHost: lo'],
    ['T-PT-17 CONNECT', head('CONNECT evil.example:443 HTTP/1.1', 'Host: evil.example')],
    ['T-WS-02 a handshake', get('/v2/ws', 'acme', ...HANDSHAKE)],
    ['a handshake that is refused', get('/v2/ws', 'acme', ...HANDSHAKE, 'Origin: https://evil.example')],
  ])('%s: the first answer is that to the first request', async (_, behind) => {
    isReleased = false
    await using client = await RawClient.connect(proxy.port)
    const before = service.requests.length
    client.send(get('/v2/slow', 'acme') + behind)
    await service.origin.waitFor(() => service.requests.length > before)
    await new Promise((resolve) => setTimeout(resolve, 400)) // time enough to answer too soon
    isReleased = true
    changes.notify()
    const response = await client.response()
    expect(response.status).toBe(200)
    expect(response.content.toString()).toBe('/v2/slow')
    expect(service.requests.slice(before).filter((seen) => seen.target === '/v2/slow')).toHaveLength(1)
  })
})

test('a flood of them costs the one who sends it, and nobody else', async () => {
  const changes = new Changes()
  let isReleased = false
  await using service = await startService({
    script: async (seen) => {
      if (seen.target !== '/v2/alive') await changes.until(() => isReleased, 'the release')
      return { content: seen.target }
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  client.send(Array.from({ length: 20_000 }, (_, i) => get(`/v2/${i}`, 'acme')).join(''))
  await service.origin.waitFor(() => service.requests.length > 0)
  expect((await request(proxy.port, get('/v2/alive', 'acme'), { deadlineMs: 1000 })).status).toBe(200)
  expect(service.requests.filter((seen) => seen.target !== '/v2/alive').length).toBeLessThanOrEqual(2)
  isReleased = true
  changes.notify()
  expect((await client.response()).content.toString()).toBe('/v2/0')
  await client.untilClosed()
  expect(service.requests.length).toBeLessThan(1000)
})
