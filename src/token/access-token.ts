/** One Org Access Token, held so that nothing prints it. */

import { Secret } from '../secret.ts'

/** Visible ASCII without white space: all that may stand in a field value as one word (RFC 9110 §5.5). */
const USABLE = /^[\x21-\x7e]+$/
const MAX_TOKEN_BYTES = 16 * 1024

/**
 * Its secret is the value of the `Authorization` field, rendered once. There may be a hundred thousand of these: times are
 * whole milliseconds, because V8 keeps small integers in place and gives every fraction, and `Infinity`, a box.
 */
export class AccessToken extends Secret {
  /** Monotonic milliseconds of the clock that the token source was given, taken before the mint was sent. */
  readonly mintedAt: number
  readonly #statedLifeMs: number | undefined

  /** `expiresAt`: the end that the token itself states, by the same clock. */
  constructor(token: string, mintedAt: number, expiresAt?: number) {
    // One flat string: V8 would keep a joined one as a tree of its parts until it is first written.
    super(Buffer.from(`Bearer ${token}`, 'latin1').toString('latin1'))
    this.mintedAt = Math.floor(mintedAt)
    this.#statedLifeMs = expiresAt === undefined ? undefined : Math.floor(expiresAt - mintedAt)
  }

  /** From the mint to the end that the token itself states, `Infinity` where it states none. */
  get statedLifeMs(): number {
    return this.#statedLifeMs ?? Number.POSITIVE_INFINITY
  }

  static isUsable(token: unknown): token is string {
    return typeof token === 'string' && token.length <= MAX_TOKEN_BYTES && USABLE.test(token)
  }
}
