/** The framing of requests, and the memory of their content. */

import type { Socket } from 'node:net'
import { Writable } from 'node:stream'
import { expect, test } from 'vitest'
import type { ContentSource } from '../../../src/origin/attempt.ts'
import { RequestContent, requestHeadText } from '../../../src/origin/request-writer.ts'
import { Recorder, type Sent } from '../../support/recorder.ts'

const source: ContentSource = { streamTo: () => {}, resume: () => {}, detach: () => {} }

test.each<[string, Sent, string | undefined]>([
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
])('%s: exactly one framing, or none', (_, sent, framing) => {
  const text = requestHeadText(new Recorder(sent).attempt)
  expect(text.indexOf('\r\n\r\n')).toBe(text.length - 4)
  const framings = text.split('\r\n').filter((line) => /^(content-length|transfer-encoding):/i.test(line))
  expect(framings).toEqual(framing === undefined ? [] : [framing])
})

const FULL_READ = 64 * 1024

/** A buffer with its own memory, like those of Node's parser. */
const piece = (length: number) => Buffer.from(new ArrayBuffer(length))

/** Writes the piece. A slow socket takes nothing before the end of the turn. */
function write(chunk: Buffer, isOwned: boolean, isSlow = false): void {
  const socket = new Writable({
    write: (_chunk, _encoding, done) => {
      if (isSlow) setImmediate(done)
      else done()
    },
  })
  new RequestContent(socket as Socket, source, false).write(chunk, isOwned)
}

test.each([
  [true, false, 0],
  [false, false, FULL_READ],
  [true, true, FULL_READ],
])('memory is freed if it is ours (%j) and the socket has taken it (slow: %j)', (isOwned, isSlow, left) => {
  const chunk = piece(FULL_READ)
  write(chunk, isOwned, isSlow)
  expect(chunk.length).toBe(left)
})

test('shared or small memory is not freed', () => {
  const whole = piece(2 * FULL_READ)
  const small = piece(1_024)
  write(whole.subarray(0, FULL_READ), true)
  write(small, true)
  expect([whole.length, small.length]).toEqual([2 * FULL_READ, 1_024])
})

test('nothing is written after the end of the exchange', () => {
  const written: unknown[] = []
  const socket = { write: (bytes: unknown) => written.push(bytes) } as unknown as Socket
  const content = new RequestContent(socket, source, true)
  content.detach()
  expect(content.write(piece(FULL_READ), true)).toBe(true)
  content.end()
  expect(written).toEqual([])
})
