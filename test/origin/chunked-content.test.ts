import { describe, expect, test } from 'vitest'
import { OriginError } from '../../src/errors.ts'
import { ChunkedContent } from '../../src/origin/response-parser.ts'

/** The end of the bytes that were read, whether the content ended, and the content. Read at once, and octet by octet. */
function readBothWays(text: string): { readonly stop: number; readonly isOver: boolean; readonly content: string }[] {
  const bytes = Buffer.from(text, 'latin1')
  return [bytes.length, 1].map((step) => {
    let content = ''
    const chunked = new ChunkedContent((from, start, end) => {
      content += from.toString('latin1', start, end)
    })
    let stop = 0
    while (stop < bytes.length && !chunked.isOver) stop = chunked.read(bytes, stop, Math.min(stop + step, bytes.length))
    return { stop, isOver: chunked.isOver, content }
  })
}

function expectRefused(text: string): void {
  const bytes = Buffer.from(text, 'latin1')
  for (const step of [bytes.length, 1]) {
    const chunked = new ChunkedContent(() => {})
    const readAll = () => {
      for (let at = 0; at < bytes.length && !chunked.isOver; )
        at = chunked.read(bytes, at, Math.min(at + step, bytes.length))
    }
    expect(readAll).toThrow(OriginError)
    expect(chunked.isOver).toBe(false)
  }
}

describe('chunks', () => {
  test.each([
    ['one', '4\r\nbody\r\n0\r\n\r\n', 'body'],
    ['several', '1\r\na\r\n2\r\nbc\r\n0\r\n\r\n', 'abc'],
    ['none', '0\r\n\r\n', ''],
    [
      'sizes in either case, with zeros before',
      `00a\r\n${'x'.repeat(10)}\r\nA\r\n${'y'.repeat(10)}\r\n000\r\n\r\n`,
      'xxxxxxxxxxyyyyyyyyyy',
    ],
    ['a size padded with zeros to 16 digits', `${'1'.padStart(16, '0')}\r\na\r\n${'0'.repeat(16)}\r\n\r\n`, 'a'],
    ['blanks before an extension', '1 ; a=b\r\na\r\n1\t;c\r\nb\r\n0 ;last\r\n\r\n', 'ab'],
    ['extensions', '1;a\r\na\r\n1;a="b;c"\r\nb\r\n0;last\r\n\r\n', 'ab'],
    ['line ends as content', '4\r\n\r\n\r\n\r\n0\r\n\r\n', '\r\n\r\n'],
    ['trailers', '1\r\na\r\n0\r\nContent-Length: 9\r\nAuthorization: x\r\n\r\n', 'a'],
  ])('%s', (_, text, content) => {
    for (const seen of readBothWays(text)) expect(seen).toEqual({ stop: text.length, isOver: true, content })
  })

  test('bytes after the last chunk are not read', () => {
    const text = '1\r\na\r\n0\r\n\r\n'
    for (const seen of readBothWays(`${text}HTTP/1.1 200 OK`))
      expect(seen).toMatchObject({ stop: text.length, isOver: true })
  })

  test.each([
    '',
    '1',
    '1\r',
    '1\r\n',
    '1\r\na',
    '1\r\na\r',
    '1\r\na\r\n',
    '1\r\na\r\n0',
    '1\r\na\r\n0\r\n',
    '1\r\na\r\n0\r\n\r',
  ])('chunks that are cut after %j have no end', (text) => {
    for (const { isOver } of readBothWays(text)) expect(isOver).toBe(false)
  })
})

describe('malformed chunks', () => {
  test.each([
    ['a size that is none', 'x\r\n'],
    ['no size', '\r\n'],
    ['a sign', '+1\r\na\r\n'],
    ['a negative size', '-1\r\n'],
    ['a prefix', '0x1\r\na\r\n'],
    ['a space before the size', ' 1\r\na\r\n'],
    ['a space behind the size', '1 \r\na\r\n'],
    ['a tab behind the size', '1\t\r\na\r\n'],
    ['an underscore', '1_0\r\n'],
    ['a size beyond all numbers', `${'f'.repeat(14)}\r\n`],
    ['a size of zeros beyond all bounds', `${'0'.repeat(40)}\r\n`],
    ['a line feed alone behind the size', '1\na\r\n0\r\n\r\n'],
    ['a carriage return alone behind the size', '1\ra\r\n'],
    ['two carriage returns', '1\r\r\na\r\n'],
    ['a control in an extension', '1;a\u0000\r\na\r\n'],
    ['a line feed in an extension', '1;a\nb\r\n'],
    ['a carriage return in an extension', '1;a\rb\r\na\r\n'],
    ['more content than the size says', '1\r\nab'],
    ['less content than the size says', '2\r\na\r\n0\r\n\r\n'],
    ['a line feed alone behind the content', '1\r\na\n'],
    ['a carriage return alone behind the content', '1\r\na\rb'],
    ['a trailer that is no field', '0\r\nx\r\n'],
    ['a trailer without a name', '0\r\n: x\r\n'],
    ['a trailer with a space before its colon', '0\r\nx : y\r\n'],
    ['a folded trailer', '0\r\nx: y\r\n z\r\n'],
    ['a control in a trailer', '0\r\nx: \u0000\r\n'],
    ['a line feed alone behind a trailer', '0\r\nx: y\n\r\n'],
    ['a line feed alone behind it all', '0\r\n\n'],
  ])('%s', (_, text) => {
    expectRefused(text)
  })
})

describe('limits', () => {
  const line = (octets: number) => `1;${'x'.repeat(octets - '1;\r\n'.length)}\r\n`

  test('a line of a chunk may have at most 4 KiB', () => {
    for (const { content } of readBothWays(`${line(4096)}a\r\n`)) expect(content).toBe('a')
    expectRefused(line(4097))
  })

  test('a line without an end is refused at that length', () => {
    expectRefused(line(5000).slice(0, -2))
  })

  test('all trailers together may have at most 16 KiB', () => {
    const trailers = (last: number) => `${`a:${'x'.repeat(1022)}\r\n`.repeat(15)}b:${'x'.repeat(last)}\r\n\r\n`
    for (const { isOver } of readBothWays(`0\r\n${trailers(1022)}`)) expect(isOver).toBe(true)
    expectRefused(`0\r\n${trailers(1023)}`)
  })

  test('a chunk may have 2^52 - 1 octets', () => {
    for (const seen of readBothWays('fffffffffffff\r\nabc'))
      expect(seen).toEqual({ stop: 18, isOver: false, content: 'abc' })
  })
})
