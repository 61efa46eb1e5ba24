/** Lets calls of the token endpoint in, one after the other: so many at once, so many a second, and whose turn it is. */

import assert from 'node:assert/strict'
import * as clock from '../clock.ts'
import type { MintOptions } from './token-source.ts'

/** One call that is to be made. */
export interface Ask extends Pick<MintOptions, 'awaitedBy'> {
  /** The last call for the Org failed. */
  readonly isTroubled: boolean
  /** It is begun even if nobody waits. */
  readonly isAhead: boolean
  /** The longest wait. Without it, there is no limit. */
  readonly longestMs?: number | undefined
}

export interface QueueLimits {
  readonly places: number
  /** Calls in any second. */
  readonly rate: number
  readonly mostWaiting: number
}

interface QueuedAsk extends Ask {
  readonly end: (leave?: () => void) => void
}

interface Turn {
  readonly ask: QueuedAsk
  readonly requester: object | undefined
  /** Lower ones go first: awaited now, awaited for an Org in trouble, not awaited. */
  readonly rank: number
  /** Of the requester, lately. */
  readonly calls: number
}

/** Calls may run so far ahead of an even pace. The pace is slower by as much, so that no second has more than the rate. */
const BURST_MS = 100
/** The calls of a requester are counted anew after this time. */
const COUNTED_MS = 10_000

export class MintQueue {
  readonly #limits: () => QueueLimits
  /** In the order in which they came. */
  readonly #asks: QueuedAsk[] = []
  /** How many calls a requester had lately. A connection that has closed is forgotten. */
  #calls = new WeakMap<object, number>()
  #countedUntil = Number.NEGATIVE_INFINITY
  #underway = 0
  #troubledUnderway = 0
  /** When the last call would have begun at an even pace. */
  #lastAt = Number.NEGATIVE_INFINITY
  #timer: clock.Timer | undefined

  constructor(limits: () => QueueLimits) {
    this.#limits = limits
  }

  get calls() {
    return { underway: this.#underway, waiting: this.#asks.length }
  }

  /**
   * Resolves when the call may begin, with a function that gives its place back; with undefined, if nobody waits for the call any more,
   * it waited too long, or others fill the places to wait.
   */
  enter(ask: Ask): Promise<(() => void) | undefined> {
    return new Promise((resolve) => {
      const end = (leave?: () => void) => {
        timer?.cancel()
        const at = this.#asks.indexOf(queued)
        assert(at >= 0)
        this.#asks.splice(at, 1)
        resolve(leave)
      }
      const queued = { ...ask, end }
      const timer = ask.longestMs === undefined ? undefined : clock.after(ask.longestMs, end)
      this.#asks.push(queued)
      this.#letIn()
    })
  }

  /** Lets all in whose turn has come. The others come when a place is given back, or when the rate admits them. */
  #letIn(): void {
    this.#timer?.cancel()
    while (this.#asks.length > 0) {
      const { places, rate, mostWaiting } = this.#limits()
      if (this.#asks.length > mostWaiting) {
        const kept = this.#next(places)?.ask
        for (const ask of [...this.#asks]) if (ask !== kept) ask.end()
      }
      if (this.#underway >= places) return
      const now = clock.now()
      const at = this.#lastAt + (1_000 + BURST_MS) / rate
      if (at > now) {
        this.#timer = clock.after(Math.ceil(at - now), () => this.#letIn())
        return
      }
      const next = this.#next(Math.max(Math.floor(places / 2), 1) - this.#troubledUnderway)
      if (next === undefined) return
      const { ask, requester, calls } = next
      if (requester !== undefined) this.#calls.set(requester, calls + 1)
      this.#lastAt = Math.max(at, now - BURST_MS)
      this.#count(ask, 1)
      ask.end(() => {
        this.#count(ask, -1)
        this.#letIn()
      })
    }
  }

  /** Ends those that nobody waits for any more. Of the same rank, the requester with the fewest calls lately goes first. */
  #next(placesOfTroubled: number): Turn | undefined {
    if (clock.now() >= this.#countedUntil) {
      this.#calls = new WeakMap()
      this.#countedUntil = clock.now() + COUNTED_MS
    }
    let next: Turn | undefined
    for (const ask of [...this.#asks]) {
      const requester = ask.awaitedBy?.()
      if (requester === undefined && !ask.isAhead) {
        ask.end()
        continue
      }
      if (ask.isTroubled && placesOfTroubled <= 0) continue
      const rank = requester === undefined ? 2 : Number(ask.isTroubled)
      const calls = (requester && this.#calls.get(requester)) ?? 0
      const isNext = next === undefined || rank < next.rank || (rank === next.rank && calls < next.calls)
      if (isNext) next = { ask, requester, rank, calls }
    }
    return next
  }

  #count({ isTroubled }: Ask, by: 1 | -1): void {
    this.#underway += by
    if (isTroubled) this.#troubledUnderway += by
    assert(this.#underway >= 0 && this.#troubledUnderway >= 0)
  }
}
