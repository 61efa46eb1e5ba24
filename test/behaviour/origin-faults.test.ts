/** Faults of the origin: the client gets a 502 or 504 that names the fault, or a response that is visibly broken. */

import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { CA_FILE, certificate } from '../support/certificates.ts'
import { type Fault, startFaultTable } from '../support/fault-table.ts'
import { writes } from '../support/origin-connection.ts'
import { fieldOf, problemOf, RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startBoth, startProxy } from '../support/start-proxy.ts'

const table = await startFaultTable({
  'origin.idleTimeout': '300ms',
  'origin.responseTimeout': '400ms',
  'origin.connectTimeout': '400ms',
})

const OK = 'HTTP/1.1 200 OK\r\n'

describe('no response, or none that the proxy can read', () => {
  const garbage: readonly (readonly [string, string])[] = [
    ['RST inside the head', `${OK}X-Foo: b`],
    ['a field name with a space', `${OK}X Foo: 1\r\nContent-Length: 0\r\n\r\n`],
    ['a control in a value', `${OK}X-Foo: a\x01b\r\nContent-Length: 0\r\n\r\n`],
    ['NUL in a value', `${OK}X-Foo: a\x00b\r\nContent-Length: 0\r\n\r\n`],
    ['status 99', 'HTTP/1.1 99 Low\r\nContent-Length: 0\r\n\r\n'],
    ['status 000', 'HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n'],
    ['status 999', 'HTTP/1.1 999 High\r\nContent-Length: 0\r\n\r\n'],
    ['status 600', 'HTTP/1.1 600 High\r\nContent-Length: 0\r\n\r\n'],
    ['status of four digits', 'HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n'],
    [
      'a head of 100 KB',
      `${OK}${Array.from({ length: 100 }, (_, i) => `F${i}: ${'a'.repeat(1000)}\r\n`).join('')}Content-Length: 0\r\n\r\n`,
    ],
    ['garbage', '\x00\x01\x02garbage\r\n\r\n'],
    ['text', 'hello\r\n'],
    ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'],
    ['a frame of HTTP/2', '\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64'],
    ['a TLS alert', '\x15\x03\x01\x00\x02\x02\x28'],
    ['a bare line feed behind the status line', 'HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n'],
    ['HTTP/0.9', '<html>hello</html>'],
    ['another version', 'HTTP/3.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ]
  test.each(garbage)('%s', (name, writes) =>
    table.run({
      name,
      writes,
      ends: name.includes('RST') ? 'reset' : 'fin',
      method: 'POST',
      status: 502,
      isReused: false,
    }),
  )

  test.each(['fin', 'reset'] as const)('no byte at all (%s): a POST is sent once', (ends) =>
    table.run({
      writes: '',
      ends,
      method: 'POST',
      status: 502,
      code: 'connection_terminated',
      also: (_, requests) => expect(requests).toHaveLength(1),
    }),
  )
  test.each(['fin', 'reset'] as const)('no byte at all (%s): a GET at most twice', (ends) =>
    table.run({ writes: '', ends, status: 502, code: 'connection_terminated' }),
  )
  test('a head that breaks off: that is more than no answer', () =>
    table.run({
      writes: `${OK}X-Foo: b`,
      ends: 'fin',
      status: 502,
      code: 'http_response_incomplete',
      also: (_, requests) => expect(requests).toHaveLength(1),
    }))
  test('silence before the head', () =>
    table.run({
      writes: '',
      ends: 'nothing',
      status: 504,
      code: 'http_response_timeout',
      isReused: false,
    }))
  test('silence inside the head', () =>
    table.run({
      writes: `${OK}X-Foo: `,
      ends: 'nothing',
      status: 504,
      code: 'http_response_timeout',
      isReused: false,
    }))
})

describe('a response that breaks off never looks complete', () => {
  const broken = (name: string, writes: string, ends: Fault['ends']): Fault => ({
    name,
    writes,
    ends,
    status: 200,
    isBroken: true,
    isReused: false,
    also: (response) => expect(response.content.toString()).toMatch(/^(partial)?$/),
  })
  test.each<Fault>([
    broken('a length cut by FIN', `${OK}Content-Length: 100\r\n\r\npartial`, 'fin'),
    broken('a length cut by RST', `${OK}Content-Length: 100\r\n\r\npartial`, 'reset'),
    broken('a length without content', `${OK}Content-Length: 100\r\n\r\n`, 'fin'),
    broken('chunks cut by FIN', `${OK}Transfer-Encoding: chunked\r\n\r\n7\r\npartial\r\n`, 'fin'),
    broken('chunks cut by RST', `${OK}Transfer-Encoding: chunked\r\n\r\n7\r\npartial\r\n`, 'reset'),
    broken('cut inside a chunk', `${OK}Transfer-Encoding: chunked\r\n\r\n9\r\npartial`, 'fin'),
    broken('cut inside the last chunk', `${OK}Transfer-Encoding: chunked\r\n\r\n7\r\npartial\r\n0\r\n`, 'fin'),
    broken('a bad chunk size', `${OK}Transfer-Encoding: chunked\r\n\r\n7\r\npartial\r\nzz\r\n`, 'nothing'),
    broken('no CRLF behind a chunk', `${OK}Transfer-Encoding: chunked\r\n\r\n7\r\npartialXX0\r\n\r\n`, 'nothing'),
    broken('a stall inside a length', `${OK}Content-Length: 100\r\n\r\npartial`, 'nothing'),
    broken('a stall between chunks', `${OK}Transfer-Encoding: chunked\r\n\r\n7\r\npartial\r\n`, 'nothing'),
  ])('$name', (row) => table.run(row))

  test('a response that ends with its connection counts as complete', () =>
    table.run({
      writes: 'HTTP/1.0 200 OK\r\nX-Foo: 1\r\n\r\nall of it',
      ends: 'fin',
      status: 200,
      also: (response) => expect(response.content.toString()).toBe('all of it'),
    }))
  test('unless the connection was reset', async () => {
    const target = table.target(writes(`${OK}X-Foo: 1\r\n\r\npartial`))
    await using client = await RawClient.sending(table.proxy.port, get(target, 'acme'))
    await client.untilBytes('partial') // a reset that arrives together with data looks like a normal end
    table.requestsFor(target)[0]?.connection.reset()
    expect(await client.response()).toMatchObject({ status: 200, isComplete: false })
  })
})

test('an HTTP/1.0 client gets a reset: for it, a normal close would be the end of the response', async () => {
  const target = table.target(writes(`${OK}Transfer-Encoding: chunked\r\n\r\n7\r\npartial\r\n`))
  await using client = await RawClient.sending(table.proxy.port, get(target, 'acme').replace('HTTP/1.1', 'HTTP/1.0'))
  await client.untilBytes('partial')
  table.requestsFor(target)[0]?.connection.end()
  expect(await client.response()).toMatchObject({ status: 200, isComplete: false })
})

describe('an origin that cannot be reached', () => {
  test('it refuses connections, and comes back', async () => {
    await table.expectAlive() // gets the token
    const { origin } = table.service
    const { port } = origin
    await origin.stop()
    for (const method of ['GET', 'POST']) {
      const response = await request(table.proxy.port, get('/v2/x', 'acme').replace('GET', method))
      expect(response.status).toBe(502)
      expect(problemOf(response).code).toBe('connection_refused')
    }
    await origin.listen(port)
    await table.expectAlive()
  })
})

describe('an answer before the content is sent', () => {
  test.each([413, 401, 200])('%i, and the origin closes', async (status) => {
    const target = table.target(() => ({ status, content: 'early', isEarly: true, closes: true }))
    await using client = await RawClient.sending(
      table.proxy.port,
      get(target, 'acme', 'Content-Length: 1000000').replace('GET', 'POST') + 'x'.repeat(200_000),
    )
    const response = await client.response('POST')
    expect(response).toMatchObject({ status, isComplete: true })
    expect(response.content.toString()).toBe('early')
    await client.untilClosed()
    expect(table.requestsFor(target)).toHaveLength(1)
    await table.expectAlive()
  })
})

test('bytes outside TLS on a connection with TLS are a tls_protocol_error', async () => {
  const connections: Socket[] = []
  await using service = await startService({
    tls: certificate('localhost'),
    acceptsAnyToken: true,
    script: () => {
      for (const connection of connections) connection.write('this is no TLS record')
      return new Promise(() => {})
    },
  })
  const network = createServer((connection) => {
    connections.push(connection)
    const onward = connect(service.origin.port, '127.0.0.1')
    connection
      .on('error', () => undefined)
      .pipe(onward.on('error', () => undefined))
      .pipe(connection)
  })
  await once(network.listen(0, '127.0.0.1'), 'listening')
  const { port } = network.address() as AddressInfo
  await using proxy = await startProxy(service, {
    appRoutes: 'GET /v2/*',
    baseUrl: `https://localhost:${port}`,
    'origin.caFile': CA_FILE,
  })
  const answer = await request(proxy.port, get('/v2/x', 'acme'))
  expect([answer.status, problemOf(answer).code]).toEqual([502, 'tls_protocol_error'])
  for (const connection of connections) connection.destroy()
  network.close()
})

test('a 502 does not cost the client its connection', async () => {
  const { proxy } = await startBoth({
    script: ({ target }, connection) => {
      if (target === '/v2/good') return { content: 'good' }
      connection.reset()
      return undefined
    },
  })
  await using client = await RawClient.connect(proxy.port)
  for (const [target, status] of Object.entries({ '/v2/bad': 502, '/v2/good': 200 })) {
    client.send(get(target, 'acme'))
    const response = await client.response()
    expect([response.status, fieldOf(response, 'connection')]).toEqual([status, 'keep-alive'])
  }
})
