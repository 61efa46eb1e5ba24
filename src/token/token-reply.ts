/**
 * Says what the outcome of one call of the token endpoint means: a token, a refusal, or which failure. What the endpoint sends
 * is not trusted, because a token goes into a field of every request for its org.
 */

import { gunzipSync } from 'node:zlib'
import { OriginError, type OriginErrorCode, TokenError } from '../errors.ts'
import type { EndpointAnswer } from '../http/response-head.ts'
import { AccessToken } from './token-source.ts'

/**
 * The token of a success. `startedAt` is when the call began (monotonic milliseconds); `wallNowMs` is the time of day.
 * @throws {TokenError}
 */
export function readToken(reply: EndpointAnswer, startedAt: number, wallNowMs: number): AccessToken {
  const { status, fields, content } = reply
  refuseUnlessOk(status, fields, wallNowMs)
  const token = readOrgAccessToken(decode(fields, content))
  if (token === undefined) throw new TokenError('token_response_invalid', `${NO_TOKEN} ${ADVICE}`, { hint: NO_TOKEN })
  const date = Date.parse(fieldValue(fields, 'date') ?? '')
  const lifeMs = jwtLifeMs(token, Number.isNaN(date) ? wallNowMs : date)
  return new AccessToken(token, startedAt, lifeMs === undefined ? undefined : startedAt + lifeMs)
}

/** Some services compress whatever was asked for. */
function decode(fields: readonly string[], content: Buffer): Buffer {
  const coding = fieldValue(fields, 'content-encoding')?.toLowerCase()
  if (coding !== 'gzip' && coding !== 'x-gzip') return content
  try {
    return gunzipSync(content, { maxOutputLength: MAX_DECODED_BYTES })
  } catch {
    return Buffer.alloc(0)
  }
}

const MAX_DECODED_BYTES = 64 * 1024
const NO_TOKEN = 'The token endpoint answered without a usable orgAccessToken, as a web page does.'
/** For the log and `check`. The problem that a client gets has it already. */
const ADVICE = 'Check baseUrl.'

function refuseUnlessOk(status: number, fields: readonly string[], wallNowMs: number): void {
  const answered = `The token endpoint answered ${status}`
  if (status >= 200 && status <= 299) return
  if (status < 400) {
    const hint = `${answered}, a redirect.`
    throw new TokenError('token_response_invalid', `${hint} ${ADVICE}`, { hint })
  }
  if (status === 401) throw new TokenError('app_credentials_rejected', answered)
  const retryAfterSeconds = parseRetryAfter(fieldValue(fields, 'retry-after'), wallNowMs)
  if (status === 429 || ((status === 403 || status === 503) && saysLimit(fields, retryAfterSeconds))) {
    const hint = `The token endpoint limits the rate of calls: it answered ${status}.`
    throw new TokenError('token_endpoint_rate_limited', hint, { retryAfterSeconds, hint })
  }
  if (status === 408 || status >= 500) {
    throw new TokenError('token_endpoint_unavailable', answered, { hint: `${answered}.` })
  }
  // With a wrong path in baseUrl, every org gets this status.
  const isOfPath = status === 404 || status === 405
  const hint = isOfPath ? `${answered}, as a wrong address does: if every Org is refused, check baseUrl.` : undefined
  throw new TokenError('org_access_refused', hint ?? answered, { tokenEndpointStatus: status, hint })
}

/** Many services tell a limit with another status than 429. */
function saysLimit(fields: readonly string[], retryAfterSeconds = 0): boolean {
  const isUsedUp = (name: string) => fieldValue(fields, name)?.trim() === '0'
  return retryAfterSeconds > 0 || isUsedUp('x-ratelimit-remaining') || isUsedUp('ratelimit-remaining')
}

/** Undefined if there is none, or if several contradict each other. */
function fieldValue(fields: readonly string[], name: string): string | undefined {
  const values = fields.filter((_, index) => index % 2 === 1 && fields[index - 1]?.toLowerCase() === name)
  return values.length === 1 ? values[0] : undefined
}

/** Every string of a JSON text in order; the second group is set if the string is a member's name. */
const JSON_STRINGS = /("(?:[^"\\]|\\.)*")(\s*:)?/g
const MEMBER = 'orgAccessToken'

/** The token, or undefined if there is none to rely on. */
export function readOrgAccessToken(content: Buffer): string | undefined {
  const text = new TextDecoder().decode(content) // without a byte order mark
  const reply = parseJson(text)
  if (typeof reply !== 'object' || reply === null || !Object.hasOwn(reply, MEMBER)) return undefined
  const token: unknown = Reflect.get(reply, MEMBER)
  const names = Array.from(text.matchAll(JSON_STRINGS), ([, name = '', colon]) => colon && parseJson(name))
  // With two members of that name, parsers differ in which one counts (RFC 8259 §4).
  const isUnique = names.filter((name) => name === MEMBER).length === 1
  return isUnique && AccessToken.isUsable(token) ? token : undefined
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** If less time is left, the difference says more about two clocks than about the token. */
const MIN_REST_MS = 1_000

/**
 * The life that a JWT states, in milliseconds from its mint (RFC 7519 §4.1): the greater of `exp` − `iat`, both by the clock of
 * the issuer, and `exp` − `answeredAt`, the `Date` of the answer. These clocks may differ, and either may be ours. Undefined if
 * the token is no JWT, or states no end that lies ahead. It is read once, never verified.
 */
export function jwtLifeMs(token: string, answeredAt: number): number | undefined {
  const parts = token.split('.')
  if (parts.length !== 3) return undefined
  const claims = parseJson(Buffer.from(parts[1] ?? '', 'base64url').toString('utf8'))
  const exp = secondsOf(claims, 'exp')
  const restMs = exp * 1_000 - answeredAt
  if (!Number.isFinite(restMs) || restMs < MIN_REST_MS) return undefined
  const wholeMs = (exp - secondsOf(claims, 'iat')) * 1_000
  return wholeMs > restMs ? wholeMs : restMs
}

function secondsOf(claims: unknown, name: 'exp' | 'iat'): number {
  const value: unknown = typeof claims === 'object' && claims !== null ? Reflect.get(claims, name) : undefined
  return typeof value === 'number' ? value : Number.NaN
}

/** A longer wait would keep orgs out because of one odd answer. */
const MAX_RETRY_AFTER_SECONDS = 300
/** `Date.parse` alone takes nearly anything for a date. */
const HTTP_DATE = /^\w{3,9}, .+ GMT$/

/** `Retry-After` (RFC 9110 §10.2.3) as whole seconds from now. Undefined if it is missing or not well-formed. */
export function parseRetryAfter(value: string | undefined, wallNowMs: number): number | undefined {
  if (value === undefined) return undefined
  if (/^\d+$/.test(value)) return Math.min(Number(value), MAX_RETRY_AFTER_SECONDS)
  const restMs = HTTP_DATE.test(value) ? Date.parse(value) - wallNowMs : Number.NaN
  if (Number.isNaN(restMs)) return undefined
  return Math.min(Math.max(Math.ceil(restMs / 1_000), 0), MAX_RETRY_AFTER_SECONDS)
}

const UNREACHABLE = 'The token endpoint cannot be reached (%): check baseUrl and the network.'
const BROKEN = 'The answer of the token endpoint is broken (%).'
/** One sentence for callers and the log; `%` stands for the cause. None if the problem's code says enough. */
const HINTS: Readonly<Partial<Record<OriginErrorCode, string>>> = {
  connection_refused: UNREACHABLE,
  connection_timeout: UNREACHABLE,
  connection_terminated: 'The token endpoint closed the connection without an answer (%).',
  dns_error: 'The host name of the token endpoint cannot be resolved (%): check baseUrl and the DNS server.',
  tls_protocol_error: 'TLS with the token endpoint failed (%): check that baseUrl names an https port.',
  overloaded: 'The proxy has no room for another connection (%): raise its limits.',
  http_protocol_error: BROKEN,
  http_response_incomplete: BROKEN,
}

/** Says what it means for a token that the call failed. Names the system's code, never what was sent or received. */
export function translateMintError(cause: unknown): TokenError {
  if (cause instanceof TokenError) return cause
  if (!(cause instanceof OriginError)) {
    return new TokenError('token_endpoint_unavailable', 'The call of the token endpoint failed.', { cause })
  }
  const { code, cause: error } = cause
  const detail = error instanceof Error && 'code' in error ? String(error.code) : cause.message
  const hint = HINTS[code]?.replace('%', () => detail) ?? cause.hint
  const isTimeout = code === 'connection_timeout' || code === 'http_response_timeout'
  const failure = isTimeout ? 'token_endpoint_timeout' : 'token_endpoint_unavailable'
  const meaning = HINTS[code] === BROKEN ? 'token_response_invalid' : failure
  return new TokenError(meaning, hint ?? cause.message, { cause, hint })
}
