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
    const restMs = isClaimed ? this.#restOfClaim(org, tokens, sidecar) : 0
    const { token, result } = await this.#find(org, tokens, sidecar, isClaimed && restMs === 0)
    const isSame = isClaimed && token === current
    const outcome = token !== current ? 'minted' : isClaimed ? 'unchanged' : 'held'
    const retryAfterSeconds = isSame ? Math.max(1, Math.ceil(restMs / 1_000)) : undefined
    const given: GivenToken = {
      id: idOf(token),
      token: token.reveal(),
      ageMs: Math.ceil(token.ageAt(this.#cache.now(), this.#cache.day())),
      statedLifeMs: Number.isFinite(token.statedLifeMs) ? token.statedLifeMs : null, // JSON has no Infinity
    }
    return { given, outcome, result, retryAfterSeconds }
  }

  /** Whoever does not claim gets what is held: the claim of another may be false, and its mint may hang. */
  async #find(org: OrgId, tokens: OrgTokens | undefined, sidecar: Sidecar, mayClaim: boolean): Promise<TokenLookup> {
    const cache = this.#cache
    if (tokens === undefined) return await this.#mint(org, 'cold', sidecar)
    if (cache.hasEnded(tokens.current)) return await this.#mint(org, 'expired', sidecar)
    if (mayClaim) return await this.#claim(org, sidecar)
    return { token: tokens.current, result: cache.renewIfDue(org, tokens) ? 'refreshing' : 'hit' }
  }

  /** For how many milliseconds no claim of this caller may cause a mint. What comes while the token is replaced is the same claim. */
  #restOfClaim(org: OrgId, tokens: OrgTokens | undefined, { requester }: Sidecar): number {
    if (tokens?.minting === 'rejected') return 0
    return Math.max(0, (this.#nextClaimAt.get(requester)?.get(org) ?? 0) - this.#cache.now())
  }

  /** A claim that joins the mint of another, or brings no token, does not count. */
  async #claim(org: OrgId, sidecar: Sidecar): Promise<TokenLookup> {
    if (this.#cache.isMinting(org)) return await this.#mint(org, 'rejected', sidecar)
    const { requester } = sidecar
    const ofCaller = this.#nextClaimAt.get(requester) ?? new LRUCache<OrgId, number>({ max: MAX_CLAIMS })
    this.#nextClaimAt.set(requester, ofCaller)
    ofCaller.set(copyOfOrgId(org), this.#cache.now() + this.#cache.rules.rejectedCooldownMs)
    return await this.#mint(org, 'rejected', sidecar).catch((error: unknown) => {
      ofCaller.delete(org)
      throw error
    })
  }

  async #mint(org: OrgId, reason: MintReason, sidecar: Sidecar): Promise<TokenLookup> {
    const cache = this.#cache
    const result = cache.isMinting(org) ? 'joined' : 'miss'
    return { token: await cache.awaitMint(org, reason, sidecar, cache.mintTimeoutMs * WAIT_SHARE), result }
  }
}
