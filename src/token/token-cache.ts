/**
 * The tokens in hand, one for each org: leased to requests, renewed ahead of their end, replaced after a rejection. One
 * mint per org at a time, whoever waits for it.
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'
import type { LifetimeEstimator } from './lifetime.ts'
import { type FlightOwner, MintFlights } from './mint-flights.ts'
import { type Lease, type LeaseResult, TokenEntry } from './token-entry.ts'
import type { TokenObserver } from './token-observer.ts'
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

/** Pauses between the mints behind requests while these fail: doubled each time, and jittered. */
const FIRST_RETRY_MS = 100
const MAX_RETRY_MS = 5_000

export class TokenCache implements FlightOwner {
  readonly #store: TokenStore
  readonly #flights: MintFlights
  readonly #estimator: LifetimeEstimator
  readonly #rejectedCooldownMs: number
  readonly #observer: TokenObserver
  readonly #now: () => number
  readonly #random: () => number

  constructor(options: TokenCacheOptions, source: TokenSource) {
    this.#observer = options.observer ?? {}
    this.#store = new TokenStore({ ...options, observer: this.#observer })
    this.#flights = new MintFlights(source, this)
    this.#estimator = options.estimator
    this.#rejectedCooldownMs = options.rejectedCooldownMs
    this.#now = options.now ?? (() => performance.now())
    this.#random = options.random ?? Math.random
  }

  /** A token to send now; undefined where the request has to wait for one. On every request: no promise, nothing allocated. */
  get(org: OrgId): Lease | undefined {
    const entry = this.#store.find(org)
    if (entry === undefined) return undefined
    const now = this.#now()
    switch (entry.phaseAt(now, this.#estimator)) {
      case 'fresh':
        return entry.scout === undefined ? entry.hit : (entry.leaseScout(now) ?? entry.hit)
      case 'refreshing':
        return this.#refresh(org, entry, now)
      case 'stale':
        return entry.becomesScout(this.#estimator, now)
          ? this.#refresh(org, entry, now)
          : this.#leaseStale(org, entry, now)
      case 'rejected':
        return undefined
    }
  }

  /** For a request that cannot be repeated: never a token that is only tried out. */
  getUnrepeatable(org: OrgId): Lease | undefined {
    const entry = this.#store.find(org)
    if (entry === undefined) return undefined
    const now = this.#now()
    switch (entry.phaseAt(now, this.#estimator)) {
      case 'fresh':
        return entry.hit
      case 'refreshing':
        return this.#refresh(org, entry, now)
      case 'stale':
        return this.#leaseStale(org, entry, now)
      case 'rejected':
        return undefined
    }
  }

  /** For what outlives its answer (a WebSocket): undefined in the last half of the token's life. */
  getForHandshake(org: OrgId): Lease | undefined {
    const entry = this.#store.find(org)
    return entry?.isInFirstHalf(this.#now(), this.#estimator) ? entry.hit : undefined
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
    const result = this.#flights.has(org) ? 'joined' : 'miss'
    try {
      return { token: await this.#flights.join(org, this.#reasonToMint(org)), result }
    } catch (error) {
      const fallback = this.#fallBack(org, error)
      if (fallback === undefined) throw error
      return fallback
    }
  }

  /** Mints before anybody asks. @throws {TokenError} */
  async warm(org: OrgId): Promise<void> {
    await this.#flights.join(org, 'warm')
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
    if (entry === undefined) return this.#flights.join(org, 'rejected')
    const now = this.#now()
    if (entry.suspectScout(token) || token !== entry.token) return this.#successor(org, entry, now)
    if (this.#retire(entry, now)) return this.#flights.join(org, 'rejected')
    return entry.isRejected && this.#flights.has(org) ? this.#flights.join(org, 'rejected') : undefined
  }

  /** What came of the one repeat with the replacement `token`. */
  repeatSettled(org: OrgId, token: AccessToken, isAccepted: boolean): void {
    const entry = this.#store.peek(org)
    if (entry === undefined) return
    if (isAccepted) entry.noteAccepted(token, this.#now(), this.#estimator)
    const death = entry.settleSuspicion(isAccepted)
    if (death !== undefined) entry.learnDeath({ ...death, org }, this.#estimator, this.#store.size, this.#now())
  }

  /** For a rejection that cannot be repeated: the next request mints. True where the token was retired. */
  retire(org: OrgId, token: AccessToken): boolean {
    this.#observer.tokenRejected?.(org)
    const entry = this.#store.peek(org)
    return entry !== undefined && token === entry.token && this.#retire(entry, this.#now())
  }

  /** True where there was a token to forget. */
  purge(org: OrgId): boolean {
    this.#flights.forget(org)
    return this.#store.delete(org)
  }

  /** Returns how many tokens were forgotten. */
  purgeAll(): number {
    const { size } = this.#store
    this.#flights.forgetAll()
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

  minted(org: OrgId, token: AccessToken, reason: MintReason): AccessToken {
    this.#store.pardon(org)
    const entry = this.#store.peek(org)
    const jitter = this.#jitter()
    if (entry === undefined) {
      this.#store.add(org, new TokenEntry(token, jitter))
      return token
    }
    entry.replace(token, { reason, jitter, shared: this.#estimator, now: this.#now() })
    return entry.token
  }

  mintFailed(org: OrgId, error: unknown): void {
    const now = this.#now()
    if (error instanceof TokenError && error.code === 'org_access_refused') {
      this.#store.refuse(org, error, now)
      this.#observer.orgRefused?.(org, error)
    }
    const entry = this.#store.peek(org)
    if (entry === undefined) return
    const pauseMs = Math.min(FIRST_RETRY_MS * 2 ** entry.failures, MAX_RETRY_MS) * this.#jitter()
    entry.noteFailure(isPassing(error), now + pauseMs)
  }

  /** The token as it is, and one mint behind the request. */
  #refresh(org: OrgId, entry: TokenEntry, now: number): Lease {
    this.#mintBehind(org, entry, now, 'refresh')
    return entry.refreshing
  }

  /** While mints fail, nobody has to wait for the next failure. */
  #leaseStale(org: OrgId, entry: TokenEntry, now: number): Lease | undefined {
    if (!entry.hasPassingFailure) return undefined
    this.#mintBehind(org, entry, now, 'expired')
    return entry.stale
  }

  #mintBehind(org: OrgId, entry: TokenEntry, now: number, reason: MintReason): void {
    if (now >= entry.retryAt && !this.#flights.has(org)) this.#flights.join(org, reason)
  }

  #successor(org: OrgId, entry: TokenEntry, now: number): Promise<AccessToken> {
    switch (entry.phaseAt(now, this.#estimator)) {
      case 'fresh':
      case 'refreshing':
        return Promise.resolve(entry.token)
      case 'stale':
        return this.#flights.join(org, 'expired')
      case 'rejected':
        return this.#flights.join(org, 'rejected')
    }
  }

  #retire(entry: TokenEntry, now: number): boolean {
    if (entry.isRejected || now - entry.rejectedAt < this.#rejectedCooldownMs) return false
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
        return entry.hit
      case 'stale':
        return isPassing(error) ? entry.stale : undefined
      case 'rejected':
        return undefined
    }
  }

  /** At least one half, below one. */
  #jitter(): number {
    return (1 + this.#random()) / 2
  }
}

/** All but a refusal of the org itself: the endpoint, its limits or our credentials may be well again in a moment. */
function isPassing(error: unknown): boolean {
  return !(error instanceof TokenError) || error.code !== 'org_access_refused'
}
