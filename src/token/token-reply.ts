/**
 * Says what the outcome of one call of the token endpoint means: a token, a refusal, or which failure. What the endpoint sends
 * is not trusted, because a token goes into a field of every request for its org.
 */

import { TokenError, type TokenErrorCode } from '../errors.ts'
import { AccessToken } from './token-source.ts'

export interface MintReply {
  readonly status: number
  /** Names and values in turn, as they came. */
  readonly rawFields: readonly Buffer[]
  /** Of a success only: a refusal is told by its status, and its content may be huge, cut, or never come. */
  readonly content: Buffer
}

/**
 * The token of a success. `startedAt` is when the call began (monotonic milliseconds); `wallNowMs` is the time of day.
 * @throws {TokenError}
 */
export function readToken(
  { status, rawFields, content }: MintReply,
  startedAt: number,
  wallNowMs: number,
): AccessToken {
  refuseUnlessOk(status, rawFields, wallNowMs)
  const token = readOrgAccessToken(content)
  if (token === undefined) throw new TokenError('token_response_invalid', NO_TOKEN, { hint: NO_TOKEN })
  // A token is best measured by the clock that stamped it (RFC 9110 §6.6.1): ours may be wrong.
  const date = fieldValue(rawFields, 'date')
  const issuedAt = date === undefined ? Number.NaN : Date.parse(date)
  const restMs = jwtRestMs(token, Number.isNaN(issuedAt) ? wallNowMs : issuedAt)
  return new AccessToken(token, startedAt, restMs === undefined ? undefined : startedAt + restMs)
}

const NO_TOKEN = 'The token endpoint answered without a usable orgAccessToken, as a web page does: check baseUrl.'

/** @throws {TokenError} */
function refuseUnlessOk(status: number, rawFields: readonly Buffer[], wallNowMs: number): void {
  const message = `the token endpoint answered ${status}`
  if (status >= 200 && status <= 299) return
  if (status < 400) {
    const hint = `The token endpoint answered ${status}, a redirect: check baseUrl.`
    throw new TokenError('token_response_invalid', hint, { hint })
  }
  if (status === 401) throw new TokenError('app_credentials_rejected', message)
  if (status === 429) {
    const retryAfterSeconds = parseRetryAfter(fieldValue(rawFields, 'retry-after'), wallNowMs)
    throw new TokenError('token_endpoint_rate_limited', message, { retryAfterSeconds })
  }
  if (status === 408 || status >= 500) throw new TokenError('token_endpoint_unavailable', message)
  // With a wrong path in baseUrl, every org gets this status.
  const isLikeWrongAddress = status === 404 || status === 405
  const hint = isLikeWrongAddress
    ? `The token endpoint answered ${status}, as a wrong address does: if every Org is refused, check baseUrl.`
    : undefined
  throw new TokenError('org_access_refused', hint ?? message, { tokenEndpointStatus: status, hint })
}

/** Undefined if there is none, or if several contradict each other. */
function fieldValue(rawFields: readonly Buffer[], name: string): string | undefined {
  const isNamed = (field: Buffer) => field.length === name.length && field.toString('latin1').toLowerCase() === name
  const values = rawFields.filter((_, index) => index % 2 === 1 && isNamed(rawFields[index - 1] ?? Buffer.alloc(0)))
  return values.length === 1 ? values[0]?.toString('latin1') : undefined
}

/** Every string of a JSON text in order; the group is set if the string is a member's name. */
const JSON_STRINGS = /("(?:[^"\\]|\\.)*")(\s*:)?/g
const MEMBER = 'orgAccessToken'

/** The token, or undefined if there is none to rely on. */
export function readOrgAccessToken(content: Buffer): string | undefined {
  const text = content.toString('utf8')
  const reply = parseJson(text)
  if (typeof reply !== 'object' || reply === null || !Object.hasOwn(reply, MEMBER)) return undefined
  const token: unknown = Reflect.get(reply, MEMBER)
  // With two members of that name, parsers differ in which one counts (RFC 8259 §4).
  if (!AccessToken.isUsable(token) || countMembers(text) !== 1) return undefined
  return token
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function countMembers(text: string): number {
  let count = 0
  for (const [, name, colon] of text.matchAll(JSON_STRINGS)) {
    if (colon !== undefined && name !== undefined && parseJson(name) === MEMBER) count += 1
  }
  return count
}

/** If less time is left, the difference says more about two clocks than about the token. */
const MIN_REST_MS = 1_000

/**
 * How long a JWT is valid after `issuedAt` (time of day, milliseconds), from its `exp` (RFC 7519 §4.1.4). Undefined if the
 * token is no JWT, or states no end, or one that is not ahead. It is read once, never verified; later changes of the time of
 * day have no effect.
 */
export function jwtRestMs(token: string, issuedAt: number): number | undefined {
  const parts = token.split('.')
  if (parts.length !== 3) return undefined
  const expiresAtSeconds = readExpiry(parts[1] ?? '')
  if (expiresAtSeconds === undefined) return undefined
  const restMs = expiresAtSeconds * 1_000 - issuedAt
  return Number.isFinite(restMs) && restMs >= MIN_REST_MS ? restMs : undefined
}

function readExpiry(payload: string): number | undefined {
  const claims = parseJson(Buffer.from(payload, 'base64url').toString('utf8'))
  if (typeof claims !== 'object' || claims === null || !('exp' in claims)) return undefined
  return typeof claims.exp === 'number' ? claims.exp : undefined
}

/** A longer wait would keep orgs out because of one odd answer. */
const MAX_RETRY_AFTER_SECONDS = 3_600
const DELAY_SECONDS = /^\d+$/
/** `Date.parse` alone takes nearly anything for a date. */
const HTTP_DATE = /^\w{3,9}, .+ GMT$/

/** `Retry-After` (RFC 9110 §10.2.3) as whole seconds from now. Undefined if it is missing or not well-formed. */
export function parseRetryAfter(value: string | undefined, wallNowMs: number): number | undefined {
  if (value === undefined) return undefined
  if (DELAY_SECONDS.test(value)) return Math.min(Number(value), MAX_RETRY_AFTER_SECONDS)
  const restMs = HTTP_DATE.test(value) ? Date.parse(value) - wallNowMs : Number.NaN
  if (Number.isNaN(restMs)) return undefined
  return Math.min(Math.max(Math.ceil(restMs / 1_000), 0), MAX_RETRY_AFTER_SECONDS)
}

const TIMEOUTS = new Set(['ETIMEDOUT', 'UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'])
/** An answer came, but not one in HTTP. Undici's parser error has a code only sometimes, so its name counts too. */
const NOT_HTTP = new Set([
  'HTTPParserError',
  'UND_ERR_HEADERS_OVERFLOW',
  'UND_ERR_RES_CONTENT_LENGTH_MISMATCH',
  'UND_ERR_RESPONSE',
])
const UNREACHABLE = new Set(['ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH', 'EHOSTDOWN', 'ENETDOWN', 'EADDRNOTAVAIL'])
const BROKEN_OFF = new Set(['ECONNRESET', 'EPIPE', 'ECONNABORTED', 'UND_ERR_SOCKET'])
const NO_ROOM = new Set(['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM'])
/** Verification results of OpenSSL as Node names them. */
const CERTIFICATE =
  /^(?:CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|INVALID_CA|INVALID_PURPOSE|HOSTNAME_MISMATCH|CRL_|ERR_TLS_CERT_ALTNAME)/

/** Turns an error of a socket, TLS, the resolver or undici into a token error. It names a code, never what was sent or received. */
export function translateMintError(cause: unknown): TokenError {
  if (cause instanceof TokenError) return cause
  const code = errorCode(cause)
  const hint = hintFor(code)
  return new TokenError(tokenErrorCode(code), hint ?? `The call of the token endpoint failed (${code}).`, {
    cause,
    hint,
  })
}

function tokenErrorCode(code: string): TokenErrorCode {
  if (TIMEOUTS.has(code)) return 'token_endpoint_timeout'
  if (NOT_HTTP.has(code) || code.startsWith('HPE_')) return 'token_response_invalid'
  return 'token_endpoint_unavailable'
}

/** One sentence for callers and the log. Undefined for what the code of the problem says already. */
function hintFor(code: string): string | undefined {
  if (CERTIFICATE.test(code)) {
    return `The proxy does not trust the certificate of the token endpoint (${code}): check baseUrl and origin.caFile.`
  }
  if (code === 'EPROTO' || code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_')) {
    return `TLS with the token endpoint failed (${code}): check that baseUrl names an https port.`
  }
  if (code === 'ENOTFOUND' || code.startsWith('EAI_')) {
    return `The host name of the token endpoint cannot be resolved (${code}): check baseUrl and the DNS server.`
  }
  if (UNREACHABLE.has(code)) return `The token endpoint cannot be reached (${code}): check baseUrl and the network.`
  if (BROKEN_OFF.has(code)) return `The token endpoint closed the connection without an answer (${code}).`
  if (NO_ROOM.has(code)) return `The proxy has no room for another connection (${code}): raise its limits.`
  return undefined
}

function errorCode(cause: unknown): string {
  if (!(cause instanceof Error)) return 'unknown'
  // Every address of the name failed: the first failure speaks for all (RFC 8305).
  if (cause instanceof AggregateError && cause.errors[0] instanceof Error) return errorCode(cause.errors[0])
  return 'code' in cause && typeof cause.code === 'string' ? cause.code : cause.name
}
