import { describe, expect, test } from 'vitest'
import { parseResponseHead, type ResponseHead } from '../../src/http/response-head.ts'

const parse = (...lines: string[]) => parseResponseHead(lines.join('\r\n'))
const withFields = (...lines: string[]) => parse('HTTP/1.1 200 OK', ...lines)

/** Names and values in turn. */
function read(...fields: string[]): ResponseHead | undefined {
  return withFields(...Array.from({ length: fields.length / 2 }, (_, i) => `${fields[2 * i]}: ${fields[2 * i + 1]}`))
}

// `test/behaviour/response-fields.test.ts` sends those that pass, and those that are removed.
describe('the fields of a response', () => {
  test('lose the white space around their values', () => {
    const head = withFields('A:1', 'B: \t 2 3 \t', 'C:', 'D: \t', 'E:: 4')
    expect(head?.fields.join('|')).toBe('A|1|B|2 3|C||D||E|: 4')
  })

  // RFC 9112 §5.1 asks a proxy to remove them.
  test('lose blanks before their colons, framing included', () => {
    expect(withFields('A : 1', 'B\t \t: 2')?.fields).toEqual(['A', '1', 'B', '2'])
    expect(withFields('Content-Length : 3')).toMatchObject({ contentLength: 3 })
    expect(withFields('Transfer-Encoding\t: chunked')).toMatchObject({ isChunked: true })
    expect(withFields('Content-Length : 3', 'Content-Length: 4')).toBeUndefined()
  })

  test('state a length without leading zeros, which some clients read as octal', () => {
    expect(read('Content-Length', '0010')).toMatchObject({ contentLength: 10, fields: ['Content-Length', '10'] })
  })

  test('are named by tokens: a no-break space, as some libraries trim it, is part of what it stands beside', () => {
    const head = read('X', '1', 'Connection', 'x\u00a0, close\u00a0', 'Vary', 'x-org-id\u00a0')
    expect(head).toMatchObject({ persists: true, fields: ['X', '1', 'Vary', 'x-org-id\u00a0, X-Org-Id'] })
  })

  test('show whether there is a Date, unless Connection names it', () => {
    const date = 'date: Tue, 15 Nov 1994 08:12:31 GMT'
    expect(withFields(date)).toMatchObject({ hasDate: true, fields: ['date', date.slice('date: '.length)] })
    expect(withFields('X: 1')?.hasDate).toBe(false)
    expect(withFields(date, 'Connection: date')).toMatchObject({ hasDate: false, fields: [] })
  })
})

describe('a doubtful response, read in either way', () => {
  test.each([
    [['Content-Length', '1', 'Content-Length', '1']],
    [['Content-Length', '1', 'Content-Length', '2']],
    [['Content-Length', '1, 1']],
    [['Content-Length', '+1']],
    [['Content-Length', '0x1']],
    [['Content-Length', '']],
    [['Content-Length', '9'.repeat(16)]],
    [['Content-Length', '1', 'Transfer-Encoding', 'chunked']],
    [['Transfer-Encoding', 'chunked', 'Content-Length', '1']],
    [['Transfer-Encoding', 'gzip, chunked']],
    [['Transfer-Encoding', 'chunked, chunked']],
    [['Transfer-Encoding', 'identity']],
    [['Transfer-Encoding', '']],
    [['Transfer-Encoding', 'chunked', 'Transfer-Encoding', 'chunked']],
    [['X', 'a\u0000b']],
    [['X', 'a\rSet-Cookie: evil']],
    [['X', 'a\nSet-Cookie: evil']],
    [['X', 'a\u007fb']],
    [['', 'a value without a name']],
    [[' X', 'a space before the name']],
    [['X Y', '1']],
    [['X\u00e9', '1']],
    [['X\n', '1']],
  ])('%j', (fields) => {
    expect(read(...fields)).toBeUndefined()
  })

  test.each([
    ['a folded field', ['X: a', ' b']],
    ['a folded field with a colon in it', ['X: a', '\tContent-Length: 4']],
    ['a line without a colon', ['X']],
    ['an empty line', ['', 'X: 1']],
    ['a colon in the next line alone', ['X', 'Y: 1']],
  ])('%s', (_, lines) => {
    expect(withFields(...lines)).toBeUndefined()
  })
})

describe('the first line', () => {
  test.each<[string, number, string]>([
    ['HTTP/1.1 200 OK', 200, 'OK'],
    ['HTTP/1.1 200', 200, ''],
    ['HTTP/1.1 200 ', 200, ''],
    ['HTTP/1.0 404 Not  Found ', 404, 'Not  Found '],
    ['HTTP/1.1 999 caf\u00e9\tau lait', 999, 'caf\u00e9\tau lait'],
    ['HTTP/1.1 100 Continue', 100, 'Continue'],
  ])('%j', (line, status, reason) => {
    expect(parse(line, 'X: 1')).toMatchObject({ status, reason, fields: ['X', '1'] })
  })

  test.each(['HTTP/1.1 200 a\u0000b', 'HTTP/1.1 200 \u007f', 'HTTP/1.1 200 \u001b[31m'])(
    '%j is accepted without its reason',
    (line) => {
      expect(parse(line)).toMatchObject({ status: 200, reason: '' })
    },
  )

  test.each([
    '',
    'HTTP/1.1',
    'HTTP/1.1 20',
    'HTTP/1.1 099 x',
    'HTTP/1.1  200 OK',
    'HTTP/1.1\t200 OK',
    'HTTP/1.1 200OK',
    'HTTP/1.2 200 OK',
    'HTTP/2 200',
    'http/1.1 200 OK',
    'HTTP/1.1 200 O\rK',
    'HTTP/1.1 200 O\nK',
    'HTTP/1.1 200 OK\nX: 1',
    '\nHTTP/1.1 200 OK',
    '\r\nHTTP/1.1 200 OK',
  ])('%j is none', (line) => {
    expect(parse(line)).toBeUndefined()
    expect(parse(line, 'X: 1')).toBeUndefined()
  })
})

describe('whether the connection stays open', () => {
  test.each<[string, readonly string[], boolean]>([
    ['1.1', [], true],
    ['1.1', ['close'], false],
    ['1.1', ['keep-alive'], true],
    ['1.1', ['x-foo , CLOSE'], false],
    ['1.1', ['closed'], true],
    ['1.1', ['close', 'keep-alive'], false],
    ['1.1', ['keep-alive', 'close'], false],
    ['1.0', [], false],
    ['1.0', ['keep-alive'], true],
    ['1.0', ['Keep-Alive, x-foo'], true],
    ['1.0', ['x-keep-alive, keep-alive-x'], false],
    ['1.0', ['keep-alive', 'close'], false],
  ])('HTTP/%s with %j: %j', (version, options, persists) => {
    const lines = options.map((option) => `Connection: ${option}`)
    expect(parse(`HTTP/${version} 200 OK`, 'Content-Length: 0', ...lines)?.persists).toBe(persists)
  })

  test.each<[string, number | undefined]>([
    ['timeout=5', 5],
    ['timeout=5, max=100', 5],
    ['max=100, TIMEOUT=60', 60],
    ['timeout=0', 0],
    ['max=100', undefined],
    ['timeout=x', undefined],
    ['timeout=-5', undefined],
    ['xtimeout=5', undefined],
    ['', undefined],
  ])('Keep-Alive: %j is %j seconds', (value, seconds) => {
    const head = withFields(`Keep-Alive: ${value}`)
    expect(head?.keepAliveSeconds).toBe(seconds)
    expect(head?.fields).toEqual([])
  })

  test('HTTP/1.0 has no transfer coding, and may keep its connection with a length', () => {
    expect(parse('HTTP/1.0 200 OK', 'Transfer-Encoding: chunked')).toBeUndefined()
    expect(parse('HTTP/1.0 200 OK', 'Connection: keep-alive', 'Transfer-Encoding: chunked')).toBeUndefined()
    const head = parse('HTTP/1.0 200 OK', 'Connection: keep-alive', 'Content-Length: 2')
    expect(head).toMatchObject({ persists: true, contentLength: 2 })
  })
})

test('known names are recognized among very many others', () => {
  for (let i = 0; i < 5_000; i++) withFields(`x-flood-response-${i}: 1`)
  expect(withFields('cOnTeNt-LeNgTh: 3', 'tRaNsFeR-eNcOdInG: chunked')).toBeUndefined()
  expect(withFields('fLo Od: 1')).toBeUndefined()
})
