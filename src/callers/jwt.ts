/**
 * Verifies the JWTs of callers offline (RFC 7519). A token is first read without any cryptography: its claims have to name
 * a configured caller, and its header an accepted algorithm. So a flood of foreign tokens costs little. Only then is the
 * signature checked, with a key from the configured set. Keys or key addresses inside the token are never used.
 */

import type { JWK } from 'jose'

/** The accepted signatures. Never `none`, and no HMAC: its key would be the public key that everybody has. */
const ALGORITHMS = ['RS', 'PS', 'ES'].flatMap((family) => [256, 384, 512].map((bits) => `${family}${bits}`))
ALGORITHMS.push('EdDSA', 'Ed25519')

/** Real tokens have one or two kilobytes. */
const MAX_TOKEN_LENGTH = 8 * 1024

/** The issuer's clock may be ahead by this much: a new token is valid at once. After its `exp`, none is. */
const CLOCK_TOLERANCE_SECONDS = 30

const SHAPE = /^[\w-]+\.[\w-]+\.[\w-]+$/

/** Why a token makes no caller. For the log and the metrics, never for the answer. */
export type TokenProblem =
  | 'malformed token'
  | 'wrong algorithm'
  | 'unknown issuer'
  | 'unknown subject'
  | 'wrong audience'
  | 'token of several callers'
  | 'no key set'
  | 'unknown key id'
  | 'wrong signature'
  | 'expired'
  | 'not valid yet'

export function isTokenProblem<T extends object>(result: T | TokenProblem): result is TokenProblem {
  return typeof result === 'string'
}

/** The contents of a token, before any verification. */
interface UnverifiedToken {
  readonly issuer: string
  readonly audiences: readonly string[]
  readonly subject: string
}

/** The claims that a token must have. */
export interface ExpectedClaims {
  readonly issuer: string
  readonly audience: string
  readonly subject: string
}

/** True if a credential is meant to be a JWT. */
export function looksLikeJwt(credential: string): boolean {
  return credential.length <= MAX_TOKEN_LENGTH && SHAPE.test(credential)
}

/** Takes time linear in the length of the token. */
export function readToken(token: string): UnverifiedToken | TokenProblem {
  if (!looksLikeJwt(token)) return 'malformed token'
  const [header = '', payload = ''] = token.split('.')
  const { alg, kid, crit, b64 } = decode(header)
  if (!isString(alg) || !ALGORITHMS.includes(alg)) return 'wrong algorithm'
  // No extension is understood here, so one that must be understood means refusal (RFC 7515 §4.1.11).
  if (crit !== undefined || b64 !== undefined) return 'malformed token'
  if (kid !== undefined && typeof kid !== 'string') return 'malformed token'
  const { iss, aud, sub } = decode(payload)
  const audiences: unknown[] = Array.isArray(aud) ? aud : [aud]
  if (typeof iss !== 'string' || typeof sub !== 'string' || !audiences.every(isString)) return 'malformed token'
  return { issuer: iss, audiences, subject: sub }
}

function decode(part: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'))
    return isObject(value) ? value : {}
  } catch {
    return {}
  }
}

function isString(value: unknown): value is string {
  return typeof value === 'string'
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

export type Verification = { readonly expiresAtMs: number } | TokenProblem

/** Checks a token against the keys of one set. */
export type Verifier = (token: string, expected: ExpectedClaims) => Promise<Verification>

export async function openVerifier(keySet: KeySet): Promise<Verifier> {
  // Imported here: only a configuration with a `jwt` needs the package.
  const { createLocalJWKSet, errors, jwtVerify } = await import('jose')
  const keys = createLocalJWKSet({ keys: [...keySet.keys] })
  return async (token, { issuer, audience, subject }) => {
    const now = Date.now()
    try {
      const { payload } = await jwtVerify(token, keys, {
        algorithms: ALGORITHMS,
        issuer,
        audience,
        subject,
        requiredClaims: ['exp'],
        clockTolerance: CLOCK_TOLERANCE_SECONDS,
        currentDate: new Date(now),
      })
      const expiresAtMs = (payload.exp ?? 0) * 1_000
      return expiresAtMs > now ? { expiresAtMs } : 'expired'
    } catch (error) {
      // Anything that cannot be verified is refused. A token can reach code that throws other errors than those of jose.
      if (error instanceof errors.JWKSNoMatchingKey || error instanceof errors.JWKSMultipleMatchingKeys) {
        return 'unknown key id'
      }
      if (error instanceof errors.JWTExpired) return 'expired'
      if (error instanceof errors.JWSSignatureVerificationFailed) return 'wrong signature'
      const isEarly = error instanceof errors.JWTClaimValidationFailed && error.claim === 'nbf'
      return isEarly ? 'not valid yet' : 'malformed token'
    }
  }
}

/** A JSON Web Key Set (RFC 7517 §5): only its public keys for the accepted signatures are kept. */
export interface KeySet {
  readonly keys: readonly JWK[]
}

/** More keys than any issuer publishes. Each key costs time on a token without `kid`. */
const MAX_KEYS = 100

/** The members that verification reads, by key type (RFC 7518 §6, RFC 8037 §2). */
const MEMBERS: Readonly<Record<string, readonly string[]>> = {
  RSA: ['n', 'e'],
  EC: ['crv', 'x', 'y'],
  OKP: ['crv', 'x'],
}

/**
 * A set without any key is a good one: it revokes all. One with keys of which none fits is probably a mistake.
 * @throws {KeySetInvalid} The message is a predicate of the file or the response, and repeats nothing of it.
 */
export function parseKeySet(text: string): KeySet {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new KeySetInvalid('is not JSON')
  }
  const { keys: found = undefined } = isObject(value) ? value : {}
  if (!Array.isArray(found)) throw new KeySetInvalid('is not a JSON Web Key Set')
  if (found.length > MAX_KEYS) throw new KeySetInvalid(`has more than ${MAX_KEYS} keys`)
  const keys = found.flatMap((key: unknown) => publicKey(key) ?? [])
  if (keys.length === 0 && found.length > 0) throw new KeySetInvalid('has no public key for RSA, ECDSA or Ed25519')
  return { keys }
}

export class KeySetInvalid extends Error {
  override readonly name = 'KeySetInvalid'
}

/** Undefined for a key of another type, for another use, or with a member missing. */
function publicKey(key: unknown): JWK | undefined {
  if (!isObject(key)) return undefined
  const { kty, use, alg, kid } = key
  const names = isString(kty) && Object.hasOwn(MEMBERS, kty) ? MEMBERS[kty] : undefined
  // SPIFFE marks its keys `jwt-svid`.
  if (names === undefined || (use !== undefined && use !== 'sig' && use !== 'jwt-svid')) return undefined
  if (alg !== undefined && !(isString(alg) && ALGORITHMS.includes(alg))) return undefined
  const members = Object.fromEntries(names.map((name) => [name, key[name]]))
  if (!Object.values(members).every(isString)) return undefined
  // The key type decides here: EdDSA and Ed25519 are two names of one algorithm (RFC 9864 §2.2).
  const isNamed = isString(alg) && kty !== 'OKP'
  return { ...members, kty: String(kty), ...(isString(kid) && { kid }), ...(isNamed && { alg }) }
}
