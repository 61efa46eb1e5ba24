/** Several requests on one connection: each is served by itself, in order, for whichever Org. */

import { afterAll, describe, expect, test } from 'vitest'
import { type Case, type CaseTable, get, HOST, head, ORG, startTable } from '../support/case-table.ts'
import { Gate } from '../support/changes.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { fieldOf, RawClient, request } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

describe('in one segment', async () => {
  const table: CaseTable = await startTable({}, { script: (seen) => ({ content: seen.target }) })
  const contents: Case['also'] = ({ responses, requests }) =>
    expect(responses.map((response) => response.content.toString())).toEqual(requests.map((seen) => seen.target))

  test('two Orgs, each with its own token', () =>
    table.run({
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
    ['chunk extensions, which go no further', ['Transfer-Encoding: chunked'], '2;a=b\r\nhi\r\n0;c="d"\r\n\r\n'],
    ['several chunks', ['Transfer-Encoding: chunked'], '1\r\nh\r\n1\r\ni\r\n0\r\n\r\n'],
    ['no content', ['Content-Length: 0'], ''],
  ])('a POST with %s, followed by another request', (name, lines, content) =>
    table.run({
      name,
      send: head('POST /v2/1 HTTP/1.1', HOST, ORG, ...lines) + content + get('/v2/2', '{other}'),
      status: 200,
      responses: 2,
      forwards: ['POST /v2/1', 'GET /v2/2'],
      also: (seen) => {
        contents(seen)
        expect(seen.requests[0]?.content.toString()).toBe(content === '' ? '' : 'hi')
      },
    }),
  )

  test('a refused request between two good ones', () =>
    table.run({
      name: 'refused',
      send: get('/v2/1', '{org}') + head('GET /v2/2 HTTP/1.1', HOST) + get('/v2/3', '{other}'),
      status: 200,
      responses: 3,
      forwards: ['GET /v2/1', 'GET /v2/3'],
      also: ({ responses }) => expect(responses.map((response) => response.status)).toEqual([200, 400, 200]),
    }))

  test('bytes after a request with Connection: close are no request', () =>
    table.run({
      send: get('/v2/1', '{org}', 'Connection: close') + get('/v2/2', '{other}'),
      status: 200,
      closes: true,
      forwards: ['GET /v2/1'],
    }))
})

test('many requests at once are served one after the other, in order', async () => {
  const gate = new Gate()
  let atOnce = 0
  let most = 0
  await using service = await startService({
    script: async (seen) => {
      most = Math.max(most, ++atOnce)
      await gate.pass()
      atOnce--
      return { content: seen.target }
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  const targets = Array.from({ length: 100 }, (_, i) => `/v2/${i}`)
  client.send(targets.map((target) => get(target, 'acme')).join(''))
  await service.origin.waitFor(() => service.requests.length > 0)
  gate.open()
  for (const target of targets) expect((await client.response()).content.toString()).toBe(target)
  expect(most, 'requests of one connection at once').toBeLessThanOrEqual(2)
  expect(service.requests.map((seen) => seen.target)).toEqual(targets)
})

describe('malformed bytes after a request in flight', async () => {
  let gate: Gate
  const service = await startService({
    script: async (seen) => {
      if (seen.target === '/v2/slow') await gate.pass()
      return { content: seen.target }
    },
  })
  const proxy = await startProxy(service, { 'listen.headersTimeout': '200ms' })
  afterAll(async () => {
    await proxy[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  })

  test.each([
    ['garbage', 'garbage\r\n\r\n'],
    ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    [
      'two framings',
      `${head('POST /v2/2 HTTP/1.1', HOST, 'X-Org-Id: acme', 'Content-Length: 5', 'Transfer-Encoding: chunked')}0\r\n\r\n`,
    ],
    ['a head that is too large', get('/v2/2', 'acme', `F: ${'a'.repeat(17_000)}`)],
    ['half a head, for ever', 'GET /v2/2 HTTP/1.1\r\nHost: lo'],
    ['CONNECT', head('CONNECT evil.example:443 HTTP/1.1', 'Host: evil.example')],
    ['a handshake', get('/v2/ws', 'acme', ...HANDSHAKE)],
    ['a handshake that is refused', get('/v2/ws', 'acme', ...HANDSHAKE, 'Origin: https://evil.example')],
  ])('%s: the first request gets its answer first', async (_, behind) => {
    gate = new Gate()
    await using client = await RawClient.connect(proxy.port)
    const before = service.requests.length
    client.send(get('/v2/slow', 'acme') + behind)
    await service.origin.waitFor(() => service.requests.length > before)
    await new Promise((resolve) => setTimeout(resolve, 400)) // gives the proxy time for a premature answer
    gate.open()
    const response = await client.response()
    expect(response.status).toBe(200)
    expect(response.content.toString()).toBe('/v2/slow')
    expect(service.requests.slice(before).filter((seen) => seen.target === '/v2/slow')).toHaveLength(1)
  })
})

test('a flood of pipelined requests waits its turn, and delays no other client', async () => {
  const gate = new Gate()
  await using service = await startService({
    script: async (seen) => {
      if (seen.target !== '/v2/alive') await gate.pass()
      return { content: seen.target }
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  const count = 3_000
  client.send(Array.from({ length: count }, (_, i) => get(`/v2/${i}`, 'acme')).join(''))
  await service.origin.waitFor(() => service.requests.length > 0)
  expect((await request(proxy.port, get('/v2/alive', 'acme'))).status).toBe(200)
  expect(service.requests.filter((seen) => seen.target !== '/v2/alive')).toHaveLength(1)
  gate.open()
  for (let i = 0; i < count; i++) expect((await client.response()).content.toString()).toBe(`/v2/${i}`)
})

test('between pipelined requests that are refused, others are served', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  await request(proxy.port, get('/v2/x', 'acme'))
  client.send(head('GET / HTTP/1.1', HOST).repeat(1_000))
  expect((await client.response()).status).toBe(400)
  expect((await request(proxy.port, get('/v2/alive', 'acme'))).status).toBe(200)
  const answered = proxy.logs.findIndex((line) => line.path === '/v2/alive')
  expect(answered).toBeGreaterThan(0)
  for (let i = 1; i < 1_000; i++) expect((await client.response()).status).toBe(400)
  const refusedLater = proxy.logs.slice(answered).filter((line) => line.code === 'org_id_missing')
  expect(refusedLater.length, 'refused behind the one that came later').toBeGreaterThan(0)
})

describe('a client whose requests wait', async () => {
  const service = await startService({ script: (seen) => (seen.target === '/v2/held' ? new Promise(() => {}) : {}) })
  const proxy = await startProxy(service)
  afterAll(async () => {
    await proxy[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  })

  test.each(['closes', 'resets'] as const)('%s: the request in flight ends at the origin', async (how) => {
    const before = service.requests.length
    await using client = await RawClient.sending(
      proxy.port,
      get('/v2/held', 'acme') + get('/v2/never', 'acme').repeat(3),
    )
    await service.origin.waitFor(() => service.requests.length > before)
    const seen = service.requests.at(-1)
    if (how === 'resets') client.reset()
    else client.socket.destroy()
    await service.origin.waitFor(() => seen?.connection.peerEnd !== undefined, 'the end at the origin')
    await proxy.logOf('/v2/held')
    expect(service.requests.filter(({ target }) => target === '/v2/never')).toEqual([])
  })
})

test('a client that has finished sending gets all its answers, and only the last one closes', async () => {
  await using service = await startService({ script: (seen) => ({ content: seen.target }) })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  const targets = Array.from({ length: 20 }, (_, i) => `/v2/${i}`)
  client.send(targets.map((target) => get(target, 'acme')).join(''))
  client.endSending()
  for (const target of targets) {
    const response = await client.response()
    expect(response.content.toString()).toBe(target)
    if (target !== targets.at(-1)) expect(fieldOf(response, 'connection')).toBe('keep-alive')
  }
  await client.untilClosed()
})

describe('a client that has finished sending is not kept waiting', async () => {
  const service = await startService({ script: (seen) => ({ content: seen.target }) })
  const proxy = await startProxy(service)
  afterAll(async () => {
    await proxy[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  })
  const good = get('/v2/1', 'acme')
  const refused = head('GET /v2/2 HTTP/1.1', HOST)
  const halfAPost = `${head('POST /v2/3 HTTP/1.1', HOST, 'X-Org-Id: acme', 'Content-Length: 10')}abc`

  test.each([
    ['a blank line behind a request that is refused', `${good}${refused}\r\n`, [200, 400]],
    ['a blank line behind several', `${good}${refused}${refused}\r\n`, [200, 400, 400]],
    ['a part of a head', `${good}${refused}GET /v2`, [200, 400]],
    ['a part of the content', `${good}${halfAPost}`, [200, 400]],
    ['a part of the content behind a request that is refused', `${good}${refused}${halfAPost}`, [200, 400, 400]],
  ])('%s', async (_, sent, statuses) => {
    await using client = await RawClient.sending(proxy.port, sent)
    client.endSending()
    for (const status of statuses) expect((await client.response()).status).toBe(status)
    await client.untilClosed()
  })
})

test('a stop of the proxy begins no request that waits', async () => {
  const gate = new Gate()
  await using service = await startService({
    script: async (seen) => {
      await gate.pass()
      return { content: seen.target }
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.sending(proxy.port, get('/v2/1', 'acme') + get('/v2/2', 'acme'))
  await service.origin.waitFor(() => service.requests.length > 0)
  const drained = proxy.app.drain()
  gate.open()
  const response = await client.response()
  expect([response.content.toString(), fieldOf(response, 'connection')]).toEqual(['/v2/1', 'close'])
  expect((await client.untilClosed()).bytes).toHaveLength(0)
  await drained
  expect(service.requests).toHaveLength(1)
})

const H2C = ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP']

/** Requests of every kind that the parser has to tell apart. Each answer of the origin repeats the content. */
function randomRequest(
  random: Random,
  target: string,
): { readonly bytes: string; readonly answer: string | undefined } {
  const lines = random.chance(0.3) ? H2C : []
  // Content that looks like a request must stay content.
  const content = random.pick([
    target,
    `${target}${get('/v2/smuggled', 'acme')}`,
    target.repeat(random.integer(1, 3_000)),
  ])
  switch (random.integer(0, 3)) {
    case 0:
      return { bytes: get(target, 'acme', ...lines), answer: '' }
    case 1: {
      const first = head(
        `POST ${target} HTTP/1.1`,
        HOST,
        'X-Org-Id: acme',
        `Content-Length: ${content.length}`,
        ...lines,
      )
      return { bytes: first + content, answer: content }
    }
    case 2: {
      const first = head(`POST ${target} HTTP/1.1`, HOST, 'X-Org-Id: acme', 'Transfer-Encoding: chunked', ...lines)
      const cut = random.integer(1, content.length - 1)
      const chunks = [content.slice(0, cut), content.slice(cut)].map(
        (chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`,
      )
      return { bytes: `${first}${chunks.join('')}0\r\n\r\n`, answer: content }
    }
    default:
      return { bytes: head(`GET ${target} HTTP/1.1`, HOST), answer: undefined }
  }
}

test('the parser stays in sync with content and offers of h2c, wherever the bytes are cut', async () => {
  await using service = await startService({
    script: async (seen) => {
      await seen.ended
      return { content: seen.content }
    },
  })
  await using proxy = await startProxy(service)
  await withSeed(async (random) => {
    for (let round = 0; round < 30; round++) {
      await using client = await RawClient.connect(proxy.port)
      const requests = Array.from({ length: 12 }, (_, i) => randomRequest(random, `/v2/${round}-${i}`))
      const bytes = requests.map((one) => one.bytes).join('')
      let at = 0
      while (at < bytes.length) {
        const end = at + random.pick([1, random.integer(2, 200), random.integer(200, 20_000)])
        client.send(bytes.slice(at, end))
        at = end
        if (random.chance(0.5)) await new Promise((resolve) => setImmediate(resolve))
      }
      for (const { answer, bytes: sent } of requests) {
        const response = await client.response()
        expect(response.status, sent.slice(0, 200)).toBe(answer === undefined ? 400 : 200)
        if (answer !== undefined) expect(response.content.toString(), sent.slice(0, 200)).toBe(answer)
        expect(fieldOf(response, 'connection')).toBe('keep-alive')
      }
    }
  })
  expect(service.origin.malformed).toEqual([])
  expect(service.requests.filter((seen) => seen.target === '/v2/smuggled')).toEqual([])
})
