/** Counters by label. Every label value starts at zero, so that `rate()` sees the first event, too. */

import type { Sample } from './exposition.ts'

/** Any object whose keys are the label's values. The compiler checks that none is missing. */
type KeyedBy<L extends string> = Readonly<Record<L, unknown>>

export class LabelledCounter<L extends string> {
  readonly #label: string
  readonly #counts: Map<L, number>

  constructor(label: string, values: KeyedBy<L>) {
    this.#label = label
    this.#counts = new Map(keysOf(values).map((value) => [value, 0]))
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
  readonly #label: string
  readonly #rows: Map<A, LabelledCounter<B>>

  constructor(labels: readonly [string, string], first: KeyedBy<A>, second: KeyedBy<B>) {
    this.#label = labels[0]
    this.#rows = new Map(keysOf(first).map((value) => [value, new LabelledCounter(labels[1], second)]))
  }

  add(first: A, second: B): void {
    this.#rows.get(first)?.add(second)
  }

  samples(): Sample[] {
    return Array.from(this.#rows, ([value, row]) =>
      row.samples().map((sample) => ({ ...sample, labels: { [this.#label]: value, ...sample.labels } })),
    ).flat()
  }
}

function keysOf<L extends string>(values: KeyedBy<L>): L[] {
  return Object.keys(values) as L[]
}
