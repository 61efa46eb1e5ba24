/** Future events, in order of their instants; in order of arrival for the same instant. */

interface Event {
  readonly at: number
  readonly run: () => void
}

export class EventQueue {
  /** The next one is the last. */
  readonly #events: Event[] = []

  get nextAt(): number {
    return this.#events.at(-1)?.at ?? Number.POSITIVE_INFINITY
  }

  add(at: number, run: () => void): void {
    let low = 0
    let high = this.#events.length
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#events[middle]?.at ?? at) > at) low = middle + 1
      else high = middle
    }
    this.#events.splice(low, 0, { at, run })
  }

  /** Removes the next event. */
  take(): (() => void) | undefined {
    return this.#events.pop()?.run
  }
}
