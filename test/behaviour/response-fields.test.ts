/** Status, reason and fields of a response reach the client unchanged, except for the fields that the proxy removes. */

import { brotliCompressSync, gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { type Fault, startFaultTable } from '../support/fault-table.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { valuesOf } from '../support/http-reader.ts'
import { fieldOf, type RawResponse, request } from '../support/raw-client.ts'

const table = await startFaultTable()

const OK = 'HTTP/1.1 200 OK\r\n'

function relayed(name: string, lines: readonly string[], expected: readonly string[]): Fault {
  return {
    name,
    writes: `${OK}${[...lines, 'Content-Length: 2'].join('\r\n')}\r\n\r\nok`,
    ends: 'nothing',
    status: 200,
    also: (response) => expect(withoutOurs(response)).toEqual(expected),
  }
}

/**
 * Leaves out the fields of our own connection, the length (every row has it), and the Date that a gateway adds (RFC 9110
 * §6.6.1).
 */
function withoutOurs({ fields }: RawResponse): string[] {
  const ours = new Set(['connection', 'keep-alive', 'content-length', 'date'])
  const theirs = fields.filter((_, i) => !ours.has((fields[i - (i % 2)] ?? '').toLowerCase()))
  return theirs.slice(-2).join(': ') === 'Vary: X-Org-Id' ? theirs.slice(0, -2) : theirs
}

describe('fields that pass', () => {
  test.each<Fault>([
    relayed('order, case and duplicates', ['b: 1', 'A: 2', 'B: 3'], ['b', '1', 'A', '2', 'B', '3']),
    relayed(
      'each Set-Cookie in its line',
      ['Set-Cookie: a=1', 'X: 1', 'set-cookie: b=2, c'],
      ['Set-Cookie', 'a=1', 'X', '1', 'set-cookie', 'b=2, c'],
    ),
    relayed('obs-text stays the byte it is', ['X-Text: caf\xe9 \xff'], ['X-Text', 'caf\xe9 \xff']),
    relayed(
      'caching',
      ['ETag: "a"', 'Vary: A,x-org-id', 'Cache-Control: public, max-age=9'],
      ['ETag', '"a"', 'Vary', 'A,x-org-id', 'Cache-Control', 'public, max-age=9'],
    ),
    relayed('Vary of the service gets the org', ['Vary: Accept', 'VARY: A'], ['Vary', 'Accept, X-Org-Id', 'VARY', 'A']),
    relayed('Vary: * stays', ['Vary: Accept', 'Vary: a, *'], ['Vary', 'Accept, X-Org-Id', 'Vary', 'a, *']),
    relayed(
      'Proxy-Status of others',
      ['Proxy-Status: cache; detail="org-access-proxy, x", org-access-proxy; error=forged, "org-access-proxy";a'],
      ['Proxy-Status', 'cache; detail="org-access-proxy, x"'],
    ),
    relayed('empty values', ['X-Empty:'], ['X-Empty', '']),
    relayed('WWW-Authenticate', ['WWW-Authenticate: Bearer'], ['WWW-Authenticate', 'Bearer']),
  ])('$name', (row) => table.run(row))
})

describe('fields that are removed', () => {
  test.each<Fault>([
    relayed(
      'those that Connection names',
      ['X-Foo: 1', 'Connection: x-foo, X-BAR', 'X-Bar: 2', 'X-Baz: 3'],
      ['X-Baz', '3'],
    ),
    relayed(
      'hop-by-hop',
      ['Proxy-Authenticate: Basic', 'Proxy-Connection: close', 'TE: x', 'Trailer: X', 'Proxy-Authentication-Info: x'],
      [],
    ),
    relayed('Proxy-Status that speaks for this proxy', ['Proxy-Status: Org-Access-Proxy; error=dns_error'], []),
    relayed('Upgrade on a 200', ['Upgrade: h2c', 'Connection: Upgrade'], []),
    relayed('Keep-Alive of the other connection', ['Keep-Alive: timeout=77'], []),
    relayed(
      'what opens the answer to pages',
      ['Access-Control-Allow-Origin: *', 'access-control-expose-headers: x'],
      [],
    ),
  ])('$name', (row) =>
    table.run({
      ...row,
      also: (response, requests) => {
        row.also?.(response, requests)
        expect(fieldOf(response, 'keep-alive') ?? '').not.toContain('77')
      },
    }),
  )
  test('framing fields still count if Connection names them', () =>
    table.run(relayed('Content-Length', ['Connection: content-length'], [])))
})

test.each([301, 302, 303, 307, 308])('a %i is passed on and not followed', (status) =>
  table.run({
    writes: `HTTP/1.1 ${status} Elsewhere\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n`,
    ends: 'nothing',
    status,
    also: (response, requests) => {
      expect(fieldOf(response, 'location')).toBe('https://evil.example/')
      expect(requests).toHaveLength(1)
    },
  }),
)

test('a redirect to the origin itself is not followed either', async () => {
  const target = table.target(() => ({ status: 302, fields: ['Location', '/v2/landed'] }))
  expect((await request(table.proxy.port, get(target, 'acme'))).status).toBe(302)
  expect(table.requestsFor('/v2/landed')).toEqual([])
})

test('the Date of the origin is passed on', () => {
  const date = 'Thu, 01 Jan 2026 00:00:00 GMT'
  return table.run({
    ...relayed('Date', [`Date: ${date}`], []),
    also: (response) => expect(valuesOf(response.fields, 'date')).toEqual([date]),
  })
})

test('the reason is passed on', () =>
  table.run({
    name: 'reason',
    writes: 'HTTP/1.1 200 Quite all right\r\nContent-Length: 0\r\n\r\n',
    ends: 'nothing',
    status: 200,
    also: (response) => expect(response.reason).toBe('Quite all right'),
  }))

test.each([
  ['br', brotliCompressSync(Buffer.alloc(1_000_000))],
  ['gzip', gzipSync(Buffer.alloc(1_000_000))],
  ['gzip', Buffer.from('this is no gzip')],
])('content coded as %s is passed on unchanged', async (coding, content) => {
  const target = table.target(() => ({ fields: ['Content-Encoding', coding], content }))
  const response = await request(table.proxy.port, get(target, 'acme', `Accept-Encoding: ${coding}`))
  expect(response.content.equals(content)).toBe(true)
  expect(fieldOf(response, 'content-encoding')).toBe(coding)
})

test.each<[string, string, readonly string[]]>([
  ['a 304', 'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n', []],
  ['an answer to a handshake', `${OK}Content-Length: 2\r\nVary: Accept\r\n\r\nok`, HANDSHAKE],
])('Vary names the org in %s', async (_, writes, lines) => {
  const target = table.target((_request, connection) => void connection.write(writes))
  const response = await request(table.proxy.port, get(target, 'acme', ...lines))
  expect(fieldOf(response, 'vary')).toMatch(/X-Org-Id$/)
})
