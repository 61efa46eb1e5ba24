/** Deadlines of all exchanges under one coarse timer: a timer for each request would cost more than the rest of the bookkeeping. */

import { performance } from 'node:perf_hooks'

/** Something that must have moved on by an instant. */
export interface Watched {
  /** Monotonic milliseconds; `Infinity` while nothing is due. */
  deadlineAt: number
  deadlinePassed(): void
  /** Where it stands in the list; undefined while it does not. */
  slot?: number | undefined
}

/** How late a deadline may be noticed. */
const RESOLUTION_MS = 50

export class Deadlines {
  /**
   * A list, not a Set: the tables that a Set outgrows hold what was in them and point to the next one. Once one of them is
   * old, the garbage collector keeps, and moves among the old, whatever was watched since.
   */
  readonly #watched: Watched[] = []
  #timer: NodeJS.Timeout | undefined
  /** Monotonic milliseconds, at most one resolution old while anything is watched. */
  now = performance.now()

  /** `now` is the caller's own fresh reading of the clock. */
  watch(watched: Watched, now: number): void {
    this.now = now
    watched.slot ??= this.#watched.push(watched) - 1
    this.#timer ??= setInterval(() => this.#sweep(), RESOLUTION_MS).unref()
  }

  unwatch(watched: Watched): void {
    const { slot } = watched
    if (slot === undefined) return
    watched.slot = undefined
    const last = this.#watched.pop()
    if (last === undefined || last === watched) return
    this.#watched[slot] = last
    last.slot = slot
  }

  close(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
    for (const watched of this.#watched) watched.slot = undefined
    this.#watched.length = 0
  }

  #sweep(): void {
    this.now = performance.now()
    if (this.#watched.length === 0) {
      this.close()
      return
    }
    for (const watched of [...this.#watched]) {
      if (watched.slot !== undefined && watched.deadlineAt <= this.now) watched.deadlinePassed()
    }
  }
}
