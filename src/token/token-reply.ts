/**
 * Says what the outcome of one call of the token endpoint means: a token, a refusal, or which failure. What the endpoint sends
 * is not trusted, because a token goes into a field of every request for its org.
 */

import { gunzipSync } from 'node:zlib'
import { z } from 'zod'
import { causeOf, OriginError, PROBLEMS, TokenError, type TokenErrorCode, type TokenErrorOptions } from '../errors.ts'
import type { EndpointAnswer } from '../http/response-head.ts'
import { AccessToken } from './token-source.ts'

/** `startedAt` is when the call began (monotonic milliseconds); `wallNowMs` is the time of day. */
export function meaningOf(answer: EndpointAnswer, startedAt: number, wallNowMs: number): AccessToken | TokenError {
  const { status, fields } = answer
  const failure = (code: TokenErrorCode, says = '', options?: TokenErrorOptions) =>
    new TokenError(code, `The token endpoint answered ${status}${says}.`, options)
  if (status < 300) {
    const token = readOrgAccessToken(answer)
    if (token === undefined) return failure('token_response_invalid', WITHOUT_TOKEN)
    const answeredAt = Date.parse(fieldValue(fields, 'date') ?? '') || wallNowMs
    return new AccessToken(token, startedAt, jwtLifeMs(token, answeredAt))
  }
  if (status < 400) return failure('token_response_invalid', ', a redirect')
  if (status === 401) return failure('app_credentials_rejected', ': it rejects the App credentials')
  const retryAfterSeconds = parseRetryAfter(fieldValue(fields, 'retry-after'), wallNowMs)
  const saysLimit = retryAfterSeconds !== undefined || LIMIT_FIELDS.some((name) => fieldValue(fields, name) === '0')
  if (status === 429 || ((status === 403 || status === 503) && saysLimit)) {
    return failure('token_endpoint_rate_limited', ': it limits the rate of calls', { retryAfterSeconds })
  }
  if (status === 408 || status >= 500) return failure('token_endpoint_unavailable')
  // With a wrong path in baseUrl, every org gets this status.
  const isOfPath = status === 404 || status === 405
  return failure('org_access_refused', isOfPath ? WRONG_PATH : '', { tokenEndpointStatus: status })
}

const WITHOUT_TOKEN = ' without a usable orgAccessToken, as a web page does'
const WRONG_PATH = ', as a wrong address does: if every Org is refused, check baseUrl'
/** Many services tell a limit with another status than 429. */
const LIMIT_FIELDS = ['x-ratelimit-remaining', 'ratelimit-remaining']

/** Undefined if there is none, or if several contradict each other. */
function fieldValue(fields: readonly string[], name: string): string | undefined {
  const values = fields.filter((_, index) => index % 2 === 1 && fields[index - 1]?.toLowerCase() === name)
  return values.length === 1 ? values[0] : undefined
}

const MEMBER_NAME = /"orgAccessToken"\s*:/g
/** Visible ASCII without white space is one word of a field value (RFC 9110 §5.5). */
const REPLY = z.object({ orgAccessToken: z.string().regex(/^[\x21-\x7e]{1,16384}$/) })

/** The token, or undefined if there is none to rely on. */
export function readOrgAccessToken({ fields, content }: Omit<EndpointAnswer, 'status'>): string | undefined {
  try {
    // Some services compress whatever was asked for.
    const isGzip = /^(?:x-)?gzip$/i.test(fieldValue(fields, 'content-encoding') ?? '')
    const plain = isGzip ? gunzipSync(content, { maxOutputLength: 64 * 1024 }) : content
    const text = new TextDecoder().decode(plain) // without a byte order mark
    // With two members of that name, parsers differ in which one counts (RFC 8259 §4).
    if ((text.match(MEMBER_NAME) ?? []).length > 1) return undefined
    return REPLY.parse(JSON.parse(text)).orgAccessToken
  } catch {
    return undefined
  }
}

/** If less time is left, the difference says more about two clocks than about the token. */
const MIN_REST_MS = 1_000
const CLAIMS = z.object({ exp: z.number(), iat: z.number().catch(Number.POSITIVE_INFINITY) })

/**
 * The life that a JWT states, in milliseconds from its mint (RFC 7519 §4.1): the greater of `exp` − `iat`, both by the clock of
 * the issuer, and `exp` − `answeredAt`, the `Date` of the answer. These clocks may differ, and either may be ours. Undefined if
 * the token is no JWT, or states no end that lies ahead. It is read once, never verified.
 */
export function jwtLifeMs(token: string, answeredAt: number): number | undefined {
  try {
    const [, payload = '', signature] = token.split('.')
    if (signature === undefined) return undefined
    const { exp, iat } = CLAIMS.parse(JSON.parse(Buffer.from(payload, 'base64url').toString()))
    const restMs = exp * 1_000 - answeredAt
    return restMs < MIN_REST_MS ? undefined : Math.max(restMs, (exp - iat) * 1_000)
  } catch {
    return undefined
  }
}

/** A longer wait would keep orgs out because of one odd answer. */
const MAX_RETRY_AFTER_SECONDS = 300

/** `Retry-After` (RFC 9110 §10.2.3) in whole seconds from now. Undefined if it names no time that lies ahead. */
export function parseRetryAfter(value = '', wallNowMs: number): number | undefined {
  const seconds = /^\d+$/.test(value) ? Number(value) : Math.ceil((Date.parse(value) - wallNowMs) / 1_000)
  return seconds > 0 ? Math.min(seconds, MAX_RETRY_AFTER_SECONDS) : undefined
}

/** The call was sent. Of the other failures, what the problem of a request advises is right for a mint, too. */
const SENT = /^(?:http_|connection_terminated)/

/** The call failed. Names the system's code, never what was sent or received. */
export function meaningOfFailure(cause: unknown): TokenError {
  const failed = 'The call of the token endpoint failed'
  if (!(cause instanceof OriginError)) return new TokenError('token_endpoint_unavailable', `${failed}.`, { cause })
  const { code, cause: error } = cause
  const { status, detail: advice } = PROBLEMS[code]
  const detail = error instanceof Error && 'code' in error ? String(error.code) : cause.message
  const isSent = SENT.test(code)
  const what = causeOf(cause) ?? `${isSent ? failed : 'The token endpoint cannot be reached'} (${detail}).`
  const isBroken = code === 'http_protocol_error' || code === 'http_response_incomplete'
  const unavailable = status === 504 ? 'token_endpoint_timeout' : 'token_endpoint_unavailable'
  const meaning = isBroken ? 'token_response_invalid' : unavailable
  return new TokenError(meaning, isSent ? what : `${what} ${advice}`, { cause })
}
