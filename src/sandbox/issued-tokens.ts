/** The tokens that the sandbox has issued: when they are known, when they end, and how they say so. */

import { randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Switches } from './switches.ts'

export interface IssuedToken {
  readonly text: string
  readonly org: string
  /** Monotonic milliseconds, as the next one. */
  readonly knownAt: number
  expiresAt: number
  /** Each use begins it anew; undefined if none does. */
  readonly idleMs: number | undefined
}

export class IssuedTokens {
  readonly #tokens = new LRUCache<string, IssuedToken>({ max: 100_000 })
  /** The newest of each org. */
  readonly #newest = new LRUCache<string, IssuedToken>({ max: 100_000 })

  find(text: string): IssuedToken | undefined {
    return this.#tokens.get(text)
  }

  /** A new token, or the newest one where the same is given again. */
  issue(org: string, switches: Switches): IssuedToken {
    const now = performance.now()
    const newest = this.#newest.get(org)
    if (switches.sameToken && newest !== undefined && now < newest.expiresAt) return newest
    if (switches.oneTokenPerOrg) this.revoke(org)
    const { tokenLifetimeMs, tokenLifetimeKind, tokenSettleMs, statedEnds } = switches
    const lifeMs = tokenLifetimeMs * (tokenLifetimeKind === 'irregular' ? 0.5 + Math.random() : 1)
    const random = randomBytes(32).toString('base64url')
    const token = {
      text: statedEnds.includes('jwt') ? jwtOf(org, random, wallClock(switches), lifeMs) : random,
      org,
      knownAt: now + tokenSettleMs,
      expiresAt: now + lifeMs,
      idleMs: tokenLifetimeKind === 'sliding' ? tokenLifetimeMs : undefined,
    }
    this.#tokens.set(token.text, token)
    this.#newest.set(org, token)
    return token
  }

  /** Ends the tokens of the org, or of all orgs for `*`. Returns how many were live. */
  revoke(org: string): number {
    const now = performance.now()
    const tokens = [...this.#tokens.values()].filter((token) => org === '*' || token.org === org)
    const live = tokens.filter(({ expiresAt }) => now < expiresAt)
    for (const token of live) token.expiresAt = now
    return live.length
  }
}

/** The time of day at the service. */
export function wallClock({ clockOffsetMs }: Switches): number {
  return Date.now() + clockOffsetMs
}

/** Nobody verifies its signature. */
function jwtOf(sub: string, jti: string, nowMs: number, lifeMs: number): string {
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const claims = { sub, jti, iat: nowMs / 1_000, exp: (nowMs + lifeMs) / 1_000 }
  return `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}.${randomBytes(32).toString('base64url')}`
}

/** The answer of the token endpoint. What states the end stands beside the token. */
export function replyOf({ text, expiresAt }: IssuedToken, switches: Switches): object {
  const restMs = expiresAt - performance.now()
  const endMs = wallClock(switches) + restMs
  const ends = {
    expires_in: Math.floor(restMs / 1_000),
    expiresIn: Math.floor(restMs / 1_000),
    expires_at: new Date(endMs).toISOString(),
    expiresAt: Math.floor(endMs / 1_000),
  }
  const stated = Object.entries(ends).filter(([name]) => switches.statedEnds.some((each) => each === name))
  const [name = '', ...outer] = switches.tokenField.split('.').reverse()
  const members: object = { [name]: text, ...Object.fromEntries(stated) }
  return outer.reduce((inner, each) => ({ [each]: inner }), members)
}
