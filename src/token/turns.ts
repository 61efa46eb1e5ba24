/**
 * Requests that wait for a token which the service has never accepted. They take turns in trying it, in growing pauses. When
 * the service accepts it, all go on at once.
 */

const FIRST_PAUSE_MS = 50
const MAX_PAUSE_MS = 200

interface TurnsOptions {
  /** At this instant all go on whatever the service says. */
  readonly lastAt: number
  readonly now: () => number
  readonly pause: (delayMs: number) => Promise<void>
  readonly onEnd: () => void
}

export class Turns {
  readonly #options: TurnsOptions
  #waiting: { readonly mayTry: boolean; readonly goOn: () => void }[] = []
  #pauseMs = FIRST_PAUSE_MS

  constructor(options: TurnsOptions) {
    this.#options = options
  }

  /** Resolves when the request should use the token. A request that could not be repeated does not try it. */
  wait(mayTry: boolean): Promise<void> {
    return new Promise((goOn) => {
      this.#waiting.push({ mayTry, goOn })
      if (this.#waiting.length === 1) this.#takeTurns()
    })
  }

  async #takeTurns(): Promise<void> {
    const { lastAt, now, pause } = this.#options
    while (this.#waiting.length > 0) {
      const delayMs = Math.max(Math.min(this.#pauseMs, lastAt - now()), 0)
      this.#pauseMs = Math.min(this.#pauseMs * 2, MAX_PAUSE_MS)
      await pause(delayMs)
      if (now() >= lastAt && this.#waiting.length > 0) this.end()
      const next = this.#waiting.findIndex(({ mayTry }) => mayTry)
      if (next !== -1) this.#waiting.splice(next, 1)[0]?.goOn()
    }
  }

  /** All go on: the token was accepted or replaced, or is old enough. */
  end(): void {
    const waiting = this.#waiting
    this.#waiting = []
    this.#options.onEnd()
    for (const { goOn } of waiting) goOn()
  }
}
