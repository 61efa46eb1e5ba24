/**
 * Does what the rules say for one request whose token was rejected, or may have ended: waits, mints, and gives the token for
 * the next repeat. `token/rejection.ts` decides.
 */

import type { OrgId } from '../org-id.ts'
import type { RequestLine } from '../token/org-tokens.ts'
import { type Answer, Rejection } from '../token/rejection.ts'
import type { Meaning } from '../token/service-facts.ts'
import type { TokenCache, Waiter } from '../token/token-cache.ts'
import type { AccessToken } from '../token/token-source.ts'

/** The request, as far as it matters for its token. */
interface RejectedRequest extends RequestLine, Waiter {
  readonly org: OrgId
}

export class RejectedToken {
  readonly #cache: TokenCache
  readonly #request: RejectedRequest
  readonly #rejection: Rejection

  constructor(cache: TokenCache, request: RejectedRequest) {
    this.#cache = cache
    this.#request = request
    this.#rejection = new Rejection(request, request.kind)
  }

  get kind() {
    return this.#rejection.kind
  }

  get outcome() {
    return this.#rejection.outcome
  }

  /**
   * Resolves with the token for the next repeat; undefined if the client gets the response. The promise rejects with a
   * `TokenError` if there is no token.
   */
  judge(answer: Answer, meaning: Meaning): Promise<AccessToken> | undefined {
    const cache = this.#cache
    const { org } = this.#request
    const next = this.#rejection.judge(cache.orgs.peek(org), answer, meaning, cache.now(), cache.day())
    if (next === undefined) return undefined
    if ('token' in next) {
      const { token, afterMs } = next
      return afterMs === 0 ? Promise.resolve(token) : cache.wait(afterMs).then(() => token)
    }
    if (next.wait === 'mint') return this.#mint(answer.token, next.ifItFails)
    return cache.obtain(org, { ...this.#request, until: next.until }).then(({ token }) => token)
  }

  async #mint(rejected: AccessToken, ifItFails: 'error' | 'pass'): Promise<AccessToken> {
    const cache = this.#cache
    const { org } = this.#request
    const token = await cache.awaitMint(org, 'rejected', this.#request).catch((error: unknown) => {
      if (ifItFails === 'error') throw error
      return rejected
    })
    if (token === rejected) this.#rejection.giveUp(cache.orgs.peek(org), cache.now())
    return token
  }
}
