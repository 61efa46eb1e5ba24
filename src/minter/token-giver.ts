/** Gives sidecars tokens from the cache of the minter, or from a new mint. One mint per Org serves all of them. */

import { LRUCache } from 'lru-cache'
import { copyOfOrgId, type OrgId } from '../org-id.ts'
import type { Org, Waiter } from '../token/org.ts'
import type { Orgs } from '../token/orgs.ts'
import type { TokenResult } from '../token/request-token.ts'
import type { AccessToken, MintReason } from '../token/token-source.ts'
import { type GivenToken, idOf } from './message.ts'

const MAX_CLAIMS = 10_000 // remembered for each caller
/**
 * Of `tokens.mintTimeout`: calls that hang have given their places back by then, and a sidecar with the same setting hears from its
 * minter before it takes it for lost.
 */
const WAIT_SHARE = 0.9

/** Who asks for a token. The requester is the usage of a caller, which survives reloads. */
type Sidecar = Waiter & { readonly requester: object }

interface Found {
  readonly token: AccessToken
  readonly result: TokenResult
}

export class TokenGiver {
  readonly #orgs: Orgs
  /** By requester: when its claim about an Org may cause a mint. */
  readonly #nextClaimAt = new WeakMap<object, LRUCache<OrgId, number>>()

  constructor(orgs: Orgs) {
    this.#orgs = orgs
  }

  /**
   * `rejected`: the id of the token that the caller claims to be rejected by the service. `retryAfterSeconds` is set if it gets the
   * same token again, because its last claim was a short while ago. @throws {TokenError}
   */
  async give(org: OrgId, sidecar: Sidecar, rejected?: string) {
    const holder = this.#orgs.get(org)
    const current = holder?.current
    const isClaimed = current !== undefined && idOf(current) === rejected
    const restMs = isClaimed ? this.#restOfClaim(org, holder, sidecar) : 0
    const { token, result } = await this.#find(org, holder, sidecar, isClaimed && restMs === 0)
    const isSame = isClaimed && token === current
    const outcome = token !== current ? 'minted' : isClaimed ? 'unchanged' : 'held'
    const retryAfterSeconds = isSame ? Math.max(1, Math.ceil(restMs / 1_000)) : undefined
    const { now, day } = this.#orgs.clock
    const given: GivenToken = {
      id: idOf(token),
      token: token.reveal(),
      ageMs: Math.ceil(token.ageAt(now(), day())),
      statedLifeMs: Number.isFinite(token.statedLifeMs) ? token.statedLifeMs : null, // JSON has no Infinity
    }
    return { given, outcome, result, retryAfterSeconds }
  }

  /** Whoever does not claim gets what is held: the claim of another may be false, and its mint may hang. */
  async #find(org: OrgId, holder: Org | undefined, sidecar: Sidecar, mayClaim: boolean): Promise<Found> {
    const orgs = this.#orgs
    const current = holder?.current
    if (holder === undefined || current === undefined) return await this.#mint(org, 'cold', sidecar)
    if (holder.hasEnded) return await this.#mint(org, 'expired', sidecar)
    if (mayClaim) return await this.#claim(org, sidecar)
    return { token: current, result: orgs.renewIfDue(holder) ? 'refreshing' : 'hit' }
  }

  /** For how many milliseconds no claim of this caller may cause a mint. What comes while the token is replaced is the same claim. */
  #restOfClaim(org: OrgId, holder: Org | undefined, { requester }: Sidecar): number {
    if (holder?.isBeingReplaced) return 0
    return Math.max(0, (this.#nextClaimAt.get(requester)?.get(org) ?? 0) - this.#orgs.clock.now())
  }

  /** A claim that joins the mint of another, or whose mint fails, does not count. One that gives up does: its mint goes on. */
  #claim(org: OrgId, sidecar: Sidecar): Promise<Found> {
    const isJoining = this.#orgs.peek(org)?.mint !== undefined
    const found = this.#mint(org, 'rejected', sidecar)
    if (isJoining) return found
    const { requester } = sidecar
    const ofCaller = this.#nextClaimAt.get(requester) ?? new LRUCache<OrgId, number>({ max: MAX_CLAIMS })
    this.#nextClaimAt.set(requester, ofCaller)
    ofCaller.set(copyOfOrgId(org), this.#orgs.clock.now() + this.#orgs.rules.rejectedCooldownMs)
    this.#orgs.peek(org)?.mint?.token.catch(() => ofCaller.delete(org))
    return found
  }

  async #mint(org: OrgId, reason: MintReason, sidecar: Sidecar): Promise<Found> {
    const orgs = this.#orgs
    const result = orgs.peek(org)?.mint === undefined ? 'miss' : 'joined'
    return { token: await orgs.awaitMint(org, reason, sidecar, orgs.mintTimeoutMs * WAIT_SHARE), result }
  }
}
