/** Gives sidecars tokens from the cache of the minter, or from a new mint. One mint per Org serves all of them. */

import { LRUCache } from 'lru-cache'
import type { Caller } from '../callers/callers.ts'
import type { OrgId } from '../org-id.ts'
import { ageOf, type OrgTokens } from '../token/org-tokens.ts'
import type { TokenCache } from '../token/token-cache.ts'
import type { AccessToken, Asker, MintReason } from '../token/token-source.ts'
import { Claims } from './claims.ts'
import { type GivenToken, idOf, textOf } from './message.ts'

/** `unchanged`: the token was claimed to be rejected, and there is no other now. */
export type GiftOutcome = 'held' | 'minted' | 'unchanged'

/** Claims that are remembered for each caller. */
const MAX_CLAIMS = 10_000

export class TokenGiver {
  readonly #cache: TokenCache
  /** By the usage of a caller, which survives reloads: no caller makes the claims of another be forgotten. */
  readonly #claims = new WeakMap<object, LRUCache<OrgId, Claims>>()

  constructor(cache: TokenCache) {
    this.#cache = cache
  }

  /** `rejected` is the id of the token that the service has rejected, as the caller claims. @throws {TokenError} */
  async give(org: OrgId, { usage }: Caller, requestId: string, rejected?: string) {
    const cache = this.#cache
    const asker: Asker = { requester: usage, requestId }
    const tokens = cache.orgs.get(org)
    if (tokens === undefined) return this.#gift(org, await cache.awaitMint(org, 'cold', asker), 'minted')
    const { current } = tokens
    const isClaimed = idOf(current) === rejected
    const token = await (isClaimed ? this.#replace(org, tokens, asker, usage) : this.#renew(org, tokens, asker))
    if (token === current) return this.#gift(org, token, isClaimed ? 'unchanged' : 'held')
    return this.#gift(org, token, 'minted')
  }

  /** A sidecar keeps what it gets, so it gets no token that is in the last part of its life, unless there is no other. */
  async #renew(org: OrgId, tokens: OrgTokens, asker: Asker): Promise<AccessToken> {
    const cache = this.#cache
    const [now, day] = [cache.now(), cache.day()]
    const { current } = tokens
    const reason: MintReason | false = tokens.isBeingReplaced
      ? 'rejected'
      : tokens.hasEndedAt(now, day)
        ? 'expired'
        : tokens.isDueAt(now, day) && 'refresh'
    if (reason === false) return current
    const minting = cache.awaitMint(org, reason, asker)
    return await (reason === 'refresh' ? minting.catch(() => current) : minting)
  }

  /** The current token is claimed to be rejected. */
  async #replace(org: OrgId, tokens: OrgTokens, asker: Asker, usage: object): Promise<AccessToken> {
    const cache = this.#cache
    // What comes while it is being replaced is the same claim.
    if (cache.isMinting(org)) return await cache.awaitMint(org, 'rejected', asker)
    const { current } = tokens
    const claims = this.#claimsOf(usage, org)
    const ageMs = ageOf(current, cache.now(), cache.day())
    if (!claims.admit(ageMs, cache.now(), cache.service.rules.rejectedCooldownMs)) {
      return await this.#renew(org, tokens, asker)
    }
    try {
      const token = await cache.awaitMint(org, 'rejected', asker)
      if (token === current) claims.noteUselessMint(cache.now())
      return token
    } catch (error) {
      claims.noteFailedMint()
      throw error
    }
  }

  #claimsOf(usage: object, org: OrgId): Claims {
    const ofCaller = this.#claims.get(usage) ?? new LRUCache<OrgId, Claims>({ max: MAX_CLAIMS })
    this.#claims.set(usage, ofCaller)
    const claims = ofCaller.get(org) ?? new Claims()
    ofCaller.set(org, claims)
    return claims
  }

  #gift(org: OrgId, token: AccessToken, outcome: GiftOutcome) {
    const { orgs, now, day, service } = this.#cache
    const found = orgs.peek(org)
    const tokens = found?.current === token ? found : undefined
    const given: GivenToken = {
      id: idOf(token),
      token: textOf(token),
      ageMs: Math.ceil(ageOf(token, now(), day())),
      statedLifeMs: finite(tokens?.statedLifeMs ?? token.statedLifeMs),
      knownLifeMs: finite(service.rules.lifetimeMs ?? tokens?.lives.knownMs ?? token.knownLifeMs),
    }
    return { given, outcome }
  }
}

/** `Infinity`, which JSON has not, becomes null. */
function finite(spanMs: number): number | null {
  return Number.isFinite(spanMs) ? spanMs : null
}
