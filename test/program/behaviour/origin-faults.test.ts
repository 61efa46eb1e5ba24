/** Faults of the origin: the client gets a 502 or 504 that names the fault, or a response that is visibly broken. */

import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { connect, createServer, type Socket } from 'node:net'
import { describe, expect, onTestFinished, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { CA_FILE, certificate } from '../../support/certificates.ts'
import { type Fault, startFaultTable } from '../../support/fault-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { listening } from '../../support/listening.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { fieldOf, knowsReset, problemOf, RawClient, request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const table = await startFaultTable({
  'origin.idleTimeout': '300ms',
  'origin.responseTimeout': '400ms',
  'origin.connectTimeout': '400ms',
})

const OK = 'HTTP/1.1 200 OK\r\n'
const LENGTH = `${OK}Content-Length: 100\r\n\r\n`
const CHUNKED = `${OK}Transfer-Encoding: chunked\r\n\r\n`

describe('no response, or none that the proxy can read', () => {
  // `http1/response-parser.test.ts` has every other form of them.
  test.each<[string, string, string, Fault['ends']]>([
    ['garbage', 'http_protocol_error', '\x00\x01\x02garbage\r\n\r\n', 'fin'],
    ['garbage for a handshake', 'http_protocol_error', 'garbage\r\n\r\n', 'nothing'],
    ['a 101', 'http_protocol_error', 'HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n', 'nothing'],
    ['a head of 100 KB', 'http_protocol_error', `${OK}${`F: ${'a'.repeat(1000)}\r\n`.repeat(100)}\r\n`, 'fin'],
    ['RST inside the head', 'http_response_incomplete', `${OK}X-Foo: b`, 'reset'],
    ['FIN inside the head', 'http_response_incomplete', `${OK}X-Foo: b`, 'fin'],
    ['FIN before any byte', 'connection_terminated', '', 'fin'],
    ['RST before any byte', 'connection_terminated', '', 'reset'],
    ['RST before any byte of an answer to a handshake', 'connection_terminated', '', 'reset'],
    ['silence before the head', 'http_response_timeout', '', 'nothing'],
    ['silence after a handshake', 'http_response_timeout', '', 'nothing'],
    ['silence inside the head', 'http_response_timeout', `${OK}X-Foo: `, 'nothing'],
  ])('%s: %s, and it is sent once', async (name, code, writes, ends) => {
    await table.expectAlive() // gets the token
    // A reset may overtake the bytes before it.
    const ofReset = name === 'RST inside the head' ? {} : { code }
    await table.run({
      writes,
      ends,
      ...(name.includes('handshake') ? { lines: HANDSHAKE } : { method: 'POST' }),
      status: code === 'http_response_timeout' ? 504 : 502,
      ...ofReset,
      isReused: false,
      also: (_, requests) => expect(requests).toHaveLength(1),
    })
  })
})

test.each([
  ['bare_lf', `${OK}X: 1\n\r\n`],
  ['head_too_large', `${OK}${`F: ${'a'.repeat(1000)}\r\n`.repeat(100)}\r\n`],
  ['unexpected_switch', 'HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n'],
  ['bad_chunk_size', `${CHUNKED}7\r\npartial\r\nzz\r\n`],
])('the log line says which rule a response broke: %s', async (reason, writes) => {
  const target = table.writing(writes)
  await request(table.proxy.port, get(target, 'acme'))
  const code = reason === 'bad_chunk_size' ? 'http_response_incomplete' : 'http_protocol_error'
  expect(await table.proxy.logOf(target)).toMatchObject({ code, reason })
})

describe('a response that breaks off never looks complete', () => {
  test.each<[string, string, Fault['ends']]>([
    ['a length cut by FIN', `${LENGTH}partial`, 'fin'],
    ['a length cut by RST', `${LENGTH}partial`, 'reset'],
    ['a length without content', LENGTH, 'fin'],
    ['chunks cut by FIN', `${CHUNKED}7\r\npartial\r\n`, 'fin'],
    ['chunks cut by RST', `${CHUNKED}7\r\npartial\r\n`, 'reset'],
    ['cut inside a chunk', `${CHUNKED}9\r\npartial`, 'fin'],
    ['cut inside the last chunk', `${CHUNKED}7\r\npartial\r\n0\r\n`, 'fin'],
    ['a bad chunk size', `${CHUNKED}7\r\npartial\r\nzz\r\n`, 'nothing'],
    ['no CRLF behind a chunk', `${CHUNKED}7\r\npartialXX0\r\n\r\n`, 'nothing'],
    ['a stall inside a length', `${LENGTH}partial`, 'nothing'],
    ['a stall between chunks', `${CHUNKED}7\r\npartial\r\n`, 'nothing'],
  ])('%s', (_, writes, ends) =>
    table.run({
      writes,
      ends,
      isBroken: true,
      isReused: false,
      also: (response) => expect(response.content.toString()).toMatch(/^(partial)?$/),
    }),
  )

  test.each([[[]], [HANDSHAKE]])('a response that ends with its connection counts as complete: %j', (lines) =>
    table.run({
      lines,
      writes: 'HTTP/1.0 200 OK\r\nX-Foo: 1\r\n\r\nall of it',
      ends: 'fin',
      also: (response) => expect(response.content.toString()).toBe('all of it'),
    }),
  )

  test.each([[[]], [HANDSHAKE]])('unless the connection was reset: %j', async (lines) => {
    const target = table.writing(`${OK}X-Foo: 1\r\n\r\npartial`)
    await using client = await RawClient.sending(table.proxy.port, get(target, 'acme', ...lines))
    await client.untilBytes('partial')
    table.requestsFor(target)[0]?.connection.reset()
    expect(await client.response()).toMatchObject({ status: 200, isComplete: false })
  })

  // Node tells of a reset right behind data as of an end. What a tracing agent does must not matter: it reads the address of
  // the peer, which a reset socket has no more, while it is there.
  test.each([
    ['http', []],
    ['http', HANDSHAKE],
    ['https', []],
    ['https', HANDSHAKE],
  ])('unless the connection was reset right behind the content: %s %j', async (scheme, lines) => {
    const script: OriginScript = (_, connection) => {
      connection.write(`${OK}X-Foo: 1\r\n\r\npartial`)
      connection.reset()
    }
    const readAddress = (message: unknown) => {
      const { socket } = message as { readonly socket: Socket }
      socket.once('connect', () => socket.remoteAddress)
    }
    subscribe('net.client.socket', readAddress)
    onTestFinished(() => void unsubscribe('net.client.socket', readAddress))
    const tls = scheme === 'https' ? { tls: certificate('localhost') } : {}
    await using service = await startService({ ...tls, script })
    await using proxy = await startProxy(service, { 'origin.caFile': CA_FILE })
    for (let i = 0; i < 10; i++) {
      const response = await request(proxy.port, get('/v2/x', 'acme', ...lines))
      expect(response.isComplete && response.status === 200, `a complete 200: ${response.content}`).toBe(false)
    }
  })

  const OLD = get('/v2/a', 'acme', 'Connection: keep-alive').replace('HTTP/1.1', 'HTTP/1.0')

  test('an HTTP/1.0 client gets a reset: for it, a normal close would be the end of the response', async () => {
    const target = table.writing(`${CHUNKED}7\r\npartial\r\n`)
    await using client = await RawClient.sending(table.proxy.port, OLD.replace('/v2/a', target))
    await client.untilBytes('partial')
    table.requestsFor(target)[0]?.connection.end()
    const fields = expect.arrayContaining(['Connection', 'close'])
    expect(await client.response()).toMatchObject({ status: 200, isComplete: !knowsReset, fields })
  })

  // The attack: a reset of a unix socket threw, and the program ended.
  test('a unix socket has no reset: the connection ends, and the program goes on', async () => {
    await using service = await startService({
      script: (_, connection) => {
        connection.write(`${CHUNKED}10\r\nhalf`)
        connection.end()
      },
    })
    const callers = 'callers: [{name: old, socket: $FOLDER/socket, orgs: [acme]}]'
    await using proxy = await startProxy(service, {}, { 'proxy.yaml': callers })
    await using client = await RawClient.sending(proxy.at('socket'), OLD)
    await client.untilClosed()
    expect((await proxy.logOf('/v2/a')).code).toBe('http_response_incomplete')
    service.origin.script = () => ({ content: 'whole' })
    expect((await request(proxy.at('socket'), OLD)).content.toString()).toBe('whole')
  })
})

test('an origin that refuses connections, and comes back', async () => {
  await table.expectAlive() // gets the token
  const { origin } = table.service
  const { port } = origin
  await origin.stop()
  for (const method of ['GET', 'POST']) {
    const response = await request(table.proxy.port, get('/v2/x', 'acme').replace('GET', method))
    expect([response.status, problemOf(response).code]).toEqual([502, 'connection_refused'])
  }
  await origin.listen(port)
  await table.expectAlive()
})

function relay(connection: Socket, service: Service): void {
  const onward = connect(service.origin.port, '127.0.0.1').on('error', () => undefined)
  connection.pipe(onward).pipe(connection)
}

test('bytes outside TLS on a connection with TLS are a tls_protocol_error', async () => {
  await using service = await startService({
    tls: certificate('localhost'),
    acceptsAnyToken: true,
    script: () => {
      for (const connection of network.sockets) connection.write('this is no TLS record')
      return new Promise(() => {})
    },
  })
  await using network = await listening(createServer((connection) => relay(connection, service)))
  await using proxy = await startProxy(service, {
    appRoutes: 'GET /v2/*',
    baseUrl: `https://localhost:${network.port}`,
    'origin.caFile': CA_FILE,
  })
  const answer = await request(proxy.port, get('/v2/x', 'acme'))
  expect([answer.status, problemOf(answer).code]).toEqual([502, 'tls_protocol_error'])
})

test('content that is kept for no repeat is there when the first connection breaks before it opens', async () => {
  await using service = await startService({ tls: certificate('localhost'), acceptsAnyToken: true })
  let connections = 0
  const front = createServer((connection) => {
    connections += 1
    if (connections === 1) connection.destroy()
    else relay(connection, service)
  })
  await using network = await listening(front)
  await using proxy = await startProxy(service, {
    appRoutes: 'POST /v2/*',
    'replay.maxBody': '0B',
    baseUrl: `https://localhost:${network.port}`,
    'origin.caFile': CA_FILE,
  })
  const answer = await request(proxy.port, `${get('/v2/x', 'acme', 'Content-Length: 5').replace('GET', 'POST')}hello`)
  expect([answer.status, connections]).toEqual([200, 2])
  expect(service.requests.at(-1)?.content.toString()).toBe('hello')
})

test('a 502 does not cost the client its connection', async () => {
  const bad = table.target((_, connection) => connection.reset())
  await using client = await RawClient.connect(table.proxy.port)
  for (const [target, status] of Object.entries({ [bad]: 502, '/v2/good': 200 })) {
    client.send(get(target, 'acme'))
    const response = await client.response()
    expect([response.status, fieldOf(response, 'connection')]).toEqual([status, 'keep-alive'])
    expect(fieldOf(response, 'keep-alive')).toBe('timeout=65') // the default of listen.keepAliveTimeout
  }
})

test('a name that does not resolve is told in the answer, in the log and in the status, for requests and for mints', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, {
    appRoutes: 'GET /v2/app',
    baseUrl: 'https://name-of-nothing.invalid',
    'origin.connectTimeout': '20s', // of a resolver that has no network
    'tokens.mintTimeout': '100ms',
    'admin.address': 'localhost:0',
  })
  const told = /^The host name of baseUrl does not resolve \(\w+\)\./
  expect(problemOf(await request(proxy.port, get('/v2/app', 'acme')))).toMatchObject({
    code: 'dns_error',
    detail: expect.stringMatching(told),
  })
  expect(await proxy.logOf('/v2/app')).toMatchObject({ code: 'dns_error', detail: expect.stringMatching(told) })
  const forOrg = problemOf(await request(proxy.port, get('/v2/x', 'acme')))
  expect(forOrg).toMatchObject({ code: 'token_endpoint_unavailable', detail: expect.stringMatching(told) })
  expect(proxy.logs.find(({ msg }) => msg === 'mint failed')).toMatchObject({ detail: expect.stringMatching(told) })
  const { errors } = JSON.parse((await proxy.askAdmin('/status')).content)
  for (const { detail } of errors) expect(detail).toMatch(told)
  expect(errors).toHaveLength(2)
})
