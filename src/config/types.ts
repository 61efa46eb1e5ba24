/**
 * The types of settings, as zod schemas. Each takes a value as a source gives it (text, numbers, lists) and returns the value
 * that the program uses: durations in milliseconds, sizes in bytes. `initial` is the default, as a file would hold it. Every
 * message is a predicate ("is not a duration: write 30s"), so that it can follow the value or the key.
 */

import { z } from 'zod'
import type { OrgRule, RoutePattern } from '../callers/callers.ts'
import { hasMeaning, type TokenField } from '../gateway/fields.ts'
import { isForwardable } from '../gateway/targets.ts'
import { ORG_ID_SEGMENT, type OrgId } from '../org-id.ts'
import type { EndpointRoute } from '../token/token-request.ts'
import { throwFaults, Unsuitable } from './problem.ts'

/** For `meta` of a setting that a reload applies. A change of any other setting needs a restart. */
export const RELOADABLE = { isReloadable: true }

export const text = () => z.string({ error: ({ input }) => (input === undefined ? 'is required' : 'is not text') })

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
export function parsed<T>(parse: (text: string) => T) {
  return text().transform((value, context): T => {
    try {
      return parse(value)
    } catch (error) {
      if (!(error instanceof Unsuitable)) throw error
      context.addIssue(error.message)
      return z.NEVER
    }
  })
}

export const parsedOr = <T>(initial: string, parse: (text: string) => T) => parsed(parse).prefault(initial)

export const group = <T extends z.ZodRawShape>(description: string, shape: T) =>
  z.strictObject(shape).describe(description)

/** Names with text. */
export const members = () =>
  z.record(
    z.string(),
    z.string('has a value that is not text: write a number, true or false in quotes'),
    'is not a mapping of names and text: only a config file can hold one',
  )

/** The names of Orgs, each with its id at the token endpoint. */
export const orgNames = () =>
  z
    .record(
      z.string(),
      z.string('is not text'),
      'is not a mapping of names and ids of Orgs: only a config file can hold one',
    )
    .transform((ids) => new Map(Object.entries(ids) as [OrgId, OrgId][]))

/** Empty by default. */
export const list = <T extends z.ZodType>(item: T) => items(item).prefault([])

export const items = <T extends z.ZodType>(item: T) => z.array(item, 'is not a list: write [one, two]')

const DURATION_UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 }
const SIZE_UNITS = { B: 1, KiB: 1_024, MiB: 1_048_576 }

/** Node's timers wrap to 1 ms above 2^31-1 ms. No setting needs more than a week. */
export const duration = (initial: string, least = '1ms', most = '168h') =>
  quantity(DURATION_UNITS, 'is not a duration: write 250ms, 30s, 5m or 1h', least, most).prefault(initial)

export const size = (initial: string, least: string, most: string) =>
  quantity(SIZE_UNITS, 'is not a size: write 512B, 64KiB or 1MiB', least, most).prefault(initial)

/** A duration, or `auto`, which is the default. */
export const durationOrAuto = (least: string) =>
  quantity(DURATION_UNITS, 'is not a duration: write 250ms, 30s, 5m, 1h or auto', least, '168h', 'auto').prefault(
    'auto',
  )

/** `word` stands for itself. */
function quantity<Word extends string = never>(
  units: Readonly<Record<string, number>>,
  wrong: string,
  least: string,
  most: string,
  word?: Word,
) {
  const quantities = `(0|[1-9]\\d{0,8})(${Object.keys(units).join('|')})`
  const shape = new RegExp(word === undefined ? `^${quantities}$` : `^(${word}|${quantities})$`)
  const parse = (value: string): number => {
    const [digits = '', unit = ''] = value.match(/\d+|\D+/g) ?? []
    return Number(digits) * (units[unit] ?? Number.NaN)
  }
  const [leastValue, mostValue] = [parse(least), parse(most)]
  return z
    .string(wrong)
    .regex(shape, wrong)
    .transform((value): number | Word => (value === word ? word : parse(value)))
    .refine(
      (value) => typeof value !== 'number' || (value >= leastValue && value <= mostValue),
      `is not between ${least} and ${most}`,
    )
}

/** Octal with a leading zero. Without one the number may be decimal, as Kubernetes writes modes. */
export const fileMode = () =>
  text()
    .regex(/^0o?[0-7]{3}$/, 'is not a file mode: write it in octal with a leading zero, such as 0660')
    .transform((mode) => Number.parseInt(mode.replace('o', ''), 8))

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

const ENDPOINT_EXAMPLE =
  'write "POST /v2/orgs/{orgId}/access", or a whole URL behind the method, or the same with GET or PUT'

/** Only segments that mean the same to every server: a path below `baseUrl` is closed to apps in all its spellings. */
export function parseEndpoint(text: string): EndpointRoute {
  const match =
    /^(GET|POST|PUT) (https?:\/\/[^/?#\\\s]+)?((?:\/[\w.~!$&'()*+,=:@{}-]+)+\/?)(\?[\w.~!$&'()*+,;=:@/?%{}-]*)?$/i.exec(
      text,
    )
  const [, method = '', base, path = '', query = ''] = match ?? []
  const isCall = method !== '' && method === method.toUpperCase()
  const [before = '', after, ...more] = path.split(`/${ORG_ID_SEGMENT}/`)
  const faults = [
    [!isCall, `is not the call of a token endpoint: ${ENDPOINT_EXAMPLE}`],
    [base?.includes('@'), 'contains a user name or password: tokens.auth says how the App proves itself'],
    [/[{}]/.test(`${base}${query}`), `has braces in its host or query: ${ORG_ID_SEGMENT} stands in the path`],
    [
      base !== undefined && !/[@{}]/.test(base) && !URL.canParse(base),
      `has a host or port that is none: ${ENDPOINT_EXAMPLE}`,
    ],
    [
      after === '' || more.length > 0 || /[{}]/.test(before + (after ?? '')),
      `may have ${ORG_ID_SEGMENT} once, as a segment before another one: ${ENDPOINT_EXAMPLE}`,
    ],
    [isCall && !isForwardable(path.replace(ORG_ID_SEGMENT, 'x')), 'has a path with "." or ".." segments'],
  ] as const
  throwFaults(faults)
  return { method, base: base === undefined ? undefined : new URL(base), path: path + query }
}

/** The names that lead to a member of a JSON object. */
export function parseField(text: string): readonly string[] {
  if (!/^[\x21-\x2d\x2f-\x7e]+(?:\.[\x21-\x2d\x2f-\x7e]+)*$/.test(text)) {
    throw new Unsuitable('is not the name of a member: write orgAccessToken, or data.token for one in an object')
  }
  return text.split('.')
}

const HEADER_EXAMPLE = 'write "Authorization: Bearer {token}", or "X-Access-Token: {token}"'

/** A field, and `{token}` once in its value, which no text around it may split into two. */
export function parseTokenHeader(text: string): TokenField {
  const [, name = '', before = '', after = ''] =
    /^([!#$%&'*+.^_`|~\w-]+): *([\x20-\x7e]*?)\{token\}([\x20-\x7e]*)$/.exec(text) ?? []
  if (name === '' || after.includes('{token}')) {
    throw new Unsuitable(`is not a field with {token} once in its value: ${HEADER_EXAMPLE}`)
  }
  const lowerCase = name.toLowerCase()
  if (hasMeaning(lowerCase) && lowerCase !== 'authorization') throw new Unsuitable(NOT_FREE)
  return { name: lowerCase, before, after }
}

export const NOT_FREE = 'names a field that the proxy reads, sets or removes, so it can carry nothing else'

/** An org id, or the beginning of one and `*`. Ids are compared exactly: nothing else is special. */
export function parseOrgRule(text: string): OrgRule {
  // Not any character that no org id may have: "acme, globex" is a list that was put in quotes.
  const match = /^([^*\s/\\?#%,\u007f-\uffff]*)(\*?)$/.exec(text)
  if (match === null || text === '') throw new Unsuitable('is not an org id, or the beginning of one and "*"')
  const [, id = '', star] = match
  return { id, isPrefix: star === '*' }
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
