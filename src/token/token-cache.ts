/**
 * The tokens in hand, one for each org: leased to requests, renewed ahead of their end, replaced after a rejection. One
 * mint per org at a time, whoever waits for it.
 */

import { performance } from 'node:perf_hooks'
import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'
import type { LifetimeEstimator } from './lifetime.ts'
import type { Lease, LeaseResult, TokenEntry } from './token-entry.ts'
import type { TokenObserver } from './token-observer.ts'
import { isPassing, TokenRenewal } from './token-renewal.ts'
import type { MintReason, TokenSource } from './token-source.ts'
import type { OrgStatus } from './token-status.ts'
import { TokenStore } from './token-store.ts'

export type { Lease, LeaseResult, OrgStatus }

export interface TokenCacheOptions {
  readonly maxOrgs: number
  /** How long a refusal of an org is remembered. */
  readonly refusalTtlMs: number
  /** Per org: at most one mint caused by a rejection in this time. */
  readonly rejectedCooldownMs: number
  /** Shared by all orgs. */
  readonly estimator: LifetimeEstimator
  readonly observer?: TokenObserver | undefined
  /** Monotonic milliseconds, the clock of the token source. */
  readonly now?: () => number
  readonly random?: () => number
}

export class TokenCache {
  readonly #store: TokenStore
  readonly #renewal: TokenRenewal
  readonly #estimator: LifetimeEstimator
  readonly #rejectedCooldownMs: number
  readonly #observer: TokenObserver
  readonly #now: () => number

  constructor(options: TokenCacheOptions, source: TokenSource) {
    this.#observer = options.observer ?? {}
    this.#store = new TokenStore({ ...options, observer: this.#observer })
    this.#estimator = options.estimator
    this.#rejectedCooldownMs = options.rejectedCooldownMs
    this.#now = options.now ?? (() => performance.now())
    const { estimator, random = Math.random } = options
    this.#renewal = new TokenRenewal(
      { store: this.#store, estimator, observer: this.#observer, now: this.#now, random },
      source,
    )
  }

  /** A token to send now; undefined where the request has to wait for one. On every request: no promise. */
  get(org: OrgId): Lease | undefined {
    return this.#lease(org, true)
  }

  /** For a request that cannot be repeated: never a token that is only tried out. */
  getUnrepeatable(org: OrgId): Lease | undefined {
    return this.#lease(org, false)
  }

  /** For what outlives its answer (a WebSocket): undefined in the last half of the token's life. */
  getForHandshake(org: OrgId): Lease | undefined {
    const entry = this.#store.find(org)
    return entry?.isInFirstHalf(this.#now(), this.#estimator) ? entry.lease('hit') : undefined
  }

  /**
   * Waits for a mint, or joins the one on its way. Where it fails for a reason that passes, an old token that was not
   * rejected serves: the estimate is a guess, and the origin is the judge.
   * @throws {TokenError}
   */
  async obtain(org: OrgId, forHandshake = false): Promise<Lease> {
    const lease = forHandshake ? this.getForHandshake(org) : this.getUnrepeatable(org)
    if (lease !== undefined) return lease
    const refusal = this.#store.standingRefusal(org, this.#now())
    if (refusal !== undefined) throw refusal
    const result = this.#renewal.isUnderway(org) ? 'joined' : 'miss'
    try {
      return { token: await this.#renewal.mint(org, this.#reasonToMint(org)), result }
    } catch (error) {
      const fallback = this.#fallBack(org, error)
      if (fallback === undefined) throw error
      return fallback
    }
  }

  /** Mints before anybody asks. @throws {TokenError} */
  async warm(org: OrgId): Promise<void> {
    await this.#renewal.mint(org, 'warm')
  }

  /**
   * The origin's answer to a request sent at `sentAt` was no rejection. On every request.
   * Without `sentAt`, a slow answer makes the token look older than it was when the origin looked at it.
   */
  accepted(org: OrgId, token: AccessToken, sentAt: number = this.#now()): void {
    this.#store.peek(org)?.noteAccepted(token, sentAt, this.#estimator)
  }

  /**
   * The origin says that the token is no longer good. Retires it, unless it has been replaced already, and resolves with
   * the replacement. Undefined in the cool-down: pass the rejection on, the token is kept.
   */
  rejected(org: OrgId, token: AccessToken): Promise<AccessToken> | undefined {
    this.#observer.tokenRejected?.(org)
    const entry = this.#store.peek(org)
    if (entry === undefined) return this.#renewal.mint(org, 'rejected')
    const now = this.#now()
    if (entry.rejectScout(token) || token !== entry.token) return this.#successor(org, entry, now)
    if (this.#retire(entry, now)) {
      entry.suspectDeath(now)
      return this.#renewal.mint(org, 'rejected')
    }
    return entry.isRejected && this.#renewal.isUnderway(org) ? this.#renewal.mint(org, 'rejected') : undefined
  }

  /** What came of the one repeat with the replacement `token`. */
  repeatSettled(org: OrgId, token: AccessToken, isAccepted: boolean): void {
    const entry = this.#store.peek(org)
    if (entry === undefined) return
    if (isAccepted) this.accepted(org, token)
    entry.settleSuspicion(isAccepted, this.#estimator, this.#store.size, this.#now())
  }

  /** For a rejection that cannot be repeated: the next request mints. True where the token was retired. */
  retire(org: OrgId, token: AccessToken): boolean {
    this.#observer.tokenRejected?.(org)
    const entry = this.#store.peek(org)
    return entry !== undefined && token === entry.token && this.#retire(entry, this.#now())
  }

  /** True where there was a token to forget. */
  purge(org: OrgId): boolean {
    this.#renewal.forget(org)
    return this.#store.delete(org)
  }

  /** Returns how many tokens were forgotten. */
  purgeAll(): number {
    const { size } = this.#store
    this.#renewal.forgetAll()
    this.#store.clear()
    return size
  }

  get size(): number {
    return this.#store.size
  }

  /** Orgs with a token, most recently used first. */
  knownOrgs(): OrgId[] {
    return this.#store.orgs()
  }

  status(): readonly OrgStatus[] {
    return this.#store.status(this.#estimator, this.#now())
  }

  close(): void {
    this.purgeAll()
  }

  #lease(org: OrgId, isRepeatable: boolean): Lease | undefined {
    const entry = this.#store.find(org)
    if (entry === undefined) return undefined
    const now = this.#now()
    switch (entry.phaseAt(now, this.#estimator)) {
      case 'fresh':
        return isRepeatable ? entry.leaseFresh(now) : entry.lease('hit')
      case 'refreshing':
        return this.#refresh(org, entry, now)
      case 'stale':
        if (isRepeatable && entry.isScoutPastEnd(now, this.#estimator)) return this.#refresh(org, entry, now)
        return this.#leaseStale(org, entry, now)
      case 'rejected':
        return undefined
    }
  }

  /** The token as it is, and one mint behind the request. */
  #refresh(org: OrgId, entry: TokenEntry, now: number): Lease {
    this.#renewal.mintBehind(org, entry, now, 'refresh')
    return entry.lease('refreshing')
  }

  /** While mints fail, nobody has to wait for the next failure. */
  #leaseStale(org: OrgId, entry: TokenEntry, now: number): Lease | undefined {
    if (!entry.hasPassingFailure) return undefined
    this.#renewal.mintBehind(org, entry, now, 'expired')
    return entry.lease('stale')
  }

  #successor(org: OrgId, entry: TokenEntry, now: number): Promise<AccessToken> {
    switch (entry.phaseAt(now, this.#estimator)) {
      case 'fresh':
      case 'refreshing':
        return Promise.resolve(entry.token)
      case 'stale':
        return this.#renewal.mint(org, 'expired')
      case 'rejected':
        return this.#renewal.mint(org, 'rejected')
    }
  }

  #retire(entry: TokenEntry, now: number): boolean {
    const isInCooldown = entry.rejectedAt !== undefined && now - entry.rejectedAt < this.#rejectedCooldownMs
    if (entry.isRejected || isInCooldown) return false
    entry.reject(now)
    return true
  }

  #reasonToMint(org: OrgId): MintReason {
    const entry = this.#store.peek(org)
    if (entry === undefined) return 'cold'
    switch (entry.phaseAt(this.#now(), this.#estimator)) {
      case 'fresh':
      case 'refreshing':
        return 'handshake'
      case 'stale':
        return 'expired'
      case 'rejected':
        return 'rejected'
    }
  }

  #fallBack(org: OrgId, error: unknown): Lease | undefined {
    const entry = this.#store.peek(org)
    if (entry === undefined) return undefined
    switch (entry.phaseAt(this.#now(), this.#estimator)) {
      case 'fresh':
      case 'refreshing':
        return entry.lease('hit')
      case 'stale':
        return isPassing(error) ? entry.lease('stale') : undefined
      case 'rejected':
        return undefined
    }
  }
}
