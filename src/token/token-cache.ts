/**
 * The tokens in hand, one for each org: leased to requests, renewed ahead of their end, replaced after a rejection. One
 * mint per org at a time, whoever waits for it.
 */

import { performance } from 'node:perf_hooks'
import { LRUCache } from 'lru-cache'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'
import type { LifetimeEstimator } from './lifetime.ts'
import { type FlightOwner, MintFlights } from './mint-flights.ts'
import { Refusals } from './refusals.ts'
import { type Lease, type LeaseResult, TokenEntry } from './token-entry.ts'
import type { TokenObserver } from './token-observer.ts'
import type { MintReason, TokenSource } from './token-source.ts'
import { listStatus, type OrgStatus } from './token-status.ts'

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
  readonly #entries: LRUCache<OrgId, TokenEntry>
  readonly #refusals: Refusals
  readonly #flights: MintFlights
  readonly #estimator: LifetimeEstimator
  readonly #rejectedCooldownMs: number
  readonly #observer: TokenObserver
  readonly #now: () => number
  readonly #random: () => number

  constructor(options: TokenCacheOptions, source: TokenSource) {
    this.#observer = options.observer ?? {}
    this.#entries = new LRUCache({
      max: options.maxOrgs,
      dispose: (_, org, reason) => {
        if (reason === 'evict') this.#observer.tokenEvicted?.(org)
      },
    })
    this.#refusals = new Refusals({ maxOrgs: options.maxOrgs, ttlMs: options.refusalTtlMs })
    this.#flights = new MintFlights(source, this)
    this.#estimator = options.estimator
    this.#rejectedCooldownMs = options.rejectedCooldownMs
    this.#now = options.now ?? (() => performance.now())
    this.#random = options.random ?? Math.random
  }

  /** A token to send now; undefined where the request has to wait for one. On every request: no promise, nothing allocated. */
  get(org: OrgId): Lease | undefined {
    const entry = this.#entries.get(org)
    if (entry === undefined || entry.isRejected) return undefined
    const now = this.#now()
    const lifeMs = entry.lifeMs(this.#estimator)
    const ageMs = now - entry.token.mintedAt
    if (!entry.shouldRefresh(ageMs, lifeMs)) {
      return entry.scout === undefined ? entry.hit : (entry.leaseScout(now) ?? entry.hit)
    }
    return ageMs < lifeMs ? this.#getAndRefresh(org, entry, now) : this.#getPastEnd(org, entry, now)
  }

  /** For a request that cannot be repeated: never a token that is only tried out. */
  getUnrepeatable(org: OrgId): Lease | undefined {
    const entry = this.#entries.get(org)
    if (entry === undefined || entry.isRejected) return undefined
    const now = this.#now()
    const lifeMs = entry.lifeMs(this.#estimator)
    const ageMs = now - entry.token.mintedAt
    if (!entry.shouldRefresh(ageMs, lifeMs)) return entry.hit
    return ageMs < lifeMs ? this.#getAndRefresh(org, entry, now) : this.#getStale(org, entry, now)
  }

  /** For what outlives its answer (a WebSocket): undefined in the last half of the token's life. */
  getForHandshake(org: OrgId): Lease | undefined {
    const entry = this.#entries.get(org)
    if (entry === undefined || entry.isRejected) return undefined
    return this.#now() - entry.token.mintedAt < entry.lifeMs(this.#estimator) / 2 ? entry.hit : undefined
  }

  /**
   * Waits for a mint, or joins the one on its way. Where it fails for a reason that passes, an old token that was not
   * rejected serves: the estimate is a guess, and the origin is the judge.
   * @throws {TokenError}
   */
  async obtain(org: OrgId, forHandshake = false): Promise<Lease> {
    const lease = forHandshake ? this.getForHandshake(org) : this.getUnrepeatable(org)
    if (lease !== undefined) return lease
    const refusal = this.#refusals.standing(org, this.#now())
    if (refusal !== undefined) throw refusal
    const result = this.#flights.has(org) ? 'joined' : 'miss'
    try {
      return { token: await this.#flights.join(org, this.#reason(org)), result }
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
   * Without `sentAt` a slow answer would make the token look older than it was when it was looked at.
   */
  accepted(org: OrgId, token: AccessToken, sentAt: number = this.#now()): void {
    this.#entries.peek(org)?.noteAccepted(token, sentAt, this.#estimator)
  }

  /**
   * The origin says that the token is no longer good. Retires it, unless it has been replaced already, and resolves with
   * the replacement. Undefined in the cool-down: pass the rejection on, the token is kept.
   */
  rejected(org: OrgId, token: AccessToken): Promise<AccessToken> | undefined {
    this.#observer.tokenRejected?.(org)
    const entry = this.#entries.peek(org)
    if (entry === undefined) return this.#flights.join(org, 'rejected')
    const now = this.#now()
    if (entry.suspectScout(token)) return this.#successor(org, entry, now)
    if (token !== entry.token) return this.#successor(org, entry, now)
    if (!this.#mayRetire(entry, now))
      return this.#flights.has(org) && entry.isRejected ? this.#flights.join(org, 'rejected') : undefined
    entry.reject(now)
    return this.#flights.join(org, 'rejected')
  }

  /** What came of the one repeat with the replacement `token`. */
  repeatSettled(org: OrgId, token: AccessToken, isAccepted: boolean): void {
    const entry = this.#entries.peek(org)
    if (entry === undefined) return
    if (isAccepted) this.accepted(org, token)
    const death = entry.settleSuspicion(isAccepted)
    if (death !== undefined) {
      entry.learnDeath(death, this.#estimator, { orgs: this.#entries.size, at: this.#now() })
    }
  }

  /** For a rejection that cannot be repeated: the next request mints. True where the token was retired. */
  retire(org: OrgId, token: AccessToken): boolean {
    this.#observer.tokenRejected?.(org)
    const entry = this.#entries.peek(org)
    if (entry === undefined || token !== entry.token) return false
    const now = this.#now()
    if (!this.#mayRetire(entry, now)) return false
    entry.reject(now)
    return true
  }

  /** True where there was something to forget. */
  purge(org: OrgId): boolean {
    this.#flights.forget(org)
    this.#refusals.forget(org)
    return this.#entries.delete(org)
  }

  /** Returns how many tokens were forgotten. */
  purgeAll(): number {
    const { size } = this.#entries
    this.#flights.forgetAll()
    this.#refusals.clear()
    this.#entries.clear()
    return size
  }

  get size(): number {
    return this.#entries.size
  }

  /** Most recently used first. */
  status(): readonly OrgStatus[] {
    return listStatus(this.#entries.entries(), this.#refusals, this.#estimator, this.#now())
  }

  /** Most recently used first. */
  knownOrgs(): OrgId[] {
    return [...this.#entries.keys()]
  }

  close(): void {
    this.purgeAll()
  }

  minted(org: OrgId, token: AccessToken, reason: MintReason): void {
    this.#refusals.forget(org)
    const entry = this.#entries.peek(org)
    if (entry === undefined) {
      this.#entries.set(org, new TokenEntry(token, this.#jitter()))
      return
    }
    entry.replace(token, { reason, jitter: this.#jitter(), shared: this.#estimator, now: this.#now() })
  }

  mintFailed(org: OrgId, error: unknown): void {
    const now = this.#now()
    if (error instanceof TokenError && error.code === 'org_access_refused') {
      this.#refusals.remember(org, error, now)
      this.#observer.orgRefused?.(org, error)
    }
    const entry = this.#entries.peek(org)
    if (entry === undefined) return
    const pauseMs = Math.min(FIRST_RETRY_MS * 2 ** entry.failures, MAX_RETRY_MS) * this.#jitter()
    entry.noteFailure(isPassing(error), now + pauseMs)
  }

  #getAndRefresh(org: OrgId, entry: TokenEntry, now: number): Lease {
    this.#mintBehind(org, entry, now, 'refresh')
    return entry.refreshing
  }

  #getPastEnd(org: OrgId, entry: TokenEntry, now: number): Lease | undefined {
    if (!entry.becomesScoutPastEnd(this.#estimator, now)) return this.#getStale(org, entry, now)
    this.#mintBehind(org, entry, now, 'expired')
    return entry.refreshing
  }

  /** While mints fail nobody waits for the next failure. */
  #getStale(org: OrgId, entry: TokenEntry, now: number): Lease | undefined {
    if (!entry.hasPassingFailure) return undefined
    this.#mintBehind(org, entry, now, 'expired')
    return entry.stale
  }

  #mintBehind(org: OrgId, entry: TokenEntry, now: number, reason: MintReason): void {
    if (now >= entry.retryAt && !this.#flights.has(org)) this.#flights.join(org, reason)
  }

  #successor(org: OrgId, entry: TokenEntry, now: number): Promise<AccessToken> {
    if (entry.isRejected) return this.#flights.join(org, 'rejected')
    if (now - entry.token.mintedAt < entry.lifeMs(this.#estimator)) return Promise.resolve(entry.token)
    return this.#flights.join(org, 'expired')
  }

  #mayRetire(entry: TokenEntry, now: number): boolean {
    return !entry.isRejected && now - entry.rejectedAt >= this.#rejectedCooldownMs
  }

  #reason(org: OrgId): MintReason {
    const entry = this.#entries.peek(org)
    if (entry === undefined) return 'cold'
    if (entry.isRejected) return 'rejected'
    return this.#now() - entry.token.mintedAt < entry.lifeMs(this.#estimator) ? 'handshake' : 'expired'
  }

  #fallBack(org: OrgId, error: unknown): Lease | undefined {
    const entry = this.#entries.peek(org)
    if (entry === undefined || entry.isRejected) return undefined
    if (this.#now() - entry.token.mintedAt < entry.lifeMs(this.#estimator)) return entry.hit
    return isPassing(error) ? entry.stale : undefined
  }

  #jitter(): number {
    return (1 + this.#random()) / 2
  }
}

/** All but a refusal of the org itself: the endpoint, its limits or our credentials may be well again in a moment. */
function isPassing(error: unknown): boolean {
  return !(error instanceof TokenError) || error.code !== 'org_access_refused'
}
