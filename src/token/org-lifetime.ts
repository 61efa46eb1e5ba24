/**
 * What sets one org apart in learning the lifetime (`lifetime.ts`): one of its tokens is the scout, one was found dead, or its
 * tokens live shorter than those of the others. Most orgs have none of it, and no object of this kind.
 */

import type { Death, LifetimeEstimator } from './lifetime.ts'
import type { AccessToken } from './token-source.ts'

/** A token past the estimate that is used now and then to find out how long tokens live. Its successor is there or under way. */
interface Scout {
  readonly token: AccessToken
  readonly estimator: LifetimeEstimator
  /** When the next request may carry it. */
  nextAt: number
}

/** A token that the origin rejected, for whatever reason. */
interface SuspectedDeath extends Omit<Death, 'org'> {
  isReplaced: boolean
}

/** The estimate of one org whose tokens die before those of the others. It lasts for as long as they do. */
interface OwnEstimate {
  readonly estimator: LifetimeEstimator
  /** The shared estimate when this one began. */
  readonly sharedMs: number
}

/** Interval between tries of a scout, as a share of the estimate. While a try is unanswered, it is longer by the factor. */
const TRY_SHARE = 1 / 64
const UNANSWERED_FACTOR = 16
/** If the shared estimate has fallen to within this share of the org's own, they are the same. */
const SAME_SHARE = 0.9
/** If the shared estimate has risen by this factor, the service has changed: the org starts anew with the others. */
const CHANGE_FACTOR = 1.25

export class OrgLifetime {
  #own: OwnEstimate | undefined
  #scout: Scout | undefined
  /** Rejections whose cause is not known until the replacement has been accepted. */
  #suspectedDeath: SuspectedDeath | undefined
  #suspectedScout: Scout | undefined

  /** The lifetime that is assumed for this org's tokens. */
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
    scout.nextAt = sentAt + scout.estimator.estimateMs * TRY_SHARE
  }

  /** The scout, if it is time to send it again. */
  takeScout(now: number): AccessToken | undefined {
    const scout = this.#scout
    if (scout === undefined) return undefined
    const { token, estimator } = scout
    if (!estimator.isScout(token) || now - token.mintedAt >= token.statedLifeMs) {
      this.#scout = undefined
      return undefined
    }
    if (now < scout.nextAt || now - token.mintedAt <= estimator.estimateMs) return undefined
    scout.nextAt = now + estimator.estimateMs * TRY_SHARE * UNANSWERED_FACTOR
    return token
  }

  /** The org has another token now. `over`: nothing sets the org apart any more. */
  startAnew(shared: LifetimeEstimator): 'over' | 'goes on' {
    if (this.#own !== undefined && isOver(this.#own, shared)) this.#own = undefined
    // A repeat that has not been heard of until the next token comes will not be heard of.
    if (this.#suspectedDeath?.isReplaced) this.#suspectedDeath = undefined
    else if (this.#suspectedDeath !== undefined) this.#suspectedDeath.isReplaced = true
    const nothing = (this.#own ?? this.#scout ?? this.#suspectedDeath ?? this.#suspectedScout) === undefined
    return nothing ? 'over' : 'goes on'
  }

  /** `aliveMs` is the greatest age at which the token is known to have been accepted. */
  suspectDeath({ mintedAt }: AccessToken, aliveMs: number, now: number): void {
    this.#suspectedDeath = { aliveMs, deadMs: now - mintedAt, mintedAt, isReplaced: false }
  }

  suspectScout(): void {
    this.#suspectedScout = this.#scout
    this.#scout = undefined
  }

  /** The replacement is the same token, so the rejection had another cause. */
  dropSuspicion(): void {
    this.#suspectedDeath = undefined
  }

  /** The repeat has shown whether the token was dead, or whether the origin rejects whatever token it gets. */
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
    this.#own ??= { estimator: shared.forOneOrg(), sharedMs: shared.estimateMs }
    this.#own.estimator.died(death, 1, at)
  }
}

function isOver({ estimator, sharedMs }: OwnEstimate, shared: LifetimeEstimator): boolean {
  const { estimateMs } = shared
  if (estimator.estimateMs >= estimateMs || estimateMs >= sharedMs * CHANGE_FACTOR) return true
  return estimateMs < sharedMs && estimator.estimateMs >= estimateMs * SAME_SHARE
}
