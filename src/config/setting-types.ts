/**
 * The types of settings, as zod schemas. Each takes a value as the file holds it and returns the value that the program
 * uses: durations in milliseconds, sizes in bytes. Every message is a predicate ("is not a duration: write 30s"), so that
 * it can follow the value or the key.
 */

import { z } from 'zod'
import { Unsuitable } from './problem.ts'

const DURATION = /^(0|[1-9]\d{0,8})(ms|s|m|h)$/
const SIZE = /^(0|[1-9]\d{0,8})(B|KiB|MiB)$/
const DURATION_EXAMPLE = 'write 250ms, 30s, 5m or 1h'
const SIZE_EXAMPLE = 'write 512B, 64KiB or 1MiB'
const MS_PER_UNIT: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1_000, ms: 1 }
const BYTES_PER_UNIT: Readonly<Record<string, number>> = { MiB: 1_048_576, KiB: 1_024, B: 1 }

/** Node's timers wrap to 1 ms above 2^31-1 ms. No setting needs more than a week. */
const LONGEST_MS = 7 * 24 * 3_600_000

const NOT_TEXT = 'is not text: put it in quotes'

export const text = () => z.string(NOT_TEXT)

/** Text that must be given, in a list of mappings. */
export const required = () =>
  z.string({ error: ({ input }) => (input === undefined ? 'is required' : NOT_TEXT) }).min(1, 'is empty')

export function choice<const T extends readonly [string, ...string[]]>(values: T) {
  return z.enum(values, `is not one of ${values.join(', ')}`)
}

export const flag = () => z.boolean('is not true or false')

export function count(least: number, most: number) {
  const wrong = `is not a whole number from ${least} to ${most}`
  return z.int(wrong).min(least, wrong).max(most, wrong)
}

export function rate(least: number, most: number) {
  const wrong = `is not a number from ${least} to ${most}`
  return z.number(wrong).min(least, wrong).max(most, wrong)
}

/** Text that `parse` turns into a value. The message of an `Unsuitable` becomes the problem. */
export function parsed<T>(input: z.ZodString, parse: (text: string) => T) {
  return input.transform((value, context): T => {
    try {
      return parse(value)
    } catch (error) {
      if (!(error instanceof Unsuitable)) throw error
      context.addIssue(error.message)
      return z.NEVER
    }
  })
}

export function duration(leastMs = 1, mostMs = LONGEST_MS) {
  const input = z.string(`has no unit: ${DURATION_EXAMPLE}`).regex(DURATION, `is not a duration: ${DURATION_EXAMPLE}`)
  const range = `is not between ${formatDuration(leastMs)} and ${formatDuration(mostMs)}`
  return parsed(input, parseDuration).refine((value) => value >= leastMs && value <= mostMs, range)
}

export function size(leastBytes: number, mostBytes: number) {
  const input = z.string(`has no unit: ${SIZE_EXAMPLE}`).regex(SIZE, `is not a size: ${SIZE_EXAMPLE}`)
  const range = `is not between ${formatSize(leastBytes)} and ${formatSize(mostBytes)}`
  return parsed(input, parseSize).refine((value) => value >= leastBytes && value <= mostBytes, range)
}

export function list<T extends z.ZodType>(item: T) {
  return z.array(item, 'is not a list: write [one, two]').max(10_000, 'has more than 10000 entries')
}

/** An entry of a list, with names of its own. */
export function mapping<T extends z.ZodRawShape>(shape: T) {
  const error = ({ code }: { code: string }) =>
    code === 'invalid_type' ? 'is not a mapping of names to values' : undefined
  return z.strictObject(shape, { error })
}

/** Returns milliseconds. @throws {Unsuitable} */
export function parseDuration(text: string): number {
  return parseQuantity(text, DURATION, MS_PER_UNIT, `is not a duration: ${DURATION_EXAMPLE}`)
}

/** Returns bytes. @throws {Unsuitable} */
export function parseSize(text: string): number {
  return parseQuantity(text, SIZE, BYTES_PER_UNIT, `is not a size: ${SIZE_EXAMPLE}`)
}

export function formatDuration(durationMs: number): string {
  return formatQuantity(durationMs, MS_PER_UNIT, 's')
}

export function formatSize(sizeBytes: number): string {
  return formatQuantity(sizeBytes, BYTES_PER_UNIT, 'B')
}

function parseQuantity(text: string, shape: RegExp, units: Readonly<Record<string, number>>, wrong: string): number {
  const [, digits, unit = ''] = shape.exec(text) ?? []
  const factor = units[unit]
  if (digits === undefined || factor === undefined) throw new Unsuitable(wrong)
  return Number(digits) * factor
}

/** Uses the largest unit that gives a whole number. */
function formatQuantity(value: number, units: Readonly<Record<string, number>>, unitOfZero: string): string {
  if (value === 0) return `0${unitOfZero}`
  for (const [unit, factor] of Object.entries(units)) {
    if (value % factor === 0) return `${value / factor}${unit}`
  }
  throw new RangeError('not a whole number of the smallest unit')
}
