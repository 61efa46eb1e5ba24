/**
 * One org's part in learning the lifetime (`lifetime.ts`). An org has an object of this kind only while one of its tokens is
 * on trial, one was rejected, or its tokens live shorter than those of the other orgs.
 */

import type { Death, LifetimeEstimator } from './lifetime.ts'
import type { AccessToken } from './token-source.ts'

/** A token past the estimate that a request carries now and then, to find out how long tokens live. */
interface Trial {
  readonly token: AccessToken
  readonly estimator: LifetimeEstimator
  /** A request may carry it from then on. */
  nextAt: number
}

/** The origin rejected a token. It was dead if the origin then accepts its replacement. */
interface SuspectedDeath {
  readonly death: Death
  isReplaced: boolean
}

/** The estimate of one org whose tokens die before those of the others. It lasts for as long as they do. */
interface OwnEstimate {
  readonly estimator: LifetimeEstimator
  /** The shared estimate when this one began. */
  readonly sharedMs: number
}

/** In a trial, requests carry the token at this interval, a share of the estimate. While one is unanswered, the interval is longer. */
const TRY_SHARE = 1 / 64
const UNANSWERED_FACTOR = 16
/** If the shared estimate has fallen this close to the org's own, the org goes on with the shared one. */
const SAME_SHARE = 0.9
/** If the shared estimate has risen by this factor, the service has changed: the org goes on with the shared one. */
const CHANGE_FACTOR = 1.25

export class OrgLifetime {
  #own: OwnEstimate | undefined
  #trial: Trial | undefined
  #suspectedDeath: SuspectedDeath | undefined
  #suspectedTrial: Trial | undefined

  /** The lifetime that is assumed for this org's tokens. */
  estimateMs(shared: LifetimeEstimator): number {
    return Math.min(this.estimator(shared).estimateMs, shared.estimateMs)
  }

  estimator(shared: LifetimeEstimator): LifetimeEstimator {
    return this.#own?.estimator ?? shared
  }

  isOnTrial(token: AccessToken): boolean {
    return this.#trial?.token === token
  }

  /** `estimator` has elected the token. */
  startTrial(token: AccessToken, estimator: LifetimeEstimator): void {
    this.#trial = { token, estimator, nextAt: Number.NEGATIVE_INFINITY }
  }

  noteTrialAccepted(token: AccessToken, sentAt: number): void {
    const trial = this.#trial
    if (trial === undefined || trial.token !== token) return
    trial.estimator.trialAccepted(sentAt - token.mintedAt, token.mintedAt, sentAt)
    trial.nextAt = sentAt + trial.estimator.estimateMs * TRY_SHARE
  }

  /** The token on trial, if a request should carry it now. */
  takeTrial(now: number): AccessToken | undefined {
    const trial = this.#trial
    if (trial === undefined) return undefined
    const { token, estimator } = trial
    if (!estimator.isOnTrial(token) || now - token.mintedAt >= token.statedLifeMs) {
      this.#trial = undefined
      return undefined
    }
    if (now < trial.nextAt || now - token.mintedAt <= estimator.estimateMs) return undefined
    trial.nextAt = now + estimator.estimateMs * TRY_SHARE * UNANSWERED_FACTOR
    return token
  }

  /** The org has another token now. `over`: the org no longer differs from the others. */
  startAnew(shared: LifetimeEstimator): 'over' | 'goes on' {
    if (this.#own !== undefined && isOver(this.#own, shared)) this.#own = undefined
    // The replacement has been replaced: its repeat was never settled, and will not be.
    if (this.#suspectedDeath?.isReplaced) this.#suspectedDeath = undefined
    else if (this.#suspectedDeath !== undefined) this.#suspectedDeath.isReplaced = true
    const nothing = (this.#own ?? this.#trial ?? this.#suspectedDeath ?? this.#suspectedTrial) === undefined
    return nothing ? 'over' : 'goes on'
  }

  suspectDeath(death: Death): void {
    this.#suspectedDeath = { death, isReplaced: false }
  }

  suspectTrial(): void {
    this.#suspectedTrial = this.#trial
    this.#trial = undefined
  }

  /** The rejection had another cause than the age of the token. */
  dropSuspicion(): void {
    this.#suspectedDeath = undefined
  }

  /** If the origin rejects the replacement too, it may reject every token, so nothing is learned. */
  settleSuspicion(isReplacementAccepted: boolean, shared: LifetimeEstimator, orgs: number, at: number): void {
    const suspected = this.#suspectedDeath
    const trial = this.#suspectedTrial
    this.#suspectedDeath = undefined
    this.#suspectedTrial = undefined
    if (trial?.estimator.isOnTrial(trial.token)) {
      if (isReplacementAccepted) trial.estimator.trialDied()
      else trial.estimator.dropTrial()
    }
    if (suspected !== undefined && isReplacementAccepted) this.#learn(suspected.death, shared, orgs, at)
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
