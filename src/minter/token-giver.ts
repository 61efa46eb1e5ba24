/** Gives sidecars tokens from the cache of the minter, or from a new mint. One mint per Org serves all of them. */

import { LRUCache } from 'lru-cache'
import type { Caller } from '../callers/callers.ts'
import type { OrgId } from '../org-id.ts'
import { ageOf, type OrgTokens } from '../token/org-tokens.ts'
import type { TokenCache, TokenLookup } from '../token/token-cache.ts'
import type { AccessToken, Asker, MintReason } from '../token/token-source.ts'
import { Claims } from './claims.ts'
import { type GivenToken, idOf, textOf } from './message.ts'

const MAX_CLAIMS = 10_000 // remembered for each caller
/** Of `tokens.mintTimeout`: a sidecar with the same setting hears from its minter before it takes it for lost. */
const WAIT_SHARE = 0.8
const SHORT_PAUSE_MS = 1_000 // a claim waits for the end of a shorter one

export class TokenGiver {
  readonly #cache: TokenCache
  /** By the usage of a caller, which survives reloads: no caller makes the claims of another be forgotten. */
  readonly #claims = new WeakMap<object, LRUCache<OrgId, Claims>>()

  constructor(cache: TokenCache) {
    this.#cache = cache
  }

  /** `rejected`: the id of the token that the caller claims to be rejected by the service. @throws {TokenError} */
  async give(org: OrgId, { usage }: Caller, requestId: string, rejected?: string) {
    const cache = this.#cache
    const asker: Asker = { requester: usage, requestId }
    const tokens = cache.orgs.get(org)
    const current = tokens?.current
    const isClaimed = current !== undefined && idOf(current) === rejected
    const { token, result } = await (tokens === undefined
      ? this.#mint(org, 'cold', asker)
      : isClaimed
        ? this.#replace(org, tokens, asker, usage)
        : this.#renew(org, tokens, asker))
    const outcome = token !== current ? 'minted' : isClaimed ? 'unchanged' : 'held'
    return { given: this.#describe(org, token), outcome, result }
  }

  /** A sidecar keeps what it gets, so it gets no token that is in the last part of its life, unless there is no other. */
  async #renew(org: OrgId, tokens: OrgTokens, asker: Asker): Promise<TokenLookup> {
    const { current } = tokens
    const [now, day] = [this.#cache.now(), this.#cache.day()]
    if (tokens.hasEndedAt(now, day)) return await this.#mint(org, 'expired', asker)
    if (!tokens.isDueAt(now, day)) return { token: current, result: 'hit' }
    return await this.#mint(org, 'refresh', asker).catch(() => ({ token: current, result: 'stale' as const }))
  }

  /** The current token is claimed to be rejected. */
  async #replace(org: OrgId, tokens: OrgTokens, asker: Asker, usage: object): Promise<TokenLookup> {
    const cache = this.#cache
    // What comes while it is being replaced is the same claim.
    if (cache.isMinting(org)) return await this.#mint(org, 'rejected', asker)
    const { current } = tokens
    const claims = this.#claimsOf(usage, org)
    const ageMs = ageOf(current, cache.now(), cache.day())
    const isHeard = claims.admit(ageMs, cache.now(), cache.service.rules.rejectedCooldownMs)
    if (!isHeard) {
      const restMs = claims.noMintUntil - cache.now()
      if (restMs <= SHORT_PAUSE_MS) await cache.wait(restMs + 1)
      const next = cache.orgs.peek(org) ?? tokens
      const isSame = restMs <= SHORT_PAUSE_MS && next.current === current
      return await (isSame ? this.#replace(org, next, asker, usage) : this.#renew(org, next, asker))
    }
    const minted = await this.#mint(org, 'rejected', asker).catch((error: unknown) => {
      if (!cache.isMinting(org)) claims.noteFailedMint() // otherwise it goes on, and nobody waits for it any more
      throw error
    })
    if (minted.token === current) claims.noteUselessMint(cache.now())
    return minted
  }

  async #mint(org: OrgId, reason: MintReason, asker: Asker): Promise<TokenLookup> {
    const result = this.#cache.isMinting(org) ? 'joined' : 'miss'
    return { token: await this.#cache.awaitMint(org, reason, asker, WAIT_SHARE), result }
  }

  #claimsOf(usage: object, org: OrgId): Claims {
    const ofCaller = this.#claims.get(usage) ?? new LRUCache<OrgId, Claims>({ max: MAX_CLAIMS })
    this.#claims.set(usage, ofCaller)
    const claims = ofCaller.get(org) ?? new Claims()
    ofCaller.set(org, claims)
    return claims
  }

  #describe(org: OrgId, token: AccessToken): GivenToken {
    const { orgs, now, day, service } = this.#cache
    const tokens = orgs.peek(org)
    const known = (ms: number) => (Number.isFinite(ms) ? ms : null) // JSON has no Infinity
    return {
      id: idOf(token),
      token: textOf(token),
      ageMs: Math.ceil(ageOf(token, now(), day())),
      statedLifeMs: known(tokens?.current === token ? tokens.statedLifeMs : token.statedLifeMs),
      knownLifeMs: known(service.rules.lifetimeMs ?? tokens?.lives.knownMs ?? token.knownLifeMs),
    }
  }
}
