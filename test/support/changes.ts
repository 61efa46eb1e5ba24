/** Waits for conditions instead of times. All deadlines are for a quiet machine. */

import { scaled } from './pace.ts'

/** Longer than any expected wait. */
const DEFAULT_DEADLINE_MS = 15_000

export class DeadlineExceeded extends Error {
  override readonly name = 'DeadlineExceeded'
}

/** The owner of a state calls `notify()` after each change. Others wait for a condition of that state. */
export class Changes {
  readonly #waiting = new Set<() => void>()

  notify(): void {
    for (const check of [...this.#waiting]) check()
  }

  /** Resolves when `condition` is true. `what` describes it in the error of the deadline. */
  async until(
    condition: () => boolean,
    what: string | (() => string),
    deadlineMs: number = DEFAULT_DEADLINE_MS,
  ): Promise<void> {
    if (condition()) return
    await new Promise<void>((resolve, reject) => {
      const check = () => {
        if (!condition()) return
        finish()
        resolve()
      }
      const startedAt = performance.now()
      const expire = () => {
        const leftMs = scaled(deadlineMs) - (performance.now() - startedAt)
        if (leftMs > 0) {
          timer = setTimeout(expire, leftMs)
          return
        }
        finish()
        reject(new DeadlineExceeded(`not within ${deadlineMs} ms: ${typeof what === 'string' ? what : what()}`))
      }
      let timer = setTimeout(expire, deadlineMs)
      const finish = () => {
        clearTimeout(timer)
        this.#waiting.delete(check)
      }
      this.#waiting.add(check)
    })
  }
}

/** Repeats each of the attacks until the work is done. Resolves with the number of rounds. */
export async function during(
  attacks: readonly (() => Promise<unknown>)[],
  work: () => Promise<unknown>,
): Promise<number> {
  let isOver = false
  let rounds = 0
  const attacking = attacks.map(async (attack) => {
    while (!isOver) {
      await attack()
      rounds += 1
    }
  })
  try {
    await work()
  } finally {
    isOver = true
  }
  await Promise.all(attacking)
  return rounds
}

/** Makes everybody wait in `pass()` until the test opens it. */
export class Gate {
  readonly #changes = new Changes()
  readonly #deadlineMs: number
  #isOpen = false
  #waiting = 0

  constructor(deadlineMs: number = DEFAULT_DEADLINE_MS) {
    this.#deadlineMs = deadlineMs
  }

  async pass(): Promise<void> {
    this.#waiting++
    this.#changes.notify()
    await this.#changes.until(() => this.#isOpen, 'the gate to open', this.#deadlineMs)
  }

  open(): void {
    this.#isOpen = true
    this.#changes.notify()
  }

  /** Resolves when this many have arrived. */
  untilWaiting(count: number): Promise<void> {
    return this.#changes.until(() => this.#waiting >= count, `${count} at the gate`)
  }
}

/** For a state without events, such as a file or another process: polls it, less often the longer that takes. */
export async function eventually<T>(
  look: () => T | undefined | Promise<T | undefined>,
  what: string,
  deadlineMs = DEFAULT_DEADLINE_MS,
): Promise<T> {
  const startedAt = performance.now()
  for (;;) {
    const seen = await look()
    if (seen !== undefined && seen !== false) return seen
    const tookMs = performance.now() - startedAt
    if (tookMs > deadlineMs && tookMs > scaled(deadlineMs))
      throw new Error(`not within ${Math.round(tookMs)} ms: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 5 + tookMs / 10))
  }
}
