import { describe, expect, test } from 'vitest'
import { Unsuitable } from '../../src/config/problem.ts'
import { formatDuration, formatSize, parseDuration, parseSize } from '../../src/config/setting-types.ts'
import { fc } from '../support/properties.ts'

describe('durations', () => {
  test.each([
    ['250ms', 250],
    ['30s', 30_000],
    ['5m', 300_000],
    ['1h', 3_600_000],
    ['0s', 0],
    ['90m', 5_400_000],
  ])('%s is %i ms', (text, expected) => {
    expect(parseDuration(text)).toBe(expected)
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
    expect(() => parseDuration(text)).toThrow(Unsuitable)
  })

  test('what is formatted parses to the same', () => {
    fc.assert(
      fc.property(fc.nat(999_999_999), (durationMs) => parseDuration(formatDuration(durationMs)) === durationMs),
    )
  })

  test('whatever unit is chosen, formatting it again keeps the value', () => {
    const written = fc
      .tuple(fc.nat(999_999), fc.constantFrom('ms', 's', 'm', 'h'))
      .map(([count, unit]) => `${count}${unit}`)
    fc.assert(
      fc.property(written, (text) => {
        expect(parseDuration(formatDuration(parseDuration(text)))).toBe(parseDuration(text))
      }),
    )
  })

  test('no text at all makes it throw anything else', () => {
    fc.assert(
      fc.property(fc.string(), (text) => {
        try {
          expect(parseDuration(text)).toBeGreaterThanOrEqual(0)
        } catch (error) {
          expect(error).toBeInstanceOf(Unsuitable)
        }
      }),
    )
  })
})

describe('sizes', () => {
  test.each([
    ['512B', 512],
    ['64KiB', 65_536],
    ['1MiB', 1_048_576],
    ['0B', 0],
  ])('%s is %i bytes', (text, expected) => {
    expect(parseSize(text)).toBe(expected)
  })

  test.each(['64', '64K', '64KB', '64kib', '1.5MiB', '-1B', ' 1B', '1 B', '1GiB'])('%j is refused', (text) => {
    expect(() => parseSize(text)).toThrow(Unsuitable)
  })

  test('what is formatted parses to the same', () => {
    fc.assert(fc.property(fc.nat(999_999_999), (sizeBytes) => parseSize(formatSize(sizeBytes)) === sizeBytes))
  })
})
