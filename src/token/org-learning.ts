/**
 * What sets an org apart from the others: that one of its tokens is sent ahead as the scout, that one was found dead, or
 * that its tokens live a life of their own. Most orgs have none of it.
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

export class OrgLearning {
  #own: OwnLifetime | undefined
  #scout: Scout | undefined
  /** Rejections whose cause is not known until the replacement has been accepted. */
  #suspectedDeath: SuspectedDeath | undefined
  #suspectedScout: Scout | undefined

  /** What is assumed of this org's tokens. */
  estimateMs(shared: LifetimeEstimator): number {
    const own = this.#own?.estimator.estimateMs
    return own === undefined || own > shared.estimateMs ? shared.estimateMs : own
  }

  estimator(shared: LifetimeEstimator): LifetimeEstimator {
    return this.#own?.estimator ?? shared
  }

  isScout(token: AccessToken): boolean {
    return this.#scout?.token === token
  }

  /** From now on, `token` is the scout. */
  sendAhead(token: AccessToken, estimator: LifetimeEstimator): void {
    this.#scout = { token, estimator, nextAt: Number.NEGATIVE_INFINITY }
  }

  noteScoutAccepted(token: AccessToken, sentAt: number): void {
    const scout = this.#scout
    if (scout === undefined || scout.token !== token) return
    scout.estimator.scoutAccepted(sentAt - token.mintedAt, token.mintedAt, sentAt)
    scout.nextAt = sentAt + scout.estimator.estimateMs * SOUNDING_SHARE
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

  /** Another token is in hand now. `over`: nothing sets this org apart any more. */
  startAnew(shared: LifetimeEstimator): 'over' | 'goes on' {
    if (this.#own?.isOverBy(shared)) this.#own = undefined
    // A repeat that has not been heard of until the next token comes will not be heard of.
    if (this.#suspectedDeath?.isReplaced) this.#suspectedDeath = undefined
    else if (this.#suspectedDeath !== undefined) this.#suspectedDeath.isReplaced = true
    const isOver = (this.#own ?? this.#scout ?? this.#suspectedDeath ?? this.#suspectedScout) === undefined
    return isOver ? 'over' : 'goes on'
  }

  /** `aliveMs`: the greatest age at which it is known to have been accepted. */
  suspectDeath({ mintedAt }: AccessToken, aliveMs: number, now: number): void {
    this.#suspectedDeath = { aliveMs, deadMs: now - mintedAt, mintedAt, isReplaced: false }
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
