/** Time as a number that the test owns. */

export class ManualClock {
  #nowMs: number

  constructor(nowMs = 0) {
    this.#nowMs = nowMs
  }

  /** Bound, so that it can be passed as `now: () => number`. */
  readonly now = (): number => this.#nowMs

  advance(byMs: number): void {
    if (byMs < 0) throw new RangeError('this clock is monotonic')
    this.#nowMs += byMs
  }
}
