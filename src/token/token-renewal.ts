/** How an org comes by its next token: the mints for it, what becomes of them in the store, and when to try again. */

import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'
import type { LifetimeEstimator } from './lifetime.ts'
import { type FlightOwner, MintFlights } from './mint-flights.ts'
import { TokenEntry } from './token-entry.ts'
import type { TokenObserver } from './token-observer.ts'
import type { MintReason, TokenSource } from './token-source.ts'
import type { TokenStore } from './token-store.ts'

export interface TokenRenewalOptions {
  readonly store: TokenStore
  readonly estimator: LifetimeEstimator
  readonly observer: TokenObserver
  readonly now: () => number
  readonly random: () => number
}

/** Pauses between the mints behind requests while these fail: doubled each time, and jittered. */
const FIRST_RETRY_MS = 100
const MAX_RETRY_MS = 5_000

export class TokenRenewal implements FlightOwner {
  readonly #options: TokenRenewalOptions
  readonly #flights: MintFlights

  constructor(options: TokenRenewalOptions, source: TokenSource) {
    this.#options = options
    this.#flights = new MintFlights(source, this)
  }

  isUnderway(org: OrgId): boolean {
    return this.#flights.has(org)
  }

  /** Joins the mint on its way, or starts one. @throws {TokenError} */
  mint(org: OrgId, reason: MintReason): Promise<AccessToken> {
    return this.#flights.join(org, reason)
  }

  /** One mint that nobody waits for, unless one is on its way or the last has failed a moment ago. */
  mintBehind(org: OrgId, entry: TokenEntry, now: number, reason: MintReason): void {
    if (entry.isPausingAt(now)) return
    if (!this.#flights.has(org)) this.#flights.join(org, reason)
  }

  forget(org: OrgId): void {
    this.#flights.forget(org)
  }

  forgetAll(): void {
    this.#flights.forgetAll()
  }

  minted(org: OrgId, token: AccessToken, reason: MintReason): AccessToken {
    const { store, estimator, now } = this.#options
    store.pardon(org)
    const entry = store.peek(org)
    const jitter = this.#jitter()
    if (entry === undefined) {
      store.add(new TokenEntry(org, token, jitter))
      return token
    }
    entry.replace(token, { reason, jitter, shared: estimator, now: now() })
    return entry.token
  }

  mintFailed(org: OrgId, error: unknown): void {
    const { store, observer } = this.#options
    const now = this.#options.now()
    if (error instanceof TokenError && error.code === 'org_access_refused') {
      store.refuse(org, error, now)
      observer.orgRefused?.(org, error)
    }
    const entry = store.peek(org)
    if (entry === undefined) return
    const pauseMs = Math.min(FIRST_RETRY_MS * 2 ** entry.failures, MAX_RETRY_MS) * this.#jitter()
    entry.noteFailure(isPassing(error), now + pauseMs)
  }

  /** At least one half, at most one. */
  #jitter(): number {
    return (1 + this.#options.random()) / 2
  }
}

/** All but a refusal of the org itself: the endpoint, its limits or our credentials may be well again in a moment. */
export function isPassing(error: unknown): boolean {
  return !(error instanceof TokenError) || error.code !== 'org_access_refused'
}
