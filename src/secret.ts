/** A value that no log, error, inspector or serializer can print: only `reveal()` gives it away. */

import { inspect } from 'node:util'

const MASK = '[redacted]'

/** Base of every object that holds a secret. It prints as this mask, whatever prints it. */
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

/** Calls of `reveal` are the audit: each stands where a wire format needs the value. */
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
