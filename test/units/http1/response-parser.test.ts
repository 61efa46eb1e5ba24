import { describe, expect, test } from 'vitest'
import type { MalformedReason } from '../../../src/http1/malformed.ts'
import { type ReceivedResponse, ResponseParser } from '../../../src/http1/response-parser.ts'
import { everywhere, readResponse } from '../../fuzz/parser-cases.ts'
import { fc } from '../../support/properties.ts'
import { renderedResponse } from '../../support/rendered-response.ts'

const bytesOf = (text: string) => Buffer.from(text, 'latin1')
const head = (line: string, ...fields: string[]) => `${[line, ...fields].join('\r\n')}\r\n\r\n`
const ok = (...fields: string[]) => head('HTTP/1.1 200 OK', ...fields)
const CHUNKED = ok('Transfer-Encoding: chunked')

/** Whole, and octet by octet: the same. */
function read(text: string, method = 'GET', isEnded = false) {
  const bytes = bytesOf(text)
  const whole = readResponse(bytes, [bytes.length], method, isEnded)
  expect(readResponse(bytes, everywhere(bytes.length), method, isEnded)).toEqual(whole)
  return whole
}

/** The head as it is told, and how many octets were read with it. */
function headOf(text: string, isHead = false): ReceivedResponse & { readonly read: number } {
  let told: ReceivedResponse | undefined
  const parser = new ResponseParser({
    responseHead: (each) => {
      told = each
    },
    messageContent: () => undefined,
    messageEnd: () => undefined,
  })
  parser.expect(isHead, true)
  const bytes = bytesOf(text)
  const end = parser.read(bytes, 0, bytes.length)
  if (told === undefined) throw new Error('no head')
  return { ...told, read: end }
}

describe('a response', () => {
  test('is told with its fields as they are', () => {
    const text = head('HTTP/1.0 404 \xe9 !', 'Set-Cookie: a', 'set-cookie : b', 'X:', 'Keep-Alive: max=3, timeout=5')
    expect(headOf(text)).toEqual({
      status: 404,
      reason: '\xe9 !',
      minorVersion: 0,
      rawFields: ['Set-Cookie', 'a', 'set-cookie', 'b', 'X', '', 'Keep-Alive', 'max=3, timeout=5'],
      lines: 'Set-Cookie: a\r\nset-cookie: b\r\nX: \r\nKeep-Alive: max=3, timeout=5\r\n',
      contentLength: undefined,
      isChunked: false,
      hasContent: true,
      keepsAlive: false,
      keepAliveSeconds: 5,
      read: text.length,
    })
  })

  test.each([
    [ok('Content-Length: 0'), true],
    [ok('Content-Length: 1', 'Connection: close'), false],
    [ok(), false],
    [head('HTTP/1.0 200 OK', 'Content-Length: 1', 'Connection: keep-alive'), true],
    [head('HTTP/1.1 204 No'), true],
    [head('HTTP/1.1 204 No', 'Content-Length: 2'), false],
    [head('HTTP/1.1 304 No', 'Content-Length: 2'), true],
  ])('%j keeps its connection: %s', (text, keepsAlive) => {
    expect(headOf(text).keepsAlive).toBe(keepsAlive)
  })

  test.each([
    ['GET', `${ok('Content-Length: 2')}hi`, 'hi'],
    ['HEAD', ok('Content-Length: 2'), ''],
    ['HEAD', CHUNKED, ''],
    ['GET', head('HTTP/1.1 204 '), ''],
    ['GET', head('HTTP/1.1 304', 'Transfer-Encoding: chunked'), ''],
    ['GET', `${CHUNKED} 2 \r\nhi\r\n03\t;a=b\r\n...\r\n0\t\r\nA : b\r\n\r\n`, 'hi...'],
    ['GET', `${CHUNKED}2 ; a=b\r\nhi\r\n3;\r\n...\r\n0; a = "\r\n\r\n`, 'hi...'],
    ['GET', `${head('HTTP/1.1 600 x', 'Content-Length: 2')}hi`, 'hi'],
    ['GET', `${head('HTTP/1.1 999', 'Content-Length: 2')}hi`, 'hi'],
    [
      'GET',
      `${Array.from({ length: 300 }, () => head('HTTP/1.1 103 x', 'A: b')).join('')}${ok('Content-Length: 2')}hi`,
      'hi',
    ],
  ])('to %s is complete: %j', (method, text, content) => {
    for (const behind of ['', 'HTTP']) {
      const { messages, refusal } = read(text + behind, method)
      expect(refusal).toBeUndefined()
      expect(messages).toMatchObject([{ content, isComplete: true }])
    }
  })

  test.each([false, true])('without a length ends with its connection: %s', (isEnded) => {
    expect(read(`${ok()}hello`, 'GET', isEnded).messages).toMatchObject([{ content: 'hello', isComplete: isEnded }])
  })

  test.each([ok('Content-Length: 3'), CHUNKED, 'HTTP/1.1 200', head('HTTP/1.1 100 x'), ''])(
    'that is cut has no end: %j',
    (text) => {
      expect(read(text, 'GET', true).messages.some(({ isComplete }) => isComplete)).toBe(false)
    },
  )

  const anyCuts = fc.array(fc.nat(2_000), { maxLength: 12 })
  const cutsOf = (bytes: Buffer, cuts: readonly number[]) =>
    [...new Set([...cuts.map((cut) => cut % (bytes.length + 1)), bytes.length])].toSorted((a, b) => a - b)

  test('of any kind is read correctly, in whatever pieces it comes', () => {
    const property = fc.property(renderedResponse, anyCuts, ({ bytes, ...response }, cuts) => {
      const isUntilEnd = response.framing === 'until the end'
      const { messages, refusal } = readResponse(
        bytes,
        cutsOf(bytes, cuts),
        response.isHead ? 'HEAD' : 'GET',
        isUntilEnd,
      )
      expect(refusal).toBeUndefined()
      const start = `${response.status} ${response.reason} 1.1`
      const content = response.content.toString('latin1')
      expect(messages).toEqual([{ start, rawFields: response.fields, content, isComplete: true }])
    })
    fc.assert(property, { numRuns: 1_000 })
  })

  test('of any kind that is cut has no end, unless it ends with its connection', () => {
    const property = fc.property(renderedResponse, fc.nat(), anyCuts, (response, cut, cuts) => {
      const bytes = response.bytes.subarray(0, cut % response.bytes.length)
      const seen = readResponse(bytes, cutsOf(bytes, cuts), response.isHead ? 'HEAD' : 'GET', true)
      expect(seen.refusal).toBeUndefined()
      const [message] = seen.messages
      if (message === undefined) return
      expect(message.isComplete).toBe(response.framing === 'until the end')
      expect(response.content.toString('latin1').startsWith(message.content)).toBe(true)
    })
    fc.assert(property, { numRuns: 1_000 })
  })

  test('is told no further once its reader has stopped', () => {
    let pieces = 0
    const parser: ResponseParser = new ResponseParser({
      responseHead: () => {},
      messageContent: () => {
        pieces++
        parser.stop()
      },
      messageEnd: () => {
        throw new Error('an end of what was given up')
      },
    })
    const large = `1388\r\n${'x'.repeat(5_000)}\r\n`
    for (const text of [
      `${ok('Content-Length: 2')}hi`,
      `${CHUNKED}${large}${large}0\r\n\r\n`,
      'HTTP/1.1 200 OK\r\nA',
      ok(),
    ]) {
      parser.expect(false)
      const bytes = bytesOf(text)
      parser.read(bytes, 0, bytes.length)
      parser.stop()
      expect(parser.finish()).toBe(false)
    }
    expect(pieces).toBe(2)
  })

  test('that switches protocols leaves the rest to the other one', () => {
    const text = head('HTTP/1.1 101 Switching', 'Upgrade: websocket', 'Connection: keep-alive, Upgrade')
    expect(headOf(`${text}first bytes`)).toMatchObject({ status: 101, hasContent: false, read: text.length })
  })
})

describe('a response is refused, however it is cut', () => {
  const lines = (text: string) => `HTTP/1.1 200 OK\r\n${text}`
  const switched = (...fields: string[]) => head('HTTP/1.1 101 x', ...fields)
  const HEADS: { readonly [R in MalformedReason]?: readonly string[] } = {
    not_http: ['hello', 'HTTP/2', '\r\n', 'HTTP 200 OK\r\n'],
    bad_status_line: [' 200 OK', '99', '099 x', '2000'].map((rest) => `HTTP/1.1 ${rest}\r\n`),
    control_character: ['\x15\x03', 'HTTP/1.1 200 O\x01', lines('A: \0'), `${CHUNKED}2 ; a\0`],
    bare_lf: ['HTTP/1.1 200 OK\n', lines('A: b\n')],
    bare_cr: [lines('A: b\r\r\n'), `${CHUNKED}2;a\ra`],
    obs_fold: [lines('A: b\r\n\tc')],
    no_colon: [lines('A \r\n')],
    bad_field_name: [lines('A b: c')],
    two_lengths: [ok('Content-Length: 2', 'Content-Length: 2')],
    bad_length: [ok('Content-Length: 2, 2')],
    length_with_coding: [
      ok('Content-Length: 2', 'Transfer-Encoding: chunked'),
      ok('Transfer-Encoding: chunked', 'Content-Length: 2'),
      head('HTTP/1.1 304 x', 'Content-Length: 2', 'Transfer-Encoding: chunked'),
    ],
    unknown_coding: [ok('Transfer-Encoding: gzip, chunked')],
    coding_in_http_1_0: [head('HTTP/1.0 200 OK', 'Transfer-Encoding: chunked')],
    bad_interim_response: [head('HTTP/1.1 100 Continue', 'Connection: close')],
    switch_to_nothing: [
      switched('Upgrade: websocket'),
      switched('Upgrade:', 'Connection: upgrade'),
      switched('Connection: upgrade'),
    ],
    bad_chunk_size: ['2 2', ' ', '-2'].map((size) => `${CHUNKED}${size}\r\n`),
    bad_chunk_end: [`${CHUNKED}2\r\nhi!`],
    bad_trailer: [`${CHUNKED}0\r\nContent-Length : 2\r\n`],
    chunk_line_too_long: [' ', '2 ', '2;'].map((start) => CHUNKED + start.padEnd(5_000, start.at(-1))),
    head_too_large: [ok(`A: ${'a'.repeat(64 * 1024)}`)],
    too_many_fields: [ok(...Array.from({ length: 1_001 }, () => 'a:'))],
  }
  const rows = Object.entries(HEADS).flatMap(([reason, texts]) =>
    texts.map((text) => [reason, text.slice(0, 200), text] as const),
  )
  test.each(rows)('%s %j', (reason, _, text) => {
    const { refusal, messages } = read(text)
    expect(refusal).toBe(reason)
    expect(messages.some(({ isComplete }) => isComplete)).toBe(false)
  })
})

test('a head may have exactly 64 KiB', () => {
  const largest = ok(`A: ${'a'.repeat(64 * 1024 - ok('A: ').length)}`)
  expect(read(largest).refusal).toBeUndefined()
  expect(read(largest.replace('A: ', 'A: a')).refusal).toBe('head_too_large')
})

test('a 101 is refused where no other protocol was offered', () => {
  const bytes = bytesOf(head('HTTP/1.1 101 x', 'Upgrade: websocket', 'Connection: upgrade'))
  const parser = new ResponseParser({ responseHead: () => {}, messageContent: () => {}, messageEnd: () => {} })
  parser.expect(false)
  expect(() => parser.read(bytes, 0, bytes.length)).toThrow('unexpected_switch')
})

test('nothing is read behind a response', () => {
  const bytes = bytesOf(`${ok('Content-Length: 0')}${ok('Content-Length: 0')}`)
  let heads = 0
  const parser = new ResponseParser({ responseHead: () => heads++, messageContent: () => {}, messageEnd: () => {} })
  parser.expect(false)
  const next = parser.read(bytes, 0, bytes.length)
  expect(parser.read(bytes, next, bytes.length)).toBe(next)
  expect(heads).toBe(1)
  parser.expect(false)
  expect(parser.read(bytes, next, bytes.length)).toBe(bytes.length)
})

test('nothing is read before a request has been sent', () => {
  const fail = () => {
    throw new Error('told')
  }
  const parser = new ResponseParser({ responseHead: fail, messageContent: fail, messageEnd: fail })
  expect(parser.read(bytesOf(ok()), 0, 5)).toBe(0)
})
