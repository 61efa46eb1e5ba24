/**
 * The budget for mints: a number of them at once, and a number in any second. Further mints wait in a bounded queue.
 *
 * - Orgs that had a token before go first. Of four turns, one goes to a new org if one waits; and a tenth of the rate is kept from
 *   new orgs, so that a flood of unknown ids does not keep a known org from its next token.
 * - Requesters get fair shares. The one that asked for the fewest mints lately goes first, so that neither a flood from one
 *   connection nor a caller whose tokens are always rejected holds up another's mint.
 */

import { type MintNotSent, OverBudget, type Requester } from './token-source.ts'

interface MintQueueOptions {
  readonly concurrency: number
  readonly ratePerSecond: number
  readonly now: () => number
}

interface MintCandidate {
  /** False for an org that has had no token yet. */
  readonly isKnown: boolean
  /** Others are refused while it waits, so it goes before all. */
  readonly isProbe: boolean
  readonly requester: Requester | undefined
  /** Nobody waits for the mint after it. */
  readonly deadlineAt: number
}

/** A place in the budget. Gives it back: must be called once, when the call has ended. */
export type LeaveQueue = () => void

interface Waiter {
  /** The number of mints that its requester asked for lately. */
  readonly rank: number
  readonly go: (leave: LeaveQueue) => void
  readonly refuse: (error: MintNotSent) => void
  timer: NodeJS.Timeout | undefined
}

/** Lowest rank first. */
type Lane = Waiter[]

const COLD_SHARE_OF_RATE = 9 / 10
/** One in so many turns goes to a new org, if one waits. */
const COLD_TURN = 4
/** Of the time that is left: the longest expected wait that is accepted, and the longest wait. */
const EXPECTED_WAIT_SHARE = 0.9
const LONGEST_WAIT_SHARE = 0.95
/** The weight of one call in the average duration of calls. */
const LATEST_WEIGHT = 1 / 8

export class MintQueue {
  readonly #options: MintQueueOptions
  readonly #known: Lane = []
  readonly #cold: Lane = []
  readonly #rate: Rate
  readonly #coldRate: Rate
  readonly #asks = new RecentAsks()
  #underway = 0
  #turns = 0
  #averageMs = 0
  #timer: NodeJS.Timeout | undefined

  constructor(options: MintQueueOptions) {
    const { ratePerSecond } = options
    const calls = Math.max(1, Math.floor(ratePerSecond))
    const windowMs = (calls / ratePerSecond) * 1_000 // a rate below one in a second is one in a longer window
    this.#options = options
    this.#rate = new Rate(calls, windowMs)
    this.#coldRate = new Rate(Math.ceil(calls * COLD_SHARE_OF_RATE), windowMs)
  }

  /**
   * Resolves when the call may be made.
   * @throws {OverBudget} at once if its turn would come too late for `deadlineAt`; also when its time is over, and when others
   * who go first take its place in the queue
   */
  enter({ isKnown, isProbe, requester, deadlineAt }: MintCandidate): Promise<LeaveQueue> {
    const now = this.#options.now()
    const leftMs = Math.max(deadlineAt - now, 0)
    const asked = this.#asks.count(requester, now)
    const rank = isProbe ? -1 : Math.floor(asked)
    const lane = isKnown || isProbe ? this.#known : this.#cold
    const place = lane.findLastIndex((other) => other.rank <= rank) + 1
    const waitMs = this.#expectedWaitMs(lane)
    if (waitMs > leftMs * EXPECTED_WAIT_SHARE) {
      if (place === lane.length || leftMs === 0) return Promise.reject(overBudget(waitMs))
      const last = lane.pop()
      clearTimeout(last?.timer)
      last?.refuse(overBudget(waitMs))
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = { rank, go: resolve, refuse: reject, timer: undefined }
      lane.splice(place, 0, waiter)
      this.#letGo()
      if (!lane.includes(waiter)) return
      waiter.timer = setTimeout(() => {
        lane.splice(lane.indexOf(waiter), 1)
        reject(overBudget(this.#expectedWaitMs(lane)))
      }, leftMs * LONGEST_WAIT_SHARE)
    })
  }

  /** Nobody has to wait for a call that will not be made. */
  refuseAll(error: MintNotSent): void {
    for (const lane of [this.#known, this.#cold]) {
      for (const { timer, refuse } of lane.splice(0)) {
        clearTimeout(timer)
        refuse(error)
      }
    }
  }

  /** All places are taken, and somebody waits for one. */
  get isShortOfPlaces(): boolean {
    return this.#underway >= this.#options.concurrency && this.#known.length + this.#cold.length > 0
  }

  /** Lets all go whose turn has come. */
  #letGo(): void {
    clearTimeout(this.#timer)
    const { concurrency, now } = this.#options
    const startedAt = now()
    while (this.#underway < concurrency) {
      const lane = this.#nextLane(startedAt)
      const waiter = lane?.shift()
      if (waiter === undefined) break
      clearTimeout(waiter.timer)
      this.#underway += 1
      this.#turns += 1
      this.#rate.take(startedAt)
      if (lane === this.#cold) this.#coldRate.take(startedAt)
      waiter.go(() => this.#leave(startedAt))
    }
    // If all places are taken, `#leave` goes on. If the rate is used up, the clock does.
    const waitMs = Math.min(this.#opensAt(this.#known, startedAt), this.#opensAt(this.#cold, startedAt)) - startedAt
    if (this.#underway < concurrency && Number.isFinite(waitMs)) {
      this.#timer = setTimeout(() => this.#letGo(), Math.ceil(waitMs))
    }
  }

  #leave(startedAt: number): void {
    this.#averageMs += (this.#options.now() - startedAt - this.#averageMs) * LATEST_WEIGHT
    this.#underway -= 1
    this.#letGo()
  }

  #nextLane(now: number): Lane | undefined {
    const isColdTurn = this.#turns % COLD_TURN === COLD_TURN - 1
    const lanes = isColdTurn ? [this.#cold, this.#known] : [this.#known, this.#cold]
    return lanes.find((lane) => this.#opensAt(lane, now) <= now)
  }

  /** When the first in the lane may go. Never, if nobody waits in it. */
  #opensAt(lane: Lane, now: number): number {
    if (lane.length === 0) return Number.POSITIVE_INFINITY
    return Math.max(this.#rate.opensAt(now), lane === this.#cold ? this.#coldRate.opensAt(now) : 0)
  }

  /** Of one who would be the last in the lane. */
  #expectedWaitMs(lane: Lane): number {
    const { concurrency, now } = this.#options
    const [known, cold] = [this.#known.length, this.#cold.length]
    const isKnown = lane === this.#known
    const ahead = isKnown
      ? known + Math.min(cold, known / (COLD_TURN - 1))
      : cold + Math.min(known, cold * (COLD_TURN - 1))
    const atMs = now()
    const opensAt = Math.max(this.#rate.opensAt(atMs, ahead), isKnown ? 0 : this.#coldRate.opensAt(atMs, cold))
    return Math.max(opensAt - atMs, (ahead * this.#averageMs) / concurrency)
  }
}

/** Bounds the calls in any window. */
class Rate {
  readonly #calls: number
  readonly #windowMs: number
  /** The instants of the last calls, the latest at the end: exact, where a token bucket would allow twice the rate. */
  readonly #takenAt: number[] = []

  constructor(calls: number, windowMs: number) {
    this.#calls = calls
    this.#windowMs = windowMs
  }

  /** When the next call is allowed, after `ahead` others. */
  opensAt(now: number, ahead = 0): number {
    const windows = Math.floor(ahead / this.#calls)
    const before = this.#takenAt.at(Math.floor(ahead) - windows * this.#calls - this.#calls)
    return Math.max(now, (before ?? Number.NEGATIVE_INFINITY) + this.#windowMs) + windows * this.#windowMs
  }

  take(now: number): void {
    this.#takenAt.push(now)
    if (this.#takenAt.length >= 2 * this.#calls) this.#takenAt.splice(0, this.#calls)
  }
}

/** The weight of an ask halves in this time. */
const HALF_LIFE_MS = 5_000
/** Stands for mints that no request asked for. */
const NO_REQUESTER = {}

interface Tally {
  asks: number
  at: number
}

/** A connection that has closed is forgotten. The names of callers come from the configuration. */
class RecentAsks {
  readonly #ofConnections = new WeakMap<object, Tally>()
  readonly #ofCallers = new Map<string, Tally>()

  /** Counts once more. Returns how often the requester has asked lately. */
  count(requester: Requester = NO_REQUESTER, now: number): number {
    const tally = this.#tallyOf(requester)
    const asks = tally.asks * 2 ** ((tally.at - now) / HALF_LIFE_MS)
    tally.asks = asks + 1
    tally.at = now
    return asks
  }

  #tallyOf(requester: Requester): Tally {
    const tally = typeof requester === 'string' ? this.#ofCallers.get(requester) : this.#ofConnections.get(requester)
    if (tally !== undefined) return tally
    const first = { asks: 0, at: 0 }
    if (typeof requester === 'string') this.#ofCallers.set(requester, first)
    else this.#ofConnections.set(requester, first)
    return first
  }
}

function overBudget(waitMs: number): OverBudget {
  return new OverBudget('token_endpoint_unavailable', 'not called: over the budget for mints', {
    retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1_000)),
    hint: 'The proxy has used up its budget for the token endpoint: see tokens.mintRate and tokens.mintConcurrency.',
  })
}
