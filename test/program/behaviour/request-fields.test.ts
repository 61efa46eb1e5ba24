/** Fields of a request reach the origin in order and unchanged, except for those that the proxy removes. */

import { describe, expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../../support/case-table.ts'
import { fieldOf } from '../../support/raw-client.ts'

const table = await startTable()

const originHost = new URL(table.service.baseUrl).host

/** The names and values that only the proxy adds. */
const ADDED = new Set(['host', 'authorization', 'via', 'x-request-id', 'connection'])

/** `expected` are the lines that reach the origin, in order; by default all of them. */
function forwarded(name: string, lines: readonly string[], expected: readonly string[] = lines): Case {
  return {
    name,
    send: get('/v2/x', '{org}', ...lines),
    also: ({ requests }) => {
      const fields = requests[0]?.fields ?? []
      const kept = fields.filter((_, i) => !ADDED.has((fields[i - (i % 2)] ?? '').toLowerCase()))
      expect(kept).toEqual(expected.flatMap((line) => line.split(/: *(.*)/s, 2)))
    },
  }
}

describe('fields that pass', () => {
  test.each<Case>([
    forwarded('order, case and duplicates', ['b: 1', 'A: 2', 'B: 3', 'a: 4, 5']),
    forwarded('an override of the method, where no route is checked', [
      'X-HTTP-Method-Override: DELETE',
      'x-http-method: PUT',
      'X-Method-Override: PATCH',
    ]),
    forwarded('Max-Forwards, which counts for OPTIONS alone', ['Max-Forwards: 0']),
    forwarded('a content type with a comma', ['Content-Type: multipart/related; boundary="a, b"']),
    forwarded('obs-text stays the byte it is', ['X-Text: caf\xe9 \xff']),
    forwarded('accepted codings', ['Accept-Encoding: br, zstd;q=0.5']),
    forwarded('ranges, conditions, cache control', [
      'Range: bytes=0-1',
      'If-None-Match: "a"',
      'If-Modified-Since: Thu, 01 Jan 2026 00:00:00 GMT',
      'Cache-Control: no-cache',
    ]),
    forwarded('the context of a trace', [
      'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      'tracestate: a=b',
      'baggage: k=v',
    ]),
    forwarded('empty values', ['X-Empty:', 'X-Space:   ']),
    forwarded('no User-Agent is none', []),
    forwarded('names that are special in JavaScript', ['__proto__: 1', 'constructor: 2']),
  ])('$name', (row) => table.run(row))
})

test('two content types are refused: the service could read the content as either', () =>
  table.run({
    send: get('/v2/x', '{org}', 'Content-Type: a/b', 'content-type: a/b'),
    status: 400,
    code: 'field_invalid',
  }))

describe('fields that are removed', () => {
  test.each<Case>([
    forwarded(
      'hop-by-hop',
      ['Keep-Alive: timeout=5', 'Proxy-Connection: keep-alive', 'TE: gzip', 'Trailer: X', 'Proxy-Foo: 1'],
      [],
    ),
    forwarded('X-Org-Id', ['X-Kept: 1'], ['X-Kept: 1']),
    forwarded('X-Proxy-Key, configured or not', ['X-Proxy-Key: k'], []),
    forwarded('what would change the path', ['X-Original-URL: /a', 'X-Rewrite-URL: /b', 'X-Original-URI: /c'], []),
    forwarded('what forwards a path', ['X-Forwarded-URI: /a', 'X-Forwarded-Path: /b', 'Script-Name: /c'], []),
    forwarded('what maps a path', ['Path-Info: /a', 'X-Sendfile-Type: b', 'X-Accel-Mapping: c'], []),
    forwarded('what names a method', ['X-Original-Method: PUT', 'X-Forwarded-Method: PUT'], []),
    forwarded(
      'what would change the host',
      ['X-Forwarded-Host: evil', 'X-Forwarded-Proto: http', 'X-Forwarded-Prefix: /a'],
      [],
    ),
    forwarded('cookies', ['Cookie: a=1; b="2"', 'cookie: c=3'], []),
    forwarded(
      'what belongs to an upgrade that is none',
      ['HTTP2-Settings: AAMAAABkAAQAAP', 'Sec-WebSocket-Key: x', 'Sec-WebSocket-Version: 13'],
      [],
    ),
  ])('$name', (row) => table.run(row))
})

describe('fields that are added', () => {
  test('Host is that of the base URL, alone', () =>
    table.run({
      ...forwarded('Host', [], []),
      also: ({ requests }) => expect(requests[0]?.values('host')).toEqual([originHost]),
    }))

  test('Via is added after the existing ones, with a random name of this instance', () =>
    table.run({
      ...forwarded('Via', ['Via: 1.1 another'], []),
      also: ({ requests }) =>
        expect(requests[0]?.values('via').join(', ')).toMatch(/^1\.1 another, 1\.1 org-access-proxy \([\w-]{12}\)$/),
    }))

  test('a request that has passed this instance before is a loop', async () => {
    let via = ''
    await table.run({
      ...forwarded('Via', [], []),
      also: ({ requests }) => {
        via = requests[0]?.values('via').join() ?? ''
      },
    })
    const send = get('/v2/x', '{org}', `Via: ${via}, 1.1 another`)
    await table.run({ name: 'loop', send, status: 508, code: 'proxy_loop_detected' })
  })

  test('another instance on the way is no loop', () =>
    table.run(forwarded('chain', ['Via: 1.1 org-access-proxy (AbCdEfGhIjKl), 1.1 org-access-proxy'], [])))

  test.each([
    ['its own', 'abc-123_!~', 'abc-123_!~'],
    ['one of 128', 'a'.repeat(128), 'a'.repeat(128)],
    ['one of 129', 'a'.repeat(129), undefined],
    ['an empty one', '', undefined],
    ['one with a space', 'a b', undefined],
    ['one beyond ASCII', 'caf\xe9', undefined],
  ])('X-Request-Id of a client that sends %s', (_, value, kept) =>
    table.run({
      ...forwarded('X-Request-Id', [`X-Request-Id: ${value}`], []),
      also: ({ requests }) => {
        const [id = '', ...others] = requests[0]?.values('x-request-id') ?? []
        expect(others).toEqual([])
        if (kept !== undefined) expect(id).toBe(kept)
        else expect([/^[\x21-\x7e]{8,128}$/.test(id), id === value]).toEqual([true, false])
      },
    }),
  )
})

test('Via names the version that the client sent', () =>
  table.run({
    send: head('GET /v2/x HTTP/1.0', HOST, ORG),
    also: ({ requests }) => expect(requests[0]?.values('via').join()).toMatch(/^1\.0 org-access-proxy \(/),
  }))

describe('OPTIONS with Max-Forwards (RFC 9110 §7.6.2)', () => {
  const options = (...lines: string[]) => head('OPTIONS /v2/x HTTP/1.1', HOST, ORG, ...lines)

  test('of 0 is answered here', () =>
    table.run({
      send: options('Max-Forwards: 0'),
      status: 204,
      also: ({ response }) => expect(fieldOf(response, 'allow')).toContain('OPTIONS'),
    }))

  test('of 0 is refused like any other request', () =>
    table.run({ send: options('X-Org-Id: {other}', 'Max-Forwards: 0'), status: 400, code: 'org_id_invalid' }))

  test.each([
    ['5', '4'],
    ['1', '0'],
    ['007', '6'],
    ['x', 'x'],
    ['-1', '-1'],
    ['', ''],
  ])('of %j is %j at the service', (sent, received) =>
    table.run({
      send: options(`max-forwards: ${sent}`),
      also: ({ requests }) => expect(requests[0]?.values('max-forwards')).toEqual([received]),
    }),
  )
})

test.each([
  ['HTTP/1.0', [], true],
  ['HTTP/1.0', ['Connection: keep-alive'], false],
  ['HTTP/1.1', ['Connection: close'], true],
])('%s with %j: closes is %j', (version, lines, closes) =>
  table.run({
    send: head(`GET /v2/x ${version}`, HOST, ORG, ...lines),
    closes,
    // A connection that stays open is tried by the table.
    also: ({ response }) => expect(fieldOf(response, 'connection')?.toLowerCase() === 'close').toBe(closes),
  }),
)
