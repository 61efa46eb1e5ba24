/**
 * Verifies the JWTs of callers offline (RFC 7519). A token is first read without any cryptography: its claims have to name
 * a configured caller, so a flood of foreign tokens costs little. Only then is the signature checked, with a key from the
 * configured set. Keys or key addresses inside the token are never used.
 */

import { createPublicKey, type JsonWebKeyInput } from 'node:crypto'
import type { JSONWebKeySet, JWK } from 'jose'

/** The accepted signatures. Never `none`, and no HMAC: its key would be the public key that everybody has. */
const ALGORITHMS = ['RS', 'PS', 'ES'].flatMap((family) => [256, 384, 512].map((bits) => `${family}${bits}`))
ALGORITHMS.push('EdDSA', 'Ed25519')

/** Real tokens have one or two kilobytes. */
const MAX_TOKEN_LENGTH = 8 * 1024

/** The issuer's clock may be ahead by this much: a new token is valid at once. */
const CLOCK_TOLERANCE_SECONDS = 30

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

export interface ExpectedClaims {
  readonly issuer: string
  readonly audience: string
  readonly subject: string
}

export function looksLikeJwt(credential: string): boolean {
  return credential.length <= MAX_TOKEN_LENGTH && /^[\w-]+\.[\w-]+\.[\w-]+$/.test(credential)
}

/** Returns the claims before any verification; undefined if there are none. */
export async function readClaims(token: string) {
  const { decodeJwt } = await import('jose')
  try {
    const { iss, sub, aud } = decodeJwt(token)
    return { issuer: iss, subject: sub, audiences: Array.isArray(aud) ? aud : [aud] }
  } catch {
    return undefined
  }
}

/** Milliseconds since the epoch: the token is good until then, which may be in the past by the tolerance. */
export type Verification = number | TokenProblem

export type Verifier = (token: string, expected: ExpectedClaims) => Promise<Verification>

export async function openVerifier(keySet: KeySet): Promise<Verifier> {
  // Imported here: only a configuration with a `jwt` needs the package.
  const { createLocalJWKSet, errors, jwtVerify } = await import('jose')
  const keys = createLocalJWKSet(keySet)
  return async (token, { issuer, audience, subject }) => {
    try {
      const { payload } = await jwtVerify(token, keys, {
        algorithms: ALGORITHMS,
        issuer,
        audience,
        subject,
        requiredClaims: ['exp'],
        clockTolerance: CLOCK_TOLERANCE_SECONDS,
      })
      return (payload.exp ?? 0) * 1_000
    } catch (error) {
      // Anything that cannot be verified is refused. A token can reach code that throws other errors than those of jose.
      if (error instanceof errors.JOSEAlgNotAllowed) return 'wrong algorithm'
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

/** RFC 7517 §5: only its public keys for signatures are kept. */
export type KeySet = JSONWebKeySet

/** More keys than any issuer publishes. Each key costs time on a token without `kid`. */
const MAX_KEYS = 100

/**
 * A set without any key is a good one: it revokes all. One with keys of which none fits is probably a mistake.
 * @throws {KeySetInvalid} The message is a predicate of the file or the response, and repeats nothing of it.
 */
export function parseKeySet(text: string): KeySet {
  let found: unknown
  try {
    found = JSON.parse(text.replace(/^\uFEFF/, ''))?.keys // editors on Windows write a byte order mark
  } catch {
    throw new KeySetInvalid('is not JSON')
  }
  if (!Array.isArray(found)) throw new KeySetInvalid('is not a JSON Web Key Set')
  if (found.length > MAX_KEYS) throw new KeySetInvalid(`has more than ${MAX_KEYS} keys`)
  const keys = found.flatMap((key: unknown) => publicKey(key) ?? [])
  if (keys.length === 0 && found.length > 0) throw new KeySetInvalid('has no public key for RSA, ECDSA or Ed25519')
  return { keys }
}

export class KeySetInvalid extends Error {
  override readonly name = 'KeySetInvalid'
}

/** Returns the public members; undefined for a key of another type, for another use, or with a member missing. */
function publicKey(key: unknown): JWK | undefined {
  try {
    const members = createPublicKey({ key, format: 'jwk' } as JsonWebKeyInput).export({ format: 'jwk' })
    const { use = 'sig', alg, kid } = key as JWK
    // SPIFFE marks its keys `jwt-svid`.
    if (use !== 'sig' && use !== 'jwt-svid') return undefined
    // EdDSA and Ed25519 are two names of one algorithm (RFC 9864 §2.2), so its key type decides.
    const isNamed = alg !== undefined && members.kty !== 'OKP'
    return { ...members, ...(kid !== undefined && { kid }), ...(isNamed && { alg }) } as JWK
  } catch {
    return undefined
  }
}
