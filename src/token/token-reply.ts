/**
 * Reads the answer of the token endpoint: the token, and the end that it states. Trusts no answer, because a token goes into a
 * field of every request for its org.
 */

import { fieldValue } from '../http1/field-list.ts'
import type { WholeResponse } from '../http1/response-parser.ts'

/** Names and values in turn. */
type FieldList = readonly string[]

/** Visible ASCII without white space is one word of a field value (RFC 9110 §5.5). */
const TOKEN = /^[\x21-\x7e]{1,16384}$/
const MAX_TOKEN_CHARACTERS = 16_384
const MAX_CONTENT_BYTES = 64 * 1024

const DATE_TOLERANCE_MS = 2_000

/**
 * The time of day at the endpoint, if it tells one. A stated end is held against it, because our own clock may be wrong. `Date` has
 * whole seconds, and servers render it once a second: our clock tells the rest if it agrees, and otherwise the second counts as
 * over, so that no end is late.
 */
export function answeredAt(fields: FieldList, wallNowMs: number): number {
  const date = Date.parse(fieldValue(fields, 'date'))
  const isKnown = Number.isNaN(date) || (wallNowMs >= date && wallNowMs < date + DATE_TOLERANCE_MS)
  return isKnown ? wallNowMs : date + 999
}

/** An end that an answer states. `by` is `jwt` or the name of a member; `lifeMs` counts from the answer, and may be past. */
export interface StatedLife {
  readonly by: string
  readonly lifeMs: number
}

/** Longer lives are mistakes, such as milliseconds in the place of seconds: nothing is known of the end. */
const LONGEST_LIFE_MS = 366 * 24 * 3_600_000

/** To the earliest of the ends that lie ahead and can be meant; `Infinity` if there is none. */
export function lifeAhead(stated: readonly StatedLife[]): number {
  return Math.min(...stated.map(({ lifeMs }) => lifeMs).filter((lifeMs) => lifeMs > 0 && lifeMs <= LONGEST_LIFE_MS))
}

/** An answer without a usable token. The message says why, from a closed set: it follows "answered 200 to URL: ". */
export class NoUsableToken extends Error {}

/**
 * `field` leads to the token through objects; `nowMs` is the time of day of the answer.
 * @throws {NoUsableToken}
 */
export function readTokenReply(
  { fields, content }: Pick<WholeResponse, 'fields' | 'content'>,
  field: readonly string[],
  nowMs: number,
) {
  const text = textOf(content)
  const value = parsed(text)
  const holder = field.slice(0, -1).reduce(memberOf, value)
  const token = memberOf(holder, field.at(-1) ?? '')
  const name = field.join('.')
  const coding = fieldValue(fields, 'content-encoding')
  if (content.length === 0) throw new NoUsableToken('it has no content')
  if (value === undefined || UNREAD_CODING.test(coding)) throw new NoUsableToken(whyNoJson(text, coding))
  if (tellsError(value)) throw new NoUsableToken('its content tells an error')
  if (isAmbiguous(text, field)) throw new NoUsableToken(`it has ${name} twice`)
  if (!isToken(token)) throw new NoUsableToken(whyNoToken(token, name))
  const objects = holder === value ? [value] : [holder, value]
  const lives = [{ by: 'jwt', lifeMs: jwtLifeMs(token, nowMs) }, ...objects.flatMap((each) => livesIn(each, nowMs))]
  const stated: readonly StatedLife[] = lives.filter(({ lifeMs }) => Number.isFinite(lifeMs))
  return { token, statedLifeMs: lifeAhead(stated), stated }
}

export function isToken(value: unknown): value is string {
  return typeof value === 'string' && TOKEN.test(value)
}

/** Some services answer 2xx with an error in the content. */
export function tellsError(reply: unknown): boolean {
  const isEmpty = (value: unknown) =>
    [undefined, null, false, 0, '', '0'].includes(value as null) ||
    (typeof value === 'object' && value !== null && Object.keys(value).length === 0)
  return memberOf(reply, 'ok') === false || !['error', 'errcode'].every((name) => isEmpty(memberOf(reply, name)))
}

/** Those that a server may have really used (RFC 9110 §8.4.1). Other values, such as a character set, say nothing. */
const UNREAD_CODING = /^(?:br|deflate|zstd|(?:x-)?compress)$/i

function whyNoJson(text: string, coding: string): string {
  if (UNREAD_CODING.test(coding) || text === '') return 'its content has a coding, which was not asked for'
  if (/^\s*</.test(text)) return 'its content is HTML or XML, not JSON'
  return /^\s*[[{]/.test(text) && !/[\]}]\s*$/.test(text) ? 'its JSON is cut off' : 'its content is not JSON'
}

function whyNoToken(token: unknown, name: string): string {
  if (token === undefined) return `it has no ${name}`
  if (typeof token !== 'string') return `${name} is not text`
  if (token === '') return `${name} is empty`
  if (/\s/.test(token)) return `${name} has white space in it`
  return token.length > MAX_TOKEN_CHARACTERS
    ? `${name} is larger than 16 KiB`
    : `${name} has characters that no header may carry`
}

/** Without a byte order mark. Some services compress in spite of `identity` (RFC 1952). Empty if that cannot be undone. */
export function textOf(content: Buffer): string {
  return new TextDecoder().decode(content[0] === 0x1f ? unzipped(content) : content)
}

/** Loads the module only when it is needed, which is seldom. */
function unzipped(content: Buffer): Buffer {
  try {
    return process.getBuiltinModule('node:zlib').gunzipSync(content, { maxOutputLength: MAX_CONTENT_BYTES })
  } catch {
    return Buffer.alloc(0)
  }
}

/** Undefined if it is no JSON. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** Undefined if it is no JSON. */
export function readJson(content: Buffer): unknown {
  return parsed(textOf(content))
}

export function memberOf(value: unknown, name: string): unknown {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value) && Object.hasOwn(value, name)
  return isObject ? Reflect.get(value, name) : undefined
}

/**
 * True if an object on the way to the token has the next member twice: parsers differ in which one counts (RFC 8259 §4). The
 * same name elsewhere is another member. `text` is valid JSON.
 */
function isAmbiguous(text: string, field: readonly string[]): boolean {
  const found = field.map(() => 0)
  let depth = 0
  /** The number of objects on the way to the token that are open here. */
  let way = 0
  let name = ''
  // The closing quote is optional so that no text can make the expression go back.
  for (const [part] of text.matchAll(/"(?:[^"\\]|\\.)*"?(?:\s*:)?|[{}[\]]/g)) {
    if (part === '{' || part === '[') {
      const isOnWay = way === depth && (depth === 0 || name === field[depth - 1])
      depth++
      if (isOnWay && part === '{') way = depth
    } else if (part === '}' || part === ']') {
      if (way === depth) way--
      depth--
    } else if (part.endsWith(':')) {
      name = JSON.parse(part.slice(0, part.lastIndexOf('"') + 1))
      if (way === depth && name === field[depth - 1]) found[depth - 1] = (found[depth - 1] ?? 0) + 1
    }
  }
  return found.some((count) => count > 1)
}

/** The lives that the members of an object state, as OAuth 2.0 (RFC 6749 §5.1) and many services name them. */
function livesIn(object: unknown, nowMs: number): StatedLife[] {
  return [
    ...['expires_in', 'expiresIn'].map((by) => ({ by, lifeMs: numberOf(memberOf(object, by)) * 1_000 })),
    ...['expires_at', 'expiresAt'].map((by) => ({ by, lifeMs: instantOf(memberOf(object, by)) - nowMs })),
  ]
}

function numberOf(value: unknown): number {
  if (typeof value === 'number') return value
  return typeof value === 'string' && /^\d{1,15}(?:\.\d{1,9})?$/.test(value) ? Number(value) : Number.NaN
}

/** Seconds or milliseconds since 1970, or RFC 3339. Without an offset, it would mean another time on each machine. */
function instantOf(value: unknown): number {
  const isRfc3339 = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)$/
  if (typeof value === 'string' && isRfc3339.test(value)) return Date.parse(value.toUpperCase().replace(' ', 'T'))
  return sinceEpochMs(numberOf(value))
}

/** So many seconds would be the year 5138, so many milliseconds were 1973. */
function sinceEpochMs(instant: number): number {
  return instant < 1e11 ? instant * 1_000 : instant
}

/** Of a JWT (RFC 7519 §4.1), which is never verified. */
export function jwtLifeMs(token: string, nowMs: number): number {
  const [, payload = ''] = /^[^.]*\.([^.]+)\.[^.]*$/.exec(token) ?? []
  const exp = memberOf(readJson(Buffer.from(payload, 'base64url')), 'exp')
  return typeof exp === 'number' ? sinceEpochMs(exp) - nowMs : Number.NaN
}

/** Longer than any service that can be trusted to mean it: one odd answer must not keep orgs out. */
const LONGEST_LIMIT_SECONDS = 300

/**
 * When a limit ends, in whole seconds from now: `Retry-After` (RFC 9110 §10.2.3), or else `X-RateLimit-Reset`, which is a number
 * of seconds or a time of day. Undefined if they name no time that lies ahead.
 */
export function limitSeconds(fields: FieldList, nowMs: number): number | undefined {
  return (
    parseRetryAfter(fieldValue(fields, 'retry-after'), nowMs) ??
    parseReset(fieldValue(fields, 'x-ratelimit-reset') || fieldValue(fields, 'ratelimit-reset'), nowMs)
  )
}

/** Many services tell a limit with another status than 429. */
export function tellsLimit(fields: FieldList, nowMs: number): boolean {
  const isSpent = ['x-ratelimit-', 'ratelimit-'].some(
    (prefix) => fieldValue(fields, `${prefix}remaining`) === '0' && fieldValue(fields, `${prefix}reset`) !== '',
  )
  return isSpent || parseRetryAfter(fieldValue(fields, 'retry-after'), nowMs) !== undefined
}

export function parseRetryAfter(value: string, nowMs: number): number | undefined {
  const seconds = /^\d+$/.test(value) ? Number(value) : Math.ceil((Date.parse(value) - nowMs) / 1_000)
  return seconds > 0 ? Math.min(seconds, LONGEST_LIMIT_SECONDS) : undefined
}

/** A thousand million seconds is far more than a limit lasts, and was 2001. */
function parseReset(value: string, nowMs: number): number | undefined {
  const number = Number(value)
  const seconds = Math.ceil(number < 1e9 ? number : (number < 1e12 ? number : number / 1_000) - nowMs / 1_000)
  return seconds > 0 ? Math.min(seconds, LONGEST_LIMIT_SECONDS) : undefined
}
