/**
 * How many mints may be on their way at once, and how many may start in a second; the rest waits in a bounded queue.
 * Orgs that had a token before go first, and a part of the budget is theirs alone: a flood of unknown ids must not keep
 * a known org from renewing its token.
 */

import type { TokenError } from '../errors.ts'
import { MintNotSent } from './mint-not-sent.ts'
import { RateWindow } from './rate-window.ts'

export interface MintBudgetOptions {
  readonly concurrency: number
  readonly ratePerSecond: number
  readonly now: () => number
}

export type MintLane = 'known' | 'cold'

interface Waiter {
  readonly go: () => void
  readonly refuse: (error: TokenError) => void
  readonly timer: NodeJS.Timeout
}

/** What cold mints leave to the others. */
const COLD_SHARE_OF_CONCURRENCY = 3 / 4
const COLD_SHARE_OF_RATE = 9 / 10
/** Of the time that a mint has: the rest is for the call. */
const WAITING_SHARE = 1 / 2

export class MintBudget {
  readonly #now: () => number
  readonly #ratePerSecond: number
  readonly #maxUnderway: number
  readonly #maxColdUnderway: number
  readonly #window: RateWindow
  readonly #coldWindow: RateWindow
  readonly #waiting: Record<MintLane, Waiter[]> = { known: [], cold: [] }
  readonly #underway: Record<MintLane, number> = { known: 0, cold: 0 }
  #timer: NodeJS.Timeout | undefined

  constructor({ concurrency, ratePerSecond, now }: MintBudgetOptions) {
    this.#now = now
    this.#ratePerSecond = ratePerSecond
    this.#maxUnderway = concurrency
    this.#maxColdUnderway = Math.ceil(concurrency * COLD_SHARE_OF_CONCURRENCY)
    const calls = Math.max(1, Math.floor(ratePerSecond))
    const windowMs = (calls / ratePerSecond) * 1_000
    this.#window = new RateWindow({ calls, windowMs })
    this.#coldWindow = new RateWindow({ calls: Math.ceil(calls * COLD_SHARE_OF_RATE), windowMs })
  }

  /**
   * Resolves when the mint may be sent; `leave` has to follow.
   * @throws {MintNotSent} at once where its turn would come too late for `deadlineAt`, and at `deadlineAt`
   */
  enter(lane: MintLane, deadlineAt: number): Promise<void> {
    const now = this.#now()
    if (this.#waiting[lane].length === 0 && this.#mayGo(lane, now)) {
      this.#note(lane, now)
      return Promise.resolve()
    }
    const waitMs = this.#expectedWaitMs(lane, now)
    if (waitMs > (deadlineAt - now) * WAITING_SHARE) return Promise.reject(overBudget(waitMs))
    return new Promise((resolve, reject) => {
      const expire = () => {
        this.#waiting[lane] = this.#waiting[lane].filter((other) => other !== waiter)
        reject(overBudget(this.#expectedWaitMs(lane, this.#now())))
      }
      const waiter = { go: resolve, refuse: reject, timer: setTimeout(expire, deadlineAt - now) }
      this.#waiting[lane].push(waiter)
      this.#schedule(now)
    })
  }

  /** The mint has ended, well or not. */
  leave(lane: MintLane): void {
    this.#underway[lane] -= 1
    this.#letGo()
  }

  /** Nobody has to wait for what will not be sent. */
  refuseAll(error: TokenError): void {
    for (const waiter of [...this.#waiting.known, ...this.#waiting.cold]) {
      clearTimeout(waiter.timer)
      waiter.refuse(error)
    }
    this.#waiting.known = []
    this.#waiting.cold = []
  }

  #letGo(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    const now = this.#now()
    for (const lane of ['known', 'cold'] as const) {
      while (this.#waiting[lane].length > 0 && this.#mayGo(lane, now)) {
        const waiter = this.#waiting[lane].shift()
        if (waiter === undefined) break
        clearTimeout(waiter.timer)
        this.#note(lane, now)
        waiter.go()
      }
    }
    this.#schedule(now)
  }

  #mayGo(lane: MintLane, now: number): boolean {
    if (this.#underway.known + this.#underway.cold >= this.#maxUnderway || this.#window.opensAt > now) return false
    return lane === 'known' || (this.#underway.cold < this.#maxColdUnderway && this.#coldWindow.opensAt <= now)
  }

  #note(lane: MintLane, now: number): void {
    this.#underway[lane] += 1
    this.#window.note(now)
    if (lane === 'cold') this.#coldWindow.note(now)
  }

  /** Where places are taken, `leave` goes on; where the rate is, the clock does. */
  #schedule(now: number): void {
    const lane = this.#waiting.known.length > 0 ? 'known' : this.#waiting.cold.length > 0 ? 'cold' : undefined
    if (lane === undefined || this.#timer !== undefined) return
    const waitMs = this.#opensAt(lane) - now
    if (waitMs <= 0) return
    this.#timer = setTimeout(() => this.#letGo(), Math.ceil(waitMs))
  }

  #opensAt(lane: MintLane): number {
    return lane === 'known' ? this.#window.opensAt : Math.max(this.#window.opensAt, this.#coldWindow.opensAt)
  }

  #expectedWaitMs(lane: MintLane, now: number): number {
    const isCold = lane === 'cold'
    const ahead = this.#waiting.known.length + (isCold ? this.#waiting.cold.length : 0)
    const perSecond = isCold ? this.#ratePerSecond * COLD_SHARE_OF_RATE : this.#ratePerSecond
    return Math.max(this.#opensAt(lane) - now, 0) + (ahead * 1_000) / perSecond
  }
}

function overBudget(waitMs: number): MintNotSent {
  return new MintNotSent('token_endpoint_unavailable', 'over the budget for mints', {
    retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1_000)),
  })
}
