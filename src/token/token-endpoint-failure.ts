/** The one place where errors of sockets, TLS, resolver and undici become token errors. */

import { TokenError, type TokenErrorCode } from '../errors.ts'

const TIMEOUTS = new Set(['ETIMEDOUT', 'UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'])
/** An answer came, but not one in HTTP. Undici's parser error has a code only sometimes: then its name speaks. */
const NOT_HTTP = new Set([
  'HTTPParserError',
  'UND_ERR_HEADERS_OVERFLOW',
  'UND_ERR_RES_CONTENT_LENGTH_MISMATCH',
  'UND_ERR_RESPONSE',
])

/** `cause` as one of ours. The message names a code, never what was sent or received. */
export function translateMintError(cause: unknown): TokenError {
  if (cause instanceof TokenError) return cause
  const code = errorCode(cause)
  return new TokenError(tokenErrorCode(code), `the call of the token endpoint failed: ${code}`, { cause })
}

function tokenErrorCode(code: string): TokenErrorCode {
  if (TIMEOUTS.has(code)) return 'token_endpoint_timeout'
  if (NOT_HTTP.has(code) || code.startsWith('HPE_')) return 'token_response_invalid'
  return 'token_endpoint_unavailable'
}

function errorCode(cause: unknown): string {
  if (!(cause instanceof Error)) return 'unknown'
  // Every address of the name failed: the first failure speaks for all (RFC 8305).
  if (cause instanceof AggregateError && cause.errors[0] instanceof Error) return errorCode(cause.errors[0])
  return 'code' in cause && typeof cause.code === 'string' ? cause.code : cause.name
}
