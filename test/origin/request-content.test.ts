/** The writes of a request's content to the socket, for content in any pieces. */

import type { Socket } from 'node:net'
import { Writable } from 'node:stream'
import { setImmediate as turnEnded } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { ContentSource } from '../../src/origin/attempt.ts'
import { RequestContent } from '../../src/origin/request-writer.ts'
import { fc } from '../support/properties.ts'

const FULL_READ = 64 * 1024

/** Keeps a copy of each write. A slow socket takes nothing before the end of the turn. */
class SocketStandIn extends Writable {
  readonly writes: Buffer[] = []

  constructor(isSlow: boolean) {
    const taken = (chunks: readonly Buffer[], done: () => void) => {
      this.writes.push(Buffer.concat(chunks))
      if (isSlow) setImmediate(done)
      else done()
    }
    super({
      write: (chunk: Buffer, _, done) => taken([chunk], done),
      writev: (chunks, done) =>
        taken(
          chunks.map(({ chunk }: { chunk: Buffer }) => chunk),
          done,
        ),
    })
  }

  get bytes(): Buffer {
    return Buffer.concat(this.writes)
  }
}

const source: ContentSource = { streamTo: () => {}, resume: () => {}, detach: () => {} }

function startContent({ isSlow = false, isChunked = false } = {}) {
  const socket = new SocketStandIn(isSlow)
  const content = new RequestContent(socket as unknown as Socket, source, isChunked)
  return { socket, content }
}

/** A buffer with its own memory, like those of Node's parser. */
function piece(length: number, filler: number): Buffer {
  return Buffer.from(new ArrayBuffer(length)).fill(filler)
}

/** Lengths and data of the chunks, as far as they are well formed. */
function dechunk(bytes: Buffer): Buffer {
  const parts: Buffer[] = []
  for (let at = 0; at < bytes.length; ) {
    const lineEnd = bytes.indexOf('\r\n', at)
    const length = Number.parseInt(bytes.toString('latin1', at, lineEnd), 16)
    parts.push(bytes.subarray(lineEnd + 2, lineEnd + 2 + length))
    at = lineEnd + 2 + length + 2
  }
  return Buffer.concat(parts)
}

test('content arrives complete and in order, in any pieces', async () => {
  const sizes = fc.array(fc.constantFrom(1, 100, FULL_READ - 1, FULL_READ, FULL_READ, FULL_READ + 1), { maxLength: 7 })
  const flags = fc.record({
    isSlow: fc.boolean(),
    isChunked: fc.boolean(),
    isOwned: fc.boolean(),
    pauses: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(sizes, flags, async (lengths, { isOwned, pauses, ...options }) => {
      const { socket, content } = startContent(options)
      const expected = Buffer.concat(lengths.map((length, index) => piece(length, index)))
      for (const [index, length] of lengths.entries()) {
        content.write(piece(length, index), isOwned)
        if (pauses) await turnEnded()
      }
      content.end()
      await new Promise<void>((resolve) => socket.end(resolve))
      const arrived = options.isChunked ? dechunk(socket.bytes) : socket.bytes
      expect(arrived.equals(expected)).toBe(true)
    }),
    { numRuns: 60 },
  )
})

test('nothing is written after the end of the exchange', () => {
  const { socket, content } = startContent()
  content.detach()
  expect(content.write(piece(FULL_READ, 1), true)).toBe(true)
  content.end()
  expect([socket.writes, content.isOver]).toEqual([[], true])
})

test('memory is freed if it is ours and the socket has taken it', () => {
  const lengthAfter = (isSlow: boolean, isOwned: boolean) => {
    const { content } = startContent({ isSlow })
    const chunk = piece(FULL_READ, 1)
    content.write(chunk, isOwned)
    return chunk.length
  }
  expect([lengthAfter(false, true), lengthAfter(false, false), lengthAfter(true, true)]).toEqual([
    0,
    FULL_READ,
    FULL_READ,
  ])
})

test('shared or small memory is not freed', () => {
  const { content } = startContent()
  const whole = piece(2 * FULL_READ, 1)
  const small = piece(1_024, 2)
  content.write(whole.subarray(0, FULL_READ), true)
  content.write(small, true)
  expect([whole.length, small.length]).toEqual([2 * FULL_READ, 1_024])
})

test('a full socket takes no more', async () => {
  const { socket, content } = startContent({ isSlow: true })
  expect(content.write(piece(FULL_READ + 1, 1), true)).toBe(false)
  await turnEnded()
  await turnEnded()
  expect(socket.writableLength).toBe(0)
  expect(content.write(piece(100, 2), true)).toBe(true)
})
