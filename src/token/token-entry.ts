/** What the cache holds for one org: the token, how far it is through its life, and what its refresh has met with. */

import type { AccessToken } from './access-token.ts'
import type { Death, LifetimeEstimator } from './lifetime.ts'
import { OwnLifetime } from './own-lifetime.ts'
import type { MintReason } from './token-source.ts'

/** How a request came by its token. */
export type LeaseResult = 'hit' | 'refreshing' | 'miss' | 'joined' | 'stale'

export interface Lease {
  readonly token: AccessToken
  readonly result: LeaseResult
}

/** A token past the estimate, used now and then to find out how long tokens live. Its successor is there or on its way. */
export interface Scout {
  readonly lease: Lease
  readonly lifetime: LifetimeEstimator
  /** When the next request may carry it. */
  nextAt: number
}

/** `refreshing`: to be replaced behind the request. `stale`: past the end that is assumed of it. `rejected`: by the origin. */
export type TokenPhase = 'fresh' | 'refreshing' | 'stale' | 'rejected'

/** The last tenth of a life, but no more than this, is for the refresh. */
const REFRESH_SHARE = 1 / 10
const MAX_REFRESH_MS = 30_000

/** Soundings of a scout lie this far apart, as a share of the estimate; and so much longer apart while one is unanswered. */
const SOUNDING_SHARE = 1 / 64
const UNANSWERED_FACTOR = 16
/** A token this much older than its estimate is likelier dead than worth a try. */
const MAX_SCOUT_AGE_SHARE = 2
/** After the same token again, this share of its life passes before the next mint. */
const REPEAT_SHARE = 1 / 40

export interface Replacement {
  readonly reason: MintReason
  readonly jitter: number
  readonly shared: LifetimeEstimator
  readonly now: number
}

export class TokenEntry {
  token: AccessToken
  /** Leases are made once, so that a hit allocates nothing. */
  hit: Lease
  refreshing: Lease
  stale: Lease
  /** The token was rejected and must not be used again. */
  isRejected = false
  /** When a rejection last caused a mint. */
  rejectedAt = Number.NEGATIVE_INFINITY
  /** Failed mints in a row. */
  failures = 0
  /** The last of them says nothing against the token. */
  hasPassingFailure = false
  retryAt = Number.NEGATIVE_INFINITY
  scout: Scout | undefined
  #own: OwnLifetime | undefined
  /** Greatest age at which the token is known to have been accepted. */
  #aliveMs = 0
  /** Whether it may be a scout has been asked. */
  #isEndNoted = false
  /** A rejection whose cause is not yet known: the replacement has to be accepted first. */
  #suspectedDeath: Omit<Death, 'org'> | undefined
  #suspectedScout: Scout | undefined
  /** Spreads the refreshes of tokens that were minted together. */
  #jitter: number

  constructor(token: AccessToken, jitter: number) {
    this.token = token
    this.#jitter = jitter
    this.hit = { token, result: 'hit' }
    this.refreshing = { token, result: 'refreshing' }
    this.stale = { token, result: 'stale' }
  }

  replace(token: AccessToken, { reason, jitter, shared, now }: Replacement): void {
    if (token.equals(this.token)) {
      this.#keep(now + this.lifeMs(shared) * REPEAT_SHARE)
      return
    }
    if (!this.isRejected && (reason === 'refresh' || reason === 'expired')) this.#noteEnd(shared, now)
    if (this.#own?.isOverBy(shared)) this.#own = undefined
    this.token = token
    this.hit = { token, result: 'hit' }
    this.refreshing = { token, result: 'refreshing' }
    this.stale = { token, result: 'stale' }
    this.isRejected = false
    this.failures = 0
    this.hasPassingFailure = false
    this.retryAt = Number.NEGATIVE_INFINITY
    this.#aliveMs = 0
    this.#isEndNoted = false
    this.#jitter = jitter
  }

  /** The endpoint has handed out the same token again: it is as old as it was, and serves until there is another. */
  #keep(retryAt: number): void {
    this.isRejected = false
    this.#suspectedDeath = undefined
    this.noteFailure(true, retryAt)
  }

  /** The whole life that is assumed of the token. */
  lifeMs(shared: LifetimeEstimator): number {
    const own = this.#own?.estimator.estimateMs
    const estimateMs = own === undefined || own > shared.estimateMs ? shared.estimateMs : own
    return Math.min(estimateMs, this.token.expiresAt - this.token.mintedAt)
  }

  phaseAt(now: number, shared: LifetimeEstimator): TokenPhase {
    if (this.isRejected) return 'rejected'
    const lifeMs = this.lifeMs(shared)
    const restMs = this.token.mintedAt + lifeMs - now
    if (restMs > Math.min(lifeMs * REFRESH_SHARE, MAX_REFRESH_MS) * this.#jitter) return 'fresh'
    return restMs > 0 ? 'refreshing' : 'stale'
  }

  isInFirstHalf(now: number, shared: LifetimeEstimator): boolean {
    return !this.isRejected && now - this.token.mintedAt < this.lifeMs(shared) / 2
  }

  noteAccepted(token: AccessToken, sentAt: number, shared: LifetimeEstimator): void {
    const ageMs = sentAt - token.mintedAt
    const { scout } = this
    if (scout !== undefined && scout.lease.token === token) {
      scout.lifetime.scoutAccepted(ageMs, token.mintedAt, sentAt)
      scout.nextAt = sentAt + scout.lifetime.estimateMs * SOUNDING_SHARE
    }
    if (token !== this.token) return
    if (ageMs > this.#aliveMs) this.#aliveMs = ageMs
    const lifetime = this.#own?.estimator ?? shared
    if (ageMs > lifetime.estimateMs) lifetime.accepted(ageMs, token.mintedAt)
  }

  noteFailure(isPassing: boolean, retryAt: number): void {
    this.failures += 1
    this.hasPassingFailure = isPassing
    this.retryAt = retryAt
  }

  reject(now: number): void {
    const { mintedAt } = this.token
    this.isRejected = true
    this.rejectedAt = now
    this.#suspectedDeath = { aliveMs: this.#aliveMs, deadMs: now - mintedAt, mintedAt }
  }

  /** The scout, where it is time to send it again. */
  leaseScout(now: number): Lease | undefined {
    const { scout } = this
    if (scout === undefined) return undefined
    const { lease, lifetime } = scout
    if (!lifetime.isScout(lease.token) || now >= lease.token.expiresAt) {
      this.scout = undefined
      return undefined
    }
    if (now < scout.nextAt || now - lease.token.mintedAt <= lifetime.estimateMs) return undefined
    scout.nextAt = now + lifetime.estimateMs * SOUNDING_SHARE * UNANSWERED_FACTOR
    return lease
  }

  /** True where this request tries the token past its end instead of waiting for a new one. */
  becomesScout(shared: LifetimeEstimator, now: number): boolean {
    const ageMs = now - this.token.mintedAt
    if (this.#isEndNoted || this.failures > 0) return false
    if (ageMs > this.lifeMs(shared) * MAX_SCOUT_AGE_SHARE) return false
    this.#noteEnd(shared, now)
    if (this.scout?.lease.token !== this.token) return false
    this.scout.nextAt = now + ageMs * SOUNDING_SHARE * UNANSWERED_FACTOR
    return true
  }

  /** True where `token` was only tried out: that it is dead says nothing against its successor. */
  suspectScout(token: AccessToken): boolean {
    const { scout } = this
    if (scout === undefined || scout.lease.token !== token) return false
    this.scout = undefined
    this.#suspectedScout = scout
    if (token === this.token) this.isRejected = true
    return true
  }

  /** The repeat has shown whether the token was dead, or whether the origin rejects whatever it gets. */
  settleSuspicion(isReplacementAccepted: boolean): Omit<Death, 'org'> | undefined {
    const death = this.#suspectedDeath
    const scout = this.#suspectedScout
    this.#suspectedDeath = undefined
    this.#suspectedScout = undefined
    if (scout?.lifetime.isScout(scout.lease.token)) {
      if (isReplacementAccepted) scout.lifetime.scoutDied()
      else scout.lifetime.dismissScout()
    }
    return isReplacementAccepted ? death : undefined
  }

  learnDeath(death: Death, shared: LifetimeEstimator, orgs: number, at: number): void {
    if (this.#own === undefined && shared.died(death, orgs, at)) return
    this.#own ??= new OwnLifetime(shared)
    this.#own.died(death, at)
  }

  /** The token has come to the end of the estimate: alive, as far as is known. */
  #noteEnd(shared: LifetimeEstimator, now: number): void {
    const lifetime = this.#own?.estimator ?? shared
    const { token } = this
    if (this.#isEndNoted || token.expiresAt - token.mintedAt < lifetime.estimateMs) return
    this.#isEndNoted = true
    if (this.#aliveMs > lifetime.estimateMs / 2) lifetime.survived(now)
    if (!lifetime.electsScout(token, now)) return
    this.scout = { lease: { token, result: 'hit' }, lifetime, nextAt: Number.NEGATIVE_INFINITY }
  }
}
