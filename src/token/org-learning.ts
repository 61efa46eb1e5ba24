/**
 * What one org's tokens tell about lifetimes: how old they were seen alive and dead, which of them is sent ahead as the
 * scout, and whether this org's fate is its own.
 */

import type { AccessToken } from './access-token.ts'
import type { Death, LifetimeEstimator } from './lifetime.ts'
import { OwnLifetime } from './own-lifetime.ts'

/** A token past the estimate, used now and then to find out how long tokens live. Its successor is there or on its way. */
interface Scout {
  readonly token: AccessToken
  readonly estimator: LifetimeEstimator
  /** When the next request may carry it. */
  nextAt: number
}

/** A token rejected by the origin, for whatever reason. */
interface SuspectedDeath extends Omit<Death, 'org'> {
  isReplaced: boolean
}

/** Soundings of a scout lie this far apart, as a share of the estimate; and so much farther while one is unanswered. */
const SOUNDING_SHARE = 1 / 64
const UNANSWERED_FACTOR = 16
/** A token this much older than the estimate is likelier dead than worth a try. */
const MAX_SCOUT_SHARE = 2

export class OrgLearning {
  #own: OwnLifetime | undefined
  #scout: Scout | undefined
  /** Greatest age at which the present token is known to have been accepted; whole, so that V8 keeps it in place. */
  #aliveMs = 0
  /** Whether the present token may be the scout has been asked. */
  #isEndNoted = false
  /** Rejections whose cause is not known until the replacement has been accepted. */
  #suspectedDeath: SuspectedDeath | undefined
  #suspectedScout: Scout | undefined

  /** What is assumed of this org's tokens. */
  estimateMs(shared: LifetimeEstimator): number {
    const own = this.#own?.estimator.estimateMs
    return own === undefined || own > shared.estimateMs ? shared.estimateMs : own
  }

  isScout(token: AccessToken): boolean {
    return this.#scout?.token === token
  }

  /** `isPresent`: the token is the one in hand. */
  noteAccepted(token: AccessToken, sentAt: number, isPresent: boolean, shared: LifetimeEstimator): void {
    const ageMs = sentAt - token.mintedAt
    const scout = this.#scout
    if (scout !== undefined && scout.token === token) {
      scout.estimator.scoutAccepted(ageMs, token.mintedAt, sentAt)
      scout.nextAt = sentAt + scout.estimator.estimateMs * SOUNDING_SHARE
    }
    if (!isPresent) return
    if (ageMs >= this.#aliveMs + 1) this.#aliveMs = Math.floor(ageMs)
    const estimator = this.#own?.estimator ?? shared
    if (ageMs > estimator.estimateMs) estimator.accepted(ageMs, token.mintedAt)
  }

  /** The scout, where it is time to send it again. */
  takeScout(now: number): AccessToken | undefined {
    const scout = this.#scout
    if (scout === undefined) return undefined
    const { token, estimator } = scout
    if (!estimator.isScout(token) || now - token.mintedAt >= token.statedLifeMs) {
      this.#scout = undefined
      return undefined
    }
    if (now < scout.nextAt || now - token.mintedAt <= estimator.estimateMs) return undefined
    scout.nextAt = now + estimator.estimateMs * SOUNDING_SHARE * UNANSWERED_FACTOR
    return token
  }

  /** True where the present token, past its end, is tried by this very request. */
  sendsPresent(token: AccessToken, now: number, shared: LifetimeEstimator): boolean {
    if (this.#isEndNoted || now - token.mintedAt > this.estimateMs(shared) * MAX_SCOUT_SHARE) return false
    this.noteEnd(token, now, shared)
    return this.takeScout(now) === token
  }

  /** The token has come to the end of the estimate: alive, as far as is known. */
  noteEnd(token: AccessToken, now: number, shared: LifetimeEstimator): void {
    const estimator = this.#own?.estimator ?? shared
    if (this.#isEndNoted || token.statedLifeMs < estimator.estimateMs) return
    this.#isEndNoted = true
    if (this.#aliveMs > estimator.estimateMs / 2) estimator.survived(now)
    if (estimator.electsScout(token, now)) this.#scout = { token, estimator, nextAt: Number.NEGATIVE_INFINITY }
  }

  /** Another token is in hand now. */
  startAnew(shared: LifetimeEstimator): void {
    if (this.#own?.isOverBy(shared)) this.#own = undefined
    this.#aliveMs = 0
    this.#isEndNoted = false
    // A repeat that has not been heard of until the next token comes will not be heard of.
    if (this.#suspectedDeath?.isReplaced) this.#suspectedDeath = undefined
    else if (this.#suspectedDeath !== undefined) this.#suspectedDeath.isReplaced = true
  }

  suspectDeath(token: AccessToken, now: number): void {
    const { mintedAt } = token
    this.#suspectedDeath = { aliveMs: this.#aliveMs, deadMs: now - mintedAt, mintedAt, isReplaced: false }
  }

  suspectScout(): void {
    this.#suspectedScout = this.#scout
    this.#scout = undefined
  }

  /** The replacement is the same token: the rejection had another cause. */
  dropSuspicion(): void {
    this.#suspectedDeath = undefined
  }

  /** The repeat has shown whether the token was dead, or whether the origin rejects whatever it gets. */
  settleSuspicion(
    org: string,
    isReplacementAccepted: boolean,
    shared: LifetimeEstimator,
    orgs: number,
    at: number,
  ): void {
    const death = this.#suspectedDeath
    const scout = this.#suspectedScout
    this.#suspectedDeath = undefined
    this.#suspectedScout = undefined
    if (scout?.estimator.isScout(scout.token)) {
      if (isReplacementAccepted) scout.estimator.scoutDied()
      else scout.estimator.dismissScout()
    }
    if (death === undefined || !isReplacementAccepted) return
    const { aliveMs, deadMs, mintedAt } = death
    this.#learn({ org, aliveMs, deadMs, mintedAt }, shared, orgs, at)
  }

  #learn(death: Death, shared: LifetimeEstimator, orgs: number, at: number): void {
    if (this.#own === undefined && shared.died(death, orgs, at)) return
    this.#own ??= new OwnLifetime(shared)
    this.#own.died(death, at)
  }
}
