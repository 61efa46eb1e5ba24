/** One Org Access Token. It never prints itself. */

import { Secret } from '../secret.ts'

/** Visible ASCII without white space: one word of a field value (RFC 9110 §5.5). */
const USABLE = /^[\x21-\x7e]+$/
const MAX_TOKEN_BYTES = 16 * 1024

/**
 * Its secret is the value of the `Authorization` field, rendered once. There may be a hundred thousand tokens, so times are
 * whole milliseconds: V8 stores small integers inline, and allocates an object for each fraction and for `Infinity`.
 */
export class AccessToken extends Secret {
  /** Monotonic milliseconds, taken before the mint was sent. May lie in the past for a token that others share. */
  readonly mintedAt: number
  readonly #statedLifeMs: number | undefined

  /** `expiresAt` is the end that the token itself states, by the same clock as `mintedAt`. */
  constructor(token: string, mintedAt: number, expiresAt?: number) {
    // Makes one flat string. V8 would keep a concatenated one as a tree of its parts until it is first written.
    super(Buffer.from(`Bearer ${token}`, 'latin1').toString('latin1'))
    this.mintedAt = Math.floor(mintedAt)
    this.#statedLifeMs = expiresAt === undefined ? undefined : Math.floor(expiresAt - mintedAt)
  }

  /** From the mint to the end that the token itself states. `Infinity` if it states none. */
  get statedLifeMs(): number {
    return this.#statedLifeMs ?? Number.POSITIVE_INFINITY
  }

  static isUsable(token: unknown): token is string {
    return typeof token === 'string' && token.length <= MAX_TOKEN_BYTES && USABLE.test(token)
  }
}
