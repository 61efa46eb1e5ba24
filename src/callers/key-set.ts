/** A JSON Web Key Set (RFC 7517 §5): only its public keys for the accepted signatures are kept. */

/** The accepted signatures. Never `none`, and no HMAC: its key would be the public key that everybody has. */
export const ALGORITHMS = ['RS256', 'PS256', 'ES256', 'EdDSA'] as const

export interface KeySet {
  readonly keys: readonly PublicKey[]
}

/** Members of a public JWK that verification reads. */
export interface PublicKey {
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
