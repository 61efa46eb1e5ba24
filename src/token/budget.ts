/**
 * The budget for mints, and what is known of the troubles of each Org. Nothing here stops the mint of another Org: a call that
 * fails pauses its own Org alone.
 */

import assert from 'node:assert/strict'
import { LRUCache } from 'lru-cache'
import * as clock from '../clock.ts'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../org-id.ts'
import { type AccessToken, isAhead, type MintOptions, type MintReason, type TokenSource } from './token-source.ts'

export interface BudgetOptions {
  /** The wait of a request, all calls and the waits between them. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  /** Calls in any second. */
  readonly mintRate: number
  readonly refusalTtlMs: number
  /** Orgs whose trouble is remembered. */
  readonly maxOrgs: number
}

interface Trouble {
  readonly error: TokenError
  /** Pauses in a row because of the same kind of trouble; each is twice as long as the one before. */
  readonly pauses: number
  /** The first of this kind in a row; milliseconds since 1970. */
  readonly since: number
  /** The end of the pause; monotonic milliseconds. */
  readonly until: number
}

/** After a failure, the call is repeated after these times. */
const REPEATS_MS = [150, 450] as const
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = { failure: 4_000, credentials: 4_000, limit: 300_000 } as const
const REJECTED_MS = 60_000
/** The App counts as revoked if 401s to Orgs that had a token have lasted so long, until none has come for the other time. */
const REVOKED_MS = { after: 60_000, until: 300_000 } as const
/** An Org that is not asked for any more is in trouble for so long after its pause. */
const MEMORY_MS = 60_000
const LOWEST_PACE = 1 / 10
/** Of `mintTimeout`: no call for a request begins later. */
const LATEST_CALL = 9 / 10
const OVER_BUDGET = new TokenError(
  'token_endpoint_unavailable',
  'The proxy has used up its budget for mints: see tokens.mintRate and tokens.mintConcurrency.',
  { retryAfterSeconds: 5 },
)

export class Budget implements TokenSource {
  readonly #options: BudgetOptions
  readonly #source: TokenSource
  readonly #turns: Turns
  /** Of each Org whose last call failed. Apart from the tokens, so that unknown Orgs evict none. */
  readonly #troubles: LRUCache<OrgId, Trouble>
  /** What all calls were answered since the start. */
  #answers: 'none' | 'credentials' | 'others' = 'none'
  /** Until then, the App counts as rejected; monotonic milliseconds. */
  #rejectedUntil = 0
  #rejection: TokenError | undefined
  /** 401s for Orgs that had a token, since the last call that succeeded; monotonic milliseconds. */
  #ended: { readonly since: number; latest: number; readonly orgs: Set<OrgId> } | undefined
  /** The share of `mintRate` that is used. */
  pace = 1

  constructor(options: BudgetOptions, source: TokenSource) {
    this.#options = options
    this.#source = source
    this.#troubles = new LRUCache({ max: options.maxOrgs, ttl: MEMORY_MS, ttlResolution: 0 })
    const { mintConcurrency, mintRate } = options
    this.#turns = new Turns(() => {
      const rate = mintRate * this.pace
      // An endpoint that may know none of our secrets could lock the App out.
      if (this.#answers !== 'credentials')
        return { places: mintConcurrency, rate, mostWaiting: Number.POSITIVE_INFINITY }
      const mostWaiting = this.#refusesAtOnce ? 1 : Number.POSITIVE_INFINITY
      return { places: 1, rate: Math.min(rate, 1), mostWaiting }
    })
  }

  async mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const refusal = this.refusalOf(org)
    if (refusal !== undefined) throw refusal
    const { mintTimeoutMs } = this.#options
    const { reason, awaitedBy } = options
    const startedAt = clock.runningTime()
    const restMs = (share = 1) => startedAt + mintTimeoutMs * share - clock.runningTime()
    for (let calls = 0, failure: TokenError | undefined; ; calls += 1) {
      const hasTime = isAhead(reason) && failure === undefined
      const ask = { isTroubled: this.#troubles.has(org), isAhead: isAhead(reason), awaitedBy }
      const leave = await this.#turns.enter({ ...ask, longestMs: hasTime ? undefined : restMs(LATEST_CALL) })
      if (leave === undefined) {
        if (failure !== undefined) this.#note(org, failure)
        throw failure ?? (this.#refusesAtOnce ? this.#rejection : undefined) ?? OVER_BUDGET
      }
      try {
        const withinMs = failure === undefined ? undefined : restMs()
        const token = await this.#source.mint(org, { ...options, withinMs })
        this.#answers = 'others'
        this.#ended = undefined
        this.pace = Math.min(this.pace * 2, 1)
        this.#troubles.delete(org)
        return token
      } catch (error) {
        if (!(error instanceof TokenError)) throw error
        failure = error
        const againMs = REPEATS_MS[calls] ?? Number.POSITIVE_INFINITY
        // A minter that tells when to ask again has repeated the call itself.
        const mayRepeat = error.trouble === 'failure' && error.retryAfterSeconds === undefined
        const isRepeated = mayRepeat && againMs < restMs(LATEST_CALL)
        if (error.code === 'app_credentials_rejected') this.#noteRejected(org, error, reason)
        if (error.trouble === 'credentials' && options.replaces !== undefined) this.#noteEnded(org)
        this.#note(org, error, isRepeated)
        if (!isRepeated) throw error
      } finally {
        leave()
      }
      await clock.within(REPEATS_MS[calls] ?? 0)
    }
  }

  /** The error that a mint would get at once. */
  refusalOf(org: OrgId): TokenError | undefined {
    const trouble = this.#troubles.peek(org) // so that the order stays that of the calls
    const leftMs = (trouble?.until ?? 0) - clock.now()
    if (trouble === undefined || leftMs <= 0) return undefined
    const { error } = trouble
    if (error.trouble === 'refusal') return error
    return new TokenError(error.code, error.message, { ...error, retryAfterSeconds: Math.ceil(leftMs / 1_000) })
  }

  /** Begins a pause of the Org, unless the call is repeated. */
  #note(org: OrgId, error: TokenError, isRepeated = false): void {
    const { trouble } = error
    if (trouble === 'limit') this.pace = Math.max(this.pace / 2, LOWEST_PACE)
    // A failure says nothing about the App.
    if (trouble === 'refusal' || trouble === 'limit') this.#answers = 'others'
    if (error.code === 'app_credentials_rejected' && this.#answers === 'none') this.#answers = 'credentials'
    const now = clock.now()
    const before = this.#troubles.peek(org)
    const same = before?.error.trouble === trouble ? before : undefined
    const pauses = same?.pauses ?? 0
    const pauseMs = isRepeated ? 0 : this.#pauseMs(error, pauses)
    const next = {
      error,
      pauses: isRepeated ? pauses : pauses + 1,
      since: same?.since ?? clock.day(),
      until: now + pauseMs,
    }
    this.#troubles.set(org, next, { ttl: Math.ceil(pauseMs) + MEMORY_MS })
  }

  /**
   * From the second Org on: one may not be linked. Only for a time, because a proxy that is not ready gets no requests, which may show
   * that another Org is linked. Nor does a mint show that which the proxy makes again by itself.
   */
  #noteRejected(org: OrgId, error: TokenError, reason?: MintReason): void {
    this.#rejection = new TokenError(error.code, error.message, { ...error, retryAfterSeconds: 1 })
    const rejected = this.troubled.filter(({ error }) => error.trouble === 'credentials')
    const isAgain = reason === 'warm' && rejected.some((each) => each.org === org)
    if (!isAgain && rejected.some((each) => each.org !== org)) this.#rejectedUntil = clock.now() + REJECTED_MS
  }

  /** So long nobody waits but for the one call a second, which tells when the App is accepted. */
  get #refusesAtOnce(): boolean {
    return this.#answers === 'credentials' && this.#rejectedUntil > 0
  }

  /** No call since the start was answered otherwise than by 401, which two Orgs or more have met. */
  get isAppRejected(): boolean {
    return this.#answers === 'credentials' && clock.now() < this.#rejectedUntil
  }

  #noteEnded(org: OrgId): void {
    const now = clock.now()
    if (this.#ended !== undefined && now - this.#ended.latest > REVOKED_MS.until) this.#ended = undefined
    this.#ended ??= { since: now, latest: now, orgs: new Set() }
    this.#ended.latest = now
    if (this.#ended.orgs.size < 2) this.#ended.orgs.add(org)
  }

  /** The endpoint accepted the App, and no longer does: one Org alone may have been unlinked. */
  get isAppRevoked(): boolean {
    if (this.#ended === undefined || this.#ended.orgs.size < 2) return false
    const now = clock.now()
    const { since, latest } = this.#ended
    return now - since >= REVOKED_MS.after && now - latest <= REVOKED_MS.until
  }

  /** The endpoint has answered 401 alone since the start. */
  get isAppUnknown(): boolean {
    return this.#answers === 'credentials'
  }

  #pauseMs({ trouble, retryAfterSeconds }: TokenError, pauses: number): number {
    if (trouble === 'refusal') return this.#options.refusalTtlMs
    if (retryAfterSeconds !== undefined) return retryAfterSeconds * 1_000
    return Math.min(FIRST_PAUSE_MS * 2 ** pauses, LONGEST_PAUSE_MS[trouble])
  }

  /** Ends all pauses and refusals; because of a changed secret, those that a 401 began. */
  resume(only?: 'credentials'): void {
    for (const [org, { error }] of [...this.#troubles.entries()]) {
      if (only === undefined || error.trouble === only) this.#troubles.delete(org)
    }
    this.#rejectedUntil = 0
    this.#ended = undefined
    if (only === undefined) this.pace = 1
  }

  /** The pause or refusal of one Org, or of all. */
  forget(only?: OrgId): void {
    if (only === undefined) this.#troubles.clear()
    else this.#troubles.delete(only)
  }

  /** The Orgs whose refusal is remembered now. */
  get refusals(): ReadonlyMap<OrgId, TokenError> {
    const refused = Array.from(this.#troubles.entries()).filter(([, { error }]) => error.trouble === 'refusal')
    return new Map(refused.filter(([, { until }]) => clock.now() < until).map(([org, { error }]) => [org, error]))
  }

  get calls(): { readonly underway: number; readonly waiting: number } {
    return this.#turns.calls
  }

  /** The Orgs whose last call failed, the latest first, but for refused ones. A pause may be over: then `leftMs` is 0. */
  get troubled() {
    const now = clock.now()
    return Array.from(this.#troubles.entries())
      .filter(([, { error }]) => error.trouble !== 'refusal')
      .map(([org, { error, since, until }]) => ({ org, error, since, leftMs: Math.max(until - now, 0) }))
  }
}

interface Ask extends Pick<MintOptions, 'awaitedBy'> {
  /** The last call for the Org failed. */
  readonly isTroubled: boolean
  /** It is begun even if nobody waits. */
  readonly isAhead: boolean
  /** The longest wait. Without it, there is no limit. */
  readonly longestMs?: number | undefined
}

interface Waiter extends Ask {
  readonly end: (leave?: () => void) => void
}

interface Limits {
  readonly places: number
  /** Calls in any second. */
  readonly rate: number
  readonly mostWaiting: number
}

/** Calls may run so far ahead of an even pace. The pace is slower in return, so that no second has more than the rate. */
const BURST_MS = 100
/** The calls of a requester are counted anew after this time. */
const COUNTED_MS = 10_000

/** Lets calls in, one after the other. */
export class Turns {
  readonly #limits: () => Limits
  /** In the order in which they came. */
  readonly #waiters: Waiter[] = []
  /** How many calls a requester had lately. A connection that has closed is forgotten. */
  #calls = new WeakMap<object, number>()
  #countedUntil = Number.NEGATIVE_INFINITY
  #underway = 0
  #troubledUnderway = 0
  /** When the last call would have begun at an even pace. */
  #lastAt = Number.NEGATIVE_INFINITY
  #timer: clock.Timer | undefined

  constructor(limits: () => Limits) {
    this.#limits = limits
  }

  get calls() {
    return { underway: this.#underway, waiting: this.#waiters.length }
  }

  /**
   * Resolves when the call may begin, with a function that gives its place back; with undefined, if nobody waits for the call any more,
   * it waited too long, or others fill the places to wait.
   */
  enter(ask: Ask): Promise<(() => void) | undefined> {
    return new Promise((resolve) => {
      const end = (leave?: () => void) => {
        timer?.cancel()
        const at = this.#waiters.indexOf(waiter)
        assert(at >= 0)
        this.#waiters.splice(at, 1)
        resolve(leave)
      }
      const waiter = { ...ask, end }
      const timer = ask.longestMs === undefined ? undefined : clock.after(ask.longestMs, end)
      this.#waiters.push(waiter)
      this.#letIn()
    })
  }

  /** Lets all in whose turn has come. The others come when a place is given back, or when the rate admits them. */
  #letIn(): void {
    this.#timer?.cancel()
    while (this.#waiters.length > 0) {
      const { places, rate, mostWaiting } = this.#limits()
      if (this.#waiters.length > mostWaiting) this.#endAllBut(this.#first(places)?.waiter)
      if (this.#underway >= places) return
      const now = clock.now()
      const at = this.#lastAt + (1_000 + BURST_MS) / rate
      if (at > now) {
        this.#timer = clock.after(Math.ceil(at - now), () => this.#letIn())
        return
      }
      const first = this.#first(Math.max(Math.floor(places / 2), 1) - this.#troubledUnderway)
      if (first === undefined) return
      const { waiter, requester, calls } = first
      if (requester !== undefined) this.#calls.set(requester, calls + 1)
      this.#lastAt = Math.max(at, now - BURST_MS)
      this.#count(waiter, 1)
      waiter.end(() => {
        this.#count(waiter, -1)
        this.#letIn()
      })
    }
  }

  /**
   * First those whom a request waits for now; then, of these, those of Orgs in trouble; then the rest. In each, the requester with the
   * fewest calls lately goes first. Ends those for whom nobody waits any more.
   */
  #first(placesOfTroubled: number) {
    if (clock.now() >= this.#countedUntil) {
      this.#calls = new WeakMap()
      this.#countedUntil = clock.now() + COUNTED_MS
    }
    let first:
      | {
          readonly waiter: Waiter
          readonly requester: object | undefined
          readonly kind: number
          readonly calls: number
        }
      | undefined
    for (const waiter of [...this.#waiters]) {
      const requester = waiter.awaitedBy?.()
      if (requester === undefined && !waiter.isAhead) {
        waiter.end()
        continue
      }
      if (waiter.isTroubled && placesOfTroubled <= 0) continue
      const kind = requester === undefined ? 2 : Number(waiter.isTroubled)
      const calls = (requester && this.#calls.get(requester)) ?? 0
      const isFirst = first === undefined || kind < first.kind || (kind === first.kind && calls < first.calls)
      if (isFirst) first = { waiter, requester, kind, calls }
    }
    return first
  }

  #endAllBut(kept: Waiter | undefined): void {
    for (const waiter of [...this.#waiters]) if (waiter !== kept) waiter.end()
  }

  #count({ isTroubled }: Waiter, by: 1 | -1): void {
    this.#underway += by
    if (isTroubled) this.#troubledUnderway += by
  }
}
