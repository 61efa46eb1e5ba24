/**
 * The attack: two parsers in a row disagree about the end of a request. The second one reads content of the first as another
 * request, which then runs with a token that its sender never had, or gets the answer of somebody else (CL.TE, TE.CL, CL.0;
 * CVE-2019-20372, CVE-2022-32213, and CVE-2026-29057 in the library that carries our tunnels). So nothing doubtful is
 * repaired: the request is refused, and its connection is closed.
 */

import { describe, expect, test } from 'vitest'
import { type Case, HOST, head, ORG, startTable } from '../support/case-table.ts'

const table = await startTable()

const POST = 'POST /v2/x HTTP/1.1'
const CHUNKED = 'Transfer-Encoding: chunked'
const SMUGGLED = head('GET /v2/smuggled HTTP/1.1', HOST, 'X-Org-Id: {other}')

/** A POST with these lines, which is refused, and closes its connection. The bytes after it would be a second request. */
function refused(name: string, lines: readonly string[], content = ''): Case {
  return { name, send: head(POST, HOST, ORG, ...lines) + content + SMUGGLED, status: 400, closes: true }
}

describe('two framings, or one that is read in two ways', () => {
  const lengths = ['+2', '-2', '0x2', '1_0', '2 2', '', '10000000000000000000000', '2,2', '\xb2']
  const codings = ['chunked, gzip', '', ',chunked', 'chunked, chunked', 'a b, chunked']
  test.each<Case>([
    refused('a length, then chunked', ['Content-Length: 5', CHUNKED], '0\r\n\r\n'),
    refused('chunked, then a length', [CHUNKED, 'Content-Length: 5'], '0\r\n\r\n'),
    refused('one length twice', ['Content-Length: 2', 'Content-Length: 2'], 'hi'),
    refused('two lengths', ['Content-Length: 2', 'Content-Length: 3'], 'hi'),
    refused('two lengths in a line', ['Content-Length: 2, 2'], 'hi'),
    ...lengths.map((length) => refused(`the length "${length}"`, [`Content-Length: ${length}`], 'hi')),
    ...codings.map((coding) => refused(`the coding "${coding}"`, [`Transfer-Encoding: ${coding}`], '0\r\n\r\n')),
    refused('chunked twice', [CHUNKED, CHUNKED], '0\r\n\r\n'),
  ])('$name', (row) => table.run(row))

  test('a length with leading zeros is forwarded without them', () =>
    table.run({
      send: `${head(POST, HOST, ORG, 'Content-Length: 002')}hi`,
      also: ({ requests }) => expect(requests[0]?.values('content-length')).toEqual(['2']),
    }))

  // Only behind `chunked` does the end of the content show, so anything else is a malformed request (RFC 9112 §6.3).
  test.each(['identity', 'blegh', 'xchunked', 'gzip, chunked', 'GZIP ,\tdeflate,Chunked'])(
    'the unknown coding "%s"',
    (coding) =>
      table.run({
        ...refused('', [`Transfer-Encoding: ${coding}`], '0\r\n\r\n'),
        status: 501,
        code: 'transfer_coding_refused',
      }),
  )

  test('a transfer coding in HTTP/1.0, which has none', () =>
    table.run({
      send: `${head('POST /v2/x HTTP/1.0', HOST, ORG, CHUNKED)}0\r\n\r\n${SMUGGLED}`,
      status: 400,
      code: 'request_invalid',
      closes: true,
    }))
})

describe('a field name or a line end that only some parsers recognize', () => {
  const NAMES = [
    'Transfer-Encoding\x0b: chunked',
    'Transfer-Encoding : chunked',
    '\tTransfer-Encoding: chunked',
    'Transfer-Encoding:\x0bchunked',
    'Foo: bar\n Transfer-Encoding: chunked',
    'Foo: bar\r\n Transfer-Encoding: chunked',
    'Foo: bar\rTransfer-Encoding: chunked',
    'Foo: bar\nTransfer-Encoding: chunked',
    'Foo: b\x00r',
  ]
  test.each(NAMES.map((line) => [JSON.stringify(line), line] as const))('%s', (name, line) =>
    table.run(refused(name, [line], '0\r\n\r\n')),
  )

  test.each([
    ['everywhere', `${POST}\n${HOST}\n${ORG}\nContent-Length: 0\n\n`],
    ['behind the request line', `${POST}\n${HOST}\r\n${ORG}\r\nContent-Length: 0\r\n\r\n`],
    ['before the content', `${POST}\r\n${HOST}\r\n${ORG}\r\nContent-Length: 0\r\n\n`],
    ['behind a field', `${POST}\r\n${HOST}\n${ORG}\r\nContent-Length: 0\r\n\r\n`],
  ])('a bare line feed %s', (_, raw) => table.run({ send: raw + SMUGGLED, status: 400, closes: true }))

  test('a similar name that no parser confuses is forwarded', () =>
    table.run({
      send: head('GET /v2/x HTTP/1.1', HOST, ORG, 'X-Transfer-Encoding: chunked', '-Transfer-Encoding: chunked'),
      also: ({ requests }) => expect(requests[0]?.values('transfer-encoding')).toEqual([]),
    }))
})

describe('content that contradicts its framing', () => {
  const SIZES = ['0x2', '+2', '-0', ' 2', '2 ', '0_2', '', '1000000000000000f', '1these', '2\t', 'g', '\xb2']
  const ENDS = ['2\n', '2\rX', '2;\nhi', '2\r\r;ABC\r\n', '2;a="\n"\r\n', '2;\x00\r\n']

  /** Content is forwarded as it arrives, so the origin may see the beginning of a request. It must not see a clean end. */
  function cutShort(content: string, status = 400): Promise<void> {
    const send = head(POST, HOST, ORG, CHUNKED) + content + SMUGGLED
    return table.run({ send, status, closes: true, breaksInside: true })
  }
  test.each(SIZES.map((size) => [JSON.stringify(size), size] as const))('the chunk size %s', (_, size) =>
    cutShort(`${size}\r\nhi\r\n0\r\n\r\n`),
  )
  test('leading zeros of a chunk size do not count, and do not reach the origin', () =>
    table.run({
      send: `${head(POST, HOST, ORG, CHUNKED)}0000000000000005\r\nhello\r\n0\r\n\r\n`,
      content: 'hello',
      also: ({ requests }) => expect(requests[0]?.connection.received.includes('0000005')).toBe(false),
    }))
  test.each(ENDS.map((end) => [JSON.stringify(end), end] as const))('a chunk that begins with %s', (_, end) =>
    cutShort(`${end}hi\r\n0\r\n\r\n`),
  )
  test.each([
    ['too much', '2\r\nhiXX0\r\n\r\n'],
    ['a line feed', '2\r\nhi\n0\r\n\r\n'],
    ['nothing', '2\r\nhi0\r\n\r\n'],
    ['a size behind a good chunk', '2\r\nhi\r\n-1\r\nx\r\n0\r\n\r\n'],
  ])('a chunk with %s after its content', (_, content) => cutShort(content))

  test('a chunk extension without end', () => cutShort(`2;${'a'.repeat(20_000)}\r\nhi\r\n0\r\n\r\n`))

  test.each(['Content-Length: 5', CHUNKED])('the trailer field %s', (trailer) =>
    cutShort(`2\r\nhi\r\n0\r\n${trailer}\r\n\r\n`),
  )
  test('trailer fields of 20 KB', () => cutShort(`2\r\nhi\r\n0\r\nX-T: ${'a'.repeat(20_000)}\r\n\r\n`, 431))
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
