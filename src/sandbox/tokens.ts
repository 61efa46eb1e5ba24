/** The tokens issued by the sandbox: opaque, short-lived and revocable. */

import { randomBytes } from 'node:crypto'
import type { Switches } from './switches.ts'

type TokenVerdict =
  | { readonly state: 'live' | 'expired' | 'revoked'; readonly org: string }
  | { readonly state: 'unknown'; readonly org: string | undefined }

interface IssuedToken {
  readonly org: string
  readonly knownAt: number
  readonly expiresAt: number
  isRevoked: boolean
}

/** Above this number the oldest token is dropped, and then counts as `unknown`. */
const MAX_REMEMBERED_TOKENS = 100_000

export class TokenRegister {
  readonly #now: () => number
  readonly #issued = new Map<string, IssuedToken>()

  /** `now`: monotonic milliseconds. */
  constructor(now: () => number) {
    this.#now = now
  }

  issue(org: string, switches: Switches): string {
    const { tokenLifetimeMs, tokenSettleMs } = switches
    if (switches.oneTokenPerOrg) this.revoke(org)
    const token = randomBytes(32).toString('base64url')
    const now = this.#now()
    const times = { knownAt: now + tokenSettleMs, expiresAt: now + tokenLifetimeMs }
    this.#issued.set(token, { org, ...times, isRevoked: false })
    const [oldest = ''] = this.#issued.keys()
    if (this.#issued.size > MAX_REMEMBERED_TOKENS) this.#issued.delete(oldest)
    return token
  }

  check(token: string): TokenVerdict {
    const issued = this.#issued.get(token)
    if (issued === undefined) return { state: 'unknown', org: undefined }
    const { org, knownAt, expiresAt, isRevoked } = issued
    if (isRevoked) return { state: 'revoked', org }
    const now = this.#now()
    if (now >= expiresAt) return { state: 'expired', org }
    return { state: now < knownAt ? 'unknown' : 'live', org }
  }

  /** Revokes every token of the org that is not dead, or of all orgs for `*`. Returns their number. */
  revoke(org: string): number {
    let revoked = 0
    for (const issued of this.#issued.values()) {
      const isDead = issued.isRevoked || this.#now() >= issued.expiresAt
      if (isDead || (org !== '*' && issued.org !== org)) continue
      issued.isRevoked = true
      revoked += 1
    }
    return revoked
  }
}
