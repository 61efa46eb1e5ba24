/**
 * Verifies the JWTs of callers offline (RFC 7519). A token is first read without any cryptography: its claims have to name
 * a configured caller, and its header an accepted algorithm. So a flood of foreign tokens costs little. Only then is the
 * signature checked, with a key from the configured set. Keys or key addresses inside the token are never used.
 */

import type { JWTVerifyGetKey } from 'jose'
import { ALGORITHMS, type KeySet } from './key-set.ts'

/** Real tokens have one or two kilobytes. */
const MAX_TOKEN_LENGTH = 8 * 1024

/** The clocks of the issuer and of this machine may differ by this much. */
export const CLOCK_TOLERANCE_SECONDS = 30

const SHAPE = /^[\w-]+\.[\w-]+\.[\w-]+$/

/** The contents of a token, before any verification. */
export interface UnverifiedToken {
  readonly issuer: string
  readonly audiences: readonly string[]
  readonly subject: string
  readonly keyId: string | undefined
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

/** Undefined for a token that no configuration could accept. Takes time linear in its length. */
export function readToken(token: string): UnverifiedToken | undefined {
  if (!looksLikeJwt(token)) return undefined
  const [header = '', payload = ''] = token.split('.')
  const { alg, kid, crit, b64 }: UnverifiedHeader = decode(header)
  if (!ALGORITHMS.some((algorithm) => algorithm === alg)) return undefined
  // No extension is understood here, so one that must be understood means refusal (RFC 7515 §4.1.11).
  if (crit !== undefined || b64 !== undefined) return undefined
  if (kid !== undefined && typeof kid !== 'string') return undefined
  const { iss, aud, sub }: UnverifiedPayload = decode(payload)
  const audiences: unknown[] = Array.isArray(aud) ? aud : [aud]
  if (typeof iss !== 'string' || typeof sub !== 'string' || !audiences.every(isString)) return undefined
  return { issuer: iss, audiences, subject: sub, keyId: kid }
}

interface UnverifiedHeader {
  readonly alg?: unknown
  readonly kid?: unknown
  readonly crit?: unknown
  readonly b64?: unknown
}

interface UnverifiedPayload {
  readonly iss?: unknown
  readonly aud?: unknown
  readonly sub?: unknown
}

function decode(part: string): object {
  try {
    const value: unknown = JSON.parse(Buffer.from(part, 'base64url').toString('utf8'))
    return typeof value === 'object' && value !== null ? value : {}
  } catch {
    return {}
  }
}

function isString(value: unknown): value is string {
  return typeof value === 'string'
}

/** `unknown_key`: the set has no key with the token's `kid`, so a newer set may have it. */
export type Verification =
  | { readonly outcome: 'valid'; readonly expiresAtMs: number }
  | { readonly outcome: 'invalid' }
  | { readonly outcome: 'unknown_key' }

/** Checks signatures with the keys of one set. */
export class JwtVerifier {
  readonly #jose: typeof import('jose')
  readonly #keys: JWTVerifyGetKey

  private constructor(jose: typeof import('jose'), keySet: KeySet) {
    this.#jose = jose
    this.#keys = jose.createLocalJWKSet({ keys: [...keySet.keys] })
  }

  static async create(keySet: KeySet): Promise<JwtVerifier> {
    // Imported here: only a configuration with a `jwt` needs the package.
    return new JwtVerifier(await import('jose'), keySet)
  }

  /** `nowMs` is the wall clock, because `exp` and `nbf` are wall-clock times. */
  async verify(token: string, { issuer, audience, subject }: ExpectedClaims, nowMs: number): Promise<Verification> {
    const { errors, jwtVerify } = this.#jose
    try {
      const { payload } = await jwtVerify(token, this.#keys, {
        algorithms: [...ALGORITHMS],
        issuer,
        audience,
        subject,
        requiredClaims: ['exp'],
        clockTolerance: CLOCK_TOLERANCE_SECONDS,
        currentDate: new Date(nowMs),
      })
      const expiresAtMs = ((payload.exp ?? 0) + CLOCK_TOLERANCE_SECONDS) * 1_000
      return { outcome: 'valid', expiresAtMs }
    } catch (error) {
      // Anything that cannot be verified is refused. A token can reach code that throws other errors than those of jose.
      return { outcome: error instanceof errors.JWKSNoMatchingKey ? 'unknown_key' : 'invalid' }
    }
  }
}
