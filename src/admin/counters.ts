/** Counts by label. Every value of a label is known beforehand and starts at zero: a rate must not miss the first event. */

import type { Sample } from './exposition.ts'

/** Something that has each value of a label as a key: the compiler sees to it that none is missing. */
type KeyedBy<L extends string> = Readonly<Record<L, unknown>>

export class LabelledCounter<L extends string> {
  readonly #label: string
  readonly #counts: Map<L, number>

  constructor(label: string, values: KeyedBy<L>) {
    this.#label = label
    this.#counts = zeros(values)
  }

  add(value: L): void {
    this.#counts.set(value, (this.#counts.get(value) ?? 0) + 1)
  }

  get total(): number {
    let total = 0
    for (const count of this.#counts.values()) total += count
    return total
  }

  counts(): Record<L, number> {
    return Object.fromEntries(this.#counts) as Record<L, number>
  }

  samples(): Sample[] {
    return Array.from(this.#counts, ([value, count]) => ({ labels: { [this.#label]: value }, value: count }))
  }
}

export class PairCounter<A extends string, B extends string> {
  readonly #labels: readonly [string, string]
  readonly #rows: Map<A, LabelledCounter<B>>

  constructor(labels: readonly [string, string], first: KeyedBy<A>, second: KeyedBy<B>) {
    this.#labels = labels
    const keys = Object.keys(first) as A[]
    this.#rows = new Map(keys.map((value) => [value, new LabelledCounter(labels[1], second)]))
  }

  add(first: A, second: B): void {
    this.#rows.get(first)?.add(second)
  }

  samples(): Sample[] {
    return Array.from(this.#rows, ([value, row]) =>
      row.samples().map((sample) => ({ ...sample, labels: { [this.#labels[0]]: value, ...sample.labels } })),
    ).flat()
  }
}

function zeros<L extends string>(values: KeyedBy<L>): Map<L, number> {
  return new Map(Object.keys(values).map((value) => [value as L, 0]))
}
