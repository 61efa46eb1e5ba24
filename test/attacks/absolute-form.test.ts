/**
 * The attack: a request target that is a whole URL, or reads as one, makes the proxy connect to another host and hand
 * it the token (server-side request forgery). `new URL('//evil.example/x', base)` is evil.example.
 */

import { afterAll, beforeAll, expect, test } from 'vitest'
import { get, HOST, head, ORG, sentFor, startTable } from '../support/case-table.ts'
import { type Origin, startOrigin } from '../support/origin.ts'

const table = await startTable()

/** The proxy must never connect to this one. */
let elsewhere: Origin
beforeAll(async () => {
  elsewhere = await startOrigin()
})
afterAll(() => elsewhere[Symbol.asyncDispose]())

const line = (target: string) => head(`GET ${target} HTTP/1.1`, HOST, ORG)

table.refuses(
  {
    'another host': line('http://evil.example/v2/x'),
    'another scheme and host': line('https://evil.example/v2/x'),
    'in capitals': line('HTTP://EVIL.EXAMPLE/v2/x'),
    'userinfo that is our name': line('http://localhost@evil.example/v2/x'),
    'another authority than Host': line('http://b/'),
    'our name, and another in Host': head('GET http://localhost/v2/x HTTP/1.1', 'Host: evil.example', ORG),
  },
  421,
  'host_refused',
)

table.refuses(
  sentFor(
    [
      'http://localhost\\@evil.example/v2/x',
      'http:/evil.example/v2/x',
      'ftp://evil/x',
      'file:///etc/passwd',
      'ws://localhost/v2/x',
      'v2/x',
      'http://localhost/../x',
      'http://localhost/v2/%2e%2e/x',
      'http://localhost/a#b',
      'http://localhost\\x',
    ],
    line,
  ),
  400,
)

test.each([
  ['http://localhost/v2/x?a=b', '/v2/x?a=b'],
  ['http://127.0.0.1:{port}/v2/x', '/v2/x'],
  ['HTTP://LocalHost/v2/x', '/v2/x'],
  ['http://localhost', '/'],
  ['http://localhost?a=b', '/?a=b'],
])('only the path of %s is used', (target, forwarded) =>
  table.run({ send: line(target), forwards: [`GET ${forwarded}`] }),
)

test('a path that begins like a host stays a path', async () => {
  const target = `//127.0.0.1:${elsewhere.port}/x`
  await table.run({ send: get(target, '{org}'), forwards: [`GET ${target}`] })
  expect(elsewhere.connections).toEqual([])
})

test('the proxy does not connect to the authority of the target', async () => {
  const authority = `127.0.0.1:${elsewhere.port}`
  // The authority is one of our names, so it passes the check. The request must still go to the service.
  await table.run({ send: line(`http://${authority}/v2/x`), forwards: ['GET /v2/x'] })
  expect(elsewhere.connections).toEqual([])
})
