import { describe, expect, test } from 'vitest'
import { readResponseHead } from '../../src/http/response-head.ts'

const raw = (...fields: string[]) => fields.map((text) => Buffer.from(text, 'latin1'))
const strict = { keepsAccessControl: false }

describe('the head of a response', () => {
  test('keeps order, case and duplicates', () => {
    const fields = ['X-A', '1', 'Set-Cookie', 'a=1', 'x-a', '2', 'Set-Cookie', 'b=2']
    expect(readResponseHead(raw(...fields), strict)).toEqual({ fields, contentLength: undefined })
  })

  test('loses hop-by-hop fields and those that Connection names', () => {
    const head = readResponseHead(
      raw(
        'Connection',
        'X-Foo, close',
        'X-Foo',
        '1',
        'Keep-Alive',
        'timeout=5',
        'Upgrade',
        'h2',
        'Trailer',
        'X',
        'Proxy-Authenticate',
        'Basic',
        'X-Bar',
        '2',
      ),
      strict,
    )
    expect(head?.fields).toEqual(['X-Bar', '2'])
  })

  test('keeps its length even where Connection names it', () => {
    const head = readResponseHead(raw('Connection', 'content-length', 'Content-Length', '3'), strict)
    expect(head).toEqual({ fields: ['Content-Length', '3'], contentLength: 3 })
  })

  test('keeps Access-Control fields only where browsers are let in', () => {
    const fields = raw('Access-Control-Allow-Origin', '*', 'X', '1')
    expect(readResponseHead(fields, strict)?.fields).toEqual(['X', '1'])
    expect(readResponseHead(fields, { keepsAccessControl: true })?.fields).toEqual([
      'Access-Control-Allow-Origin',
      '*',
      'X',
      '1',
    ])
  })

  test('passes obs-text as the same bytes', () => {
    expect(readResponseHead(raw('X', 'caf\u00e9'), strict)?.fields).toEqual(['X', 'caf\u00e9'])
  })

  test.each([
    [['Content-Length', '1', 'Content-Length', '1']],
    [['Content-Length', '1', 'Content-Length', '2']],
    [['Content-Length', '1, 1']],
    [['Content-Length', '+1']],
    [['Content-Length', '9'.repeat(16)]],
    [['Content-Length', '1', 'Transfer-Encoding', 'chunked']],
    [['Transfer-Encoding', 'gzip, chunked']],
    [['Transfer-Encoding', 'identity']],
    [['Transfer-Encoding', 'chunked', 'Transfer-Encoding', 'chunked']],
    [['X', 'a\u0000b']],
  ])('is not relied on with %j', (fields) => {
    expect(readResponseHead(raw(...fields), strict)).toBeUndefined()
  })
})
