/** One request at a time on each connection: a second one that comes too early is not answered, a later one is served. */

import { describe, expect, test } from 'vitest'
import { get, HOST, head } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import { startFaultTable } from '../../support/fault-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { fieldOf, knowsReset, RawClient, request } from '../../support/raw-client.ts'
import { type Random, withSeed } from '../../support/seed.ts'
import { startBothForFile, startProxy } from '../../support/start-proxy.ts'

let gate: Gate
const script: OriginScript = async (seen) => {
  if (seen.target === '/v2/1') await gate.pass()
  await seen.ended
  return { content: seen.target.startsWith('/v2/echo') ? seen.content : seen.target }
}
const limits = { 'listen.headersTimeout': '200ms', 'listen.keepAliveTimeout': '300ms' }
const { service, proxy } = await startBothForFile({ script }, limits)
const first = get('/v2/1', 'acme')
const second = get('/v2/2', 'globex')
const post = (...lines: string[]) => get('/v2/1', 'acme', ...lines).replace('GET', 'POST')

/** Sends this, and resolves when the first request is at the origin. */
async function sent(bytes: string, to = proxy) {
  gate = new Gate()
  const before = service.requests.length
  const client = await RawClient.sending(to.port, bytes)
  await service.origin.waitFor(() => service.requests.length > before)
  return { client, targets: () => service.requests.slice(before).map(({ target }) => target) }
}

describe('a request in flight is answered, and what follows it is not', () => {
  test.each([
    ['a request', first + second],
    ['a hundred requests', first + second.repeat(100)],
    ['a request behind content with a length', `${post('Content-Length: 2')}hi${second}`],
    ['a request behind chunks', `${post('Transfer-Encoding: chunked')}2;a=b\r\nhi\r\n0;c="d"\r\n\r\n${second}`],
    ['a request behind no content', post('Content-Length: 0') + second],
    ['a request behind Connection: close', get('/v2/1', 'acme', 'Connection: close') + second],
    ['a request that would be refused', first + head('GET /v2/2 HTTP/1.1', HOST)],
    ['garbage', `${first}garbage\r\n\r\n`],
    ['the preface of HTTP/2', `${first}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`],
    ['two framings', `${first}${post('Content-Length: 5', 'Transfer-Encoding: chunked')}0\r\n\r\n`],
    ['a head that is too large', first + get('/v2/2', 'acme', `F: ${'a'.repeat(17_000)}`)],
    ['CONNECT', first + head('CONNECT evil.example:443 HTTP/1.1', 'Host: evil.example')],
    ['a handshake', first + get('/v2/ws', 'acme', ...HANDSHAKE)],
    ['an offer of h2c', first + get('/v2/2', 'acme', 'Connection: Upgrade', 'Upgrade: h2c')],
  ])('%s', async (_, bytes) => {
    const { client, targets } = await sent(bytes)
    gate.open()
    const answer = await client.response()
    expect([answer.content.toString(), fieldOf(answer, 'connection')]).toEqual(['/v2/1', 'close'])
    expect((await client.untilClosed()).bytes.toString()).toBe('')
    expect(targets()).toEqual(['/v2/1'])
  })

  test('half a head, for ever: the first is answered after it has timed out', async () => {
    const { client } = await sent(`${first}GET /v2/2 HTTP/1.1\r\nHost: lo`)
    await new Promise((resolve) => setTimeout(resolve, 400)) // gives the proxy time for a premature answer
    gate.open()
    expect((await client.response()).content.toString()).toBe('/v2/1')
    await client.untilClosed()
  })

  test.each(['closes', 'resets'] as const)('the client %s: the request in flight ends at the origin', async (how) => {
    const { client, targets } = await sent(first + second.repeat(3))
    const seen = service.requests.at(-1)
    if (how === 'resets') client.reset()
    else client.socket.destroy()
    await service.origin.waitFor(() => seen?.connection.peerEnd !== undefined, 'the end at the origin')
    expect(targets()).toEqual(['/v2/1'])
  })

  test('up to 64 KiB', async () => {
    const { client } = await sent(first + second.repeat(10))
    client.send('x'.repeat(60 * 1024))
    gate.open()
    expect((await client.response()).status).toBe(200)
  })

  test.each([
    ['requests', second],
    ['empty lines', '\r\n'],
  ])('more than 64 KiB of %s break the connection off', async (_, bytes) => {
    await using own = await startProxy(service)
    const { client } = await sent(first, own)
    client.socket.on('error', () => undefined)
    const piece = Buffer.from(bytes.repeat((16 * 1024) / bytes.length))
    const sending = setInterval(() => client.socket.writable && client.send(piece), 5)
    try {
      expect(await own.logOf('/v2/1')).toMatchObject({ code: 'request_invalid', reason: 'surplus' })
    } finally {
      clearInterval(sending)
    }
    const seen = service.requests.at(-1)
    await service.origin.waitFor(() => seen?.connection.peerEnd !== undefined, 'the end at the origin')
  })

  test('not after a stop of the proxy, either', async () => {
    await using own = await startProxy(service)
    const { client, targets } = await sent(first + second, own)
    const drained = own.app.drain()
    gate.open()
    const response = await client.response()
    expect([response.content.toString(), fieldOf(response, 'connection')]).toEqual(['/v2/1', 'close'])
    expect((await client.untilClosed()).bytes).toHaveLength(0)
    client.endSending()
    await drained
    expect(targets()).toEqual(['/v2/1'])
  })
})

test('a chain of refused requests in one segment ends early, and others are served meanwhile', async () => {
  await using client = await RawClient.sending(proxy.port, head('GET / HTTP/1.1', HOST).repeat(1_000))
  expect((await request(proxy.port, get('/v2/alive', 'acme'))).status).toBe(200)
  const { bytes, end } = await client.untilClosed()
  expect(bytes.toString().split('HTTP/1.1 400').length - 1).toBeLessThan(5)
  expect(end).toBe('fin')
})

describe('a client that ends its side has left', async () => {
  const table = await startFaultTable()

  test.each([
    ['HTTP/1.0', 'while it waits', '', 499],
    ['HTTP/1.1', 'while it waits', '', 499],
    ['HTTP/1.1', 'inside a response with a length', 'Content-Length: 100\r\n\r\nfirst', 200],
    ['HTTP/1.0', 'inside a response that ends with its connection', 'X: y\r\n\r\nfirst', 200],
    ['HTTP/1.0', 'at its last byte', 'Transfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n', 200, '1\r\n.\r\n0\r\n\r\n'],
  ])('%s, %s: the exchange with the service ends at once', async (version, _, writes, status, rest = '') => {
    const target = table.writing(writes === '' ? '' : `HTTP/1.1 200 OK\r\n${writes}`)
    await using client = await RawClient.sending(table.proxy.port, get(target, 'acme').replace('HTTP/1.1', version))
    await client.untilBytes(writes === '' ? '' : 'first')
    ;(await table.arrival(target)).connection.write(rest)
    client.endSending()
    const looksComplete = version === 'HTTP/1.0' && !knowsReset
    if (writes !== '') expect((await client.response()).isComplete).toBe(looksComplete)
    else expect((await client.untilClosed()).bytes.toString()).toBe('')
    expect(await table.proxy.logOf(target)).toMatchObject({ code: 'client_closed', status })
    if (rest === '') await table.abandoned(target)
  })
})

const H2C = ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP']

/** A request of any kind that the parser has to tell apart, and the content of its answer; undefined for a refused one. */
function randomRequest(random: Random, target: string): readonly [bytes: string, answer: string | undefined] {
  const lines = random.chance(0.3) ? H2C : []
  // Content that looks like a request must stay content.
  const content = random.pick([target, target + get('/v2/smuggled', 'acme'), target.repeat(random.integer(1, 3_000))])
  const upload = (framing: string) => get(target, 'acme', framing, ...lines).replace('GET', 'POST')
  switch (random.integer(0, 3)) {
    case 0:
      return [get(target, 'acme', ...lines), '']
    case 1:
      return [upload(`Content-Length: ${content.length}`) + content, content]
    case 2: {
      const cut = random.integer(1, content.length - 1)
      const chunks = [content.slice(0, cut), content.slice(cut), ''].map(
        (text) => `${text.length.toString(16)}\r\n${text}\r\n`,
      )
      return [upload('Transfer-Encoding: chunked') + chunks.join(''), content]
    }
    default:
      return [head(`GET ${target} HTTP/1.1`, HOST), undefined]
  }
}

test('the parser stays in sync with content and offers of h2c, wherever the bytes are cut', async () => {
  await using own = await startProxy(service)
  await withSeed(async (random) => {
    for (let round = 0; round < 30; round++) {
      await using client = await RawClient.connect(own.port)
      for (let index = 0; index < 12; index++) {
        const [bytes, answer] = randomRequest(random, `/v2/echo/${round}-${index}`)
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
