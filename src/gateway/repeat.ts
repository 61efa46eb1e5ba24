/**
 * The one repeat that a rejected token invites (RFC 9110 §15.5.2). It can go when three things are there, in whatever
 * order they come: the rejection has been read away, the replacement has been obtained, the content has been kept whole.
 */

import type { AccessToken } from '../token/access-token.ts'
import type { ReplayContent } from './replay-content.ts'

export interface RepeatTarget {
  repeat(token: AccessToken): void
  repeatFailed(error: unknown): void
}

/** A rejection larger than this costs its connection rather than being read to its end. */
const MAX_DISCARDED_BYTES = 64 * 1024

export class Repeat {
  readonly #target: RepeatTarget
  #token: AccessToken | undefined
  #isContentReady = false
  #isResponseGone = false
  #discardedBytes = 0

  constructor(target: RepeatTarget, replacement: Promise<AccessToken>, content: ReplayContent | undefined) {
    this.#target = target
    replacement.then(
      (token) => {
        this.#token = token
        this.#goWhenReady()
      },
      (error: unknown) => target.repeatFailed(error),
    )
    if (content === undefined) {
      this.#isContentReady = true
      return
    }
    content.whenWhole(() => {
      this.#isContentReady = true
      this.#goWhenReady()
    })
  }

  /** Reads so many octets of the rejection away; false where it is too large to go on with. */
  discard(bytes: number): boolean {
    this.#discardedBytes += bytes
    return this.#discardedBytes <= MAX_DISCARDED_BYTES
  }

  /** The rejection has ended, well or not: its connection is free or gone. */
  responseGone(): void {
    this.#isResponseGone = true
    this.#goWhenReady()
  }

  #goWhenReady(): void {
    if (this.#token === undefined || !this.#isContentReady || !this.#isResponseGone) return
    const token = this.#token
    this.#token = undefined
    this.#target.repeat(token)
  }
}
