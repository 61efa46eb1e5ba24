/** Counts by label. Every value that is known beforehand starts at zero: a rate must not miss the first event. */

import type { Labels, Sample } from './exposition.ts'

/** One label with a closed set of values. */
export class LabelledCounter<L extends string> {
  readonly #label: string
  readonly #counts = new Map<L, number>()

  constructor(label: string, values: Iterable<L>) {
    this.#label = label
    for (const value of values) this.#counts.set(value, 0)
  }

  add(value: L): void {
    this.#counts.set(value, this.of(value) + 1)
  }

  of(value: L): number {
    return this.#counts.get(value) ?? 0
  }

  get total(): number {
    let total = 0
    for (const count of this.#counts.values()) total += count
    return total
  }

  samples(): Sample[] {
    return Array.from(this.#counts, ([value, count]) => ({ labels: { [this.#label]: value }, value: count }))
  }
}

/** Two labels, each with a closed set of values. */
export class PairCounter<A extends string, B extends string> {
  readonly #labels: readonly [string, string]
  readonly #counts = new Map<A, Map<B, number>>()

  constructor(labels: readonly [string, string], first: Iterable<A>, second: readonly B[]) {
    this.#labels = labels
    for (const value of first) this.#counts.set(value, new Map(second.map((other) => [other, 0])))
  }

  add(first: A, second: B): void {
    let counts = this.#counts.get(first)
    if (counts === undefined) {
      counts = new Map()
      this.#counts.set(first, counts)
    }
    counts.set(second, (counts.get(second) ?? 0) + 1)
  }

  samples(): Sample[] {
    return Array.from(this.#counts, ([first, counts]) =>
      Array.from(counts, ([second, value]) => ({ labels: this.#pair(first, second), value })),
    ).flat()
  }

  #pair(first: A, second: B): Labels {
    const [firstLabel, secondLabel] = this.#labels
    return { [firstLabel]: first, [secondLabel]: second }
  }
}
