/**
 * One Org: its tokens, the mint under way with those who wait for it, the trouble of its calls, its places to wait. The rules are
 * those of docs/tokens.md, in its words. Instants are monotonic milliseconds.
 */

import type * as realClock from '../clock.ts'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../org-id.ts'
import type { AccessToken, MintOptions, MintReason } from './token-source.ts'

export type Clock = Pick<typeof realClock, 'now' | 'day' | 'runningTime' | 'random' | 'within'>

export interface TokenRules {
  /** A younger token may not be known to all of the service. */
  readonly settleTimeMs: number
  /** Every token is replaced ahead of this age. Undefined: only stated ends count. */
  readonly lifetimeMs: number | undefined
  /** The statuses that reject a token. Undefined: 401, and one more that the Org has learned. */
  readonly rejectedStatuses: readonly number[] | undefined
  /** The first pause after a mint that did not help. */
  readonly rejectedCooldownMs: number
  readonly refusalTtlMs: number
  /** Tokens come from others, too, so the age of one does not tell that it is unused. */
  readonly sharesTokens: boolean
}

/** What decides whether a request may be sent again. */
export interface Repeatability {
  /** The proxy holds all of its content, or none has come yet. */
  readonly isKept: boolean
  /** It will hold all of the content when that has come. False for much that has not come yet. */
  readonly staysKept: boolean
  /** GET or HEAD. */
  readonly isSafe: boolean
}

/** Why a request caused a mint. */
export interface Cause {
  readonly token: AccessToken | undefined
  /** What the request got with the token; 0 if it was not sent with that. */
  readonly status: number
  /** If a row of requests that may not be sent again led to the mint: the status that the last of them got. */
  readonly rowStatus?: number | undefined
  readonly at: number
}

/** Its next answer tells whether the mint helped. `unknown`: it gets none, or not with the new token. */
export type Help = 'helped' | 'useless' | 'unknown'

/** Who waits for a mint. */
export interface Waiter extends Pick<MintOptions, 'requestId'> {
  /** Its client connection or caller. */
  readonly requester?: object | undefined
  /** Its client has left. */
  readonly hasLeft?: () => boolean
}

export interface Mint {
  /** Of all who wait, the one that says most: a rejection. */
  reason: MintReason
  readonly waiters: Set<Waiter>
  readonly token: Promise<AccessToken>
}

/** What a request waits for before it is sent. */
export type Wait =
  | { readonly wait: 'mint'; readonly reason: 'cold' | 'expired' | 'rejected' }
  | { readonly wait: 'until'; readonly at: number }

/** `other`: a row of such answers rejects the token. `neither`: the answer says nothing about it. */
type Meaning = 'accepted' | 'rejected' | 'other' | 'neither'

/**
 * The current token was rejected: while it was young; or for a request that could not be sent again, because it was not kept or is
 * not safe; or by a row of other answers.
 */
type DoubtReason = 'young' | 'not kept' | 'not safe' | 'row'

export interface Trouble {
  readonly error: TokenError
  /** Pauses in a row because of the same kind of trouble; each is twice as long as the one before. */
  readonly pauses: number
  /** The first of this kind in a row; milliseconds since 1970. */
  readonly since: number
  /** The last, and the end of the pause behind it. */
  readonly at: number
  readonly until: number
}

/**
 * The first that fits. `refused`: the token endpoint refuses the Org. `paused`: calls for it failed, and it pauses. `rejected`: the
 * service rejected its token, and no newer one is there. `minting`: it has no token yet. `young`, `fresh`, `ended`: its token is.
 */
export type OrgState = 'refused' | 'paused' | 'rejected' | 'minting' | 'young' | 'fresh' | 'ended' | 'none'

const AHEAD_SHARE = 1 / 10
const MOST_AHEAD_MS = 30_000
const LATER_MS = 2_000 // a new end must be later by so much, or by half a life: clocks and answers are not exact
const SOONEST_RETRY_MS = 100
const LIFETIME_RETRY_MS = 10_000
const UNUSED_MS = 300_000
const LATELY_MS = 10_000
const SAME_TOKEN_PAUSE_MS = 1_000
const LONGEST_PAUSE = 6 // times the first
const LONG_ROW = 5
const RIVAL_MS = 600_000
/** RFC 6750 §3.1: the token is good, and the request needs more rights than it gives. */
const INSUFFICIENT_SCOPE = /error="?insufficient_scope/i
const FIRST_TROUBLE_PAUSE_MS = 1_000
const LONGEST_TROUBLE_PAUSE_MS = { failure: 4_000, credentials: 4_000, limit: 300_000 } as const
/** An Org that is not asked for any more is in trouble for so long after its pause. */
export const MEMORY_MS = 60_000
/** There is no token. */
export const COLD: Wait = { wait: 'mint', reason: 'cold' }

export class Org {
  readonly id: OrgId
  readonly #rules: TokenRules
  readonly #clock: Clock
  current: AccessToken | undefined
  #former: AccessToken | undefined // the one before, unless it was rejected
  mint: Mint | undefined // the one under way
  waiting = 0 // requests that have a place to wait for a first token
  #trouble: Trouble | undefined // of the last call
  rejectedAt = -1 // the first rejection of the current token, until a later request is accepted
  acceptedAt = -1 // when the last accepted request with the current token was sent
  #doubt: { readonly by: DoubtReason; readonly since: number; readonly status?: number | undefined } | undefined
  #row = 0 // requests whose first answer with the current token was `rejected` or `other`,
  #rejectedRow = 0 // and of these, those that were rejected
  #renewAgeMs = Number.POSITIVE_INFINITY // from this age on, a request renews the token
  #cause: Cause | undefined // of a mint, until its request is answered
  #useless = 0 // mints in a row that did not help,
  #pausedUntil = 0 // and the end of the pause after the last
  #endedYoungAt = Number.NEGATIVE_INFINITY // the last token
  rivalUntil = 0 // seemingly, another proxy mints for this Org, and each new token ends the one before
  learnedStatus: number | undefined // it rejects a token, too, where a GET or HEAD gets it
  #helped: { readonly status: number; readonly rows: number } | undefined // so many rows were followed by a new token that was accepted

  constructor(id: OrgId, rules: TokenRules, clock: Clock) {
    this.id = id
    this.#rules = rules
    this.#clock = clock
  }

  // ---- what is told of it

  get state(): OrgState {
    const { current } = this
    const error = this.pause?.error
    if (error !== undefined) return error.trouble === 'refusal' ? 'refused' : 'paused'
    if (current === undefined) return this.mint === undefined ? 'none' : 'minting'
    if (this.isBeingReplaced || this.rejectedAt >= 0) return 'rejected'
    if (this.ageMs >= this.lifeMs) return 'ended'
    return this.isYoung ? 'young' : 'fresh'
  }

  /** Of the current token; -1 if there is none. */
  get ageMs(): number {
    return this.current?.ageAt(this.#clock.now(), this.#clock.day()) ?? -1
  }

  /** Until the known end of the current token: stated or configured. `Infinity` if there is none. */
  get lifeMs(): number {
    return Math.min(this.current?.statedLifeMs ?? Number.POSITIVE_INFINITY, this.#lifetimeMs)
  }

  /** The service has accepted no token of this Org for two mints in a row. */
  get hasNoGoodToken(): boolean {
    return this.#useless > 1 && this.acceptedAt < 0
  }

  /** It may reject a token where another request than GET or HEAD gets it: suspected after two rows that a new token has ended. */
  get suspectedStatus(): number | undefined {
    return this.#helped !== undefined && this.#helped.rows >= 2 ? this.#helped.status : undefined
  }

  // ---- which token a request gets (rules 1, 2 and 7)

  /** A token, or what the request has to wait for. Runs for every request. */
  tokenFor(request: Repeatability): AccessToken | Wait {
    const { current } = this
    if (current === undefined) return COLD
    const now = this.#clock.now()
    const ageMs = current.ageAt(now, this.#clock.day())
    if (ageMs >= current.statedLifeMs) return { wait: 'mint', reason: 'expired' }
    const { former } = this
    if (former !== undefined && this.#hasKnownEnd(former)) return former
    if (!request.staysKept) {
      const { settleTimeMs } = this.#rules
      if (this.#doubt?.by === 'young' && ageMs < settleTimeMs) return { wait: 'until', at: now + settleTimeMs - ageMs }
      if (this.isBeingReplaced) return { wait: 'mint', reason: 'rejected' }
      if (!request.isKept && this.#isUnused(current, ageMs, now)) return { wait: 'mint', reason: 'expired' }
    }
    if (this.#isDoubtfulFor(request) && this.mayMint) return { wait: 'mint', reason: 'rejected' }
    const isOver = ageMs >= this.#lifetimeMs && ageMs >= this.#renewAgeMs
    return isOver ? { wait: 'mint', reason: 'expired' } : current
  }

  /** The current token is in the last part of its known life, and a mint for the next may begin. Runs for every request. */
  get isDue(): boolean {
    const mayBeDue = this.#renewAgeMs < Number.POSITIVE_INFINITY && this.mint === undefined
    return mayBeDue && this.ageMs >= this.#renewAgeMs && this.pause === undefined
  }

  get isYoung(): boolean {
    return this.current !== undefined && this.ageMs < this.#rules.settleTimeMs
  }

  /** The current token was young when the request was sent: the service may have looked at it then, and answer later. */
  wasYoung(token: AccessToken, sentAt: number): boolean {
    const sinceMs = this.#clock.now() - sentAt
    return token === this.current && this.ageMs - sinceMs < this.#rules.settleTimeMs
  }

  /** The former token, while the current one is young. */
  get former(): AccessToken | undefined {
    const former = this.#former
    if (former === undefined || !this.isYoung) return undefined
    const ageMs = former.ageAt(this.#clock.now(), this.#clock.day())
    return ageMs < former.statedLifeMs && ageMs < this.#lifetimeMs ? former : undefined
  }

  /** It is past its stated end. */
  get hasEnded(): boolean {
    return this.current !== undefined && this.ageMs >= this.current.statedLifeMs
  }

  /** A token for a request whose mint has failed: it has not ended, and is not in doubt for such a request, except by a row. */
  tokenInPlaceOfMint(request: Repeatability): AccessToken | undefined {
    const wasRejected = this.#doubt?.by !== 'row' && this.#isDoubtfulFor(request)
    return wasRejected || this.hasEnded ? undefined : this.current
  }

  get #lifetimeMs(): number {
    return this.#rules.lifetimeMs ?? Number.POSITIVE_INFINITY
  }

  #hasKnownEnd(token: AccessToken): boolean {
    return token.statedLifeMs < Number.POSITIVE_INFINITY || this.#rules.lifetimeMs !== undefined
  }

  /** Nobody knows its end, and nobody has used it for a while. */
  #isUnused(current: AccessToken, ageMs: number, now: number): boolean {
    if (this.#rules.sharesTokens || ageMs < UNUSED_MS || this.#hasKnownEnd(current)) return false
    return this.acceptedAt < 0 || now - this.acceptedAt >= LATELY_MS
  }

  /** The token is in doubt for this request, which waits for a new one. */
  #isDoubtfulFor({ staysKept, isSafe }: Repeatability): boolean {
    switch (this.#doubt?.by) {
      case 'row':
        return true
      case 'not safe':
        return !staysKept || !isSafe
      case 'not kept':
        return !staysKept
      default:
        return false
    }
  }

  // ---- what the service says (rules 4 to 8)

  meaningOf(status: number, challenge: string, { isSafe }: Repeatability): Meaning {
    const { rejectedStatuses } = this.#rules
    if (status >= 200 && status <= 299) return 'accepted'
    if (INSUFFICIENT_SCOPE.test(challenge)) return 'neither'
    if (rejectedStatuses?.includes(status) ?? status === 401) return 'rejected'
    if (status === 101 || status === 304) return 'accepted'
    if (status < 300 || status > 499 || status === 408 || status === 429) return 'neither'
    return status === this.learnedStatus && isSafe ? 'rejected' : 'other'
  }

  /** Runs for every request. */
  noteAccepted(token: AccessToken, sentAt: number): void {
    this.#row = this.#rejectedRow = 0
    if (token !== this.current) return
    if (sentAt >= this.rejectedAt) this.rejectedAt = -1
    if (sentAt > this.acceptedAt) this.acceptedAt = Math.floor(sentAt)
    if (this.#doubt === undefined || sentAt < this.#doubt.since) return
    const isSettled = sentAt - token.mintedAt >= this.#rules.settleTimeMs
    if (isSettled || this.#doubt.by !== 'young') this.#doubt = undefined
  }

  /** A request got its first answer with the current token, which was `rejected` or `other`. */
  addToRow(isRejection: boolean): void {
    this.#row += 1
    if (isRejection) this.#rejectedRow += 1
  }

  noteRejected(token: AccessToken): void {
    if (token === this.#former) this.#former = undefined
    if (token !== this.current) return
    const now = this.#clock.now()
    if (this.rejectedAt < 0) this.rejectedAt = Math.floor(now)
    if (this.isYoung) this.#doubt = { by: 'young', since: now }
  }

  noteDoubt(by: DoubtReason, status?: number): void {
    if (!this.isYoung) this.#doubt = { by, since: this.#clock.now(), status }
  }

  /** A row of other answers rejects the token. */
  get hasLongRow(): boolean {
    return this.#rules.rejectedStatuses === undefined && this.#row >= LONG_ROW
  }

  /** A rejection may cause a mint, or join one. */
  get mayMint(): boolean {
    if (this.isBeingReplaced) return true
    if (this.isYoung) return false
    return this.#hasEndedAgain || (this.#cause === undefined && this.#clock.now() >= this.#pausedUntil)
  }

  /** A long row of rejections follows an acceptance that is later than the last mint. 404 and the like say nothing of the token. */
  get #hasEndedAgain(): boolean {
    return this.#rejectedRow >= LONG_ROW && this.acceptedAt >= 0
  }

  /** The request that causes a mint tells whether it helped; one that joins it does not. `status` is 0 if it was not sent before. */
  causeMint(status: number): Cause {
    const cause = { token: this.current, status, rowStatus: this.#doubt?.status, at: Math.floor(this.#clock.now()) }
    if (this.isBeingReplaced) return cause
    if (this.#hasEndedAgain) this.#useless = 0
    this.#cause = cause
    return cause
  }

  /** Rejections may cause mints again. Returns false if another cause is in its place, or none. */
  endCause(cause: Cause | undefined, help: Help): boolean {
    if (cause === undefined || this.#cause !== cause) return false
    this.#cause = undefined
    if (help === 'helped') this.#noteHelpfulMint(cause)
    if (help === 'useless') this.#noteUselessMint(cause)
    return true
  }

  #noteHelpfulMint({ status, rowStatus }: Cause): void {
    this.endPause()
    if (rowStatus !== undefined) {
      const rows = this.#helped?.status === rowStatus ? this.#helped.rows : 0
      this.#helped = { status: rowStatus, rows: rows + 1 }
    }
    if (this.#rules.rejectedStatuses === undefined && status !== 0 && status !== 401) this.learnedStatus = status
  }

  #noteUselessMint({ token, rowStatus }: Cause): void {
    if (rowStatus !== undefined) this.#helped = undefined
    const { rejectedCooldownMs } = this.#rules
    const gaveSame = token === this.current
    const firstMs = gaveSame ? Math.min(SAME_TOKEN_PAUSE_MS, rejectedCooldownMs) : rejectedCooldownMs
    const pauseMs = Math.min(firstMs * 2 ** this.#useless, rejectedCooldownMs * LONGEST_PAUSE)
    this.#pausedUntil = Math.floor(this.#clock.now() + pauseMs)
    this.#useless += 1
  }

  /** That of mints that did not help. */
  endPause(): void {
    this.#useless = this.#pausedUntil = 0
  }

  /** A GET or HEAD got it with the new token, too. */
  forgetStatus(status: number): void {
    if (status === this.learnedStatus) this.learnedStatus = undefined
  }

  // ---- mints

  /** The mint under way is to replace a token that was rejected. */
  get isBeingReplaced(): boolean {
    return this.mint?.reason === 'rejected' && this.current !== undefined
  }

  /** The mint has brought `token`, which may be the current one again. Returns the one to give out. */
  noteMinted(token: AccessToken): AccessToken {
    const before = this.current
    const reason = this.mint?.reason
    this.mint = undefined
    if (before === undefined) {
      this.current = token
      this.#planRenewal()
      return token
    }
    const isSame = token.equals(before)
    // The same token is as old as it is, whatever brought it.
    const lifetimeMs = isSame ? Number.POSITIVE_INFINITY : this.#lifetimeMs
    const endOf = ({ mintedAt, statedLifeMs }: AccessToken) => mintedAt + Math.min(statedLifeMs, lifetimeMs)
    const laterMs = Math.min(LATER_MS, (endOf(before) - before.mintedAt) / 2)
    const isLater = reason !== 'rejected' && endOf(token) > endOf(before) + laterMs
    if (reason === 'rejected' && !isSame) this.#noteEndedYoung(before, token.mintedAt)
    this.acceptedAt = -1
    if (!isSame || isLater) {
      this.#former = reason === 'rejected' || isSame || this.#doubt !== undefined ? undefined : before
      this.current = token
      this.rejectedAt = -1
      this.#doubt = undefined
      this.#row = this.#rejectedRow = 0
    }
    if (isLater || (reason === 'rejected' && !isSame)) this.#planRenewal()
    else this.#tryAgainLater()
    return this.current ?? token
  }

  /** The current token was accepted, and then rejected while it was young, until another took its place. */
  #noteEndedYoung(ended: AccessToken, now: number): void {
    const wasYoung = this.rejectedAt >= 0 && this.rejectedAt - ended.mintedAt < this.#rules.settleTimeMs
    if (this.acceptedAt < 0 || !wasYoung) return
    if (now - this.#endedYoungAt < RIVAL_MS) this.rivalUntil = now + RIVAL_MS
    this.#endedYoungAt = now
  }

  noteMintFailed(): void {
    this.mint = undefined
    if (this.ageMs >= this.#lifetimeMs) this.#tryAgainLater()
  }

  /** A mint has brought no later end. */
  #tryAgainLater(): void {
    const { ageMs } = this
    const leftMs = this.lifeMs - ageMs
    this.#renewAgeMs = ageMs + (leftMs > 0 ? Math.max(leftMs / 2, SOONEST_RETRY_MS) : LIFETIME_RETRY_MS)
  }

  /** Jittered, so that tokens minted together are not renewed together. */
  #planRenewal(): void {
    const { lifeMs } = this
    const aheadMs = Math.min(lifeMs * AHEAD_SHARE, MOST_AHEAD_MS) * (1 - this.#clock.random() / 2)
    this.#renewAgeMs = lifeMs - aheadMs
  }

  // ---- the token endpoint in trouble

  /** A call has failed: it is repeated at once, or a pause begins. */
  noteTrouble(error: TokenError, isRepeated: boolean): Trouble {
    const { trouble: before } = this
    const now = this.#clock.now()
    const same = before?.error.trouble === error.trouble ? before : undefined
    const pauses = same?.pauses ?? 0
    const since = same?.since ?? this.#clock.day()
    const pauseMs = isRepeated ? 0 : this.#troublePauseMs(error, pauses)
    this.#trouble = { error, pauses: isRepeated ? pauses : pauses + 1, since, at: now, until: now + pauseMs }
    return this.#trouble
  }

  #troublePauseMs({ trouble, retryAfterSeconds }: TokenError, pauses: number): number {
    if (trouble === 'refusal') return this.#rules.refusalTtlMs
    if (retryAfterSeconds !== undefined) return retryAfterSeconds * 1_000
    return Math.min(FIRST_TROUBLE_PAUSE_MS * 2 ** pauses, LONGEST_TROUBLE_PAUSE_MS[trouble])
  }

  /** Its pause may be over. */
  get trouble(): Trouble | undefined {
    if (this.#trouble !== undefined && this.#clock.now() >= this.#trouble.until + MEMORY_MS) this.#trouble = undefined
    return this.#trouble
  }

  /** The pause or the refusal that lasts. */
  get pause(): Trouble | undefined {
    return this.#trouble !== undefined && this.#clock.now() < this.#trouble.until ? this.#trouble : undefined
  }

  /** The error that a mint would get at once. */
  get refusal(): TokenError | undefined {
    const { error, until } = this.pause ?? {}
    if (error === undefined || until === undefined || error.trouble === 'refusal') return error
    const retryAfterSeconds = Math.ceil((until - this.#clock.now()) / 1_000)
    return new TokenError(error.code, error.message, { ...error, retryAfterSeconds })
  }

  endTrouble(): void {
    this.#trouble = undefined
  }
}
