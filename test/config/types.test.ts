import { describe, expect, test } from 'vitest'
import { duration, size } from '../../src/config/types.ts'
import { fc } from '../support/properties.ts'

describe('durations', () => {
  const anyDuration = duration('1s', '0ms')

  test.each([
    ['250ms', 250],
    ['30s', 30_000],
    ['5m', 300_000],
    ['1h', 3_600_000],
    ['0s', 0],
    ['90m', 5_400_000],
  ])('%s is %i ms', (text, expected) => {
    expect(anyDuration.parse(text)).toBe(expected)
  })

  test.each([
    '',
    '10',
    's',
    '10 s',
    ' 10s',
    '10s ',
    '10S',
    '-1s',
    '+1s',
    '1.5s',
    '1e3s',
    '01s',
    '10sec',
    '1h30m',
    '٣s',
    '9999999999s',
  ])('%j is refused', (text) => {
    expect(anyDuration.safeParse(text).error?.issues[0]?.message).toMatch(/^is not a duration: write /)
  })

  test('any text is parsed or refused', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        const { success, data } = anyDuration.safeParse(text)
        if (success) expect(data).toBeGreaterThanOrEqual(0)
      }),
    )
  })
})

describe('sizes', () => {
  const anySize = size('1MiB', '0B', '64MiB')

  test.each([
    ['512B', 512],
    ['64KiB', 65_536],
    ['1MiB', 1_048_576],
    ['0B', 0],
  ])('%s is %i bytes', (text, expected) => {
    expect(anySize.parse(text)).toBe(expected)
  })

  test.each(['64', '64K', '64KB', '64kib', '1.5MiB', '-1B', ' 1B', '1 B', '1GiB'])('%j is refused', (text) => {
    expect(anySize.safeParse(text).error?.issues[0]?.message).toBe('is not a size: write 512B, 64KiB or 1MiB')
  })
})
