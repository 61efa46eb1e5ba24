/** Who has sent most requests in the last minutes, and who has met most errors: Orgs or callers. */

import { LRUCache } from 'lru-cache'

export interface Count {
  requests: number
  errors: number
}

/** Whoever is busy stays among those that were seen last. */
const MAX_NAMES = 1_000
const HALF_MS = 150_000
export const MAX_SHOWN = 5

const newHalf = () => new LRUCache<string, Count>({ max: MAX_NAMES })

/** Counts in two halves of five minutes: the present one, and the one before. Instants are monotonic milliseconds. */
export class Busiest {
  #present = newHalf()
  #former = newHalf()
  #endsAt = HALF_MS

  /** `name` may be a slice of a head. */
  add(name: string, isError: boolean, now: number): void {
    if (now >= this.#endsAt) this.#turn(now)
    let count = this.#present.get(name)
    if (count === undefined) {
      count = { requests: 0, errors: 0 }
      this.#present.set(Buffer.from(name, 'latin1').toString('latin1'), count)
    }
    count.requests++
    if (isError) count.errors++
  }

  /** How many were seen. */
  size(now: number): number {
    if (now >= this.#endsAt) this.#turn(now)
    return new Set([...this.#former.keys(), ...this.#present.keys()]).size
  }

  /** The five first of each, those with most first. */
  shown(now: number) {
    if (now >= this.#endsAt) this.#turn(now)
    const sums = new Map<string, Count & { readonly name: string }>()
    for (const half of [this.#former, this.#present]) {
      half.forEach(({ requests, errors }, name) => {
        const before = sums.get(name)
        sums.set(name, {
          name,
          requests: requests + (before?.requests ?? 0),
          errors: errors + (before?.errors ?? 0),
        })
      })
    }
    const mostOf = (what: keyof Count) =>
      [...sums.values()]
        .filter((sum) => sum[what] > 0)
        .sort((a, b) => b[what] - a[what] || (a.name < b.name ? -1 : 1))
        .slice(0, MAX_SHOWN)
    return { busiest: mostOf('requests'), failing: mostOf('errors') }
  }

  #turn(now: number): void {
    this.#former = now < this.#endsAt + HALF_MS ? this.#present : newHalf()
    this.#present = newHalf()
    this.#endsAt = now + HALF_MS
  }
}
