/** The lifetime of one org's tokens, where they die before those of the others. It lasts for as long as that is so. */

import type { Death, LifetimeEstimator } from './lifetime.ts'

/** So close to what is assumed of all, after that has fallen, it is the same lifetime. */
const SAME_SHARE = 0.9
/** After such a rise of what is assumed of all, the service has changed: the org starts anew with the others. */
const CHANGE_SHARE = 1.25

export class OwnLifetime {
  readonly estimator: LifetimeEstimator
  readonly #sharedMs: number

  constructor(shared: LifetimeEstimator) {
    this.estimator = shared.forOneOrg()
    this.#sharedMs = shared.estimateMs
  }

  died(death: Death, at: number): void {
    this.estimator.died(death, 1, at)
  }

  isOverBy(shared: LifetimeEstimator): boolean {
    const { estimateMs } = shared
    if (this.estimator.estimateMs >= estimateMs || estimateMs >= this.#sharedMs * CHANGE_SHARE) return true
    return estimateMs < this.#sharedMs && this.estimator.estimateMs >= estimateMs * SAME_SHARE
  }
}
