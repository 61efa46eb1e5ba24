/** A value that no log, error, inspector or serializer can print: only `reveal()` gives it away. */

import { inspect } from 'node:util'

const MASK = '[redacted]'

/** Base of every object that holds a secret. Every way to print it gives the mask. */
export abstract class Redacted {
  toString(): string {
    return MASK
  }

  toJSON(): string {
    return MASK
  }

  [inspect.custom](): string {
    return MASK
  }
}

/** Each call of `reveal` is a place where a wire format needs the value: a search for it finds all of them. */
export class Secret extends Redacted {
  readonly #value: string

  constructor(value: string) {
    super()
    this.#value = value
  }

  reveal(): string {
    return this.#value
  }

  equals(other: Secret): boolean {
    return this.#value === other.#value
  }
}
