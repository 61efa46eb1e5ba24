/** Gives sidecars tokens from the cache of the minter, or from a new mint. One mint per Org serves all of them. */

import { LRUCache } from 'lru-cache'
import { copyOfOrgId, type OrgId } from '../org-id.ts'
import type { OrgTokens } from '../token/org-tokens.ts'
import type { TokenCache, TokenLookup, Waiter } from '../token/token-cache.ts'
import type { MintReason } from '../token/token-source.ts'
import { type GivenToken, idOf } from './message.ts'

const MAX_CLAIMS = 10_000 // remembered for each caller
/**
 * Of `tokens.mintTimeout`: calls that hang have given their places back by then, and a sidecar with the same setting hears from its
 * minter before it takes it for lost.
 */
const WAIT_SHARE = 0.9

/** Who asks for a token. The requester is the usage of a caller, which survives reloads. */
type Sidecar = Waiter & { readonly requester: object }

export class TokenGiver {
  readonly #cache: TokenCache
  /** By requester: when its claim about an Org may cause a mint. */
  readonly #nextClaimAt = new WeakMap<object, LRUCache<OrgId, number>>()

  constructor(cache: TokenCache) {
    this.#cache = cache
  }

  /**
   * `rejected`: the id of the token that the caller claims to be rejected by the service. `retryAfterSeconds` is set if it gets the
   * same token again, because its last claim was a short while ago. @throws {TokenError}
   */
  async give(org: OrgId, sidecar: Sidecar, rejected?: string) {
    const tokens = this.#cache.orgs.get(org)
    const current = tokens?.current
    const isClaimed = current !== undefined && idOf(current) === rejected
    const restMs = isClaimed ? this.#claim(org, sidecar) : 0
    const { token, result } = await this.#find(org, tokens, sidecar, isClaimed, restMs === 0)
    const isSame = isClaimed && token === current
    const outcome = token !== current ? 'minted' : isClaimed ? 'unchanged' : 'held'
    const retryAfterSeconds = isSame ? Math.max(1, Math.ceil(restMs / 1_000)) : undefined
    const given: GivenToken = {
      id: idOf(token),
      token: token.revealText(),
      ageMs: Math.ceil(token.ageAt(this.#cache.now(), this.#cache.day())),
      statedLifeMs: Number.isFinite(token.statedLifeMs) ? token.statedLifeMs : null, // JSON has no Infinity
    }
    return { given, outcome, result, retryAfterSeconds }
  }

  /** A sidecar keeps what it gets, so it gets no token that is in the last part of its life, unless there is no other. */
  async #find(
    org: OrgId,
    tokens: OrgTokens | undefined,
    sidecar: Sidecar,
    isClaimed: boolean,
    mayMint: boolean,
  ): Promise<TokenLookup> {
    if (tokens === undefined) return await this.#mint(org, 'cold', sidecar)
    const { current } = tokens
    if (this.#cache.hasEnded(current)) return await this.#mint(org, 'expired', sidecar)
    // What comes while the token is being replaced is the same claim.
    if ((isClaimed && mayMint) || tokens.minting === 'rejected') {
      return await this.#mint(org, 'rejected', sidecar).catch((error: unknown) => {
        this.#nextClaimAt.get(sidecar.requester)?.delete(org) // a claim that brought no token counts for nothing
        if (isClaimed || this.#cache.hasEnded(current)) throw error
        return { token: current, result: 'stale' as const } // the claim of another may be false
      })
    }
    if (!tokens.isDueAt(this.#cache.now(), this.#cache.day())) return { token: current, result: 'hit' }
    return await this.#mint(org, 'refresh', sidecar).catch(() => ({ token: current, result: 'stale' as const }))
  }

  /** Returns 0 if the claim may cause a mint; otherwise, for how many milliseconds none of this caller may. */
  #claim(org: OrgId, { requester }: Sidecar): number {
    const ofCaller = this.#nextClaimAt.get(requester) ?? new LRUCache<OrgId, number>({ max: MAX_CLAIMS })
    this.#nextClaimAt.set(requester, ofCaller)
    const now = this.#cache.now()
    const restMs = Math.max(0, (ofCaller.get(org) ?? 0) - now)
    if (restMs === 0) ofCaller.set(copyOfOrgId(org), now + this.#cache.rules.rejectedCooldownMs)
    return restMs
  }

  async #mint(org: OrgId, reason: MintReason, sidecar: Sidecar): Promise<TokenLookup> {
    const cache = this.#cache
    const result = cache.isMinting(org) ? 'joined' : 'miss'
    return { token: await cache.awaitMint(org, reason, sidecar, cache.mintTimeoutMs * WAIT_SHARE), result }
  }
}
