/**
 * Verifies the JWTs of callers offline (RFC 7519). A token is first read without any cryptography: its claims have to name
 * a configured caller, and its header an accepted algorithm. So a flood of foreign tokens costs little. Only then is the
 * signature checked, with a key from the configured set. Keys or key addresses inside the token are never used.
 */

/** The accepted signatures. Never `none`, and no HMAC: its key would be the public key that everybody has. */
const ALGORITHMS = ['RS256', 'PS256', 'ES256', 'EdDSA'] as const

/** Real tokens have one or two kilobytes. */
const MAX_TOKEN_LENGTH = 8 * 1024

/** The issuer's clock may be ahead by this much: a new token is valid at once. After its `exp`, none is. */
const CLOCK_TOLERANCE_SECONDS = 30

const SHAPE = /^[\w-]+\.[\w-]+\.[\w-]+$/

/** The contents of a token, before any verification. */
interface UnverifiedToken {
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

/** Checks a token against the keys of one set. `nowMs` is the wall clock, because `exp` and `nbf` are wall-clock times. */
export type Verifier = (token: string, expected: ExpectedClaims, nowMs: number) => Promise<Verification>

export async function openVerifier(keySet: KeySet): Promise<Verifier> {
  // Imported here: only a configuration with a `jwt` needs the package.
  const { createLocalJWKSet, errors, jwtVerify } = await import('jose')
  const keys = createLocalJWKSet({ keys: [...keySet.keys] })
  return async (token, { issuer, audience, subject }, nowMs) => {
    try {
      const { payload } = await jwtVerify(token, keys, {
        algorithms: [...ALGORITHMS],
        issuer,
        audience,
        subject,
        requiredClaims: ['exp'],
        clockTolerance: CLOCK_TOLERANCE_SECONDS,
        currentDate: new Date(nowMs),
      })
      const expiresAtMs = (payload.exp ?? 0) * 1_000
      return expiresAtMs > nowMs ? { outcome: 'valid', expiresAtMs } : { outcome: 'invalid' }
    } catch (error) {
      // Anything that cannot be verified is refused. A token can reach code that throws other errors than those of jose.
      return { outcome: error instanceof errors.JWKSNoMatchingKey ? 'unknown_key' : 'invalid' }
    }
  }
}

/** A JSON Web Key Set (RFC 7517 §5): only its public keys for the accepted signatures are kept. */
export interface KeySet {
  readonly keys: readonly PublicKey[]
}

/** Members of a public JWK that verification reads. */
interface PublicKey {
  readonly [member: string]: string
  readonly kty: string
}

/** More keys than any issuer publishes. Each key costs time on a token without `kid`. */
const MAX_KEYS = 100

/** The members that are kept, by key type (RFC 7518 §6, RFC 8037 §2). */
const MEMBERS: Readonly<Record<string, readonly string[]>> = {
  RSA: ['n', 'e'],
  EC: ['crv', 'x', 'y'],
  OKP: ['crv', 'x'],
}
const OPTIONAL_MEMBERS = ['kid', 'alg', 'use'] as const

/** @throws {KeySetInvalid} The message is a predicate of the file or the response, and repeats nothing of it. */
export function parseKeySet(text: string): KeySet {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new KeySetInvalid('is not JSON')
  }
  const found = isObject(value) ? Object.entries(value).find(([name]) => name === 'keys')?.[1] : undefined
  if (!Array.isArray(found)) throw new KeySetInvalid('is not a JSON Web Key Set')
  if (found.length > MAX_KEYS) throw new KeySetInvalid(`has more than ${MAX_KEYS} keys`)
  const keys = found.flatMap((key: unknown) => publicKey(key) ?? [])
  if (keys.length === 0) throw new KeySetInvalid(`has no public key for ${ALGORITHMS.join(', ')}`)
  return { keys }
}

export class KeySetInvalid extends Error {
  override readonly name = 'KeySetInvalid'
}

interface UntrustedKey {
  readonly kty?: unknown
  readonly use?: unknown
  readonly alg?: unknown
  readonly [member: string]: unknown
}

/** Undefined for a key of another type, for another use, or with a member missing. */
function publicKey(key: unknown): PublicKey | undefined {
  if (!isObject(key)) return undefined
  const { kty, use, alg }: UntrustedKey = key
  if (typeof kty !== 'string' || !Object.hasOwn(MEMBERS, kty)) return undefined
  if (use !== undefined && use !== 'sig' && use !== 'jwt-svid') return undefined
  if (alg !== undefined && !ALGORITHMS.some((algorithm) => algorithm === alg)) return undefined
  const required = MEMBERS[kty] ?? []
  if (!required.every((name) => typeof key[name] === 'string')) return undefined
  const kept: Record<string, string> = {}
  for (const name of [...required, ...OPTIONAL_MEMBERS]) {
    const member = key[name]
    // SPIFFE marks its keys `jwt-svid`, which other verifiers do not know.
    if (typeof member === 'string' && member !== 'jwt-svid') kept[name] = member
  }
  return { ...kept, kty }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
