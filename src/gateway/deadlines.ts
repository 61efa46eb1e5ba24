/** The deadlines of all exchanges under one coarse timer. A timer for each request would cost more than the rest of its bookkeeping. */

import { performance } from 'node:perf_hooks'

/** Something that must make progress before an instant. */
export interface Watched {
  /** Monotonic milliseconds; `Infinity` while nothing is due. */
  deadlineAt: number
  deadlinePassed(): void
  /** Its index in the list of `Deadlines`; undefined while it is not in it. */
  slot?: number | undefined
}

/** A deadline may be noticed this much later. */
const RESOLUTION_MS = 50

export class Deadlines {
  /**
   * A list, not a Set. A Set that grows leaves its old table behind, and that table points to the next one. Once V8 has moved
   * one of them to the old generation, it keeps alive, and promotes, everything that was watched since.
   */
  readonly #watched: Watched[] = []
  #timer: NodeJS.Timeout | undefined
  /** Monotonic milliseconds, at most one resolution old while anything is watched. */
  now = performance.now()

  /** `now` is monotonic milliseconds, just read by the caller. */
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
