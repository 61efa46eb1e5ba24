/**
 * The kinds of setting, as zod types. What goes in is what a file may hold; what comes out is what the program works
 * with. Every message is a predicate ("is not a duration: write 30s"), so that it can stand behind the value or the key.
 */

import { z } from 'zod'
import { DURATION, formatDuration, formatSize, parseDuration, parseSize, SIZE } from './units.ts'
import { Unsuitable } from './unsuitable.ts'

/** Node's timers wrap to 1 ms beyond 2^31-1 ms; a week is more than anything here can mean. */
const LONGEST_MS = 7 * 24 * 3_600_000

const NOT_TEXT = 'is not text: put it in quotes'

export const text = () => z.string(NOT_TEXT)

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

/** Text that `parse` turns into something better; its `Unsuitable` becomes the message. */
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
  const example = 'write 250ms, 30s, 5m or 1h'
  const range = `is not between ${formatDuration(leastMs)} and ${formatDuration(mostMs)}`
  return parsed(
    z.string(`has no unit: ${example}`).regex(DURATION, `is not a duration: ${example}`),
    parseDuration,
  ).refine((value) => value >= leastMs && value <= mostMs, range)
}

export function size(leastBytes: number, mostBytes: number) {
  const example = 'write 512B, 64KiB or 1MiB'
  const range = `is not between ${formatSize(leastBytes)} and ${formatSize(mostBytes)}`
  return parsed(z.string(`has no unit: ${example}`).regex(SIZE, `is not a size: ${example}`), parseSize).refine(
    (value) => value >= leastBytes && value <= mostBytes,
    range,
  )
}

export function list<T extends z.ZodType>(item: T) {
  return z.array(item, 'is not a list: write [one, two]').max(10_000, 'has more than 10000 entries')
}
