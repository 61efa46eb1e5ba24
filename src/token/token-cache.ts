/**
 * Keeps one token per org: gives tokens out to requests, renews them before they end, and replaces them after a rejection.
 *
 * At most one mint per org runs at a time, and all who need it wait for it. A request that leaves does not end the mint, and a
 * mint that fails does not end the process. Refused orgs are kept apart from tokens, so that a flood of unknown orgs evicts no
 * token.
 */

import { performance } from 'node:perf_hooks'
import { LRUCache } from 'lru-cache'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { LifetimeEstimator } from './lifetime.ts'
import { TokenEntry, type TokenLookup, type TokenPhase } from './token-entry.ts'
import {
  type AccessToken,
  MintGoesOn,
  type MintOptions,
  type MintReason,
  type TokenObserver,
  type TokenSource,
} from './token-source.ts'

export interface TokenCacheOptions {
  /** Tokens kept; the least recently used is evicted. */
  readonly maxOrgs: number
  /** A refusal of an org is remembered for this time. */
  readonly refusalTtlMs: number
  /** Per org: a rejection causes no mint for so long after one that did not help. */
  readonly rejectedCooldownMs: number
  /**
   * Multiplies the share of a life that is for the refresh; 1 by default. Smaller for a cache of several that share tokens,
   * because the earliest of them refreshes for all.
   */
  readonly refreshScale?: number | undefined
  /** Shared by all orgs. */
  readonly estimator: LifetimeEstimator
  readonly observer?: TokenObserver | undefined
  /** Monotonic milliseconds, the clock of the token source. */
  readonly now?: () => number
  readonly random?: () => number
}

interface ObtainOptions extends Pick<MintOptions, 'requester' | 'requestId'> {
  /** For a WebSocket handshake: only a token in the first half of its life will do. */
  readonly forHandshake?: boolean
}

/** Describes an org to an operator. Never contains a token. */
export interface OrgStatus {
  readonly org: string
  /** `refused`: the token endpoint gives no token for the org. */
  readonly state: TokenPhase | 'refused'
  readonly ageMs: number | undefined
  /** Assumed for the present token. */
  readonly lifetimeMs: number | undefined
  readonly lastRefusal: LastRefusal | undefined
}

interface LastRefusal {
  readonly tokenEndpointStatus: number | undefined
  readonly agoMs: number
}

interface Refusal {
  readonly error: TokenError
  readonly refusedAt: number
}

/** Pauses between mints behind requests while these fail: doubled each time, and jittered. */
const FIRST_RETRY_MS = 100
const MAX_RETRY_MS = 5_000

export class TokenCache {
  readonly #source: TokenSource
  readonly #entries: LRUCache<OrgId, TokenEntry>
  readonly #refusals: LRUCache<OrgId, Refusal>
  readonly #refusalTtlMs: number
  readonly #rejectedCooldownMs: number
  readonly #refreshScale: number
  readonly #estimator: LifetimeEstimator
  readonly #observer: TokenObserver
  readonly #now: () => number
  readonly #random: () => number
  readonly #mints = new Map<OrgId, Promise<AccessToken>>()
  /** Mints that nobody waits for any longer, and whose token may still come. */
  readonly #lateMints = new Map<OrgId, Promise<AccessToken>>()

  constructor(options: TokenCacheOptions, source: TokenSource) {
    const { maxOrgs, observer = {}, now = () => performance.now(), random = Math.random } = options
    this.#source = source
    this.#entries = new LRUCache({
      max: maxOrgs,
      dispose: (_, org, reason) => {
        if (reason === 'evict') observer.tokenEvicted?.(org)
      },
    })
    this.#refusals = new LRUCache({ max: maxOrgs })
    this.#refusalTtlMs = options.refusalTtlMs
    this.#rejectedCooldownMs = options.rejectedCooldownMs
    this.#refreshScale = options.refreshScale ?? 1
    this.#estimator = options.estimator
    this.#observer = observer
    this.#now = now
    this.#random = random
  }

  /** A token to send now, or undefined if the request has to wait for one. Runs on every request, so it makes no promise. */
  get(org: OrgId): TokenLookup | undefined {
    return this.#lookUp(org, true)
  }

  /** For a request that cannot be repeated: never a token that is only tried out. */
  getUnrepeatable(org: OrgId): TokenLookup | undefined {
    return this.#lookUp(org, false)
  }

  /** For a WebSocket, which outlives its handshake: undefined in the last half of the token's life. */
  getForHandshake(org: OrgId): TokenLookup | undefined {
    const entry = this.#entries.get(org)
    return entry?.isInFirstHalf(this.#now(), this.#estimator) ? entry.give('hit') : undefined
  }

  /**
   * Waits for a mint, or joins the one that is under way. If it fails for a passing reason, an old token that was not
   * rejected serves: the estimate is a guess, and the origin is the judge.
   * @throws {TokenError}
   */
  async obtain(org: OrgId, options: ObtainOptions = {}): Promise<TokenLookup> {
    const lookup = options.forHandshake === true ? this.getForHandshake(org) : this.getUnrepeatable(org)
    if (lookup !== undefined) return lookup
    const refusal = this.#refusals.get(org)
    if (refusal !== undefined && this.#stands(refusal)) throw refusal.error
    const result = this.#mints.has(org) ? 'joined' : 'miss'
    try {
      return { token: await this.#mint(org, this.#reasonToMint(org), options), result }
    } catch (error) {
      const fallback = this.#fallBack(org, error)
      if (fallback === undefined) throw error
      return fallback
    }
  }

  /** Mints before anybody asks. @throws {TokenError} */
  async warm(org: OrgId): Promise<void> {
    await this.#mint(org, 'warm')
  }

  /**
   * The origin did not reject the token of a request that was sent at `sentAt`. Runs on every request. Without `sentAt`, a
   * slow answer makes the token look older than it was when the origin checked it.
   */
  accepted(org: OrgId, token: AccessToken, sentAt: number = this.#now()): void {
    this.#entries.peek(org)?.noteAccepted(token, sentAt, this.#estimator)
  }

  /**
   * The origin rejected the token. Retires it, unless it has been replaced already, and resolves with the replacement.
   * Undefined in the cool-down: the rejection should be passed on, and the token is kept.
   */
  rejected(org: OrgId, token: AccessToken): Promise<AccessToken> | undefined {
    this.#observer.tokenRejected?.(org)
    const entry = this.#entries.peek(org)
    if (entry === undefined) return this.#mint(org, 'rejected')
    const now = this.#now()
    if (entry.rejectTrial(token) || token !== entry.token) return this.#successor(org, entry, now)
    if (entry.reject(now, this.#rejectedCooldownMs)) entry.suspectDeath(now)
    return entry.isRejected ? this.#mint(org, 'rejected') : undefined
  }

  /** The one repeat with the replacement `token` was accepted, or rejected too. */
  repeatSettled(org: OrgId, token: AccessToken, isAccepted: boolean): void {
    const entry = this.#entries.peek(org)
    if (entry === undefined) return
    if (isAccepted) this.accepted(org, token)
    entry.settleSuspicion(isAccepted, this.#estimator, this.#entries.size, this.#now())
  }

  /** For a rejection that cannot be repeated: the next request mints. Returns true if the token was retired. */
  retire(org: OrgId, token: AccessToken): boolean {
    this.#observer.tokenRejected?.(org)
    const entry = this.#entries.peek(org)
    return entry !== undefined && token === entry.token && entry.reject(this.#now(), this.#rejectedCooldownMs)
  }

  /** Returns true if there was a token to forget. A mint that is under way serves those who wait, and is then forgotten. */
  purge(org: OrgId): boolean {
    this.#mints.delete(org)
    this.#lateMints.delete(org)
    this.#refusals.delete(org)
    return this.#entries.delete(org)
  }

  /** Returns how many tokens were forgotten. */
  purgeAll(): number {
    const { size } = this.#entries
    this.#mints.clear()
    this.#lateMints.clear()
    this.#refusals.clear()
    this.#entries.clear()
    return size
  }

  get size(): number {
    return this.#entries.size
  }

  /** Orgs with a token, most recently used first. */
  knownOrgs(): OrgId[] {
    return [...this.#entries.keys()]
  }

  /** Most recently used first; then the orgs that have no token because they are refused. */
  status(): readonly OrgStatus[] {
    const now = this.#now()
    const held = Array.from(this.#entries.values(), (entry) => ({
      org: entry.org,
      state: entry.phaseAt(now, this.#estimator),
      ageMs: now - entry.token.mintedAt,
      lifetimeMs: entry.lifeMs(this.#estimator),
      lastRefusal: describeRefusal(this.#refusals.peek(entry.org), now),
    }))
    const refused = Array.from(this.#refusals.entries())
      .filter(([org, refusal]) => this.#stands(refusal) && !this.#entries.has(org))
      .map(([org, refusal]) => ({
        org,
        state: 'refused' as const,
        ageMs: undefined,
        lifetimeMs: undefined,
        lastRefusal: describeRefusal(refusal, now),
      }))
    return [...held, ...refused]
  }

  #lookUp(org: OrgId, isRepeatable: boolean): TokenLookup | undefined {
    const entry = this.#entries.get(org)
    if (entry === undefined) return undefined
    const now = this.#now()
    switch (entry.phaseAt(now, this.#estimator)) {
      case 'fresh':
        return isRepeatable ? entry.giveFresh(now) : entry.give('hit')
      case 'refreshing':
        return this.#refresh(entry, now)
      case 'stale':
        if (isRepeatable && entry.isTriedPastEnd(now, this.#estimator)) return this.#refresh(entry, now)
        if (!entry.hasPassingFailure) return undefined
        // While mints fail, no request waits for the next failure.
        this.#mintBehind(entry, now, 'expired')
        return entry.give('stale')
      case 'rejected':
        return undefined
    }
  }

  /** The token as it is, and one mint behind the request. */
  #refresh(entry: TokenEntry, now: number): TokenLookup {
    this.#mintBehind(entry, now, 'refresh')
    return entry.give('refreshing')
  }

  /** One mint that no request waits for, unless one is under way or the last one failed a moment ago. */
  #mintBehind(entry: TokenEntry, now: number, reason: MintReason): void {
    if (!entry.isPausingAt(now)) this.#mint(entry.org, reason)
  }

  #successor(org: OrgId, entry: TokenEntry, now: number): Promise<AccessToken> {
    if (entry.isUsableAt(now, this.#estimator)) return Promise.resolve(entry.token)
    return this.#mint(org, entry.isRejected ? 'rejected' : 'expired')
  }

  #reasonToMint(org: OrgId): MintReason {
    const entry = this.#entries.peek(org)
    if (entry === undefined) return 'cold'
    if (entry.isRejected) return 'rejected'
    return entry.isUsableAt(this.#now(), this.#estimator) ? 'handshake' : 'expired'
  }

  #fallBack(org: OrgId, error: unknown): TokenLookup | undefined {
    const entry = this.#entries.peek(org)
    if (entry === undefined || entry.isRejected) return undefined
    if (entry.isUsableAt(this.#now(), this.#estimator)) return entry.give('hit')
    return isPassing(error) ? entry.give('stale') : undefined
  }

  /** Joins the mint that is under way, or starts one. */
  #mint(org: OrgId, reason: MintReason, { requester, requestId }: ObtainOptions = {}): Promise<AccessToken> {
    const underway = this.#mints.get(org)
    if (underway !== undefined) return underway
    const replaces = this.#entries.peek(org)?.token
    const mint: Promise<AccessToken> = this.#source.mint(org, { reason, replaces, requester, requestId }).then(
      (token) => (this.#isCurrent(org, mint) ? this.#take(org, token, reason) : token),
      (error: unknown) => {
        if (this.#isCurrent(org, mint)) this.#noteFailure(org, error, reason)
        throw error
      },
    )
    this.#mints.set(org, mint)
    mint.catch(() => undefined) // each waiter handles the error; a mint may have no waiter
    return mint
  }

  /** Ends the mint. Returns false if it was forgotten meanwhile: then its result changes nothing here. */
  #isCurrent(org: OrgId, mint: Promise<AccessToken>): boolean {
    if (this.#mints.get(org) !== mint) return false
    this.#lateMints.delete(org)
    return this.#mints.delete(org)
  }

  /** Returns the token to give out: the present one if the endpoint gave the same again. */
  #take(org: OrgId, token: AccessToken, reason: MintReason): AccessToken {
    this.#refusals.delete(org)
    const entry = this.#entries.peek(org)
    const jitter = this.#jitter() * this.#refreshScale
    if (entry === undefined) {
      this.#entries.set(org, new TokenEntry(org, token, jitter))
      return token
    }
    entry.replace(token, { reason, jitter, shared: this.#estimator, now: this.#now() })
    return entry.token
  }

  #noteFailure(org: OrgId, error: unknown, reason: MintReason): void {
    if (error instanceof MintGoesOn) this.#awaitLate(org, error.token, reason)
    const now = this.#now()
    if (error instanceof TokenError && error.code === 'org_access_refused') {
      this.#refusals.set(org, { error, refusedAt: now })
      this.#observer.orgRefused?.(org, error)
    }
    const entry = this.#entries.peek(org)
    if (entry === undefined) return
    const pauseMs = Math.min(FIRST_RETRY_MS * 2 ** entry.failures, MAX_RETRY_MS) * this.#jitter()
    entry.noteFailure(isPassing(error), now + pauseMs)
  }

  #awaitLate(org: OrgId, late: Promise<AccessToken>, reason: MintReason): void {
    this.#lateMints.set(org, late)
    const isAwaited = () => this.#lateMints.get(org) === late && this.#lateMints.delete(org)
    late.then(
      (token) => {
        if (isAwaited()) this.#take(org, token, reason)
      },
      () => isAwaited(),
    )
  }

  #stands(refusal: Refusal): boolean {
    return this.#now() - refusal.refusedAt < this.#refusalTtlMs
  }

  /** At least one half, at most one. */
  #jitter(): number {
    return (1 + this.#random()) / 2
  }
}

/** All but a refusal of the org itself: the endpoint, its limits or our credentials may be well again in a moment. */
function isPassing(error: unknown): boolean {
  return !(error instanceof TokenError) || error.code !== 'org_access_refused'
}

function describeRefusal(refusal: Refusal | undefined, now: number): LastRefusal | undefined {
  if (refusal === undefined) return undefined
  return { tokenEndpointStatus: refusal.error.tokenEndpointStatus, agoMs: now - refusal.refusedAt }
}
