/**
 * All Orgs that something is known of. Two maps, so that unknown Orgs evict nobody's token. At most one mint per Org runs at a time
 * (but beside one that a purge has overtaken), and all who need it wait for it. A request that leaves does not end the mint.
 */

import assert from 'node:assert/strict'
import { LRUCache } from 'lru-cache'
import * as realClock from '../clock.ts'
import { TokenError } from '../errors.ts'
import { copyOfOrgId, type OrgId } from '../org-id.ts'
import { type Clock, MEMORY_MS, type Mint, Org, type TokenRules, type Trouble, type Waiter } from './org.ts'
import type { AccessToken, MintReason, TokenObserver, TokenSource } from './token-source.ts'

export interface OrgsOptions extends TokenRules {
  /** Orgs with tokens, of which the least recently used is evicted; and Orgs without. */
  readonly maxOrgs: number
  readonly mintTimeoutMs: number
  /** Requests that may wait for a first token at once; half of them for one Org. Eight may always. */
  readonly maxWaiting: number
  readonly observer?: TokenObserver | undefined
  /** Why a request has waited in vain, if something is known. */
  readonly whyLate?: () => TokenError | undefined
  readonly clock?: Clock
}

const TOO_LATE = 'The request waited for a token for as long as it may.'
const NO_PLACE = 'Too many requests wait for tokens.'
const ORG_SHARE = 2
/** A small `listen.maxInFlight` keeps no cold Org out. */
const LEAST_PLACES = 8

export class Orgs {
  readonly rules: TokenRules
  readonly mintTimeoutMs: number
  readonly observer: TokenObserver | undefined
  readonly clock: Clock
  readonly #source: TokenSource
  readonly #maxOrgs: number
  readonly #maxWaiting: number
  readonly #whyLate: OrgsOptions['whyLate']
  /** Those that have a token. `get` counts as use, `peek` does not. */
  readonly #withToken: LRUCache<OrgId, Org>
  /** The others: requests wait for them, or their calls failed. Those that were in trouble last are last. */
  readonly #withoutToken = new Map<OrgId, Org>()
  /** No trouble lasts beyond it. */
  #troubledUntil = 0
  /** Requests that have a place to wait for a first token. */
  waiting = 0

  constructor(options: OrgsOptions, source: TokenSource) {
    const { maxOrgs, observer } = options
    this.rules = options
    this.#source = source
    this.mintTimeoutMs = options.mintTimeoutMs
    this.observer = observer
    this.#maxOrgs = maxOrgs
    this.#maxWaiting = options.maxWaiting
    this.#whyLate = options.whyLate
    this.clock = options.clock ?? realClock
    this.#withToken = new LRUCache({
      max: maxOrgs,
      dispose: (_, org, reason) => {
        if (reason === 'evict') observer?.tokenEvicted?.(org)
      },
    })
  }

  // ---- finding one

  /** One that has a token, which is used. Runs for every request. */
  get(org: OrgId): Org | undefined {
    return this.#withToken.get(org)
  }

  /** Any of which something is known. */
  peek(org: OrgId): Org | undefined {
    return this.#withToken.peek(org) ?? this.#withoutToken.get(org)
  }

  /** Makes one if nothing is known of it. */
  of(ofRequest: OrgId): Org {
    const known = this.peek(ofRequest)
    if (known !== undefined) return known
    const org = new Org(copyOfOrgId(ofRequest), this.rules, this.clock)
    this.#withoutToken.set(org.id, org)
    return org
  }

  /** Those with a token, the last used first; then the others. There may be a hundred thousand. */
  forEach(tell: (org: Org) => void): void {
    this.#withToken.forEach((org) => {
      tell(org)
    })
    this.#withoutToken.forEach((org) => {
      tell(org)
    })
  }

  get tokenCount(): number {
    return this.#withToken.size
  }

  /** The Orgs whose last call failed, the latest first, but for refused ones. A pause may be over: then `leftMs` is 0. */
  get troubled() {
    const now = this.clock.now()
    const troubled: (Pick<Trouble, 'error' | 'since' | 'at'> & { readonly org: OrgId; readonly leftMs: number })[] = []
    if (now >= this.#troubledUntil) return troubled
    this.forEach(({ id: org, trouble }) => {
      if (trouble === undefined || trouble.error.trouble === 'refusal') return
      const { error, since, until, at } = trouble
      troubled.push({ org, error, since, at, leftMs: Math.max(until - now, 0) })
    })
    return troubled.sort((a, b) => b.at - a.at)
  }

  /** A call has failed. */
  noteTrouble(id: OrgId, error: TokenError, isRepeated = false): void {
    const trouble = this.of(id).noteTrouble(error, isRepeated)
    this.#troubledUntil = Math.max(this.#troubledUntil, trouble.until + MEMORY_MS)
  }

  // ---- mints

  /** Joins the mint that is under way, or starts one. */
  mint(id: OrgId, reason: MintReason, waiter?: Waiter): Mint {
    const org = this.of(id)
    if (org.mint !== undefined) {
      if (reason === 'rejected') org.mint.reason = reason
      return org.mint
    }
    const waiters = new Set(waiter === undefined ? [] : [waiter])
    const awaitedBy = () => requesterOf(waiters)
    const options = { reason, replaces: org.current, requestId: waiter?.requestId, awaitedBy }
    const token: Promise<AccessToken> = this.#source.mint(org.id, options).then(
      (minted) => (this.#isOf(org, mint) ? this.#keep(org, minted) : minted),
      (error: unknown) => {
        if (this.#isOf(org, mint)) {
          org.noteMintFailed()
          this.#tidy(org)
        }
        throw error
      },
    )
    token.catch(() => undefined) // each waiter handles the error; a mint may have no waiter
    const mint: Mint = { reason, waiters, token }
    org.mint = mint
    return mint
  }

  /** False if the mint was purged meanwhile: then its result serves those who wait, and changes nothing here. */
  #isOf(org: Org, mint: Mint): boolean {
    return org.mint === mint && this.peek(org.id) === org
  }

  #keep(org: Org, minted: AccessToken): AccessToken {
    const token = org.noteMinted(minted)
    if (this.#withoutToken.delete(org.id)) this.#withToken.set(org.id, org)
    return token
  }

  /** Waits for the mint, for `mintTimeout` or less. @throws {TokenError} */
  async awaitMint(id: OrgId, reason: MintReason, waiter: Waiter, mostMs = this.mintTimeoutMs): Promise<AccessToken> {
    const mint = this.mint(id, reason, waiter)
    mint.waiters.add(waiter)
    try {
      const token = await this.clock.within(mostMs, mint.token)
      if (token !== undefined) return token
      throw this.#whyLate?.() ?? new TokenError('token_endpoint_timeout', TOO_LATE)
    } finally {
      mint.waiters.delete(waiter)
    }
  }

  /** Starts a mint for which nobody waits, if the token is in the last part of its known life. */
  renewIfDue(org: Org): boolean {
    const { isDue } = org
    if (isDue) this.mint(org.id, 'refresh')
    return isDue
  }

  // ---- places to wait

  /** Returns what gives the place back, once however often it is called. @throws {TokenError} if there is no place */
  enter(id: OrgId): () => void {
    const isFull = (waiting: number, most: number) => waiting >= Math.max(most, LEAST_PLACES)
    if (isFull(this.waiting, this.#maxWaiting))
      throw new TokenError('overloaded', NO_PLACE, { limit: 'waiting requests' })
    const org = this.of(id)
    if (isFull(org.waiting, this.#maxWaiting / ORG_SHARE))
      throw new TokenError('overloaded', NO_PLACE, { limit: 'waiting requests of one Org' })
    this.waiting += 1
    org.waiting += 1
    let isHeld = true
    return () => {
      if (!isHeld) return
      isHeld = false
      this.waiting -= 1
      org.waiting -= 1
      assert(this.waiting >= 0 && org.waiting >= 0)
      this.#tidy(org)
    }
  }

  /** Forgets what is no longer known of Orgs without a token. If too many are in trouble, the oldest go first. */
  #tidy(org: Org): void {
    const isIdle = ({ mint, waiting }: Org) => mint === undefined && waiting === 0
    if (this.#withoutToken.get(org.id) === org && isIdle(org)) {
      this.#withoutToken.delete(org.id)
      if (org.trouble !== undefined) this.#withoutToken.set(org.id, org)
    }
    for (const other of this.#withoutToken.values()) {
      if (this.#withoutToken.size <= this.#maxOrgs) return
      if (isIdle(other)) this.#withoutToken.delete(other.id)
    }
  }

  // ---- for operators

  /** Forgets one Org, or all. Returns those that had a token. A mint that is under way serves those who wait, and is then forgotten. */
  purge(only?: OrgId): OrgId[] {
    const purged = (only === undefined ? [...this.#withToken.keys()] : [only]).filter((id) =>
      this.#withToken.delete(id),
    )
    if (only === undefined) this.#withoutToken.clear()
    else this.#withoutToken.delete(only)
    return purged
  }

  /** Those of calls that failed: all of them, or those that a 401 began. */
  endTroubles(only?: 'credentials'): void {
    this.forEach((org) => {
      if (only === undefined || org.trouble?.error.trouble === only) org.endTrouble()
    })
  }

  /** Those of mints that did not help. */
  endPauses(): void {
    this.forEach((org) => {
      org.endPause()
    })
  }
}

/** Of one that is still there. */
function requesterOf(waiters: Iterable<Waiter>): object | undefined {
  for (const waiter of waiters) if (waiter.hasLeft?.() !== true) return waiter.requester ?? waiter
  return undefined
}
