import { expect, test } from 'vitest'
import { giveBack } from '../../src/origin/give-back.ts'

const LARGE = 64 * 1024

test('the memory of a large piece is given back at once', () => {
  const chunk = Buffer.from(new ArrayBuffer(LARGE))
  const { buffer } = chunk
  giveBack(chunk)
  expect([chunk.length, buffer.byteLength]).toEqual([0, 0])
})

test('a part of something larger is left alone, and so is what is small', () => {
  const whole = Buffer.from(new ArrayBuffer(2 * LARGE))
  const part = whole.subarray(0, LARGE)
  const small = Buffer.from(new ArrayBuffer(1_024))
  for (const chunk of [part, small]) giveBack(chunk)
  expect([whole.length, part.length, small.length]).toEqual([2 * LARGE, LARGE, 1_024])
})
