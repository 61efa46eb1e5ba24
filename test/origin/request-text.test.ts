import { expect, test } from 'vitest'
import type { ContentSource, OriginRequest } from '../../src/origin/attempt.ts'
import { requestHeadText } from '../../src/origin/request-writer.ts'
import { Recorder } from '../support/recorder.ts'

const source: ContentSource = { streamTo: () => {}, resume: () => {}, detach: () => {} }

function linesOf(request: Partial<OriginRequest>): string[] {
  const text = requestHeadText(new Recorder({ fields: [], ...request }).attempt.request)
  expect(text.endsWith('\r\n\r\n')).toBe(true)
  expect(text.indexOf('\r\n\r\n')).toBe(text.length - 4)
  return text.slice(0, -4).split('\r\n')
}

test('method, target and fields are written unchanged and in order', () => {
  const fields = ['Host', 'origin.example', 'X-A', '1', 'x-a', '', 'X-Text', 'caf\u00e9']
  expect(linesOf({ method: 'PURGE', target: '/a?b=%20', fields })).toEqual([
    'PURGE /a?b=%20 HTTP/1.1',
    'Host: origin.example',
    'X-A: 1',
    'x-a: ',
    'X-Text: caf\u00e9',
    'connection: keep-alive',
  ])
})

test.each<[string, Partial<OriginRequest>, string | undefined]>([
  ['no content', {}, undefined],
  ['no content of a DELETE', { method: 'DELETE' }, undefined],
  ['no content of a POST', { method: 'POST' }, 'content-length: 0'],
  ['no content of a PUT', { method: 'PUT' }, 'content-length: 0'],
  ['no content of a PATCH', { method: 'PATCH' }, 'content-length: 0'],
  ['no content of a QUERY', { method: 'QUERY' }, 'content-length: 0'],
  ['no content of a PROPFIND', { method: 'PROPFIND' }, 'content-length: 0'],
  ['no content of a PROPPATCH', { method: 'PROPPATCH' }, 'content-length: 0'],
  ['content of no octets', { content: Buffer.alloc(0) }, 'content-length: 0'],
  ['whole content', { content: Buffer.from('caf\u00e9') }, 'content-length: 5'],
  [
    'whole content of another length than was declared',
    { content: Buffer.from('abc'), contentLength: 9 },
    'content-length: 3',
  ],
  ['content of a declared length', { content: source, contentLength: 12 }, 'content-length: 12'],
  ['content without a length', { content: source }, 'transfer-encoding: chunked'],
])('%s: exactly one framing, or none', (_, request, framing) => {
  const framings = linesOf(request).filter((line) => /^(content-length|transfer-encoding):/i.test(line))
  expect(framings).toEqual(framing === undefined ? [] : [framing])
})
