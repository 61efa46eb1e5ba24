/**
 * Calls the token endpoint, and says what the outcome means. Nothing of the client's request goes along. Trusts no answer,
 * because a token goes into a field of every request for its org: it follows no redirect either.
 */

import { gunzipSync } from 'node:zlib'
import { z } from 'zod'
import { causeOf, OriginError, TokenError, type TokenErrorCode, type TokenErrorOptions } from '../errors.ts'
import type { EndpointAnswer } from '../http/response-head.ts'
import { targetPrefix } from '../http/target.ts'
import type { AppCredentials, AppKey } from './app-credentials.ts'
import { AccessToken, type OnCall, type TokenObserver, type TokenSource } from './token-source.ts'

export interface TokenEndpointOptions {
  readonly baseUrl: URL
  readonly credentials: AppCredentials
  /** Sends a POST without content, once. `fields` are names and values in turn. Rejects with an `OriginError`. */
  readonly call: (target: string, fields: readonly string[], onCall?: OnCall) => Promise<EndpointAnswer>
  /** Offers the secret of the file to the credentials. Must not reject. */
  readonly rereadSecret?: (() => Promise<void>) | undefined
  readonly observer: TokenObserver
}

export function tokenEndpoint(options: TokenEndpointOptions): TokenSource {
  const { baseUrl, credentials, call, rereadSecret, observer } = options
  return {
    /** One call; after a 401, one with any secret not yet tried: the file may have a new one by now. */
    async mint(org, { reason = 'cold', requestId } = {}, onCall) {
      const target = `${targetPrefix(baseUrl)}/v2/orgs/${encodeURIComponent(org)}/access`
      const tried = new Set<AppKey>()
      for (let { key } = credentials; ; ) {
        const fields = ['host', baseUrl.host, 'authorization', key.reveal(), 'accept-encoding', 'identity']
        const startedAt = performance.now()
        const answer = call(target, fields, onCall)
        const outcome = await answer.then((got) => meaningOf(got, startedAt, Date.now()), meaningOfFailure)
        const durationMs = performance.now() - startedAt
        const error = outcome instanceof TokenError ? outcome : undefined
        // An endpoint that refuses an org has accepted the App.
        if (error === undefined || error.code === 'org_access_refused') credentials.accepted(key)
        observer.mintSettled?.({ org, url: baseUrl.origin + target, reason, requestId, durationMs, error })
        if (!(outcome instanceof TokenError)) return outcome
        if (outcome.code !== 'app_credentials_rejected') throw outcome
        tried.add(key)
        await rereadSecret?.()
        const other = credentials.rejected(key)
        if (tried.has(other)) throw outcome
        key = other
      }
    },
  }
}

/** `startedAt` is when the call began (monotonic milliseconds); `wallNowMs` is the time of day. */
export function meaningOf(answer: EndpointAnswer, startedAt: number, wallNowMs: number): AccessToken | TokenError {
  const { status, fields, content } = answer
  const failure = (code: TokenErrorCode, says = '', options?: TokenErrorOptions) =>
    new TokenError(code, `The token endpoint answered ${status}${says}.`, options)
  if (status < 400) {
    try {
      const token = readOrgAccessToken(content)
      const answeredAt = Date.parse(fieldValue(fields, /^date$/i)) || wallNowMs
      return new AccessToken(token, startedAt, jwtLifeMs(token, answeredAt))
    } catch {
      return failure('token_response_invalid', ' without a usable orgAccessToken')
    }
  }
  if (status === 401) return failure('app_credentials_rejected', ': it rejects the App credentials')
  const retryAfterSeconds = parseRetryAfter(fieldValue(fields, /^retry-after$/i), wallNowMs)
  const isUsedUp = fieldValue(fields, /^(?:x-)?ratelimit-remaining$/i) === '0'
  // Many services tell a limit with another status than 429.
  if (status === 429 || ((status === 403 || status === 503) && (isUsedUp || retryAfterSeconds !== undefined))) {
    return failure('token_endpoint_rate_limited', ': it limits the rate of calls', { retryAfterSeconds })
  }
  if (status === 408 || status >= 500) return failure('token_endpoint_unavailable')
  return failure('org_access_refused', ': if it refuses every Org, check baseUrl', { tokenEndpointStatus: status })
}

function fieldValue(fields: readonly string[], name: RegExp): string {
  return fields.find((_, index) => index % 2 === 1 && name.test(fields[index - 1] ?? '')) ?? ''
}

/** Visible ASCII without white space is one word of a field value (RFC 9110 §5.5). */
const REPLY = z.object({ orgAccessToken: z.string().regex(/^[\x21-\x7e]{1,16384}$/) })

/** @throws if there is no token to rely on */
export function readOrgAccessToken(content: Buffer): string {
  // Some services compress in spite of `identity` (RFC 1952).
  const plain = content[0] === 0x1f ? gunzipSync(content, { maxOutputLength: 64 * 1024 }) : content
  const text = new TextDecoder().decode(plain) // without a byte order mark
  // With two members of that name, parsers differ in which one counts (RFC 8259 §4).
  if ((text.match(/"orgAccessToken"\s*:/g) ?? []).length > 1) throw new TypeError('two tokens')
  return REPLY.parse(JSON.parse(text)).orgAccessToken
}

const CLAIMS = z.object({ exp: z.number(), iat: z.number().catch(Number.POSITIVE_INFINITY) })

/**
 * The life that a JWT states, in milliseconds from its mint (RFC 7519 §4.1). Of two that count, the greater one, because the
 * clock of the issuer may be wrong. Undefined if the token is no JWT, or states no end that lies ahead. It is never verified.
 */
export function jwtLifeMs(token: string, answeredAt: number): number | undefined {
  try {
    const [, payload = ''] = /^[^.]*\.([^.]+)\.[^.]*$/.exec(token) ?? []
    const { exp, iat } = CLAIMS.parse(JSON.parse(Buffer.from(payload, 'base64url').toString()))
    const restMs = exp * 1_000 - answeredAt
    return restMs > 0 ? Math.max(restMs, (exp - iat) * 1_000) : undefined
  } catch {
    return undefined
  }
}

/**
 * `Retry-After` (RFC 9110 §10.2.3) in whole seconds from now, five minutes at most: one odd answer must not keep orgs out for
 * longer. Undefined if it names no time that lies ahead.
 */
export function parseRetryAfter(value: string, wallNowMs: number): number | undefined {
  const seconds = /^\d+$/.test(value) ? Number(value) : Math.ceil((Date.parse(value) - wallNowMs) / 1_000)
  return seconds > 0 ? Math.min(seconds, 300) : undefined
}

/** Names the system's code, never what was sent or received. */
function meaningOfFailure(error: unknown): TokenError {
  if (!(error instanceof OriginError)) throw error
  const { code, message, cause } = error
  const detail = cause instanceof Error && 'code' in cause ? cause.code : message
  const hint = causeOf(error) ?? `The call of the token endpoint failed (${detail}).`
  const isBroken = code === 'http_protocol_error' || code === 'http_response_incomplete'
  const unavailable = code.endsWith('_timeout') ? 'token_endpoint_timeout' : 'token_endpoint_unavailable'
  return new TokenError(isBroken ? 'token_response_invalid' : unavailable, hint, { cause: error })
}
