/** Gives sidecars tokens from the cache of the minter, or from a new mint. One mint per Org serves all of them. */

import { LRUCache } from 'lru-cache'
import type { Caller } from '../callers/callers.ts'
import { copyOfOrgId, type OrgId } from '../org-id.ts'
import type { OrgTokens } from '../token/org-tokens.ts'
import type { TokenCache, TokenLookup } from '../token/token-cache.ts'
import type { AccessToken, MintReason } from '../token/token-source.ts'
import { type GivenToken, idOf, textOf } from './message.ts'

const MAX_CLAIMS = 10_000 // remembered for each caller
/**
 * Of `tokens.mintTimeout`: calls that hang have given their places back by then, and a sidecar with the same setting hears from its
 * minter before it takes it for lost.
 */
const WAIT_SHARE = 0.9

/** Who asks for a token. */
export interface Asker {
  readonly caller: Caller
  readonly requestId: string
  readonly hasLeft: () => boolean
}

export class TokenGiver {
  readonly #cache: TokenCache
  /** When a claim of a caller about an Org may cause a mint. By the usage of a caller, which survives reloads. */
  readonly #nextClaimAt = new WeakMap<object, LRUCache<OrgId, number>>()

  constructor(cache: TokenCache) {
    this.#cache = cache
  }

  /**
   * `rejected`: the id of the token that the caller claims to be rejected by the service. `retryAfterSeconds` is set if it gets the
   * same token again, because its last claim was a short while ago. @throws {TokenError}
   */
  async give(org: OrgId, asker: Asker, rejected?: string) {
    const tokens = this.#cache.orgs.get(org)
    const current = tokens?.current
    const isClaimed = current !== undefined && idOf(current) === rejected
    const restMs = isClaimed ? this.#claim(org, asker.caller.usage) : 0
    const { token, result } = await this.#find(org, tokens, asker, isClaimed, restMs === 0)
    const isSame = isClaimed && token === current
    const outcome = token !== current ? 'minted' : isClaimed ? 'unchanged' : 'held'
    const retryAfterSeconds = isSame ? Math.max(1, Math.ceil(restMs / 1_000)) : undefined
    return { given: this.#describe(token), outcome, result, retryAfterSeconds }
  }

  /** A sidecar keeps what it gets, so it gets no token that is in the last part of its life, unless there is no other. */
  async #find(
    org: OrgId,
    tokens: OrgTokens | undefined,
    asker: Asker,
    isClaimed: boolean,
    mayMint: boolean,
  ): Promise<TokenLookup> {
    if (tokens === undefined) return await this.#mint(org, 'cold', asker)
    const { current } = tokens
    if (this.#cache.hasEnded(current)) return await this.#mint(org, 'expired', asker)
    // What comes while the token is being replaced is the same claim.
    if ((isClaimed && mayMint) || tokens.minting === 'rejected') {
      return await this.#mint(org, 'rejected', asker).catch((error: unknown) => {
        this.#nextClaimAt.get(asker.caller.usage)?.delete(org) // a claim that brought no token counts for nothing
        if (isClaimed || this.#cache.hasEnded(current)) throw error
        return { token: current, result: 'stale' as const } // the claim of another may be false
      })
    }
    if (!tokens.isDueAt(this.#cache.now(), this.#cache.day())) return { token: current, result: 'hit' }
    return await this.#mint(org, 'refresh', asker).catch(() => ({ token: current, result: 'stale' as const }))
  }

  /** Returns 0 if the claim may cause a mint; otherwise, for how many milliseconds none of this caller may. */
  #claim(org: OrgId, usage: object): number {
    const ofCaller = this.#nextClaimAt.get(usage) ?? new LRUCache<OrgId, number>({ max: MAX_CLAIMS })
    this.#nextClaimAt.set(usage, ofCaller)
    const now = this.#cache.now()
    const restMs = Math.max(0, (ofCaller.get(org) ?? 0) - now)
    if (restMs === 0) ofCaller.set(copyOfOrgId(org), now + this.#cache.rules.rejectedCooldownMs)
    return restMs
  }

  async #mint(org: OrgId, reason: MintReason, { caller, requestId, hasLeft }: Asker): Promise<TokenLookup> {
    const cache = this.#cache
    const result = cache.isMinting(org) ? 'joined' : 'miss'
    const waiter = { requester: caller.usage, requestId, hasLeft }
    return { token: await cache.awaitMint(org, reason, waiter, cache.mintTimeoutMs * WAIT_SHARE), result }
  }

  #describe(token: AccessToken): GivenToken {
    const { now, day } = this.#cache
    return {
      id: idOf(token),
      token: textOf(token),
      ageMs: Math.ceil(token.ageAt(now(), day())),
      statedLifeMs: Number.isFinite(token.statedLifeMs) ? token.statedLifeMs : null, // JSON has no Infinity
    }
  }
}
