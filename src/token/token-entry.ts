/** The cache's entry for one org: its token, the phase of the token's life, and the state of its renewal. */

import type { OrgId } from '../http/org-id.ts'
import type { TokenResult } from '../http/request-record.ts'
import type { LifetimeEstimator } from './lifetime.ts'
import { OrgLifetime } from './org-lifetime.ts'
import type { AccessToken, MintReason } from './token-source.ts'

export interface TokenLookup {
  readonly token: AccessToken
  readonly result: TokenResult
}

/** `refreshing`: to be replaced behind a request. `stale`: past its assumed end. `rejected`: by the origin. */
export type TokenPhase = 'fresh' | 'refreshing' | 'stale' | 'rejected'

interface Replacement {
  readonly reason: MintReason
  /** Scales the time before the end in which the token is refreshed. At most one. */
  readonly jitter: number
  readonly shared: LifetimeEstimator
  readonly now: number
}

/** Failed mints in a row. */
interface RenewalFailure {
  readonly count: number
  /** The last failure may pass: it was no refusal of the org. */
  readonly isPassing: boolean
  /** No mint behind a request before this instant. */
  readonly retryAt: number
}

/** The last tenth of a life, but no more than `MAX_REFRESH_MS`, is for the refresh. */
const REFRESH_SHARE = 1 / 10
const MAX_REFRESH_MS = 30_000
/** If a mint gave the same token again, this share of its life passes before the next mint. */
const SAME_TOKEN_PAUSE_SHARE = 1 / 40
/** A token so many times as old as the estimate is probably dead, and gets no trial. */
const MAX_TRIAL_SHARE = 2
/** Mints in one cool-down that rejections may cause if each brought a token that was accepted. */
const MAX_REJECTED_MINTS = 3

/** There may be a hundred thousand entries. Rarely used state lives in separate objects; all numbers are integers, so V8 stores them inline. */
export class TokenEntry {
  readonly org: OrgId
  token: AccessToken
  /** The origin rejected the token: it must not be used again. */
  isRejected = false
  /** The origin has accepted the token. */
  #isAccepted = false
  /** The estimator has been told that the token reached its end. */
  #isEndNoted = false
  /** Greatest age at which the token is known to have been accepted. */
  #aliveMs = 0
  /** Spreads the refreshes of tokens that were minted together. */
  #jitterPermille: number
  #lifetime: OrgLifetime | undefined
  /**
   * The token before this one was rejected while its replacement was under way. It had died of its age, or the service ended
   * it when it issued the replacement. To learn which, this token is not replaced behind a request until the origin has
   * accepted it at the age at which that would begin.
   */
  #isRefreshHeld = false
  /** When rejections caused a mint, the latest at the end. */
  #rejectedAt: readonly number[] = []
  #failure: RenewalFailure | undefined

  constructor(org: OrgId, token: AccessToken, jitter: number) {
    this.org = org
    this.token = token
    this.#jitterPermille = toPermille(jitter)
  }

  give(result: TokenResult): TokenLookup {
    return { token: this.token, result }
  }

  /** Failed mints in a row. */
  get failures(): number {
    return this.#failure?.count ?? 0
  }

  /** The last mint failed for a reason that may pass, so the token may still serve. */
  get hasPassingFailure(): boolean {
    return this.#failure?.isPassing ?? false
  }

  /** True after a failure, until the next mint behind a request may be tried. */
  isPausingAt(now: number): boolean {
    return this.#failure !== undefined && now < this.#failure.retryAt
  }

  /** The whole life that is assumed for the token. */
  lifeMs(shared: LifetimeEstimator): number {
    return Math.min(this.#estimateMs(shared), this.token.statedLifeMs)
  }

  phaseAt(now: number, shared: LifetimeEstimator): TokenPhase {
    if (this.isRejected) return 'rejected'
    const lifeMs = this.lifeMs(shared)
    const restMs = this.token.mintedAt + lifeMs - now
    if (restMs > this.#refreshMs(lifeMs)) return 'fresh'
    if (restMs <= 0) return 'stale'
    return this.#isRefreshHeld ? 'fresh' : 'refreshing'
  }

  /** Neither rejected nor past its assumed end. */
  isUsableAt(now: number, shared: LifetimeEstimator): boolean {
    return !this.isRejected && now < this.token.mintedAt + this.lifeMs(shared)
  }

  /** How long before its end the token is replaced behind a request. */
  #refreshMs(lifeMs: number): number {
    return Math.min(lifeMs * REFRESH_SHARE, MAX_REFRESH_MS) * (this.#jitterPermille / 1_000)
  }

  isInFirstHalf(now: number, shared: LifetimeEstimator): boolean {
    return !this.isRejected && now - this.token.mintedAt < this.lifeMs(shared) / 2
  }

  /** The token on trial if it is due, the present one otherwise. */
  giveFresh(now: number): TokenLookup {
    return { token: this.#lifetime?.takeTrial(now) ?? this.token, result: 'hit' }
  }

  /** Returns true if this request tries the token past its end instead of waiting for a new one. */
  isTriedPastEnd(now: number, shared: LifetimeEstimator): boolean {
    if (this.failures > 0 || this.#isEndNoted) return false
    if (now - this.token.mintedAt > this.#estimateMs(shared) * MAX_TRIAL_SHARE) return false
    this.#noteEnd(now, shared)
    return this.#lifetime?.takeTrial(now) === this.token
  }

  /** The origin accepted `token`, which need not be the present one, from a request sent at `sentAt`. */
  noteAccepted(token: AccessToken, sentAt: number, shared: LifetimeEstimator): void {
    const ageMs = sentAt - token.mintedAt
    this.#lifetime?.noteTrialAccepted(token, sentAt)
    if (token !== this.token) return
    this.#isAccepted = true
    if (ageMs >= this.#aliveMs + 1) this.#aliveMs = Math.floor(ageMs)
    if (this.#isRefreshHeld) {
      const lifeMs = this.lifeMs(shared)
      this.#isRefreshHeld = ageMs < lifeMs - this.#refreshMs(lifeMs)
    }
    const estimator = this.#estimator(shared)
    if (ageMs > estimator.estimateMs) estimator.accepted(ageMs, token.mintedAt)
  }

  replace(token: AccessToken, { reason, jitter, shared, now }: Replacement): void {
    if (token.equals(this.token)) {
      this.#keep(now + this.lifeMs(shared) * SAME_TOKEN_PAUSE_SHARE)
      return
    }
    this.#isRefreshHeld = this.isRejected && this.#isSuccessorEarlier(token)
    if (this.#isRefreshHeld) this.#forgetRejection()
    const isAtItsEnd = !this.isRejected && (reason === 'refresh' || reason === 'expired')
    if (isAtItsEnd) this.#noteEnd(now, shared)
    if (this.#lifetime?.startAnew(shared) === 'over') this.#lifetime = undefined
    this.token = token
    this.#isAccepted = false
    this.#aliveMs = 0
    this.#isEndNoted = false
    this.isRejected = false
    this.#failure = undefined
    this.#jitterPermille = toPermille(jitter)
  }

  noteFailure(isPassing: boolean, retryAt: number): void {
    this.#failure = { count: this.failures + 1, isPassing, retryAt }
  }

  /**
   * Retires the token. Returns false if it is retired already, or in the cool-down: a rejection caused a mint lately, and
   * its token has not been accepted yet, or there were several such mints.
   */
  reject(now: number, cooldownMs: number): boolean {
    if (this.isRejected) return false
    const recent = this.#rejectedAt.filter((at) => now - at < cooldownMs)
    if (recent.length > 0 && (!this.#isAccepted || recent.length >= MAX_REJECTED_MINTS)) return false
    this.#rejectedAt = [...recent, now]
    this.isRejected = true
    return true
  }

  /** The rejected token counts as dead once its replacement has been accepted: see `settleSuspicion`. */
  suspectDeath(now: number): void {
    this.#lifetime ??= new OrgLifetime()
    const { mintedAt } = this.token
    this.#lifetime.suspectDeath({ org: this.org, aliveMs: this.#aliveMs, deadMs: now - mintedAt, mintedAt })
  }

  settleSuspicion(isReplacementAccepted: boolean, shared: LifetimeEstimator, orgs: number, now: number): void {
    this.#lifetime?.settleSuspicion(isReplacementAccepted, shared, orgs, now)
  }

  /** Returns true if `token` was on trial. Its death was expected: it starts no cool-down, and the successor serves on. */
  rejectTrial(token: AccessToken): boolean {
    if (!this.#lifetime?.isOnTrial(token)) return false
    this.#lifetime.suspectTrial()
    if (token === this.token) this.isRejected = true
    return true
  }

  /** Returns true if the mint of the successor began before the rejection, here or in another replica. */
  #isSuccessorEarlier(successor: AccessToken): boolean {
    const rejectedAt = this.#rejectedAt.at(-1)
    return rejectedAt !== undefined && successor.mintedAt < Math.floor(rejectedAt)
  }

  /** The rejection cost no mint. The service may have ended the token when it issued the successor, so its age is no evidence. */
  #forgetRejection(): void {
    this.#rejectedAt = this.#rejectedAt.slice(0, -1)
    this.#lifetime?.dropSuspicion()
  }

  /** The endpoint gave the same token again. It is as old as it was, and serves until there is another one. */
  #keep(retryAt: number): void {
    this.isRejected = false
    this.#isAccepted = false
    this.#lifetime?.dropSuspicion()
    this.noteFailure(true, retryAt)
  }

  #estimateMs(shared: LifetimeEstimator): number {
    return this.#lifetime?.estimateMs(shared) ?? shared.estimateMs
  }

  #estimator(shared: LifetimeEstimator): LifetimeEstimator {
    return this.#lifetime?.estimator(shared) ?? shared
  }

  /** The token has reached the end of the estimate, alive as far as is known. */
  #noteEnd(now: number, shared: LifetimeEstimator): void {
    const estimator = this.#estimator(shared)
    if (this.#isEndNoted || this.token.statedLifeMs < estimator.estimateMs) return
    this.#isEndNoted = true
    if (this.#aliveMs > estimator.estimateMs / 2) estimator.survived(now)
    if (!estimator.elects(this.token, now)) return
    this.#lifetime ??= new OrgLifetime()
    this.#lifetime.startTrial(this.token, estimator)
  }
}

function toPermille(share: number): number {
  return Math.round(share * 1_000)
}
