/**
 * The budget for mints: a number of them at once, and a number in any second. Further mints wait in a bounded queue.
 *
 * - Orgs that had a token before go first, and a part of the budget is theirs alone: a flood of unknown ids must not keep a
 *   known org from renewing its token.
 * - Requesters get fair shares for cold orgs. The one that asked for the fewest lately goes first, so that a flood from one
 *   connection cannot hold up another's cold org.
 * - Calls that hang cannot take all places. The last quarter of the places is only lent: a call there has to be short. An org
 *   whose last call hung is lent no place, and all such orgs together get at most a quarter of the places.
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
  /** The number of mints that its requester asked for lately. */
  readonly rank: number
  readonly go: (turn: MintTurn) => void
  readonly refuse: (error: MintNotSent) => void
  timer: NodeJS.Timeout | undefined
}

/** Mints that wait for the same budgets, the widest first. */
interface Lane {
  readonly budgets: readonly Budget[]
  readonly ratePerSecond: number
  /** Lowest rank first. */
  readonly waiting: Waiter[]
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

export class MintQueue {
  readonly #now: () => number
  readonly #known: Lane
  readonly #cold: Lane
  readonly #hanging: Budget
  readonly #asked = new RecentCounts()
  #timer: NodeJS.Timeout | undefined

  constructor({ concurrency, ratePerSecond, now }: MintQueueOptions) {
    const calls = Math.max(1, Math.floor(ratePerSecond))
    const windowMs = (calls / ratePerSecond) * 1_000 // a rate below one in a second is one in a longer window
    const all = new Budget(concurrency, calls, windowMs)
    const cold = new Budget(
      Math.ceil(concurrency * COLD_SHARE_OF_CONCURRENCY),
      Math.ceil(calls * COLD_SHARE_OF_RATE),
      windowMs,
    )
    this.#now = now
    this.#known = { budgets: [all], ratePerSecond, waiting: [] }
    this.#cold = { budgets: [all, cold], ratePerSecond: ratePerSecond * COLD_SHARE_OF_RATE, waiting: [] }
    this.#hanging = new Budget(Math.ceil(concurrency * HANGING_SHARE_OF_CONCURRENCY))
  }

  /**
   * Resolves when the call may be made.
   * @throws {OverBudget} at once if its turn would come too late for `deadlineAt`, and when little time is left; also when
   * others who go first take its place in the queue
   */
  enter(candidate: MintCandidate): Promise<MintTurn> {
    const { isKnown, requester, deadlineAt } = candidate
    const now = this.#now()
    const rank = isKnown ? 0 : this.#asked.count(requester, now)
    const lane = this.#laneOf(candidate)
    const { waiting } = lane
    const place = waiting.findLastIndex((other) => other.rank <= rank) + 1
    const waitMs = this.#expectedWaitMs(lane)
    if (waitMs > Math.max(deadlineAt - now, 0) * EXPECTED_WAIT_SHARE) {
      if (place === waiting.length || deadlineAt <= now) return Promise.reject(overBudget(waitMs))
      const last = waiting.pop()
      clearTimeout(last?.timer)
      last?.refuse(overBudget(waitMs))
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = { candidate, rank, go: resolve, refuse: reject, timer: undefined }
      waiting.splice(place, 0, waiter)
      this.#letGo()
      if (!waiting.includes(waiter)) return
      waiter.timer = setTimeout(() => this.#expire(waiter), Math.max(deadlineAt - now, 0) * LONGEST_WAIT_SHARE)
    })
  }

  /** Nobody has to wait for a call that will not be made. */
  refuseAll(error: MintNotSent): void {
    for (const { waiting } of [this.#known, this.#cold]) {
      for (const { timer, refuse } of waiting.splice(0)) {
        clearTimeout(timer)
        refuse(error)
      }
    }
  }

  #laneOf({ isKnown }: MintCandidate): Lane {
    return isKnown ? this.#known : this.#cold
  }

  #expire(waiter: Waiter): void {
    const lane = this.#laneOf(waiter.candidate)
    lane.waiting.splice(lane.waiting.indexOf(waiter), 1)
    waiter.refuse(overBudget(this.#expectedWaitMs(lane)))
  }

  /** Lets all go whose turn has come. */
  #letGo(): void {
    clearTimeout(this.#timer)
    const now = this.#now()
    for (const lane of [this.#known, this.#cold]) {
      for (let waiter = this.#next(lane, now); waiter !== undefined; waiter = this.#next(lane, now)) {
        clearTimeout(waiter.timer)
        waiter.go(this.#take(lane, waiter.candidate.hangs, now))
      }
    }
    // If all places are taken, `leave` goes on. If the rate is used up, the clock does.
    const next = [this.#known, this.#cold].find(({ waiting }) => waiting.length > 0)
    const waitMs = next === undefined ? 0 : opensAt(next) - now
    if (waitMs > 0) this.#timer = setTimeout(() => this.#letGo(), Math.ceil(waitMs))
  }

  /** The waiter that goes next, taken out of its lane. Undefined if none may go now. */
  #next({ budgets, waiting }: Lane, now: number): Waiter | undefined {
    if (!budgets.every((budget) => budget.hasPlace && budget.opensAt <= now)) return undefined
    const mayHang = this.#hanging.hasPlace && !isLent(budgets)
    const index = waiting.findIndex(({ candidate }) => mayHang || !candidate.hangs)
    return index < 0 ? undefined : waiting.splice(index, 1)[0]
  }

  #take(lane: Lane, hangs: boolean, now: number): MintTurn {
    const budgets = hangs ? [...lane.budgets, this.#hanging] : lane.budgets
    const turn = {
      isLent: isLent(lane.budgets),
      leave: () => {
        for (const budget of budgets) budget.leave()
        this.#letGo()
      },
    }
    for (const budget of budgets) budget.take(now)
    return turn
  }

  #expectedWaitMs(lane: Lane): number {
    const ahead = lane.waiting.length + (lane === this.#cold ? this.#known.waiting.length : 0)
    return Math.max(opensAt(lane) - this.#now(), 0) + (ahead * 1_000) / lane.ratePerSecond
  }
}

/** Bounds the calls at once, and the calls in any window. */
class Budget {
  readonly #places: number
  readonly #callsPerWindow: number
  readonly #windowMs: number
  /** The instants of the last calls, the latest at the end: exact, where a token bucket would allow twice the rate. */
  #startedAt: number[] = []
  #underway = 0

  constructor(places: number, callsPerWindow = 1, windowMs = 0) {
    this.#places = places
    this.#callsPerWindow = callsPerWindow
    this.#windowMs = windowMs
  }

  get hasPlace(): boolean {
    return this.#underway < this.#places
  }

  get hasFewPlaces(): boolean {
    return this.#underway >= this.#places * LENT_FROM_SHARE
  }

  /** When the rate allows the next call. */
  get opensAt(): number {
    return (this.#startedAt.at(-this.#callsPerWindow) ?? Number.NEGATIVE_INFINITY) + this.#windowMs
  }

  take(now: number): void {
    this.#underway += 1
    this.#startedAt.push(now)
    if (this.#startedAt.length >= 2 * this.#callsPerWindow) this.#startedAt.splice(0, this.#callsPerWindow)
  }

  leave(): void {
    this.#underway -= 1
  }
}

function opensAt({ budgets }: Lane): number {
  return Math.max(...budgets.map((budget) => budget.opensAt))
}

/** The next place under these budgets is only lent. The last one is the narrowest. */
function isLent(budgets: readonly Budget[]): boolean {
  return budgets.at(-1)?.hasFewPlaces ?? false
}

/** A request for a mint counts for one to two of these periods. */
const MEMORY_MS = 5_000

class RecentCounts {
  #counts = new Map<Requester | undefined, number>()
  #olderCounts = new Map<Requester | undefined, number>()
  #since = Number.NEGATIVE_INFINITY

  /** Counts once more. Returns how often the requester was counted before. */
  count(requester: Requester | undefined, now: number): number {
    if (now - this.#since >= MEMORY_MS) {
      this.#olderCounts = now - this.#since >= 2 * MEMORY_MS ? new Map() : this.#counts
      this.#counts = new Map()
      this.#since = now
    }
    const count = this.#counts.get(requester) ?? 0
    this.#counts.set(requester, count + 1)
    return count + (this.#olderCounts.get(requester) ?? 0)
  }
}

function overBudget(waitMs: number): OverBudget {
  return new OverBudget('token_endpoint_unavailable', 'not called: over the budget for mints', {
    retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1_000)),
    hint: 'The proxy has used up its budget for the token endpoint: see tokens.mintRate and tokens.mintConcurrency.',
  })
}
