/**
 * The attack: a request target that is a whole URL, or reads as one, makes the proxy connect to another host and hand
 * it the token (server-side request forgery). `new URL('//evil.example/x', base)` is evil.example.
 */

import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'
import { type Origin, startOrigin } from '../support/origin.ts'

const table = await startTable()
afterAll(() => table[Symbol.asyncDispose]())

/** The proxy must never connect to this one. */
let elsewhere: Origin
beforeAll(async () => {
  elsewhere = await startOrigin()
})
afterAll(() => elsewhere[Symbol.asyncDispose]())

const line = (target: string) => head(`GET ${target} HTTP/1.1`, HOST, ORG)

test.each<Case>([
  { name: 'T-PT-01 another host', send: line('http://evil.example/v2/x'), status: 421, code: 'host_refused' },
  {
    name: 'T-PT-01 another scheme and host',
    send: line('https://evil.example/v2/x'),
    status: 421,
    code: 'host_refused',
  },
  { name: 'T-PT-01 in capitals', send: line('HTTP://EVIL.EXAMPLE/v2/x'), status: 421, code: 'host_refused' },
  { name: 'T-PT-01 userinfo that is our name', send: line('http://localhost@evil.example/v2/x'), status: 421 },
  {
    name: 'T-PT-01 a host that ends in a backslash',
    send: line('http://localhost\\@evil.example/v2/x'),
    status: 400,
  },
  { name: 'T-PT-01 no authority', send: line('http:///v2/x'), status: 421 },
  { name: 'T-PT-01 one slash', send: line('http:/evil.example/v2/x'), status: 400 },
  { name: 'T-PT-02 ftp', send: line('ftp://evil/x'), status: 400 },
  { name: 'T-PT-02 a file', send: line('file:///etc/passwd'), status: 400 },
  { name: 'T-PT-02 javascript', send: line('javascript:alert(1)'), status: 400 },
  { name: 'T-PT-02 ws to us', send: line('ws://localhost/v2/x'), status: 400 },
  { name: 'T-PT-03 another authority than Host', send: line('http://b/'), status: 421 },
  {
    name: 'T-PT-03 our name, and another in Host',
    send: head('GET http://localhost/v2/x HTTP/1.1', 'Host: evil.example', ORG),
    status: 421,
  },
  { name: 'T-PT-17 authority-form', send: line('localhost:443'), status: 400 },
  { name: 'T-PT-01 no path', send: line('v2/x'), status: 400 },
])('$name', (row) => table.run(row))

test.each([
  ['http://localhost/v2/x?a=b', '/v2/x?a=b'],
  ['http://127.0.0.1:{port}/v2/x', '/v2/x'],
  ['HTTP://LocalHost/v2/x', '/v2/x'],
  ['http://localhost', '/'],
  ['http://localhost?a=b', '/?a=b'],
])('T-PT-01 only the path of %s is used', (target, forwarded) =>
  table.run({ name: target, send: line(target), status: 200, forwards: [`GET ${forwarded}`] }),
)

test.each(['/../x', '/v2/%2e%2e/x', '/a#b', '\\x'])(
  'T-PT-01 the path of an absolute target is checked: http://localhost%s',
  (path) => table.run({ name: path, send: line(`http://localhost${path}`), status: 400 }),
)

test('T-PT-04 a path that begins like a host stays a path', async () => {
  const target = `//127.0.0.1:${elsewhere.port}/x`
  await table.run({ name: 'T-PT-04', send: get(target, '{org}'), status: 200, forwards: [`GET ${target}`] })
  expect(elsewhere.connections).toEqual([])
})

test('T-PT-01 the proxy does not connect to the authority of the target', async () => {
  const authority = `127.0.0.1:${elsewhere.port}`
  // The authority is one of our names, so it passes the check. The request must still go to the service.
  await table.run({ name: 'T-PT-01', send: line(`http://${authority}/v2/x`), status: 200, forwards: ['GET /v2/x'] })
  expect(elsewhere.connections).toEqual([])
})
