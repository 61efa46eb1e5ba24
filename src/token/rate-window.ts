/** At most so many calls in any stretch of one window: exact, where a leaky bucket would let twice as many through. */

export interface RateWindowOptions {
  readonly calls: number
  readonly windowMs: number
}

export class RateWindow {
  readonly #windowMs: number
  /** The instants of the last calls, a ring. */
  readonly #calledAt: Float64Array
  #oldest = 0

  constructor({ calls, windowMs }: RateWindowOptions) {
    this.#windowMs = windowMs
    this.#calledAt = new Float64Array(calls).fill(Number.NEGATIVE_INFINITY)
  }

  /** When the next call may be made; in the past where it may be made now. */
  get opensAt(): number {
    return (this.#calledAt[this.#oldest] ?? 0) + this.#windowMs
  }

  note(at: number): void {
    this.#calledAt[this.#oldest] = at
    this.#oldest = (this.#oldest + 1) % this.#calledAt.length
  }
}
