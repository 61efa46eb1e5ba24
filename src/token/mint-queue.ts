/**
 * The budget for mints: a number of them at once, and a number in any second. Further mints wait in a bounded queue.
 *
 * - Orgs that had a token before, or are warmed, go first. Of four turns, one goes to a new org if one waits.
 * - Requesters get fair shares. The one that asked for the fewest mints lately goes first, so that neither a flood from one
 *   connection nor a caller whose tokens are always rejected holds up another's mint.
 */

import { TokenError } from '../errors.ts'

interface Waiter {
  readonly isKnown: boolean
  readonly isTroubled: boolean
  /** The number of mints that its requester asked for lately, and a handicap for a troubled call. */
  readonly rank: number
  /** Its turn has come, unless there is an error. */
  readonly end: (error?: TokenError) => void
}

const COLD_TURN = 4
/** A mint waits for its turn for no more than this share of `mintTimeout`. */
export const LONGEST_WAIT_SHARE = 0.9
/** Calls may run so far ahead of an even pace. The pace is slower in return, so that no second has more than the rate. */
const BURST_MS = 100
/** Asks are counted anew after this time. */
const COUNTED_MS = 10_000
const SPENT = 'The proxy has used up its budget for mints: see tokens.mintRate and tokens.mintConcurrency.'
const OVER_BUDGET = new TokenError('token_endpoint_unavailable', SPENT, { retryAfterSeconds: 5 })

export interface MintBudget {
  /** The wait for a turn, all attempts, and the waits between them. The last call may take longer. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  readonly mintRate: number
}

export class MintQueue {
  readonly budget: MintBudget
  readonly #intervalMs: number
  /** Lowest rank first. */
  readonly #waiters: Waiter[] = []
  /** How often a requester asked lately. A connection that has closed is forgotten. */
  #asks = new WeakMap<object, number>()
  #countedUntil = Number.NEGATIVE_INFINITY
  #underway = 0
  #turns = 0
  /** When the rate admits the next call. */
  #nextAt = Number.NEGATIVE_INFINITY
  #timer: NodeJS.Timeout | undefined

  constructor(budget: MintBudget) {
    this.budget = budget
    this.#intervalMs = (1_000 + BURST_MS) / budget.mintRate
  }

  /**
   * Resolves when the call may be made; `leave` gives its place back. A mint that no request asked for counts as asked for by
   * the queue. `isKnown`: the org had a token before, or is warmed. `isTroubled`: the call may hold its place for long.
   * @throws {TokenError} after nearly all the time for a mint; the last waiter at once, if the queue is too long for that
   */
  enter(isKnown: boolean, requester: object = this, isTroubled = false): Promise<void> {
    const longestMs = this.budget.mintTimeoutMs * LONGEST_WAIT_SHARE
    if (performance.now() >= this.#countedUntil) {
      this.#asks = new WeakMap()
      this.#countedUntil = performance.now() + COUNTED_MS
    }
    const asked = this.#asks.get(requester) ?? 0
    this.#asks.set(requester, asked + 1)
    const rank = asked + (isTroubled ? this.budget.mintRate : 0)
    return new Promise((resolve, reject) => {
      const end = (error?: TokenError) => {
        clearTimeout(timer)
        this.#waiters.splice(this.#waiters.indexOf(waiter), 1)
        if (error === undefined) resolve()
        else reject(error)
      }
      const waiter = { isKnown, isTroubled, rank, end }
      const timer = setTimeout(end, longestMs, OVER_BUDGET)
      this.#waiters.splice(this.#waiters.findLastIndex((other) => other.rank <= rank) + 1, 0, waiter)
      this.#letGo()
      const waitMs = this.#nextAt + (this.#waiters.length - 1) * this.#intervalMs - performance.now()
      if (waitMs < longestMs) return
      const cold = this.#waiters.filter((other) => !other.isKnown)
      const isLastKnown = cold.length * COLD_TURN <= this.#waiters.length
      this.#waiters.findLast((other) => other.isKnown === isLastKnown)?.end(OVER_BUDGET)
    })
  }

  leave(): void {
    this.#underway -= 1
    this.#letGo()
  }

  /** Ends all waits, because the calls will not be made. */
  refuseAll(error: TokenError): void {
    for (const waiter of this.#waiters.slice()) waiter.end(error)
  }

  /** How many orgs without trouble wait for a place. */
  get missingPlaces(): number {
    const isFull = this.#underway >= this.budget.mintConcurrency
    return isFull ? this.#waiters.filter(({ isTroubled }) => !isTroubled).length : 0
  }

  /** Lets all go whose turn has come. The others go when a place is given back, or when the rate admits them. */
  #letGo(): void {
    clearTimeout(this.#timer)
    while (this.#underway < this.budget.mintConcurrency) {
      const isColdTurn = this.#turns % COLD_TURN === COLD_TURN - 1
      const waiter = this.#waiters.find(({ isKnown }) => isKnown !== isColdTurn) ?? this.#waiters[0]
      if (waiter === undefined) return
      const now = performance.now()
      if (this.#nextAt > now) {
        this.#timer = setTimeout(() => this.#letGo(), Math.ceil(this.#nextAt - now))
        return
      }
      this.#nextAt = Math.max(this.#nextAt, now - BURST_MS) + this.#intervalMs
      this.#underway += 1
      this.#turns += 1
      waiter.end()
    }
  }
}
