/** How the App proves itself: one secret, which is a password or a private key, and what a request shows of it. */

import { createHash, createPrivateKey, randomUUID, X509Certificate } from 'node:crypto'
import * as clock from '../clock.ts'
import { Redacted, Secret } from '../secret.ts'
import { jwtLifeMs } from './token-reply.ts'

/**
 * `basic`: RFC 7617. `form`: members of the content (RFC 6749 §2.3.1). `jwt`: a JWT in place of a token, as for GitHub Apps.
 * `assertion`: a JWT among the members of the content (RFC 7523).
 */
export const APP_AUTHS = ['basic', 'form', 'jwt', 'assertion'] as const
export type AppAuth = (typeof APP_AUTHS)[number]

export const ALGORITHMS = ['RS256', 'PS256', 'ES256', 'EdDSA'] as const
export type Algorithm = (typeof ALGORITHMS)[number]

/** Of the JWTs that are signed here. */
export interface JwtSettings {
  readonly audience?: string | undefined
  readonly keyId?: string | undefined
  readonly algorithm?: Algorithm | undefined
}

export interface ProofSettings {
  readonly auth: AppAuth
  readonly assertion?: JwtSettings
}

export function usesPrivateKey(auth: AppAuth): auth is 'jwt' | 'assertion' {
  return auth === 'jwt' || auth === 'assertion'
}

/** What one request shows: the value of `Authorization`, or members of the form as it is sent. */
export class AppProof extends Secret {
  readonly key: AppKey
  readonly place: 'authorization' | 'form'

  constructor(key: AppKey, place: AppProof['place'], text: string) {
    super(text)
    this.key = key
    this.place = place
  }
}

export class AppKey extends Redacted {
  readonly appId: string
  readonly secret: Secret
  readonly auth: AppAuth
  readonly #jwt: JwtSettings
  /** The last answer of the service to it was a 401. */
  isRejected = false

  constructor(appId: string, secret: Secret, { auth, assertion = {} }: ProofSettings = { auth: 'basic' }) {
    super()
    this.appId = appId
    this.secret = secret
    this.auth = auth
    this.#jwt = assertion
  }

  /** `url` is where the proof goes. A JWT is made for each request. */
  async prove(url: string): Promise<AppProof> {
    const { appId, secret, auth } = this
    const { audience } = this.#jwt
    switch (auth) {
      case 'basic': {
        const pair = Buffer.from(`${appId}:${secret.reveal()}`).toString('base64')
        return new AppProof(this, 'authorization', `Basic ${pair}`)
      }
      case 'form': {
        const members = new URLSearchParams({ client_id: appId, client_secret: secret.reveal() })
        return new AppProof(this, 'form', members.toString())
      }
      case 'jwt': {
        // A clock that is behind ours must not see a time to come.
        const audienceClaim = audience === undefined ? {} : { aud: audience }
        const jwt = await sign(secret, { iss: appId, ...audienceClaim, ...times(-60, 540) }, this.#jwt)
        return new AppProof(this, 'authorization', `Bearer ${jwt}`)
      }
      case 'assertion': {
        const claims = { iss: appId, sub: appId, aud: audience ?? url, jti: randomUUID(), ...times(-10, 60) }
        const members = new URLSearchParams({
          client_id: appId,
          client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
          // Without a key, it is a JWT that somebody else has signed.
          client_assertion: isPem(secret) ? await sign(secret, claims, this.#jwt) : secret.reveal(),
        })
        return new AppProof(this, 'form', members.toString())
      }
    }
  }
}

function times(iatSeconds: number, expSeconds: number) {
  const now = Math.floor(clock.day() / 1_000)
  return { iat: now + iatSeconds, exp: now + expSeconds }
}

async function sign(
  secret: Secret,
  claims: Readonly<Record<string, unknown>>,
  { keyId, algorithm }: JwtSettings,
): Promise<string> {
  const { SignJWT } = await import('jose')
  const [usual] = algorithmsOf(secret)
  if (usual === undefined) throw new TypeError('not a key for signatures') // the configuration was checked
  const [certificate] = CERTIFICATE.exec(secret.reveal()) ?? []
  const header = {
    alg: algorithm ?? usual,
    typ: 'JWT',
    ...(keyId !== undefined && { kid: keyId }),
    ...(certificate !== undefined && { 'x5t#S256': thumbprintOf(certificate) }),
  }
  return await new SignJWT(claims).setProtectedHeader(header).sign(createPrivateKey(secret.reveal()))
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/

/** RFC 7515 §4.1.8 */
const thumbprintOf = (pem: string) => createHash('sha256').update(new X509Certificate(pem).raw).digest('base64url')

export const isPem = (secret: Secret) => /^-----BEGIN /m.test(secret.reveal())

/** Of a JWT that somebody else has signed. */
export const ENDED_JWT = 'holds a JWT that has ended: whoever signs it has to renew it'

/** Milliseconds, negative if it has ended; NaN if it states no end. */
export function lifeLeft(jwt: Secret): number {
  return jwtLifeMs(jwt.reveal(), clock.day())
}

/** Of the signatures that a private key in PEM makes, the usual one first; empty if it is none, is encrypted, or is of another kind. */
export function algorithmsOf(secret: Secret): readonly Algorithm[] {
  try {
    const { asymmetricKeyType, asymmetricKeyDetails } = createPrivateKey(secret.reveal())
    if (asymmetricKeyType === 'ed25519') return ['EdDSA']
    if (asymmetricKeyType === 'ec' && asymmetricKeyDetails?.namedCurve === 'prime256v1') return ['ES256']
    // RFC 7518 §3.3
    return asymmetricKeyType === 'rsa' && (asymmetricKeyDetails?.modulusLength ?? 0) >= 2048 ? ['RS256', 'PS256'] : []
  } catch {
    return []
  }
}
