/**
 * The attack: a request target that is a whole URL, or reads as one, makes the proxy connect to another host and hand
 * it the token (server-side request forgery). `new URL('//evil.example/x', base)` is evil.example.
 */

import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'
import { type Origin, startOrigin } from '../support/origin.ts'

const table = await startTable()

/** The proxy must never connect to this one. */
let elsewhere: Origin
beforeAll(async () => {
  elsewhere = await startOrigin()
})
afterAll(() => elsewhere[Symbol.asyncDispose]())

const line = (target: string) => head(`GET ${target} HTTP/1.1`, HOST, ORG)

test.each<Case>([
  { name: 'another host', send: line('http://evil.example/v2/x'), status: 421, code: 'host_refused' },
  {
    name: 'another scheme and host',
    send: line('https://evil.example/v2/x'),
    status: 421,
    code: 'host_refused',
  },
  { name: 'in capitals', send: line('HTTP://EVIL.EXAMPLE/v2/x'), status: 421, code: 'host_refused' },
  { name: 'userinfo that is our name', send: line('http://localhost@evil.example/v2/x'), status: 421 },
  {
    name: 'a host that ends in a backslash',
    send: line('http://localhost\\@evil.example/v2/x'),
    status: 400,
  },
  { name: 'no authority', send: line('http:///v2/x'), status: 421 },
  { name: 'one slash', send: line('http:/evil.example/v2/x'), status: 400 },
  { name: 'ftp', send: line('ftp://evil/x'), status: 400 },
  { name: 'a file', send: line('file:///etc/passwd'), status: 400 },
  { name: 'javascript', send: line('javascript:alert(1)'), status: 400 },
  { name: 'ws to us', send: line('ws://localhost/v2/x'), status: 400 },
  { name: 'another authority than Host', send: line('http://b/'), status: 421 },
  {
    name: 'our name, and another in Host',
    send: head('GET http://localhost/v2/x HTTP/1.1', 'Host: evil.example', ORG),
    status: 421,
  },
  { name: 'authority-form', send: line('localhost:443'), status: 400 },
  { name: 'no path', send: line('v2/x'), status: 400 },
])('$name', (row) => table.run(row))

test.each([
  ['http://localhost/v2/x?a=b', '/v2/x?a=b'],
  ['http://127.0.0.1:{port}/v2/x', '/v2/x'],
  ['HTTP://LocalHost/v2/x', '/v2/x'],
  ['http://localhost', '/'],
  ['http://localhost?a=b', '/?a=b'],
])('only the path of %s is used', (target, forwarded) =>
  table.run({ name: target, send: line(target), status: 200, forwards: [`GET ${forwarded}`] }),
)

test.each(['/../x', '/v2/%2e%2e/x', '/a#b', '\\x'])(
  'the path of an absolute target is checked: http://localhost%s',
  (path) => table.run({ name: path, send: line(`http://localhost${path}`), status: 400 }),
)

test('a path that begins like a host stays a path', async () => {
  const target = `//127.0.0.1:${elsewhere.port}/x`
  await table.run({ send: get(target, '{org}'), status: 200, forwards: [`GET ${target}`] })
  expect(elsewhere.connections).toEqual([])
})

test('the proxy does not connect to the authority of the target', async () => {
  const authority = `127.0.0.1:${elsewhere.port}`
  // The authority is one of our names, so it passes the check. The request must still go to the service.
  await table.run({ send: line(`http://${authority}/v2/x`), status: 200, forwards: ['GET /v2/x'] })
  expect(elsewhere.connections).toEqual([])
})
