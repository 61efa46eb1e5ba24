/** Bytes that come in small pieces cost about what they hold. */

import { expect, test } from 'vitest'
import { Pieces } from '../../src/pieces.ts'

/** As a read brings them: each piece in memory of its own, `around` octets of which belong to something else. */
function pieceOf(text: string, around = 0): Buffer {
  const bytes = Buffer.allocUnsafeSlow(text.length + around)
  bytes.write(text, around, 'latin1')
  return bytes.subarray(around)
}

test.each([
  ['single octets', 1, 0],
  ['single octets in reads of 8 KiB', 1, 8_191],
  ['100 octets', 100, 0],
  ['8 KiB in reads of 64 KiB', 8_192, 57_344],
  ['whole reads', 65_536, 0],
])('64 KiB in %s', (_, length, around) => {
  const pieces = new Pieces()
  let text = ''
  for (let i = 0; text.length < 65_536; i++) {
    const piece = String.fromCharCode(97 + (i % 26)).repeat(length)
    pieces.add(pieceOf(piece, around))
    text += piece
  }
  expect(pieces.joined().toString()).toBe(text)
  expect(pieces.bytes).toBe(text.length)
  const buffers = new Set(pieces.list().map(({ buffer }) => buffer))
  const heldBytes = [...buffers].reduce((sum, { byteLength }) => sum + byteLength, 0)
  expect(heldBytes).toBeLessThan(2.2 * text.length)
  expect(pieces.list().length).toBeLessThan(30)
})

test('pieces may be read and added in turn', () => {
  const pieces = new Pieces()
  let text = ''
  for (let i = 0; i < 100; i++) {
    pieces.add(pieceOf(`${i},`))
    text += `${i},`
    if (i % 7 === 0) expect(pieces.joined().toString()).toBe(text)
  }
  pieces.clear()
  expect([pieces.joined().length, pieces.bytes]).toEqual([0, 0])
})
