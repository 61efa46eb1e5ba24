/**
 * The attack: two parsers in a row disagree about the end of a request. The second one reads content of the first as another
 * request, which then runs with a token that its sender never had, or gets the answer of somebody else (CL.TE, TE.CL, CL.0;
 * CVE-2019-20372, CVE-2022-32213, and CVE-2026-29057 in the library that carries our tunnels). So nothing doubtful is
 * repaired: the request is refused, and its connection is closed.
 */

import { describe, expect, test } from 'vitest'
import { type Case, HOST, head, ORG, sentFor, startTable } from '../support/case-table.ts'

const table = await startTable()

const POST = 'POST /v2/x HTTP/1.1'
const CHUNKED = 'Transfer-Encoding: chunked'
const SMUGGLED = head('GET /v2/smuggled HTTP/1.1', HOST, 'X-Org-Id: {other}')

/** A POST with these lines, which is refused, and closes its connection. The bytes after it would be a second request. */
function refused(name: string, lines: readonly string[], content = ''): Case {
  return { name, send: head(POST, HOST, ORG, ...lines) + content + SMUGGLED, status: 400, closes: true }
}

// `test/units/http1/request-parser.test.ts` has every other form of what follows.
describe('two framings, or one that is read in two ways', () => {
  test.each<Case>([
    refused('a length, then chunked', ['Content-Length: 5', CHUNKED], '0\r\n\r\n'),
    refused('chunked, then a length', [CHUNKED, 'Content-Length: 5'], '0\r\n\r\n'),
    refused('one length twice', ['Content-Length: 2', 'Content-Length: 2'], 'hi'),
    refused('a length with a sign', ['Content-Length: +2'], 'hi'),
    refused('no coding before chunked', ['Transfer-Encoding: ,chunked'], '0\r\n\r\n'),
    refused('chunked twice', [CHUNKED, CHUNKED], '0\r\n\r\n'),
    ...['xchunked', 'gzip, chunked'].map((coding) => ({
      ...refused(`the unknown coding "${coding}"`, [`Transfer-Encoding: ${coding}`], '0\r\n\r\n'),
      status: 501,
      code: 'transfer_coding_refused',
    })),
    {
      ...refused('a transfer coding in HTTP/1.0, which has none', []),
      send: `${head('POST /v2/x HTTP/1.0', HOST, ORG, CHUNKED)}0\r\n\r\n${SMUGGLED}`,
    },
    ...[
      '\tTransfer-Encoding: chunked',
      'Foo: bar\n Transfer-Encoding: chunked',
      'Foo: bar\rTransfer-Encoding: chunked',
    ].map((line) => refused(`the field ${JSON.stringify(line)}`, [line], '0\r\n\r\n')),
    {
      ...refused('bare line feeds', []),
      send: `${POST}\n${HOST}\n${ORG}\nContent-Length: 0\n\n${SMUGGLED}`,
    },
  ])('$name', (row) => table.run(row))

  test('a length with leading zeros is forwarded without them', () =>
    table.run({
      send: `${head(POST, HOST, ORG, 'Content-Length: 002')}hi`,
      also: ({ requests }) => expect(requests[0]?.values('content-length')).toEqual(['2']),
    }))

  test('a similar name that no parser confuses is forwarded', () =>
    table.run({
      send: head('GET /v2/x HTTP/1.1', HOST, ORG, 'X-Transfer-Encoding: chunked', '-Transfer-Encoding: chunked'),
      also: ({ requests }) => expect(requests[0]?.values('transfer-encoding')).toEqual([]),
    }))
})

describe('another version, or another protocol', () => {
  const line = (requestLine: string) => head(requestLine, HOST, ORG)
  table.refuses(sentFor(['GET /v2/x HTTP/2.0', 'GET /v2/x'], line), 505, 'http_version_refused', { closes: true })
  const others = { 'the preface of HTTP/2': 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', TLS: '\x16\x03\x01\x02\x00\x01' }
  table.refuses(others, 400, 'request_invalid', { closes: true })

  test('empty lines before a request are skipped', () =>
    table.run({ send: `\r\n\r\n${line('GET /v2/x HTTP/1.1')}`, forwards: ['GET /v2/x'] }))
})

describe('content that contradicts its framing', () => {
  /** Content is forwarded as it arrives, so the origin may see the beginning of a request. It must not see a clean end. */
  test.each([
    ['a chunk size with blanks', ' 2\r\nhi\r\n0\r\n\r\n', 400],
    ['a chunk size that is too large', '1000000000000000f\r\nhi\r\n0\r\n\r\n', 400],
    ['a bare line feed in an extension', '2;\nhi\r\n0\r\n\r\n', 400],
    ['a second CR', '2\r\r;ABC\r\nhi\r\n0\r\n\r\n', 400],
    ['too much in a chunk', '2\r\nhiXX0\r\n\r\n', 400],
    ['nothing behind a chunk', '2\r\nhi0\r\n\r\n', 400],
    ['a bad size behind a good chunk', '2\r\nhi\r\n-1\r\nx\r\n0\r\n\r\n', 400],
    ['a chunk extension without end', `2;${'a'.repeat(20_000)}\r\nhi\r\n0\r\n\r\n`, 400],
    ['a length in the trailers', '2\r\nhi\r\n0\r\nContent-Length: 5\r\n\r\n', 400],
    ['trailers of 20 KB', `2\r\nhi\r\n0\r\nX-T: ${'a'.repeat(20_000)}\r\n\r\n`, 431],
  ])('%s', (_, content, status) =>
    table.run({ send: head(POST, HOST, ORG, CHUNKED) + content + SMUGGLED, status, closes: true, breaksInside: true }),
  )

  test('leading zeros of a chunk size do not count, and do not reach the origin', () =>
    table.run({
      send: `${head(POST, HOST, ORG, CHUNKED)}0000000000000005\r\nhello\r\n0\r\n\r\n`,
      content: 'hello',
      also: ({ requests }) => expect(requests[0]?.connection.received.includes('0000005')).toBe(false),
    }))
})

describe('a request hidden in the content of another', () => {
  const hidden = head('GET /v2/secret HTTP/1.1', 'Host: localhost', 'X-Org-Id: {other}')
  const chunk = '{size}\r\n'
  const methods = ['DELETE', 'OPTIONS', 'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'PURGE']
  const connections = [
    [],
    ['Connection: Transfer-Encoding, upgrade'],
    ['Connection: content-length, transfer-encoding'],
  ]
  const rows = methods.flatMap((method) => connections.map((lines) => [method, lines] as const))

  test.each(rows)('%s, chunked, %s', (method, lines) =>
    table.run({
      send: `${head(`${method} /v2/x HTTP/1.1`, HOST, ORG, CHUNKED, ...lines)}${chunk}${hidden}\r\n0\r\n\r\n`,
      content: hidden,
    }),
  )
  test.each(rows)('%s, with a length, %s', (method, lines) =>
    table.run({
      send: `${head(`${method} /v2/x HTTP/1.1`, HOST, ORG, 'Content-Length: {length}', ...lines)}${hidden}`,
      content: hidden,
    }),
  )
})
