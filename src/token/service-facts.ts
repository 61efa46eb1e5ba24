/** What the proxy has seen of the service as a whole: T5's greatest age, T6 and R8. Pure: every instant is a parameter. */

/** The settings that decide about tokens. */
export interface TokenRules {
  /** A younger token may not be known to all back ends of the service. */
  readonly settleTimeMs: number
  /** Every token is replaced at this age. If undefined, lives are stated or learned. */
  readonly lifetimeMs: number | undefined
  /** The statuses that reject a token. If undefined: 401, and those that R8 learns. */
  readonly rejectedStatuses: readonly number[] | undefined
  /** R7: the least time between two mints that a row of rejections forces. */
  readonly rejectedCooldownMs: number
}

/** `other`: it may be about the token (R8). `doubtful`: so it is, and the method must not be repeated. `neither`: it is not. */
export type Meaning = 'accepted' | 'rejected' | 'doubtful' | 'other' | 'neither'

/** R8: numbers of trials of a status in a row, and when the next may be. */
type Trials = { readonly accepted: number; readonly useless: number; readonly notBefore: number }

const DELAY_MEMORY_MS = 3_600_000
const PROOFS = 2
const FIRST_TRIAL_PAUSE_MS = 10_000
const LONGEST_TRIAL_PAUSE_MS = 600_000
/** RFC 6750 §3.1: the token is good, and the request needs more rights than it gives. */
const INSUFFICIENT_SCOPE = /error="?insufficient_scope/i
/** A 303 or a 409 to a request of another method often did what was asked. */
export const isTried = (method: string): boolean => method === 'GET' || method === 'HEAD'

export class ServiceFacts {
  readonly rules: TokenRules
  readonly #onStatusLearned: (status: number) => void
  readonly #rejected: ReadonlySet<number>
  /** R8: by status. */
  readonly #trials = new Map<number, Trials>()
  readonly learnedStatuses: number[] = []
  /** T5: the greatest age at which a token of any Org was accepted. */
  oldestMs = 0
  /** T6: the age at which a young token was accepted for a request that had been rejected with it, and when that was. */
  #delayMs = 0
  #delayShownAt = Number.NEGATIVE_INFINITY

  constructor(rules: TokenRules, onStatusLearned = (_status: number) => {}) {
    this.rules = rules
    this.#onStatusLearned = onStatusLearned
    this.#rejected = new Set(rules.rejectedStatuses ?? [401])
  }

  meaningOf(status: number, method: string, challenge = ''): Meaning {
    if (status >= 200 && status <= 299) return 'accepted'
    if (INSUFFICIENT_SCOPE.test(challenge)) return 'neither'
    if (this.#rejected.has(status)) return 'rejected'
    if (status === 101 || status === 304) return 'accepted'
    const isOfClient = status >= 300 && status <= 499 && status !== 408 && status !== 429
    if (!isOfClient || this.rules.rejectedStatuses !== undefined) return 'neither'
    if (!this.learnedStatuses.includes(status)) return 'other'
    return isTried(method) ? 'rejected' : 'doubtful'
  }

  noteDelay(ageMs: number, now: number): void {
    this.#delayMs = Math.min(ageMs, this.rules.settleTimeMs)
    this.#delayShownAt = now
  }

  /** T6: the age at which a new token is probably known everywhere. Zero if tokens work at once. */
  delayMs(now: number): number {
    return now - this.#delayShownAt < DELAY_MEMORY_MS ? this.#delayMs : 0
  }

  mayTry(status: number, method: string, now: number): boolean {
    return isTried(method) && now >= (this.#trials.get(status)?.notBefore ?? 0)
  }

  /** R8: the new token was accepted where the one before had got this status, or it was not. */
  noteTrial(status: number, isAccepted: boolean, now: number): void {
    const { accepted, useless, notBefore: end } = this.#trials.get(status) ?? { accepted: 0, useless: 0, notBefore: 0 }
    if (!isAccepted && now < end) return // it waited for the same mint as another
    const notBefore = now + pauseMs(FIRST_TRIAL_PAUSE_MS, 2, useless, LONGEST_TRIAL_PAUSE_MS)
    if (!isAccepted) this.#trials.set(status, { accepted: 0, useless: useless + 1, notBefore })
    else this.#trials.set(status, { accepted: accepted + 1, useless: 0, notBefore: 0 })
    if (!isAccepted || accepted + 1 !== PROOFS) return
    this.learnedStatuses.push(status)
    this.#onStatusLearned(status)
  }
}

/** A pause that grows by `factor` with each failure in a row. */
export function pauseMs(firstMs: number, factor: number, failures: number, longestMs: number): number {
  return Math.min(firstMs * factor ** failures, longestMs)
}
