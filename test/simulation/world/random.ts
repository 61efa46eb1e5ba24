/** Random numbers from a seed (mulberry32). Each part of the world has its own, so that a change of one leaves the others as they were. */
export class Random {
  #state: number

  constructor(seed: number, part = '') {
    this.#state = seed
    for (const character of part) this.#state = Math.imul(this.#state ^ character.charCodeAt(0), 0x5bd1e995)
    this.next()
  }

  /** At least 0, and less than 1. */
  readonly next = (): number => {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  /** Both ends are possible. */
  whole(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1))
  }

  between(least: number, most: number): number {
    return least + this.next() * (most - least)
  }

  /** Of each order of magnitude about as many. */
  spread(least: number, most: number): number {
    return least * (most / least) ** this.next()
  }

  chance(probability: number): boolean {
    return this.next() < probability
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.whole(0, choices.length - 1)] as T
  }

  bytes(length: number): Buffer {
    const bytes = Buffer.allocUnsafe(length)
    for (let i = 0; i < length; i++) bytes[i] = Math.floor(this.next() * 256)
    return bytes
  }
}
