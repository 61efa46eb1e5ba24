/**
 * The budget for mints: a number of them at once, and a number in any second. Further mints wait in a bounded queue.
 *
 * - Orgs that had a token before go first. Of four turns, one goes to a new org if one waits.
 * - Requesters get fair shares. The one that asked for the fewest mints lately goes first, so that neither a flood from one
 *   connection nor a caller whose tokens are always rejected holds up another's mint.
 */

import { TokenError } from '../errors.ts'

interface Waiter {
  /** The org had a token before. */
  readonly isKnown: boolean
  readonly isTroubled: boolean
  /** The number of mints that its requester asked for lately, and a setback in trouble. */
  readonly rank: number
  readonly go: (leave: () => void) => void
  readonly refuse: (error: TokenError) => void
  readonly timer: NodeJS.Timeout
}

/** One in so many turns goes to a new org, if one waits. */
const COLD_TURN = 4
/** A mint waits for its turn for no more than this share of `mintTimeout`. */
export const LONGEST_WAIT_SHARE = 0.9
/** Calls may run so far ahead of an even pace. The pace is slower in return, so that no second has more than the rate. */
const BURST_MS = 100
/** Asks are counted anew after this time. */
const COUNTED_MS = 10_000
const OVER_BUDGET = 'The proxy has used up its budget for mints: see tokens.mintRate and tokens.mintConcurrency.'

export interface MintBudget {
  /** The wait for a turn, all attempts, and the waits between them. The last call may take longer. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  readonly mintRate: number
}

export class MintQueue {
  readonly #budget: MintBudget
  readonly #intervalMs: number
  /** Lowest rank first. */
  readonly #waiters: Waiter[] = []
  /** How often a requester asked lately. A connection that has closed is forgotten. */
  #asks = new WeakMap<object, number>()
  #countedUntil = Number.NEGATIVE_INFINITY
  #underway = 0
  #turns = 0
  /** When the next call would begin at an even pace. */
  #nextAt = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined

  constructor(budget: MintBudget) {
    this.#budget = budget
    this.#intervalMs = (1_000 + BURST_MS) / budget.mintRate
  }

  /**
   * Resolves when the call may be made, with what gives its place back: to be called once, when the call has ended. A mint that
   * no request asked for counts as asked for by the queue. `isTroubled`: it may hold its place for long.
   * @throws {TokenError} after nearly all the time for a mint; at once for the last, if not all can have their turn by then
   */
  enter(isKnown: boolean, requester: object = this, isTroubled = false): Promise<() => void> {
    const longestMs = this.#budget.mintTimeoutMs * LONGEST_WAIT_SHARE
    if (performance.now() >= this.#countedUntil) {
      this.#asks = new WeakMap()
      this.#countedUntil = performance.now() + COUNTED_MS
    }
    const asked = this.#asks.get(requester) ?? 0
    this.#asks.set(requester, asked + 1)
    const rank = asked + (isTroubled ? this.#budget.mintRate : 0)
    return new Promise((go, refuse) => {
      const timer = setTimeout(() => this.#refuse(waiter), longestMs)
      const waiter: Waiter = { isKnown, isTroubled, rank, go, refuse, timer }
      this.#waiters.splice(this.#waiters.findLastIndex((other) => other.rank <= rank) + 1, 0, waiter)
      this.#letGo()
      const waitMs = this.#nextAt - BURST_MS + (this.#waiters.length - 1) * this.#intervalMs - performance.now()
      if (waitMs < longestMs) return
      const cold = this.#waiters.filter((other) => !other.isKnown)
      const hasMostTurns = cold.length * COLD_TURN <= this.#waiters.length
      this.#refuse(this.#waiters.findLast((other) => other.isKnown === hasMostTurns) ?? waiter)
    })
  }

  /** Nobody has to wait for a call that will not be made. */
  refuseAll(error: TokenError): void {
    for (const waiter of this.#waiters.slice()) this.#refuse(waiter, error)
  }

  /** All places are taken, and an org without trouble waits for one. */
  get isShortOfPlaces(): boolean {
    return this.#underway >= this.#budget.mintConcurrency && this.#waiters.some(({ isTroubled }) => !isTroubled)
  }

  /** Lets all go whose turn has come. If all places are taken, the next call that ends goes on; if the rate is used up, the clock does. */
  #letGo(): void {
    clearTimeout(this.#timer)
    while (this.#underway < this.#budget.mintConcurrency) {
      const isColdTurn = this.#turns % COLD_TURN === COLD_TURN - 1
      const waiter = this.#waiters.find(({ isKnown }) => isKnown !== isColdTurn) ?? this.#waiters[0]
      if (waiter === undefined) return
      const now = performance.now()
      const waitMs = this.#nextAt - BURST_MS - now
      if (waitMs > 0) {
        this.#timer = setTimeout(() => this.#letGo(), Math.ceil(waitMs))
        return
      }
      this.#nextAt = Math.max(this.#nextAt, now) + this.#intervalMs
      this.#underway += 1
      this.#turns += 1
      this.#remove(waiter)
      waiter.go(() => {
        this.#underway -= 1
        this.#letGo()
      })
    }
  }

  #refuse(waiter: Waiter, error?: TokenError): void {
    const retryAfterSeconds = Math.ceil(this.#budget.mintTimeoutMs / 1_000)
    this.#remove(waiter)
    waiter.refuse(error ?? new TokenError('token_endpoint_unavailable', OVER_BUDGET, { retryAfterSeconds }))
  }

  #remove(waiter: Waiter): void {
    clearTimeout(waiter.timer)
    this.#waiters.splice(this.#waiters.indexOf(waiter), 1)
  }
}
