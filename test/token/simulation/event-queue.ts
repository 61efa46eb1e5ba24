/** Future events: a binary heap by instant, in order of arrival for the same instant. */

interface Event {
  readonly at: number
  readonly order: number
  readonly run: () => void
}

export class EventQueue {
  readonly #heap: Event[] = []
  #order = 0

  get nextAt(): number {
    return this.#heap[0]?.at ?? Number.POSITIVE_INFINITY
  }

  add(at: number, run: () => void): void {
    const event = { at, order: this.#order++, run }
    let index = this.#heap.length
    while (index > 0) {
      const parent = (index - 1) >> 1
      const above = this.#heap[parent]
      if (above === undefined || !isBefore(event, above)) break
      this.#heap[index] = above
      index = parent
    }
    this.#heap[index] = event
  }

  /** Removes the next event. */
  take(): (() => void) | undefined {
    const [first] = this.#heap
    const last = this.#heap.pop()
    if (first === undefined || last === undefined) return undefined
    if (this.#heap.length > 0) this.#sink(last)
    return first.run
  }

  #sink(event: Event): void {
    let index = 0
    for (;;) {
      const child = this.#smallerChild(index)
      const below = this.#heap[child]
      if (below === undefined || !isBefore(below, event)) break
      this.#heap[index] = below
      index = child
    }
    this.#heap[index] = event
  }

  #smallerChild(index: number): number {
    const left = this.#heap[2 * index + 1]
    const right = this.#heap[2 * index + 2]
    return left !== undefined && right !== undefined && isBefore(right, left) ? 2 * index + 2 : 2 * index + 1
  }
}

function isBefore(one: Event, other: Event): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order)
}
