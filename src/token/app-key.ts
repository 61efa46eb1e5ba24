/** How the App proves itself: one secret, which is a password or a private key, and what a request shows of it. */

import { createPrivateKey, randomUUID } from 'node:crypto'
import * as clock from '../clock.ts'
import { Redacted, Secret } from '../secret.ts'

/**
 * `basic`: RFC 7617. `form`: members of the content (RFC 6749 §2.3.1). `jwt`: a JWT in place of a token, as for GitHub Apps.
 * `assertion`: a JWT among the members of the content (RFC 7523).
 */
export const APP_AUTHS = ['basic', 'form', 'jwt', 'assertion'] as const
export type AppAuth = (typeof APP_AUTHS)[number]

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
  /** The last answer of the service to it was a 401. */
  isRejected = false

  constructor(appId: string, secret: Secret, auth: AppAuth = 'basic') {
    super()
    this.appId = appId
    this.secret = secret
    this.auth = auth
  }

  /** `url` is where the proof goes. A JWT is made for each request. */
  async prove(url: string): Promise<AppProof> {
    const { appId, secret, auth } = this
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
        const jwt = await sign(secret, { iss: appId, ...times(-60, 540) })
        return new AppProof(this, 'authorization', `Bearer ${jwt}`)
      }
      case 'assertion': {
        const claims = { iss: appId, sub: appId, aud: url, jti: randomUUID(), ...times(-10, 60) }
        const members = new URLSearchParams({
          client_id: appId,
          client_assertion_type: 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
          client_assertion: await sign(secret, claims),
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

async function sign(secret: Secret, claims: Readonly<Record<string, unknown>>): Promise<string> {
  const { SignJWT } = await import('jose')
  const alg = algorithmOf(secret)
  if (alg === undefined) throw new TypeError('not a key for signatures') // the configuration was checked
  return await new SignJWT(claims).setProtectedHeader({ alg, typ: 'JWT' }).sign(createPrivateKey(secret.reveal()))
}

/** Of the signatures that a private key in PEM makes; undefined if it is none, is encrypted, or is of another kind. */
export function algorithmOf(secret: Secret): 'RS256' | 'ES256' | 'EdDSA' | undefined {
  try {
    const { asymmetricKeyType, asymmetricKeyDetails } = createPrivateKey(secret.reveal())
    if (asymmetricKeyType === 'ed25519') return 'EdDSA'
    if (asymmetricKeyType === 'ec' && asymmetricKeyDetails?.namedCurve === 'prime256v1') return 'ES256'
    // RFC 7518 §3.3
    return asymmetricKeyType === 'rsa' && (asymmetricKeyDetails?.modulusLength ?? 0) >= 2048 ? 'RS256' : undefined
  } catch {
    return undefined
  }
}
