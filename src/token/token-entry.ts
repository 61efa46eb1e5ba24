/** What the cache holds for one org: the token, how far it is through its life, and what its renewal has met with. */

import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'
import type { LifetimeEstimator } from './lifetime.ts'
import { OrgLearning } from './org-learning.ts'
import type { MintReason } from './token-source.ts'

/** How a request came by its token. */
export type LeaseResult = 'hit' | 'refreshing' | 'miss' | 'joined' | 'stale'

export interface Lease {
  readonly token: AccessToken
  readonly result: LeaseResult
}

/** `refreshing`: to be replaced behind the request. `stale`: past the end that is assumed of it. `rejected`: by the origin. */
export type TokenPhase = 'fresh' | 'refreshing' | 'stale' | 'rejected'

export interface Replacement {
  readonly reason: MintReason
  /** From one half to one. */
  readonly jitter: number
  readonly shared: LifetimeEstimator
  readonly now: number
}

/** The last tenth of a life, but no more than this, is for the refresh. */
const REFRESH_SHARE = 1 / 10
const MAX_REFRESH_MS = 30_000
/** After the same token again, this share of its life passes before the next mint. */
const REPEAT_SHARE = 1 / 40
/** A token this much older than the estimate is likelier dead than worth a try. */
const MAX_SCOUT_SHARE = 2

/** Failed mints in a row. */
interface RenewalFailure {
  readonly count: number
  /** The last of them says nothing against the token. */
  readonly isPassing: boolean
  /** No mint behind a request before this instant. */
  readonly retryAt: number
}

/**
 * There may be a hundred thousand: what few of them need stands in objects of its own, fractions of numbers nowhere. What
 * each request reads comes first, and nothing but the token is another object: the caches have forgotten most orgs.
 */
export class TokenEntry {
  readonly org: OrgId
  token: AccessToken
  /** Which of all uses of entries its last one was: for `RecentEntries`. */
  lastUse = 0
  /** The token was rejected and must not be used again. */
  isRejected = false
  /** Greatest age at which the token is known to have been accepted; whole, so that V8 keeps it in place. */
  #aliveMs = 0
  /** Spreads the refreshes of tokens that were minted together. */
  #jitterPermille: number
  #learning: OrgLearning | undefined
  /** Whether the token may be the scout has been asked. */
  #isEndNoted = false
  /** When a rejection last caused a mint. */
  rejectedAt: number | undefined
  #failure: RenewalFailure | undefined

  constructor(org: OrgId, token: AccessToken, jitter: number) {
    this.org = org
    this.token = token
    this.#jitterPermille = toPermille(jitter)
  }

  lease(result: LeaseResult): Lease {
    return { token: this.token, result }
  }

  get failures(): number {
    return this.#failure?.count ?? 0
  }

  /** Renewal fails at present, and for nothing that the token is to blame for. */
  get hasPassingFailure(): boolean {
    return this.#failure?.isPassing ?? false
  }

  /** True after a failure, until the next mint behind a request may be tried. */
  isPausingAt(now: number): boolean {
    return this.#failure !== undefined && now < this.#failure.retryAt
  }

  /** The whole life that is assumed of the token. */
  lifeMs(shared: LifetimeEstimator): number {
    return Math.min(this.#estimateMs(shared), this.token.statedLifeMs)
  }

  phaseAt(now: number, shared: LifetimeEstimator): TokenPhase {
    if (this.isRejected) return 'rejected'
    const lifeMs = this.lifeMs(shared)
    const restMs = this.token.mintedAt + lifeMs - now
    if (restMs > Math.min(lifeMs * REFRESH_SHARE, MAX_REFRESH_MS) * (this.#jitterPermille / 1_000)) return 'fresh'
    return restMs > 0 ? 'refreshing' : 'stale'
  }

  isInFirstHalf(now: number, shared: LifetimeEstimator): boolean {
    return !this.isRejected && now - this.token.mintedAt < this.lifeMs(shared) / 2
  }

  /** The scout where it is due, the token otherwise. */
  leaseFresh(now: number): Lease {
    return { token: this.#learning?.takeScout(now) ?? this.token, result: 'hit' }
  }

  /** True where this request tries the token past its end instead of waiting for a new one. */
  isScoutPastEnd(now: number, shared: LifetimeEstimator): boolean {
    if (this.failures > 0 || this.#isEndNoted) return false
    if (now - this.token.mintedAt > this.#estimateMs(shared) * MAX_SCOUT_SHARE) return false
    this.#noteEnd(now, shared)
    return this.#learning?.takeScout(now) === this.token
  }

  /** The origin has taken `token`, which need not be the present one, from a request sent at `sentAt`. */
  noteAccepted(token: AccessToken, sentAt: number, shared: LifetimeEstimator): void {
    const ageMs = sentAt - token.mintedAt
    this.#learning?.noteScoutAccepted(token, sentAt)
    if (token !== this.token) return
    if (ageMs >= this.#aliveMs + 1) this.#aliveMs = Math.floor(ageMs)
    const estimator = this.#estimator(shared)
    if (ageMs > estimator.estimateMs) estimator.accepted(ageMs, token.mintedAt)
  }

  replace(token: AccessToken, { reason, jitter, shared, now }: Replacement): void {
    if (token.equals(this.token)) {
      this.#keep(now + this.lifeMs(shared) * REPEAT_SHARE)
      return
    }
    const isAtItsEnd = !this.isRejected && (reason === 'refresh' || reason === 'expired')
    if (isAtItsEnd) this.#noteEnd(now, shared)
    if (this.#learning?.startAnew(shared) === 'over') this.#learning = undefined
    this.token = token
    this.#aliveMs = 0
    this.#isEndNoted = false
    this.isRejected = false
    this.#failure = undefined
    this.#jitterPermille = toPermille(jitter)
  }

  noteFailure(isPassing: boolean, retryAt: number): void {
    this.#failure = { count: this.failures + 1, isPassing, retryAt }
  }

  reject(now: number): void {
    this.isRejected = true
    this.rejectedAt = now
  }

  /** The rejected token counts as dead once its replacement has been accepted: see `settleSuspicion`. */
  suspectDeath(now: number): void {
    this.#learning ??= new OrgLearning()
    this.#learning.suspectDeath(this.token, this.#aliveMs, now)
  }

  settleSuspicion(isReplacementAccepted: boolean, shared: LifetimeEstimator, orgs: number, now: number): void {
    this.#learning?.settleSuspicion(this.org, isReplacementAccepted, shared, orgs, now)
  }

  /** True where `token` was only tried out: that it is dead says nothing against its successor, and costs no cool-down. */
  rejectScout(token: AccessToken): boolean {
    if (!this.#learning?.isScout(token)) return false
    this.#learning.suspectScout()
    if (token === this.token) this.isRejected = true
    return true
  }

  /** The endpoint has handed out the same token again: it is as old as it was, and serves until there is another. */
  #keep(retryAt: number): void {
    this.isRejected = false
    this.#learning?.dropSuspicion()
    this.noteFailure(true, retryAt)
  }

  /** What is assumed of the org's tokens. */
  #estimateMs(shared: LifetimeEstimator): number {
    return this.#learning?.estimateMs(shared) ?? shared.estimateMs
  }

  #estimator(shared: LifetimeEstimator): LifetimeEstimator {
    return this.#learning?.estimator(shared) ?? shared
  }

  /** The token has come to the end of the estimate: alive, as far as is known. */
  #noteEnd(now: number, shared: LifetimeEstimator): void {
    const estimator = this.#estimator(shared)
    if (this.#isEndNoted || this.token.statedLifeMs < estimator.estimateMs) return
    this.#isEndNoted = true
    if (this.#aliveMs > estimator.estimateMs / 2) estimator.survived(now)
    if (!estimator.electsScout(this.token, now)) return
    this.#learning ??= new OrgLearning()
    this.#learning.sendAhead(this.token, estimator)
  }
}

function toPermille(share: number): number {
  return Math.round(share * 1_000)
}
