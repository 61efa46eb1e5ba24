import { describe, expect, test } from 'vitest'
import { MalformedMessage, type MalformedReason } from '../../../src/http1/malformed.ts'
import { parseRequestHead, type RequestHead, RequestParser } from '../../../src/http1/request-parser.ts'
import { everywhere, readRequests } from '../../fuzz/parser-cases.ts'
import { fc } from '../../support/properties.ts'

const LIMIT_BYTES = 16 * 1024
const IGNORED = { requestHead: () => {}, messageContent: () => {}, messageEnd: () => {} }

const bytesOf = (text: string) => Buffer.from(text, 'latin1')
const head = (line: string, ...fields: string[]) => `${[line, ...fields].join('\r\n')}\r\n\r\n`
const GET = head('GET / HTTP/1.1', 'Host: a')
const CHUNKED = head('POST / HTTP/1.1', 'Transfer-Encoding: chunked')

/** Whole, and octet by octet: the same. */
function read(text: string) {
  const bytes = bytesOf(text)
  const whole = readRequests(bytes, [bytes.length])
  expect(readRequests(bytes, everywhere(bytes.length))).toEqual(whole)
  return whole
}

/** The heads, as they are told. */
function headsOf(text: string): RequestHead[] {
  const heads: RequestHead[] = []
  const parser = new RequestParser(
    {
      requestHead: (each) => heads.push(each),
      messageContent: () => undefined,
      messageEnd: () => undefined,
    },
    LIMIT_BYTES,
  )
  const bytes = bytesOf(text)
  for (let at = 0; at < bytes.length; ) at = parser.read(bytes, at, bytes.length)
  return heads
}

describe('a request', () => {
  test('is told with its fields as they are', () => {
    const [told] = headsOf(
      head('PATCH /a?b=%2F HTTP/1.1', 'hOST: a', 'X:', 'x: \t\xe9 "b"\t ', 'Content-Length: 003', 'Connection: x'),
    )
    expect(told).toEqual({
      method: 'PATCH',
      target: '/a?b=%2F',
      minorVersion: 1,
      rawFields: ['hOST', 'a', 'X', '', 'x', '\xe9 "b"', 'Content-Length', '003', 'Connection', 'x'],
      contentLength: 3,
      isChunked: false,
      keepsAlive: true,
    })
  })

  test.each([
    ['HTTP/1.1', [], true],
    ['HTTP/1.1', ['Connection: x, Close'], false],
    ['HTTP/1.1', ['Connection: keep-alive', 'connection: close'], false],
    ['HTTP/1.1', ['Connection: closed'], true],
    ['HTTP/1.0', [], false],
    ['HTTP/1.0', ['Connection: Keep-Alive'], true],
    ['HTTP/1.0', ['Connection: keep-alive, close'], false],
    ['HTTP/1.1', ['Connection: close\t'], false],
    ['HTTP/1.1', ['Proxy-Connection: close'], false],
    ['HTTP/1.0', ['Connection: keep-alive\t'], false],
  ])('%s %j keeps its connection: %s', (version, fields, keepsAlive) => {
    expect(headsOf(head(`GET / ${version}`, ...fields))[0]?.keepsAlive).toBe(keepsAlive)
  })

  test.each([
    ['OPTIONS', '*'],
    ['GET', '/'],
    ['GET', 'http://a/b?c'],
    ['GET', 'HTTPS://a'],
    ['CONNECT', 'a:443'],
    ['LIST', '/'],
    ['foo', 'http://a/b?c'],
    ["!#$%&'*+-.^_`|~09azAZ", '/'],
    ['M'.repeat(32), '/'],
  ])('%s %s is a target', (method, target) => {
    expect(headsOf(head(`${method} ${target} HTTP/1.1`, 'Host: a'))[0]?.target).toBe(target)
  })

  test.each([
    ['with a length', `${head('PUT / HTTP/1.1', 'Content-Length: 2')}hi`, 'hi'],
    ['with a length of zero', head('PUT / HTTP/1.1', 'Content-Length: 0'), ''],
    ['chunked', `${CHUNKED}2\r\nhi\r\n00b;a="\\";";b=c\r\n, everybody\r\n0\r\nA: b\r\n\r\n`, 'hi, everybody'],
    ['in small chunks', `${CHUNKED}${'1\r\na\r\n'.repeat(300)}0;x\r\n\r\n`, 'a'.repeat(300)],
    ['behind empty lines', `\r\n\r\n${GET}`, ''],
  ])('%s is complete', (_, text, content) => {
    const { messages, refusal } = read(text + GET)
    expect(refusal).toBeUndefined()
    expect(messages).toMatchObject([
      { content, isComplete: true },
      { start: 'GET / 1.1', isComplete: true },
    ])
  })

  test('of any kind is read the same, in whatever pieces it comes', () => {
    const one = fc.constantFrom(
      GET,
      `${CHUNKED}3\r\nabc\r\n0\r\n\r\n`,
      `${head('PUT /x HTTP/1.1', 'Content-Length: 5')}hello`,
    )
    const property = fc.property(
      fc.array(one, { minLength: 1, maxLength: 10 }),
      fc.array(fc.nat(2_000)),
      (list, at) => {
        const bytes = bytesOf(list.join(''))
        const cuts = [...new Set([...at.map((cut) => cut % bytes.length), bytes.length])].toSorted((a, b) => a - b)
        const { messages, refusal } = readRequests(bytes, cuts)
        expect(refusal).toBeUndefined()
        expect(messages).toHaveLength(list.length)
        expect(messages.every(({ isComplete }) => isComplete)).toBe(true)
      },
    )
    fc.assert(property, { numRuns: 300 })
  })
})

describe('a request is refused, however it is cut', () => {
  const CODES: { readonly [R in MalformedReason]?: string } = {
    unknown_version: 'http_version_refused',
    unknown_coding: 'transfer_coding_refused',
    head_too_large: 'request_head_too_large',
    too_many_fields: 'request_head_too_large',
  }
  const post = (...fields: string[]) => head('POST / HTTP/1.1', ...fields)
  const lines = (text: string) => `GET / HTTP/1.1\r\n${text}`
  const coded = (coding: string) => post(`Transfer-Encoding: ${coding}`)
  const chunk = (text: string) => `${CHUNKED}2${text}`
  const HEADS: { readonly [R in MalformedReason]?: readonly string[] } = {
    bad_method: [
      ...['get', 'Post', 'connect', 'm-search', 'G@T', '\xe9', 'M'.repeat(33), ''].map(
        (word) => `${word} / HTTP/1.1\r\n`,
      ),
    ],
    http2: ['PRI * HTTP/2.0\r\n'],
    tls: ['\x16\x03\x01'],
    unknown_version: ['/ HTTP/2.0', '/ HTTP/0.9', '/', '/ RTSP/1.0'].map((rest) => `GET ${rest}\r\n`),
    bad_request_line: ['/ HTTP/1.2', '/ http/1.1', ' / HTTP/1.1', '/ HTTP/1.1 '].map((rest) => `GET ${rest}\r\n`),
    bad_target: [
      ...['\xe9', '/\t', '/\x80', 'x', 'http://a@b@c/'].map((target) => `GET ${target} HTTP/1.1\r\n`),
      'CONNECT /a HTTP/1.1\r\n',
    ],
    control_character: [
      ...['GET /\x7f HTTP/1.1\r\n', 'GET /\0 HTTP/1.1\r\n', chunk(';a="\0')],
      ...['A: b\0', 'A: \x7f', 'A\x0b: b', 'A:\x0bb', 'A\x7f: b'].map(lines),
    ],
    bare_lf: [
      ...['GET / HTTP/1.1\n', '\n', chunk('\nhi\r\n'), chunk(';a\nhi\r\n'), chunk('\r\nhi\n')],
      ...['A: b\n', 'A: b\n c', 'A\n', '\n'].map(lines),
    ],
    bare_cr: ['GET / HTTP/1.1\rA', lines('A: b\rC: d'), lines('\r\rA'), chunk('\r\r\n'), chunk('\r\nhi\rX')],
    bad_field_name: [': b', 'A\xe9: b', 'A(: b'].map(lines),
    no_colon: [lines('A\r\n')],
    blank_before_colon: ['A : b', 'A\t: b'].map(lines),
    obs_fold: [...['A: b\r\n c', ' A: b', '\tA: b'].map(lines), `${CHUNKED}0\r\nA: b\r\n c`],
    two_lengths: [post('Content-Length: 2', 'content-length: 2')],
    bad_length: ['+2', '-2', '0x2', '1_0', '2 2', '', '2,2', '2, 2', '2\t', '\xb2', '1'.repeat(16)].map((length) =>
      post(`Content-Length: ${length}`),
    ),
    length_with_coding: [
      post('Content-Length: 2', 'Transfer-Encoding: chunked'),
      post('Transfer-Encoding: chunked', 'Content-Length: 2'),
    ],
    two_codings: [post('Transfer-Encoding: chunked', 'Transfer-Encoding: chunked')],
    bad_coding: [
      ...['', ',chunked', 'chunked,', 'chunked \t ', 'chunked;a=b', 'chu nked', 'a b, chunked', 'gzip,, br', 'gzip;'],
      ...['chunked, gzip', 'gzip, chunked, gzip', 'chunked, chunked'],
    ].map(coded),
    unknown_coding: [
      ...['xchunked', 'identity', 'chunked-2', 'gzip, chunked', 'GZIP;q=1 ,\tdeflate ; a="b, c",Chunked'],
    ].map(coded),
    coding_in_http_1_0: [head('POST / HTTP/1.0', 'Transfer-Encoding: chunked')],
    bad_chunk_size: [
      ...[
        '0x2',
        '+2',
        '-0',
        ' 2',
        '2 ',
        '2\t',
        '0_2',
        'g',
        '',
        '1these',
        '\xb2',
        '0'.repeat(17),
        '1'.repeat(14),
        '2 ;a',
      ],
    ].map((size) => `${CHUNKED}${size}\r\n`),
    bad_chunk_extension: [
      ...[';', '; a', ';a ', ';a=', ';a==', ';a=b=c', ';a="', ';a="b"c', ';=b', ';a=\xe9', ';a="\\'],
    ].map((extension) => chunk(`${extension}\r\n`)),
    bad_chunk_end: [chunk('\r\nhiXX0')],
    bad_trailer: ['Content-Length: 2', 'transfer-encoding: chunked', 'Connection: close'].map(
      (line) => `${CHUNKED}0\r\n${line}\r\n`,
    ),
    chunk_line_too_long: [chunk(`;${'a'.repeat(4 * 1024)}`)],
    too_many_fields: [post(...Array.from({ length: 1_001 }, () => 'a:'))],
    head_too_large: [
      post(`A: ${'a'.repeat(16 * 1024)}`),
      '\r\n'.repeat(8 * 1024),
      `${CHUNKED}0\r\nA: ${'a'.repeat(16 * 1024)}`,
    ],
  }
  const rows = Object.entries(HEADS).flatMap(([reason, texts]) =>
    texts.map((text) => [reason, text.slice(0, 200), text] as const),
  )
  test.each(rows)('%s %j', (reason, _, text) => {
    const { refusal, messages } = read(text)
    expect(refusal).toBe(reason)
    expect(messages.some(({ isComplete }) => isComplete)).toBe(false)
    const known = reason as MalformedReason
    expect(new MalformedMessage(known).refusalCode).toBe(CODES[known] ?? 'request_invalid')
  })

  test('and stays refused', () => {
    const parser = new RequestParser(IGNORED, LIMIT_BYTES)
    const refused = bytesOf('\n')
    expect(() => parser.read(refused, 0, 1)).toThrow('bare_lf')
    expect(() => parser.read(bytesOf(GET), 0, GET.length)).toThrow('bare_lf')
  })
})

test('a head may have exactly 16 KiB and 1,000 fields', () => {
  const many = Array.from({ length: 1_000 }, () => 'a:')
  expect(read(head('GET / HTTP/1.1', ...many)).messages).toHaveLength(1)
  const rest = head('GET / HTTP/1.1', 'A: ').length
  const largest = head('GET / HTTP/1.1', `A: ${'a'.repeat(16 * 1024 - rest)}`)
  expect(read(largest).refusal).toBeUndefined()
  expect(read(largest.replace('A: ', 'A: a')).refusal).toBe('head_too_large')
})

test('the limit of a head is that of its connection, also for trailers', () => {
  const head = (octets: number) => `GET / HTTP/1.1\r\nA: ${'a'.repeat(octets - 23)}\r\n\r\n`
  expect(parseRequestHead(head(40_000), 40_000).rawFields).toHaveLength(2)
  expect(() => parseRequestHead(head(40_001), 40_000)).toThrow('head_too_large')
})

test('the parser stops behind each message', () => {
  const told: string[] = []
  const parser = new RequestParser(
    {
      requestHead: () => told.push('head'),
      messageContent: () => told.push('content'),
      messageEnd: (next) => told.push(`end at ${next}`),
    },
    LIMIT_BYTES,
  )
  const bytes = bytesOf(GET + GET)
  expect(parser.read(bytes, 0, bytes.length)).toBe(GET.length)
  expect(told.splice(0)).toEqual(['head', `end at ${GET.length}`])
  expect(parser.read(bytes, GET.length, bytes.length)).toBe(bytes.length)
  expect(told).toEqual(['head', `end at ${bytes.length}`])
})

test('the fields of a head and of its trailers are counted apart', () => {
  const most = Array.from({ length: 1_000 }, () => 'a:')
  const text = `${head('POST / HTTP/1.1', 'Transfer-Encoding: chunked', ...most.slice(1))}0\r\n${most.join('\r\n')}\r\n\r\n`
  expect(read(text).messages).toMatchObject([{ isComplete: true }])
  expect(read(text.replace('0\r\na:', '0\r\na:\r\na:')).refusal).toBe('too_many_fields')
})

test('between messages, only empty lines have come', () => {
  const parser = new RequestParser(IGNORED, LIMIT_BYTES)
  const between: boolean[] = []
  const text = `\r\n${GET}${head('PUT / HTTP/1.1', 'Content-Length: 2')}hi\r\nG`
  for (const octet of text) {
    parser.read(bytesOf(octet), 0, 1)
    between.push(parser.isBetweenMessages)
  }
  const expected = [...text].map(
    (_, i) => i <= 1 || i === 1 + GET.length || (i >= text.length - 4 && i < text.length - 1),
  )
  expect(between).toEqual(expected)
})

describe('what has no end costs little', () => {
  const FLOODS: readonly [string, string, string][] = [
    ['a head in single octets', `GET / HTTP/1.1\r\nA: `, 'a'],
    ['fields', 'GET / HTTP/1.1\r\n', 'a:\r\n'],
    ['empty lines', '', '\r\n'],
    ['an extension', `${CHUNKED}1;`, 'a'],
    ['trailers', `${CHUNKED}0\r\n`, 'a: b\r\n'],
  ]
  test.each(FLOODS)('%s', (_, start, piece) => {
    const parser = new RequestParser(IGNORED, LIMIT_BYTES)
    parser.read(bytesOf(start), 0, start.length)
    const bytes = bytesOf(piece)
    let sent = 0
    const flood = () => {
      for (; sent < 100_000; sent += bytes.length) {
        for (let at = 0; at < bytes.length; at++) parser.read(bytes.subarray(at, at + 1), 0, 1)
      }
    }
    expect(flood).toThrow(MalformedMessage)
    expect(sent).toBeLessThanOrEqual(16 * 1024)
  })

  test('64 KiB of chunks of one octet are one event, and the buffer holds it', () => {
    const told: string[] = []
    const parser = new RequestParser(
      {
        requestHead: () => {},
        messageContent: (bytes, start, end) => told.push(bytes.toString('latin1', start, end)),
        messageEnd: () => {},
      },
      LIMIT_BYTES,
    )
    parser.read(bytesOf(CHUNKED), 0, CHUNKED.length)
    const chunks = bytesOf('1\r\na\r\n'.repeat(10_922))
    expect(parser.read(chunks, 0, chunks.length)).toBe(chunks.length)
    expect(told).toEqual(['a'.repeat(10_922)])
  })
})
