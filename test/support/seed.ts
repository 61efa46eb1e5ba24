/** Repeatable random schedules: a seeded generator, and the seed in the message of a failure. */

import { randomInt } from 'node:crypto'

/** mulberry32: small, fast, the same sequence everywhere. Not for secrets. */
export class Random {
  readonly seed: number
  #state: number

  constructor(seed: number) {
    this.seed = seed
    this.#state = seed >>> 0
  }

  /** A separate generator for one of many concurrent users, so that their order does not matter. */
  numbered(index: number): Random {
    return new Random((Math.imul(this.seed, 0x9e3779b1) ^ index) >>> 0)
  }

  /** At least 0, below 1. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = this.#state
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  /** Both ends included. */
  integer(from: number, to: number): number {
    return from + Math.floor(this.next() * (to - from + 1))
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  pick<T>(items: readonly [T, ...T[]] | readonly T[]): T {
    if (items.length === 0) throw new Error('nothing to pick from')
    return items[this.integer(0, items.length - 1)] as T
  }

  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.integer(0, 255)))
  }
}

/** `TEST_SEED` repeats one schedule. Without it, every run uses a new seed. */
export function chooseSeed(): number {
  const { TEST_SEED: fixed } = process.env
  return fixed === undefined ? randomInt(2 ** 31) : Number(fixed)
}

/** Runs with a seeded generator. A failure names the seed. */
export async function withSeed<T>(run: (random: Random) => T | Promise<T>, seed: number = chooseSeed()): Promise<T> {
  try {
    return await run(new Random(seed))
  } catch (cause) {
    throw new Error(`failed with TEST_SEED=${seed}: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    })
  }
}
