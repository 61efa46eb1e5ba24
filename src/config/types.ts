/**
 * The types of settings, as zod schemas. Each takes a value as the file holds it and returns the value that the program
 * uses: durations in milliseconds, sizes in bytes. `initial` is the default, as the file would hold it. Every message is a predicate ("is not a duration: write 30s"), so that
 * it can follow the value or the key.
 */

import { z } from 'zod'
import type { OrgRule } from '../callers/callers.ts'
import { isForwardable, type RoutePattern } from '../http/target.ts'

/** Thrown by the parser of one setting. The message is a predicate, and never repeats text that may be a secret. */
export class Unsuitable extends Error {
  override readonly name = 'Unsuitable'
}

const NOT_TEXT = 'is not text: put it in quotes'

export const text = () => z.string(NOT_TEXT)

/** The path of a file, or undefined. */
export const file = () => text().optional()

/** Text that must be given, in a list of mappings. */
export const required = () =>
  z.string({ error: ({ input }) => (input === undefined ? 'is required' : NOT_TEXT) }).min(1, 'is empty')

export function choice<const T extends readonly [string, ...string[]]>(values: T, initial: T[number]) {
  return z.enum(values, `is not one of ${values.join(', ')}`).prefault(initial)
}

export const flag = (initial: boolean) => z.boolean('is not true or false').prefault(initial)

export const count = (initial: number, least: number, most: number) => wholeNumber(least, most).prefault(initial)

export function wholeNumber(least: number, most: number) {
  const wrong = `is not a whole number from ${least} to ${most}`
  return z.int(wrong).min(least, wrong).max(most, wrong)
}

export function rate(initial: number, least: number, most: number) {
  const wrong = `is not a number from ${least} to ${most}`
  return z.number(wrong).min(least, wrong).max(most, wrong).prefault(initial)
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

/** Empty by default. */
export const list = <T extends z.ZodType>(item: T) => items(item).prefault([])

export function items<T extends z.ZodType>(item: T) {
  return z.array(item, 'is not a list: write [one, two]').max(10_000, 'has more than 10000 entries')
}

/** An entry of a list, with names of its own. */
export function mapping<T extends z.ZodRawShape>(shape: T) {
  const error = ({ code }: { code: string }) =>
    code === 'invalid_type' ? 'is not a mapping of names to values' : undefined
  return z.strictObject(shape, { error })
}

interface Quantity {
  readonly shape: RegExp
  readonly units: Readonly<Record<string, number>>
  readonly noun: string
  readonly example: string
}

const DURATION: Quantity = {
  shape: /^(0|[1-9]\d{0,8})(ms|s|m|h)$/,
  units: { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 },
  noun: 'a duration',
  example: 'write 250ms, 30s, 5m or 1h',
}

const SIZE: Quantity = {
  shape: /^(0|[1-9]\d{0,8})(B|KiB|MiB)$/,
  units: { B: 1, KiB: 1_024, MiB: 1_048_576 },
  noun: 'a size',
  example: 'write 512B, 64KiB or 1MiB',
}

/** Node's timers wrap to 1 ms above 2^31-1 ms. No setting needs more than a week. */
export function duration(initial: string, least = '1ms', most = '168h') {
  return quantity(DURATION, initial, least, most)
}

export function size(initial: string, least: string, most: string) {
  return quantity(SIZE, initial, least, most)
}

function quantity(kind: Quantity, initial: string, least: string, most: string) {
  const { shape, noun, example } = kind
  const [min, max] = [quantityOf(least, kind), quantityOf(most, kind)]
  return z
    .string(`has no unit: ${example}`)
    .regex(shape, `is not ${noun}: ${example}`)
    .transform((text) => quantityOf(text, kind))
    .refine((value) => value >= min && value <= max, `is not between ${least} and ${most}`)
    .prefault(initial)
}

/** `text` has the shape. */
function quantityOf(text: string, { shape, units }: Quantity): number {
  const [, digits, unit = ''] = shape.exec(text) ?? []
  return Number(digits) * (units[unit] ?? Number.NaN)
}

export function parseAppId(text: string): string {
  if (text.trim() === '') throw new Unsuitable('is blank: give the App id')
  if (text.includes(':')) throw new Unsuitable('contains ":": Basic credentials would be ambiguous (RFC 7617 §2)')
  if (/\p{Cc}/u.test(text)) throw new Unsuitable('contains a control character: Basic credentials cannot carry one')
  return text
}

/** Octal with a leading zero. Without one the number may be decimal, as Kubernetes writes modes. */
export function parseFileMode(text: string): number {
  const match = /^0o?([0-7]{3})$/.exec(text)
  if (match === null) throw new Unsuitable('is not a file mode: write it in octal with a leading zero, such as 0660')
  return Number.parseInt(match[1] ?? '', 8)
}

const ROUTE_EXAMPLE = 'write "METHOD /path", such as "GET /v2/things" or "* /v2/things/*"'

export function parseRoutePattern(text: string): RoutePattern {
  const match = /^(\*|[A-Z][A-Z-]*) (\/[^*]*)(\*?)$/.exec(text)
  if (match === null) throw new Unsuitable(`is not a route: ${ROUTE_EXAMPLE}`)
  const [, method = '', path = '', star = ''] = match
  if (method === 'CONNECT' || method === 'TRACE') throw new Unsuitable('names a method that is never forwarded')
  if (star === '*' && !path.endsWith('/')) throw new Unsuitable(`has "*" inside a segment: ${ROUTE_EXAMPLE}`)
  if (path.includes('?') || !isForwardable(path)) {
    throw new Unsuitable('has a path that matches no request: no query, "#", "\\", blanks or dot segments')
  }
  return { method, path, isPrefix: star === '*' }
}

/** Appears in metrics and logs, so only plain characters. */
export function parseCallerName(text: string): string {
  if (!/^[a-zA-Z0-9][\w.-]{0,63}$/.test(text)) {
    throw new Unsuitable('is not a name: 1 to 64 letters, digits or any of _ . -, beginning with a letter or digit')
  }
  return text
}

/** An org id, or the beginning of one and `*`. Ids are compared exactly: nothing else is special. */
export function parseOrgRule(text: string): OrgRule {
  // Not any character that no org id may have: "acme, globex" is a list that was put in quotes.
  const match = /^([^*\s/\\?#%,\u007f-\uffff]*)(\*?)$/.exec(text)
  if (match === null || text === '') throw new Unsuitable('is not an org id, or the beginning of one and "*"')
  const [, id = '', star] = match
  return { id, isPrefix: star === '*' }
}

/** Begins every key in the store. Braces would move the hash tag that keeps the keys of one org in one slot of a cluster. */
export function parseFleetPrefix(text: string): string {
  if (!/^[\w.:-]{1,64}$/.test(text)) throw new Unsuitable('is not 1 to 64 letters, digits or any of _ . : -')
  return text
}

/** Matches an org id. */
export const DEFAULT_PATTERN = '^[\\w-][\\w.~:@+=-]{0,127}$'

/** Anchored at both ends, because a part of an id is not an id. */
export function parseOrgPattern(text: string): RegExp {
  try {
    // Compiled alone first: the group below would make `a)|(b` valid.
    return new RegExp(`^(?:${new RegExp(text).source})$`)
  } catch {
    throw new Unsuitable(`is not a regular expression: the default is ${DEFAULT_PATTERN}`)
  }
}

/** A name of a client certificate, as `certificateNames` writes it. */
export function parseCertificateName(text: string): string {
  if (!/^(dns:[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?|(?!dns:)[a-z][a-z0-9+.-]*:\/\/[^\s*]+)$/.test(text)) {
    throw new Unsuitable(
      'is not a name in a certificate: write spiffe://trust.domain/path, or dns: and a name in lower case',
    )
  }
  return text
}
