/** Durations and sizes as a configuration writes them: a whole number with its unit, never a bare number. */

import { Unsuitable } from './unsuitable.ts'

export const DURATION = /^(0|[1-9]\d{0,8})(ms|s|m|h)$/
export const SIZE = /^(0|[1-9]\d{0,8})(B|KiB|MiB)$/

const MS_PER_UNIT: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1_000, ms: 1 }
const BYTES_PER_UNIT: Readonly<Record<string, number>> = { MiB: 1_048_576, KiB: 1_024, B: 1 }

/** @throws {Unsuitable} */
export function parseDuration(text: string): number {
  return parse(text, DURATION, MS_PER_UNIT, 'is not a duration: write 250ms, 30s, 5m or 1h')
}

/** @throws {Unsuitable} */
export function parseSize(text: string): number {
  return parse(text, SIZE, BYTES_PER_UNIT, 'is not a size: write 512B, 64KiB or 1MiB')
}

export function formatDuration(durationMs: number): string {
  return format(durationMs, MS_PER_UNIT, 's')
}

export function formatSize(sizeBytes: number): string {
  return format(sizeBytes, BYTES_PER_UNIT, 'B')
}

function parse(text: string, shape: RegExp, units: Readonly<Record<string, number>>, wrong: string): number {
  const [, count, unit = ''] = shape.exec(text) ?? []
  const factor = units[unit]
  if (count === undefined || factor === undefined) throw new Unsuitable(wrong)
  return Number(count) * factor
}

/** In the largest unit that leaves a whole number. */
function format(value: number, units: Readonly<Record<string, number>>, unitOfNothing: string): string {
  if (value === 0) return `0${unitOfNothing}`
  for (const [unit, factor] of Object.entries(units)) {
    if (value % factor === 0) return `${value / factor}${unit}`
  }
  throw new RangeError('not a whole number of the smallest unit')
}
