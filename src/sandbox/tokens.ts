/** The tokens issued by the sandbox: opaque, short-lived and revocable. */

import { randomBytes } from 'node:crypto'

export type TokenFormat = 'opaque' | 'jwt'

type TokenVerdict =
  | { readonly state: 'live'; readonly org: string }
  | { readonly state: 'expired' | 'revoked'; readonly org: string }
  | { readonly state: 'unknown'; readonly org: undefined }

interface IssuedToken {
  readonly org: string
  readonly expiresAt: number
  revoked: boolean
}

/** Above this number the oldest dead tokens are dropped, and then count as `unknown`. */
const MAX_REMEMBERED_TOKENS = 100_000

export class TokenRegister {
  readonly #now: () => number
  readonly #issued = new Map<string, IssuedToken>()

  /** `now`: monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now
  }

  issue(org: string, lifetimeMs: number, format: TokenFormat): string {
    const token = format === 'jwt' ? jwt(lifetimeMs) : random(32)
    this.#issued.set(token, { org, expiresAt: this.#now() + lifetimeMs, revoked: false })
    if (this.#issued.size > MAX_REMEMBERED_TOKENS) this.#forgetDead()
    return token
  }

  check(token: string): TokenVerdict {
    const issued = this.#issued.get(token)
    if (issued === undefined) return { state: 'unknown', org: undefined }
    if (issued.revoked) return { state: 'revoked', org: issued.org }
    if (this.#now() >= issued.expiresAt) return { state: 'expired', org: issued.org }
    return { state: 'live', org: issued.org }
  }

  /** Revokes every live token of the org, or of all orgs for `*`. Returns their number. */
  revoke(org: string): number {
    let revoked = 0
    for (const [token, issued] of this.#issued) {
      if (org !== '*' && issued.org !== org) continue
      if (this.check(token).state !== 'live') continue
      issued.revoked = true
      revoked += 1
    }
    return revoked
  }

  #forgetDead(): void {
    for (const token of this.#issued.keys()) {
      if (this.check(token).state === 'live') return
      this.#issued.delete(token)
    }
  }
}

function random(bytes: number): string {
  return randomBytes(bytes).toString('base64url')
}

/** A JWT (RFC 7519) with `exp` and a random signature. It names neither org nor App. */
function jwt(lifetimeMs: number): string {
  const issuedAtSeconds = Math.floor(Date.now() / 1000)
  const claims = { iat: issuedAtSeconds, exp: issuedAtSeconds + Math.ceil(lifetimeMs / 1000), jti: random(16) }
  return [{ alg: 'HS256', typ: 'JWT' }, claims].map(base64url).concat(random(32)).join('.')
}

function base64url(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}
