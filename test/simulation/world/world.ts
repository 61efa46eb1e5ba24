/** The virtual clock, and what happens on it outside of the simulated processes: packets, scripts of peers, the operator. */

import type { Loop } from './loop.ts'
import { Random } from './random.ts'

/** The time of day when each world begins. */
export const DAY_ZERO = Date.UTC(2026, 0, 1)

interface Event {
  readonly at: number
  readonly order: number
  readonly run: () => void
  isCancelled: boolean
}

export class World {
  readonly seed: number
  /** Milliseconds since the world began. */
  now = 0
  readonly network: Random
  readonly #events: Event[] = []
  #order = 0
  readonly #loops: Loop[] = []
  /** What happened, for people. Undefined where nobody reads it. */
  readonly #lines: string[] | undefined
  #hash = 0
  /** Faults that the world itself notices: errors that nobody caught. */
  readonly faults: string[] = []

  constructor(seed: number, isTraced = false) {
    this.seed = seed
    this.network = new Random(seed, 'network')
    this.#lines = isTraced ? [] : undefined
  }

  get day(): number {
    return DAY_ZERO + Math.floor(this.now)
  }

  add(loop: Loop): void {
    this.#loops.push(loop)
  }

  /** Returns a function that takes it back. */
  after(delayMs: number, run: () => void): () => void {
    return this.at(this.now + delayMs, run)
  }

  at(at: number, run: () => void): () => void {
    const event = { at: Math.max(at, this.now), order: this.#order++, run, isCancelled: false }
    push(this.#events, event)
    return () => {
      event.isCancelled = true
    }
  }

  /** Tells what happened. All of it makes the hash, by which two runs of one seed are compared. */
  tell(who: string, what: string): void {
    const line = `${this.now.toFixed(3).padStart(11)} ${who.padEnd(12)} ${what}`
    this.#lines?.push(line)
    for (let i = 0; i < line.length; i++) this.#hash = (Math.imul(this.#hash, 31) + line.charCodeAt(i)) | 0
  }

  get trace(): readonly string[] {
    return this.#lines ?? []
  }

  get hash(): string {
    return (this.#hash >>> 0).toString(16).padStart(8, '0')
  }

  /** Runs until `isOver`, until nothing is left to happen, or until the time `until`. Nothing else may run meanwhile. */
  run(until: number, isOver: () => boolean = () => false): void {
    while (!isOver()) {
      const event = this.#events[0]
      let loop: Loop | undefined
      for (const each of this.#loops) if (loop === undefined || each.wakesAt < loop.wakesAt) loop = each
      const at = Math.min(event?.at ?? Number.POSITIVE_INFINITY, loop?.wakesAt ?? Number.POSITIVE_INFINITY)
      if (at > until) {
        this.now = Math.max(this.now, Math.min(until, at))
        return
      }
      this.now = Math.max(this.now, at)
      if (event !== undefined && event.at <= this.now) {
        pop(this.#events)
        if (!event.isCancelled) event.run()
      } else loop?.turn()
    }
  }
}

const isBefore = (one: Event, other: Event): boolean =>
  one.at < other.at || (one.at === other.at && one.order < other.order)

/** A binary heap: the next event is the first one. */
function push(heap: Event[], event: Event): void {
  let at = heap.length
  heap.push(event)
  while (at > 0) {
    const parentAt = (at - 1) >> 1
    const parent = heap[parentAt] as Event
    if (!isBefore(event, parent)) break
    heap[at] = parent
    at = parentAt
  }
  heap[at] = event
}

function pop(heap: Event[]): void {
  const last = heap.pop() as Event
  if (heap.length === 0) return
  let at = 0
  for (;;) {
    let childAt = 2 * at + 1
    if (childAt >= heap.length) break
    const [left, right] = [heap[childAt] as Event, heap[childAt + 1]]
    if (right !== undefined && isBefore(right, left)) childAt++
    const child = heap[childAt] as Event
    if (!isBefore(child, last)) break
    heap[at] = child
    at = childAt
  }
  heap[at] = last
}
