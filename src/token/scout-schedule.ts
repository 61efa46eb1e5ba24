/**
 * Which token is tried past the estimate, and when: one at a time, soon after news, then ever more rarely while scouts
 * find nothing new. Each scout that dies costs one repeated request.
 */

/** Tokens that end before the next scout: after news, and growing to at most so many. */
const FIRST_GAP = 2
const GAP_GROWTH = 2.5
const MAX_GAP = 48
/** With many orgs, tokens end all the time: at most so many scouts set out in one lifetime. */
const MAX_SCOUTS = 8
/** A rise or fall of the estimate smaller than this is no news. */
const NEWS_SHARE = 1.25
/** A scout not heard of for this share of the estimate is given up: its org may have gone quiet. */
const PATIENCE_SHARE = 1 / 2

export class ScoutSchedule {
  #scout: object | undefined
  #heardAt = 0
  #estimateAtStartMs = 0
  #gap = FIRST_GAP
  #endsUntilNext = 1
  #nextAt = Number.NEGATIVE_INFINITY

  /** Asked once for each token that comes to its end: true where it is the next scout. */
  elects(token: object, at: number, estimateMs: number): boolean {
    if (this.#scout !== undefined) {
      if (at - this.#heardAt <= estimateMs * PATIENCE_SHARE) return false
      this.#scout = undefined
    }
    this.#endsUntilNext -= 1
    if (this.#endsUntilNext > 0 || at < this.#nextAt) return false
    this.#scout = token
    this.#heardAt = at
    this.#estimateAtStartMs = estimateMs
    this.#nextAt = at + estimateMs / MAX_SCOUTS
    return true
  }

  isScout(token: object): boolean {
    return token === this.#scout
  }

  heard(at: number): void {
    this.#heardAt = at
  }

  /** It has found the end. */
  died(estimateMs: number): void {
    const hasNews = estimateMs > this.#estimateAtStartMs * NEWS_SHARE
    this.#gap = hasNews ? FIRST_GAP : Math.min(Math.round(this.#gap * GAP_GROWTH), MAX_GAP)
    this.dismiss()
  }

  /** It is no longer needed, or its end says nothing. */
  dismiss(): void {
    this.#scout = undefined
    this.#endsUntilNext = this.#gap
  }

  /** The estimate has fallen. Where that is news, what lies above it is worth another look soon. */
  fell(fromMs: number, toMs: number): void {
    if (fromMs > toMs * NEWS_SHARE) this.#gap = FIRST_GAP
    this.dismiss()
  }
}
