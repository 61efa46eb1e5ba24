/**
 * The budget for mints: a number of them at once, and a number in any second. Further mints wait in a bounded queue.
 *
 * Orgs that had a token before go first, and a part of the budget is theirs alone: a flood of unknown ids must not keep a
 * known org from renewing its token. Cold orgs are shared out between those who ask: whoever asked for the fewest lately
 * goes first, so that a flood from one connection cannot hold up another's cold org. Calls that hang cannot take all places:
 * the last quarter of the places is only lent for a short time, and never to an org whose last call hung. Such orgs get at
 * most a quarter of the places.
 */

import { MintNotSent, type Requester } from './token-source.ts'

/** No token, because the budget of the proxy is used up. */
export class OverBudget extends MintNotSent {}

export interface MintQueueOptions {
  readonly concurrency: number
  readonly ratePerSecond: number
  readonly now: () => number
}

export interface MintCandidate {
  /** False for an org that has had no token yet. */
  readonly isKnown: boolean
  /** The org's last call got no answer in time. */
  readonly hangs: boolean
  readonly requester: Requester | undefined
  /** The call must have ended by then. */
  readonly deadlineAt: number
}

/** A place in the budget. */
export interface MintTurn {
  /** Few places are left: the call should give its place up early if it gets no answer. */
  readonly isLent: boolean
  /** Must be called once, when the call has ended. */
  leave(): void
}

interface Waiter {
  readonly candidate: MintCandidate
  /** How many mints its requester had asked for lately. */
  readonly rank: number
  readonly go: (turn: MintTurn) => void
  readonly refuse: (error: MintNotSent) => void
  timer: NodeJS.Timeout | undefined
}

/** The shares of the budget that cold mints may use. */
const COLD_SHARE_OF_CONCURRENCY = 3 / 4
const COLD_SHARE_OF_RATE = 9 / 10
/** Beyond this share of the places that a mint may take, places are only lent. */
const LENT_FROM_SHARE = 3 / 4
const HANGING_SHARE_OF_CONCURRENCY = 1 / 4
/** Shares of the time of a mint: the longest expected wait that is accepted, and the longest wait. The rest is for the call. */
const EXPECTED_WAIT_SHARE = 1 / 2
const LONGEST_WAIT_SHARE = 4 / 5
/** What a requester asked for counts for one to two of these periods. */
const MEMORY_MS = 5_000

export class MintQueue {
  readonly #now: () => number
  readonly #maxUnderway: number
  readonly #maxColdUnderway: number
  readonly #maxHangingUnderway: number
  readonly #ratePerSecond: number
  /** The instants of the last calls, the latest at the end: exact, where a token bucket would allow twice the rate. */
  #startedAt: number[] = []
  #coldStartedAt: number[] = []
  #known: Waiter[] = []
  /** Lowest rank first. */
  #cold: Waiter[] = []
  #underway = 0
  #coldUnderway = 0
  #hangingUnderway = 0
  #timer: NodeJS.Timeout | undefined
  #asked = new Map<Requester | undefined, number>()
  #askedBefore = new Map<Requester | undefined, number>()
  #askedSince = Number.NEGATIVE_INFINITY

  constructor({ concurrency, ratePerSecond, now }: MintQueueOptions) {
    this.#now = now
    this.#maxUnderway = concurrency
    this.#maxColdUnderway = Math.ceil(concurrency * COLD_SHARE_OF_CONCURRENCY)
    this.#maxHangingUnderway = Math.ceil(concurrency * HANGING_SHARE_OF_CONCURRENCY)
    this.#ratePerSecond = ratePerSecond
  }

  /**
   * Resolves when the call may be made.
   * @throws {OverBudget} at once if its turn would come too late for `deadlineAt`, and when little time is left; also when
   * others who go first take its place in the queue
   */
  enter(candidate: MintCandidate): Promise<MintTurn> {
    const { isKnown, requester, deadlineAt } = candidate
    const now = this.#now()
    const rank = isKnown ? 0 : this.#rank(requester, now)
    const queue = isKnown ? this.#known : this.#cold
    const place = queue.findLastIndex((other) => other.rank <= rank) + 1
    const waitMs = this.#expectedWaitMs(isKnown, queue.length)
    const isFull = waitMs > Math.max(deadlineAt - now, 0) * EXPECTED_WAIT_SHARE
    if (isFull && place === queue.length) return Promise.reject(overBudget(waitMs))
    if (isFull) {
      const last = queue.pop()
      clearTimeout(last?.timer)
      last?.refuse(overBudget(waitMs))
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = { candidate, rank, go: resolve, refuse: reject, timer: undefined }
      queue.splice(place, 0, waiter)
      this.#letGo()
      if (!queue.includes(waiter)) return
      waiter.timer = setTimeout(() => this.#expire(waiter), Math.max(deadlineAt - now, 0) * LONGEST_WAIT_SHARE)
    })
  }

  /** Nobody has to wait for a call that will not be made. */
  refuseAll(error: MintNotSent): void {
    const waiters = [...this.#known, ...this.#cold]
    this.#known = []
    this.#cold = []
    for (const { timer, refuse } of waiters) {
      clearTimeout(timer)
      refuse(error)
    }
  }

  #expire(waiter: Waiter): void {
    this.#known = this.#known.filter((other) => other !== waiter)
    this.#cold = this.#cold.filter((other) => other !== waiter)
    waiter.refuse(overBudget(this.#expectedWaitMs(waiter.candidate.isKnown, this.#cold.length)))
  }

  #letGo(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    const now = this.#now()
    for (const queue of [this.#known, this.#cold]) {
      for (let i = 0; i < queue.length; ) {
        const waiter = queue[i]
        if (waiter === undefined || !this.#mayGo(waiter.candidate.isKnown, now)) break
        if (waiter.candidate.hangs && (this.#isLent(waiter.candidate) || this.#isFullOfHanging)) {
          i += 1
          continue
        }
        queue.splice(i, 1)
        clearTimeout(waiter.timer)
        waiter.go(this.#start(waiter.candidate, now))
      }
    }
    this.#schedule(now)
  }

  #mayGo(isKnown: boolean, now: number): boolean {
    if (this.#underway >= this.#maxUnderway || this.#opensAt(isKnown) > now) return false
    return isKnown || this.#coldUnderway < this.#maxColdUnderway
  }

  #start(candidate: MintCandidate, now: number): MintTurn {
    const { isKnown, hangs } = candidate
    const isLent = this.#isLent(candidate)
    this.#count(isKnown, hangs, 1)
    note(this.#startedAt, now, this.#callsPerWindow(true))
    if (!isKnown) note(this.#coldStartedAt, now, this.#callsPerWindow(false))
    return {
      isLent,
      leave: () => {
        this.#count(isKnown, hangs, -1)
        this.#letGo()
      },
    }
  }

  #isLent({ isKnown }: MintCandidate): boolean {
    return isKnown
      ? this.#underway >= this.#maxUnderway * LENT_FROM_SHARE
      : this.#coldUnderway >= this.#maxColdUnderway * LENT_FROM_SHARE
  }

  get #isFullOfHanging(): boolean {
    return this.#hangingUnderway >= this.#maxHangingUnderway
  }

  #count(isKnown: boolean, hangs: boolean, by: 1 | -1): void {
    this.#underway += by
    if (!isKnown) this.#coldUnderway += by
    if (hangs) this.#hangingUnderway += by
  }

  /** If places are taken, `leave` goes on; if the rate is used up, the clock does. */
  #schedule(now: number): void {
    if (this.#known.length + this.#cold.length === 0) return
    const waitMs = this.#opensAt(this.#known.length > 0) - now
    if (waitMs > 0) this.#timer = setTimeout(() => this.#letGo(), Math.ceil(waitMs))
  }

  /** When the rate allows the next call. */
  #opensAt(isKnown: boolean): number {
    const opensAt = this.#startedAt.at(-this.#callsPerWindow(true)) ?? Number.NEGATIVE_INFINITY
    const coldOpensAt = this.#coldStartedAt.at(-this.#callsPerWindow(false)) ?? Number.NEGATIVE_INFINITY
    return (isKnown ? opensAt : Math.max(opensAt, coldOpensAt)) + this.#windowMs
  }

  /** A rate below one in a second is one in a longer window. */
  get #windowMs(): number {
    return (this.#callsPerWindow(true) / this.#ratePerSecond) * 1_000
  }

  #callsPerWindow(isKnown: boolean): number {
    const calls = Math.max(1, Math.floor(this.#ratePerSecond))
    return isKnown ? calls : Math.ceil(calls * COLD_SHARE_OF_RATE)
  }

  #expectedWaitMs(isKnown: boolean, ahead: number): number {
    const perSecond = isKnown ? this.#ratePerSecond : this.#ratePerSecond * COLD_SHARE_OF_RATE
    const goFirst = isKnown ? 0 : this.#known.length
    return Math.max(this.#opensAt(isKnown) - this.#now(), 0) + ((ahead + goFirst) * 1_000) / perSecond
  }

  #rank(requester: Requester | undefined, now: number): number {
    if (now - this.#askedSince >= MEMORY_MS) {
      this.#askedBefore = now - this.#askedSince >= 2 * MEMORY_MS ? new Map() : this.#asked
      this.#asked = new Map()
      this.#askedSince = now
    }
    const asked = this.#asked.get(requester) ?? 0
    this.#asked.set(requester, asked + 1)
    return asked + (this.#askedBefore.get(requester) ?? 0)
  }
}

function note(instants: number[], now: number, max: number): void {
  instants.push(now)
  if (instants.length >= 2 * max) instants.splice(0, instants.length - max)
}

function overBudget(waitMs: number): OverBudget {
  return new OverBudget('token_endpoint_unavailable', 'not called: over the budget for mints', {
    retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1_000)),
    hint: 'The proxy has used up its budget for the token endpoint: see tokens.mintRate and tokens.mintConcurrency.',
  })
}
