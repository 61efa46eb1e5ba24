/**
 * Keeps the tokens of each Org, and gets new ones. At most one mint per Org runs at a time, and all who need it wait for it. A
 * request that leaves does not end the mint.
 */

import assert from 'node:assert/strict'
import { LRUCache } from 'lru-cache'
import * as clock from '../clock.ts'
import { TokenError } from '../errors.ts'
import { copyOfOrgId, type OrgId } from '../org-id.ts'
import { OrgTokens, type Repeatability, type TokenRules, type Wait } from './org-tokens.ts'
import type { AccessToken, MintOptions, MintReason, TokenObserver, TokenSource } from './token-source.ts'

export interface TokenCacheOptions extends TokenRules {
  /** Tokens kept; the least recently used is evicted. */
  readonly maxOrgs: number
  readonly mintTimeoutMs: number
  /** Requests that may wait for a first token at once; half of them for one Org. Eight may always. */
  readonly maxWaiting: number
  readonly observer?: TokenObserver | undefined
  /** Monotonic milliseconds, the clock of the token source. */
  readonly now?: () => number
  /** The time of day in milliseconds. */
  readonly day?: () => number
  readonly wait?: typeof clock.within
  readonly random?: () => number
}

/** Who waits for a mint. */
export interface Waiter extends Pick<MintOptions, 'requestId'> {
  /** Its client connection or caller. */
  readonly requester?: object | undefined
  /** Its client has left. */
  readonly hasLeft?: () => boolean
}

/**
 * The source of a request's token. `hit`: from the cache. `miss`: from a mint. `joined`: from a mint that was already under way.
 * `refreshing`: from the cache, and a mint for later requests was started. `stale`: from the cache, because the mint that it
 * waited for failed. `replayed`: the request was repeated after a rejection.
 */
export type TokenResult = 'hit' | 'miss' | 'joined' | 'refreshing' | 'stale' | 'replayed'

export interface TokenLookup {
  readonly token: AccessToken
  readonly result: TokenResult
}

interface Mint {
  readonly token: Promise<AccessToken>
  readonly waiters: Set<Waiter>
}

export class TokenCache {
  readonly rules: TokenRules
  readonly mintTimeoutMs: number
  readonly waiting: WaitingRoom
  readonly observer: TokenObserver | undefined
  readonly #source: TokenSource
  /** Those that have a token. `get` counts as use, `peek` does not. */
  readonly orgs: LRUCache<OrgId, OrgTokens>
  readonly now: () => number
  readonly day: () => number
  readonly wait: typeof clock.within
  readonly #random: () => number
  readonly #mints = new Map<OrgId, Mint>()

  constructor(options: TokenCacheOptions, source: TokenSource) {
    const { maxOrgs, observer } = options
    this.rules = options
    this.#source = source
    this.mintTimeoutMs = options.mintTimeoutMs
    this.observer = observer
    this.waiting = new WaitingRoom(options.maxWaiting)
    this.now = options.now ?? clock.now
    this.day = options.day ?? clock.day
    this.wait = options.wait ?? clock.within
    this.#random = options.random ?? clock.random
    this.orgs = new LRUCache({
      max: maxOrgs,
      dispose: (_tokens, org, reason) => {
        if (reason === 'evict') observer?.tokenEvicted?.(org)
      },
    })
  }

  /** A token to send now, or what the request has to wait for. Runs for every request, so it makes no promise. */
  get(org: OrgId, tokens: OrgTokens, request: Repeatability): TokenLookup | Wait {
    const now = this.now()
    const day = this.day()
    const choice = tokens.choose(request, now, day)
    if ('wait' in choice) return choice
    return { token: choice, result: this.renewIfDue(org, tokens, now, day) ? 'refreshing' : 'hit' }
  }

  /** Starts a mint for which nobody waits, if the token is in the last part of its known life. */
  renewIfDue(org: OrgId, tokens: OrgTokens, now = this.now(), day = this.day()): boolean {
    const isDue = tokens.minting === undefined && tokens.isDueAt(now, day)
    if (!isDue || this.#source.refusalOf?.(org) !== undefined) return false
    this.mint(org, 'refresh')
    return true
  }

  /** Nothing is sent past its stated end. */
  hasEnded(token: AccessToken): boolean {
    return token.statedLifeMs < Number.POSITIVE_INFINITY && token.hasEndedAt(this.now(), this.day())
  }

  isMinting(org: OrgId): boolean {
    return this.#mints.has(org)
  }

  /** Waits for the mint, for `mintTimeout` or less. @throws {TokenError} */
  async awaitMint(org: OrgId, reason: MintReason, waiter: Waiter, mostMs = this.mintTimeoutMs): Promise<AccessToken> {
    const mint = this.#mintFor(org, reason, waiter)
    mint.waiters.add(waiter)
    try {
      const token = await this.wait(mostMs, mint.token)
      if (token !== undefined) return token
      throw new TokenError('token_endpoint_timeout', 'The request waited for a token for as long as it may.')
    } finally {
      mint.waiters.delete(waiter)
    }
  }

  /** Joins the mint that is under way, or starts one for which nobody waits. */
  mint(org: OrgId, reason: 'warm' | 'refresh'): Promise<AccessToken> {
    return this.#mintFor(org, reason).token
  }

  #mintFor(ofRequest: OrgId, reason: MintReason, waiter?: Waiter): Mint {
    const tokens = this.orgs.peek(ofRequest)
    if (tokens !== undefined && (tokens.minting === undefined || reason === 'rejected')) tokens.minting = reason
    const underway = this.#mints.get(ofRequest)
    if (underway !== undefined) return underway
    const org = copyOfOrgId(ofRequest)
    const waiters = new Set(waiter === undefined ? [] : [waiter])
    const awaitedBy = () => requesterOf(waiters)
    const options = { reason, replaces: tokens?.current, requestId: waiter?.requestId, awaitedBy }
    // False if the mint was purged meanwhile: then its result changes nothing here.
    const end = () => this.#mints.get(org)?.token === token && this.#mints.delete(org)
    const token: Promise<AccessToken> = this.#source.mint(org, options).then(
      (minted) => (end() ? this.#take(org, minted) : minted),
      (error: unknown) => {
        if (end()) this.orgs.peek(org)?.noteMintFailed(this.now(), this.day())
        throw error
      },
    )
    token.catch(() => undefined) // each waiter handles the error; a mint may have no waiter
    const mint = { token, waiters }
    this.#mints.set(org, mint)
    return mint
  }

  /** Returns the token to give out: the present one if the endpoint gave the same again. */
  #take(org: OrgId, minted: AccessToken): AccessToken {
    const tokens = this.orgs.peek(org)
    if (tokens === undefined) this.orgs.set(org, new OrgTokens(this.rules, minted, this.#random()))
    else tokens.take(minted, this.#random(), this.now(), this.day())
    return tokens?.current ?? minted
  }

  // ---- for operators

  /**
   * Forgets the tokens of one Org, or of all. Returns the Orgs that had one. A mint that is under way serves those who wait, and is
   * then forgotten.
   */
  purge(only?: OrgId): OrgId[] {
    const orgs = only === undefined ? [...this.orgs.keys(), ...this.#mints.keys()] : [only]
    return orgs.filter((org) => {
      this.#mints.delete(org)
      return this.orgs.delete(org)
    })
  }
}

/** The requests that wait for a first token. One Org may fill half of the places, or eight. */
class WaitingRoom {
  readonly #most: number
  readonly #byOrg = new Map<OrgId, number>()
  count = 0

  constructor(most: number) {
    this.#most = most
  }

  /** Returns what gives the place back, once however often it is called. @throws {TokenError} if there is no place */
  enter(org: OrgId): () => void {
    const ofOrg = this.#byOrg.get(org) ?? 0
    if (this.count >= Math.max(this.#most, LEAST_PLACES))
      throw new TokenError('overloaded', NO_PLACE, { limit: 'waiting requests' })
    if (ofOrg >= Math.max(this.#most / ORG_SHARE, LEAST_PLACES))
      throw new TokenError('overloaded', NO_PLACE, { limit: 'waiting requests of one Org' })
    this.#byOrg.set(org, ofOrg + 1)
    this.count += 1
    let isHeld = true
    return () => {
      if (isHeld) this.#leave(org)
      isHeld = false
    }
  }

  #leave(org: OrgId): void {
    const left = (this.#byOrg.get(org) ?? 0) - 1
    assert(left >= 0 && this.count > 0)
    if (left > 0) this.#byOrg.set(org, left)
    else this.#byOrg.delete(org)
    this.count -= 1
  }
}

const NO_PLACE = 'Too many requests wait for tokens.'
const ORG_SHARE = 2
/** A small `listen.maxInFlight` keeps no cold Org out. */
const LEAST_PLACES = 8

/** Of one that is still there. */
function requesterOf(waiters: Iterable<Waiter>): object | undefined {
  for (const waiter of waiters) if (waiter.hasLeft?.() !== true) return waiter.requester ?? waiter
  return undefined
}

/** In place of `Infinity`, which JSON has not. */
export function known(ageMs: number | undefined): number | undefined {
  return ageMs === Number.POSITIVE_INFINITY ? undefined : ageMs
}
