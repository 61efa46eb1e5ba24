/** Deadlines of all exchanges under one coarse timer: a timer for each request would cost more than the rest of the bookkeeping. */

import { performance } from 'node:perf_hooks'

/** Something that must have moved on by an instant. */
export interface Watched {
  /** Monotonic milliseconds; `Infinity` while nothing is due. */
  deadlineAt: number
  deadlinePassed(): void
}

/** How late a deadline may be noticed. */
const RESOLUTION_MS = 50

export class Deadlines {
  readonly #watched = new Set<Watched>()
  #timer: NodeJS.Timeout | undefined
  /** Monotonic milliseconds, at most one resolution old while anything is watched. */
  now = performance.now()

  /** `now` is the caller's own fresh reading of the clock. */
  watch(watched: Watched, now: number): void {
    this.now = now
    this.#watched.add(watched)
    this.#timer ??= setInterval(() => this.#sweep(), RESOLUTION_MS).unref()
  }

  unwatch(watched: Watched): void {
    this.#watched.delete(watched)
  }

  close(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
    this.#watched.clear()
  }

  #sweep(): void {
    this.now = performance.now()
    if (this.#watched.size === 0) {
      this.close()
      return
    }
    for (const watched of this.#watched) {
      if (watched.deadlineAt <= this.now) watched.deadlinePassed()
    }
  }
}
