/** One request at a time on each connection: a second one that comes too early is not answered, a later one is served. */

import { afterAll, describe, expect, test } from 'vitest'
import { get, HOST, head } from '../support/case-table.ts'
import { Gate } from '../support/changes.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { writes } from '../support/origin-connection.ts'
import { fieldOf, RawClient, request } from '../support/raw-client.ts'
import { type Random, withSeed } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startBoth, startProxy } from '../support/start-proxy.ts'

describe('a request in flight is answered, and what follows it is not', async () => {
  let gate: Gate
  const service = await startService({
    script: async (seen) => {
      await gate.pass()
      return { content: seen.target }
    },
  })
  const proxy = await startProxy(service, { 'listen.headersTimeout': '200ms', 'listen.keepAliveTimeout': '300ms' })
  afterAll(async () => {
    await proxy[Symbol.asyncDispose]()
    await service[Symbol.asyncDispose]()
  })
  const post = (...lines: string[]) => head('POST /v2/1 HTTP/1.1', HOST, 'X-Org-Id: acme', ...lines)
  const second = get('/v2/2', 'globex')

  test.each([
    ['a request', get('/v2/1', 'acme') + second],
    ['a hundred requests', get('/v2/1', 'acme') + second.repeat(100)],
    ['a request behind content with a length', `${post('Content-Length: 2')}hi${second}`],
    ['a request behind chunks', `${post('Transfer-Encoding: chunked')}2;a=b\r\nhi\r\n0;c="d"\r\n\r\n${second}`],
    ['a request behind no content', post('Content-Length: 0') + second],
    ['a request behind Connection: close', get('/v2/1', 'acme', 'Connection: close') + second],
    ['a request that would be refused', get('/v2/1', 'acme') + head('GET /v2/2 HTTP/1.1', HOST)],
    ['garbage', `${get('/v2/1', 'acme')}garbage\r\n\r\n`],
    ['the preface of HTTP/2', `${get('/v2/1', 'acme')}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`],
    ['two framings', `${get('/v2/1', 'acme')}${post('Content-Length: 5', 'Transfer-Encoding: chunked')}0\r\n\r\n`],
    ['a head that is too large', get('/v2/1', 'acme') + get('/v2/2', 'acme', `F: ${'a'.repeat(17_000)}`)],
    ['CONNECT', get('/v2/1', 'acme') + head('CONNECT evil.example:443 HTTP/1.1', 'Host: evil.example')],
    ['a handshake', get('/v2/1', 'acme') + get('/v2/ws', 'acme', ...HANDSHAKE)],
    ['an offer of h2c', get('/v2/1', 'acme') + get('/v2/2', 'acme', 'Connection: Upgrade', 'Upgrade: h2c')],
  ])('%s', async (_, sent) => {
    gate = new Gate()
    await using client = await RawClient.connect(proxy.port)
    const before = service.requests.length
    client.send(sent)
    await service.origin.waitFor(() => service.requests.length > before)
    gate.open()
    const response = await client.response()
    expect([response.status, response.content.toString()]).toEqual([200, '/v2/1'])
    expect(fieldOf(response, 'connection')).toBe('close')
    expect((await client.untilClosed()).bytes.toString()).toBe('')
    expect(service.requests.slice(before).map((seen) => seen.target)).toEqual(['/v2/1'])
  })

  test('half a head, for ever: the first is answered after it has timed out', async () => {
    gate = new Gate()
    await using client = await RawClient.connect(proxy.port)
    const before = service.requests.length
    client.send(`${get('/v2/1', 'acme')}GET /v2/2 HTTP/1.1\r\nHost: lo`)
    await service.origin.waitFor(() => service.requests.length > before)
    await new Promise((resolve) => setTimeout(resolve, 400)) // gives the proxy time for a premature answer
    gate.open()
    expect((await client.response()).content.toString()).toBe('/v2/1')
    await client.untilClosed()
  })

  test.each(['closes', 'resets'] as const)('the client %s: the request in flight ends at the origin', async (how) => {
    gate = new Gate()
    const before = service.requests.length
    await using client = await RawClient.connect(proxy.port)
    client.send(get('/v2/held', 'acme') + second.repeat(3))
    await service.origin.waitFor(() => service.requests.length > before)
    const seen = service.requests.at(-1)
    if (how === 'resets') client.reset()
    else client.socket.destroy()
    await service.origin.waitFor(() => seen?.connection.peerEnd !== undefined, 'the end at the origin')
    await proxy.logOf('/v2/held')
    expect(service.requests).toHaveLength(before + 1)
  })
})

test('a request that comes when all of the response before it is written, but not read, is served', async () => {
  // More than the buffers of the system take at once, and less than those of the proxy and the system together.
  const content = Buffer.alloc(16 * 1024 * 1024, 'x')
  const { proxy } = await startBoth({ script: (seen) => ({ content: seen.target === '/v2/1' ? content : 'y' }) })
  await using client = await RawClient.connect(proxy.port)
  client.send(get('/v2/1', 'acme'))
  expect((await client.response()).content).toHaveLength(content.length)
  client.send(get('/v2/2', 'acme'))
  expect((await client.response()).content.toString()).toBe('y')
})

test('a chain of refused requests in one segment ends early, and others are served meanwhile', async () => {
  const { proxy } = await startBoth()
  await using client = await RawClient.connect(proxy.port)
  client.send(head('GET / HTTP/1.1', HOST).repeat(1_000))
  expect((await request(proxy.port, get('/v2/alive', 'acme'))).status).toBe(200)
  const { bytes, end } = await client.untilClosed()
  expect(bytes.toString().split('HTTP/1.1 400').length - 1).toBeLessThan(5)
  expect(end).toBe('fin')
})

describe('a client that ends its side has left', () => {
  test.each(['HTTP/1.0', 'HTTP/1.1'])(
    'while it waits (%s): the exchange with the service ends at once',
    async (version) => {
      const { service, proxy } = await startBoth({ script: () => new Promise(() => {}) })
      await using client = await RawClient.connect(proxy.port)
      client.send(get('/v2/held', 'acme').replace('HTTP/1.1', version))
      await service.origin.waitFor(() => service.requests.length === 1)
      client.endSending()
      const [seen] = service.requests
      await service.origin.waitFor(() => seen?.connection.peerEnd !== undefined, 'the end at the origin')
      expect(await proxy.logOf('/v2/held')).toMatchObject({ code: 'client_closed', status: 499 })
      expect((await client.untilClosed()).bytes.toString()).toBe('')
    },
  )

  test.each([
    ['HTTP/1.1', 'with a length', 'Content-Length: 100'],
    ['HTTP/1.0', 'until the end of the connection', 'X: y'],
  ])('inside its response (%s, %s): the response does not look complete', async (version, _, line) => {
    const { service, proxy } = await startBoth({
      script: writes(`HTTP/1.1 200 OK\r\n${line}\r\n\r\nfirst`),
    })
    await using client = await RawClient.connect(proxy.port)
    client.send(get('/v2/x', 'acme').replace('HTTP/1.1', version))
    await client.untilBytes('first')
    client.endSending()
    expect((await client.response()).isComplete).toBe(false)
    expect(await proxy.logOf('/v2/x')).toMatchObject({ code: 'client_closed', status: 200 })
    await service.origin.waitFor(() => service.requests[0]?.connection.peerEnd !== undefined, 'the end at the origin')
  })
})

test('a stop of the proxy begins no request that comes too early', async () => {
  const gate = new Gate()
  const { service, proxy } = await startBoth({
    script: async (seen) => {
      await gate.pass()
      return { content: seen.target }
    },
  })
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
  const { service, proxy } = await startBoth({
    script: async (seen) => {
      await seen.ended
      return { content: seen.content }
    },
  })
  await withSeed(async (random) => {
    for (let round = 0; round < 30; round++) {
      await using client = await RawClient.connect(proxy.port)
      for (let index = 0; index < 12; index++) {
        const { bytes, answer } = randomRequest(random, `/v2/${round}-${index}`)
        for (let at = 0; at < bytes.length; ) {
          const end = at + random.pick([1, random.integer(2, 200), random.integer(200, 20_000)])
          client.send(bytes.slice(at, end))
          at = end
          if (random.chance(0.5)) await new Promise((resolve) => setImmediate(resolve))
        }
        const response = await client.response()
        expect(response.status, bytes.slice(0, 200)).toBe(answer === undefined ? 400 : 200)
        if (answer !== undefined) expect(response.content.toString(), bytes.slice(0, 200)).toBe(answer)
        expect(fieldOf(response, 'connection')).toBe('keep-alive')
      }
    }
  })
  expect(service.origin.malformed).toEqual([])
  expect(service.requests.filter((seen) => seen.target === '/v2/smuggled')).toEqual([])
})
