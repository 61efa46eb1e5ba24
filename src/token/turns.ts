/**
 * Requests that wait for a token which the service has never accepted. They take turns in trying it, in growing pauses. When
 * the service accepts it, all go on at once.
 */

const FIRST_PAUSE_MS = 50
const MAX_PAUSE_MS = 200

/** Runs `run` after the delay, unless the returned function is called before. */
export type StartTimer = (run: () => void, delayMs: number) => () => void

interface Waiting {
  /** False if the request could not be repeated. Such a request does not try the token. */
  readonly mayTry: boolean
  readonly goOn: () => void
}

export class Turns {
  #waiting: Waiting[] = []
  #stopTimer: (() => void) | undefined
  #pauseMs = FIRST_PAUSE_MS
  readonly #lastAt: number
  readonly #startTimer: StartTimer
  readonly #onEnd: () => void

  /** At `lastAt`, by the clock of `wait`, all go on whatever the service says. */
  constructor(lastAt: number, startTimer: StartTimer, onEnd: () => void) {
    this.#lastAt = lastAt
    this.#startTimer = startTimer
    this.#onEnd = onEnd
  }

  /** Resolves when the request should use the token. */
  wait(mayTry: boolean, now: number): Promise<void> {
    return new Promise((goOn) => {
      this.#waiting.push({ mayTry, goOn })
      if (this.#stopTimer === undefined) this.#arm(now)
    })
  }

  #arm(now: number): void {
    const delayMs = Math.max(Math.min(this.#pauseMs, this.#lastAt - now), 0)
    this.#pauseMs = Math.min(this.#pauseMs * 2, MAX_PAUSE_MS)
    this.#stopTimer = this.#startTimer(() => this.#tick(now + delayMs), delayMs)
  }

  #tick(now: number): void {
    this.#stopTimer = undefined
    if (now >= this.#lastAt) {
      this.end()
      return
    }
    const next = this.#waiting.findIndex(({ mayTry }) => mayTry)
    if (next !== -1) this.#waiting.splice(next, 1)[0]?.goOn()
    if (this.#waiting.length > 0) this.#arm(now)
  }

  /** All go on: the token was accepted or replaced, or is old enough. */
  end(): void {
    this.#stopTimer?.()
    const waiting = this.#waiting
    this.#waiting = []
    this.#onEnd()
    for (const { goOn } of waiting) goOn()
  }
}
