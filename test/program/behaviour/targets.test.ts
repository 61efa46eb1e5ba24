/** The target is forwarded byte for byte, after the prefix of the base URL, with any method. */

import { describe, test } from 'vitest'
import { get, HOST, head, ORG, startTable } from '../../support/case-table.ts'

const TARGETS = [
  '/',
  '/v2/x',
  '/v2/x/',
  '/v2//x',
  '//x',
  '///',
  '/a%2Fb',
  '/a%2fb%5cc',
  '/v2/...',
  '/v2/..a/.b/c..',
  '/v2/.well-known/a*b',
  '/v2/%25/%252f',
  '/v2/x;a=b/y',
  '/%E2%82%AC/%ff/%2500',
  '/%20/%7e/%80/%a0',
  '/?',
  '/??',
  '/?a=%2F&b=+&c=;d&&=',
  '/v2/x?a=../../b&c=%2e%2e/',
  '/v2/x?a=%zz&b=%&c=%1',
  '/v2/x?u=http://evil.example/&v=//evil',
  '/v2/x?a=\\b',
  '/v2/x?a=%00',
  '/[a]{b}|"<>^`',
  `/v2/x?${'q'.repeat(8 * 1024)}`,
]

describe.each([
  ['none', ''],
  ['a path', '/api'],
  ['a path with a slash at its end', '/api/'],
  ['a longer path', '/api/v1'],
])('prefix: %s', async (_, prefix) => {
  const table = await startTable({}, { prefix })
  const joined = prefix.replace(/\/$/, '')
  test.each((prefix === '' ? TARGETS : TARGETS.slice(0, 8)).map((target) => [target.slice(0, 60), target]))(
    '%s',
    (_, target) => table.run({ send: get(target, '{org}'), forwards: [`GET ${joined}${target}`] }),
  )
})

const table = await startTable()

test.each(['PURGE', 'QUERY', 'PROPFIND', 'M-SEARCH', 'OPTIONS', 'PATCH', 'LIST', 'FOO-BAR', 'foo', "!#$%&'*+.^_`|~"])(
  'the method %s',
  (method) => table.run({ send: head(`${method} /v2/x HTTP/1.1`, HOST, ORG) }),
)
