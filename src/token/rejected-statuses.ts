/** Which statuses of the service say that a token is no longer good. Some services use others than 401, and do not say so. */

/** Statuses with which some services answer a token that has ended. Most often they mean something else. */
const SUSPECTS: ReadonlySet<number> = new Set([400, 403, 419, 440, 498])
/** After trials that did not help: the first pause for all orgs, and how much longer each further pause is, up to the last. */
const FIRST_PAUSE_MS = 10_000
const PAUSE_GROWTH = 8
const LAST_PAUSE_MS = 10 * 60_000
const MAX_ORGS_TRIED = 10_000

/** `accepted`: the token is good. `suspect`: it may have ended. `neither`: a failure of the service, which says nothing. */
export type Meaning = 'accepted' | 'rejected' | 'suspect' | 'neither'

export class RejectedStatuses {
  readonly #rejected: Set<number>
  readonly #learned = new Set<number>()
  readonly #triedOrgs = new Set<string>()
  readonly #onLearned: ((status: number) => void) | undefined
  #noTrialUntil = 0
  #pauseMs = FIRST_PAUSE_MS

  constructor(statuses: Iterable<number>, onLearned?: (status: number) => void) {
    this.#rejected = new Set(statuses)
    this.#onLearned = onLearned
  }

  meaningOf(status: number): Meaning {
    if (status < 400) return 'accepted'
    if (this.#rejected.has(status)) return 'rejected'
    if (SUSPECTS.has(status)) return 'suspect'
    return status < 500 ? 'accepted' : 'neither'
  }

  /** Statuses that turned out to end tokens, beside those of the configuration. */
  get learned(): readonly number[] {
    return [...this.#learned]
  }

  /**
   * True if a request of the org may be repeated with a new token, to learn what the status means. `isInRow`: no request of
   * the org gets through any more.
   */
  mayTry(org: string, isInRow: boolean, now: number): boolean {
    return now >= this.#noTrialUntil || (isInRow && !this.#triedOrgs.has(org))
  }

  /** The repeat with a new token was accepted. */
  learn(status: number): void {
    if (this.#rejected.has(status)) return
    this.#rejected.add(status)
    this.#learned.add(status)
    this.#onLearned?.(status)
  }

  /** The repeat had the same answer. */
  trialFailed(org: string, now: number): void {
    this.#triedOrgs.add(org)
    if (this.#triedOrgs.size > MAX_ORGS_TRIED) this.#triedOrgs.clear()
    this.#noTrialUntil = now + this.#pauseMs
    this.#pauseMs = Math.min(this.#pauseMs * PAUSE_GROWTH, LAST_PAUSE_MS)
  }
}
