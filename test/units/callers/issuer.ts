/** An issuer of JWTs for the tests: real keys, real signatures, and forgeries. */

import { type CryptoKey, exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose'
import type { JwtCredential } from '../../../src/callers/callers.ts'
import { parseKeySet } from '../../../src/callers/jwt.ts'

export interface Issuer {
  readonly issuer: string
  readonly privateKey: CryptoKey
  /** Public, with its `kid` and `alg`. */
  readonly publicJwk: JWK
  /** The key set as its server or file would hold it. */
  readonly jwks: string
}

export const CLAIMS = {
  iss: 'https://issuer.example',
  aud: 'org-access-proxy',
  sub: 'system:serviceaccount:jobs:batch',
} as const

export async function makeIssuer(alg = 'ES256', kid = `key-${alg}`): Promise<Issuer> {
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true })
  const publicJwk: JWK = { ...(await exportJWK(publicKey)), kid, alg }
  return { issuer: CLAIMS.iss, privateKey, publicJwk, jwks: JSON.stringify({ keys: [publicJwk] }) }
}

export interface TokenOptions {
  readonly claims?: Readonly<Record<string, unknown>>
  readonly header?: Readonly<Record<string, unknown>>
  /** Seconds from now; undefined leaves `exp` out. */
  readonly expiresIn?: number | undefined
}

/** A good token, unless the options make it bad. */
export async function sign(issuer: Issuer, options: TokenOptions = {}): Promise<string> {
  const { claims = {}, header = {} } = options
  const now = Math.floor(Date.now() / 1_000)
  const expiresIn = 'expiresIn' in options ? options.expiresIn : 600
  const payload = { ...CLAIMS, iat: now, ...(expiresIn === undefined ? {} : { exp: now + expiresIn }), ...claims }
  const { alg = 'ES256', kid } = issuer.publicJwk
  return await new SignJWT(payload)
    .setProtectedHeader({ alg, ...(kid === undefined ? {} : { kid }), ...header })
    .sign(issuer.privateKey)
}

export function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}

/** The credential of a caller. */
export function byJwt({ issuer, jwks }: Issuer, audience: string = CLAIMS.aud): { readonly jwt: JwtCredential } {
  const file = { path: '/jwks.json', content: parseKeySet(jwks) }
  return { jwt: { issuer, audience, subject: CLAIMS.sub, jwks: file } }
}
