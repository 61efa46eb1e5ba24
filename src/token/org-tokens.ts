/**
 * The tokens of one Org: which of them a request gets, and what the service's answers say about them. The rules are those of
 * docs/tokens.md, in its words. Pure: `now` is in monotonic milliseconds; `day` is the time of day; `random` is at least 0 and
 * below 1.
 */

import type { AccessToken, MintReason } from './token-source.ts'

export interface TokenRules {
  /** A younger token may not be known to all of the service. */
  readonly settleTimeMs: number
  /** Every token is replaced ahead of this age. Undefined: only stated ends count. */
  readonly lifetimeMs: number | undefined
  /** The statuses that reject a token. Undefined: 401, and the one that turns out to. */
  readonly rejectedStatuses: readonly number[] | undefined
  /** The first pause after a mint that did not help. */
  readonly rejectedCooldownMs: number
  /** Tokens come from others, too, so the age of one does not tell that it is unused. */
  readonly sharesTokens: boolean
}

/** What decides whether a request may be sent again. */
export interface Repeatability {
  /** The proxy holds all of its content, or none has come yet. */
  readonly isKept: boolean
  /** GET or HEAD. */
  readonly isSafe: boolean
}

export interface ServiceAnswer extends Repeatability {
  readonly token: AccessToken
  /** Monotonic milliseconds. */
  readonly sentAt: number
  readonly status: number
  /** The value of `WWW-Authenticate`, or an empty string. */
  readonly challenge: string
}

/** Why a request caused a mint. Its next answer tells whether that helped. */
export interface Cause {
  readonly token: AccessToken
  /** What the request got with the token; 0 if it was not sent with that. */
  readonly status: number
  /** What the last of a row of requests got that may not be sent again, if this request follows one. */
  readonly rowStatus?: number | undefined
  /** Monotonic milliseconds. */
  readonly at: number
}

/** What a request waits for before it is sent. */
export type Wait =
  | { readonly wait: 'mint'; readonly reason: 'expired' | 'rejected' }
  | { readonly wait: 'until'; readonly at: number }

/** `other`: a row of such answers rejects the token. `neither`: the answer says nothing about it. */
type Meaning = 'accepted' | 'rejected' | 'other' | 'neither'

/**
 * The current token was rejected: while it was young; or for a request that could not be sent again, because it was not kept or is
 * not safe; or by a row of other answers.
 */
type DoubtReason = 'young' | 'not kept' | 'not safe' | 'row'

const AHEAD_SHARE = 1 / 10
const MOST_AHEAD_MS = 30_000
const LATER_MS = 2_000 // an end that comes later by less is the same: clocks and answers are not that exact
const SOONEST_RETRY_MS = 100
const LIFETIME_RETRY_MS = 10_000
const UNUSED_MS = 300_000
const LATELY_MS = 10_000
const SAME_TOKEN_PAUSE_MS = 1_000
const LONGEST_PAUSE = 6 // times the first
export const LONG_ROW = 5
const RIVAL_MS = 600_000
/** RFC 6750 §3.1: the token is good, and the request needs more rights than it gives. */
const INSUFFICIENT_SCOPE = /error="?insufficient_scope/i

export class OrgTokens {
  readonly #rules: TokenRules
  current: AccessToken
  #former: AccessToken | undefined // the one before, unless it was rejected
  minting: MintReason | undefined // the mint under way
  rejectedAt = -1 // the first rejection of the current token since its last acceptance
  acceptedAt = -1 // when the last accepted request with the current token was sent
  #doubt: { readonly by: DoubtReason; readonly since: number; readonly status?: number | undefined } | undefined
  row = 0 // requests whose first answer with the current token was neither accepted nor without meaning,
  rejectedRow = 0 // and of these, those that were rejected
  #renewAgeMs = Number.POSITIVE_INFINITY // from this age on, a request renews the token
  #cause: Cause | undefined // of a mint, until its request is answered
  #useless = 0 // mints in a row that did not help,
  #pausedUntil = 0 // and the end of the pause after the last
  #endedYoungAt = Number.NEGATIVE_INFINITY // the last token
  rivalUntil = 0 // seemingly, another proxy mints for this Org, and each new token ends the one before
  learnedStatus: number | undefined // it rejects a token, too, where a GET or HEAD gets it
  #helped: { readonly status: number; readonly rows: number } | undefined // rows behind which a new token was accepted

  constructor(rules: TokenRules, token: AccessToken, random: number) {
    this.#rules = rules
    this.current = token
    this.#planRenewal(random)
  }

  // ---- which token a request gets

  /** Runs for every request. */
  choose(request: Repeatability, now: number, day: number): AccessToken | Wait {
    const { current } = this
    if (current.hasEndedAt(now, day)) return { wait: 'mint', reason: 'expired' }
    const former = this.formerAt(now, day)
    if (former !== undefined && this.#hasKnownEnd(former)) return former
    const ageMs = current.ageAt(now, day)
    if (!request.isKept) {
      const { settleTimeMs } = this.#rules
      if (this.#doubt?.by === 'young' && ageMs < settleTimeMs) return { wait: 'until', at: now + settleTimeMs - ageMs }
      if (this.minting === 'rejected') return { wait: 'mint', reason: 'rejected' }
      if (this.#isUnused(ageMs, now)) return { wait: 'mint', reason: 'expired' }
    }
    if (this.#isDoubtfulFor(request) && this.mayMint(now, day)) return { wait: 'mint', reason: 'rejected' }
    const isOver = ageMs >= this.#lifetimeMs && ageMs >= this.#renewAgeMs
    return isOver ? { wait: 'mint', reason: 'expired' } : current
  }

  /** The current token is in the last part of its known life. */
  isDueAt(now: number, day: number): boolean {
    return this.current.ageAt(now, day) >= this.#renewAgeMs
  }

  isYoungAt(now: number, day: number): boolean {
    return this.current.ageAt(now, day) < this.#rules.settleTimeMs
  }

  /** While the current token is young. */
  formerAt(now: number, day: number): AccessToken | undefined {
    const former = this.#former
    if (former === undefined || !this.isYoungAt(now, day)) return undefined
    const isOver = former.hasEndedAt(now, day) || former.ageAt(now, day) >= this.#lifetimeMs
    return isOver ? undefined : former
  }

  /** The token was rejected for such a request, and nothing has shown since that it is good. */
  wasRejectedFor(request: Repeatability): boolean {
    return this.#doubt?.by !== 'row' && this.#isDoubtfulFor(request)
  }

  /** Until the known end of the current token: stated or configured. `Infinity` if there is none. */
  get lifeMs(): number {
    return Math.min(this.current.statedLifeMs, this.#lifetimeMs)
  }

  get #lifetimeMs(): number {
    return this.#rules.lifetimeMs ?? Number.POSITIVE_INFINITY
  }

  #hasKnownEnd(token: AccessToken): boolean {
    return token.statedLifeMs < Number.POSITIVE_INFINITY || this.#rules.lifetimeMs !== undefined
  }

  /** Nobody knows its end, and nobody has used it for a while. */
  #isUnused(ageMs: number, now: number): boolean {
    if (this.#rules.sharesTokens || ageMs < UNUSED_MS || this.#hasKnownEnd(this.current)) return false
    return this.acceptedAt < 0 || now - this.acceptedAt >= LATELY_MS
  }

  /** The token is in doubt for this request, which waits for a new one. */
  #isDoubtfulFor({ isKept, isSafe }: Repeatability): boolean {
    switch (this.#doubt?.by) {
      case 'row':
        return true
      case 'not safe':
        return !isKept || !isSafe
      case 'not kept':
        return !isKept
      default:
        return false
    }
  }

  /** A rejection may cause a mint, or join one. */
  mayMint(now: number, day: number): boolean {
    if (this.minting === 'rejected') return true
    if (this.isYoungAt(now, day)) return false
    return this.#hasEndedAgain || (this.#cause === undefined && now >= this.#pausedUntil)
  }

  /** A long row of rejections follows an acceptance that is later than the last mint. Other answers may come from what is not there. */
  get #hasEndedAgain(): boolean {
    return this.rejectedRow >= LONG_ROW && this.acceptedAt >= 0
  }

  // ---- what the service says

  meaningOf({ status, challenge, isSafe }: ServiceAnswer): Meaning {
    const { rejectedStatuses } = this.#rules
    if (status >= 200 && status <= 299) return 'accepted'
    if (INSUFFICIENT_SCOPE.test(challenge)) return 'neither'
    if (rejectedStatuses?.includes(status) ?? status === 401) return 'rejected'
    if (status === 101 || status === 304) return 'accepted'
    if (status < 300 || status > 499 || status === 408 || status === 429) return 'neither'
    return status === this.learnedStatus && isSafe ? 'rejected' : 'other'
  }

  /** A row of other answers rejects the token. */
  get learnsStatuses(): boolean {
    return this.#rules.rejectedStatuses === undefined
  }

  /** Runs for every request. */
  noteAccepted(token: AccessToken, sentAt: number): void {
    this.row = this.rejectedRow = 0
    if (token !== this.current) return
    this.rejectedAt = -1
    if (sentAt > this.acceptedAt) this.acceptedAt = Math.floor(sentAt)
    if (this.#doubt === undefined || sentAt < this.#doubt.since) return
    const isSettled = sentAt - token.mintedAt >= this.#rules.settleTimeMs
    if (isSettled || this.#doubt.by !== 'young') this.#doubt = undefined
  }

  noteRejected(token: AccessToken, now: number, day: number): void {
    if (token === this.#former) this.#former = undefined
    if (token === this.current && this.rejectedAt < 0) this.rejectedAt = Math.floor(now)
    if (token === this.current && this.isYoungAt(now, day)) this.#doubt = { by: 'young', since: now }
  }

  noteDoubt(by: DoubtReason, now: number, day: number, status?: number): void {
    if (!this.isYoungAt(now, day)) this.#doubt = { by, since: now, status }
  }

  /** What the last of a row got, if that has put the current token in doubt. */
  get rowStatus(): number | undefined {
    return this.#doubt?.status
  }

  /** It may reject a token where another request than GET or HEAD gets it: nothing but two new tokens that were accepted tells. */
  get suspectedStatus(): number | undefined {
    return this.#helped !== undefined && this.#helped.rows >= 2 ? this.#helped.status : undefined
  }

  causeMint(cause: Cause): void {
    if (this.#hasEndedAgain) this.#useless = 0
    this.#cause = cause
  }

  /** Rejections may cause mints again. Returns false if another cause is in its place, or none. */
  endCause(cause: Cause): boolean {
    const isMine = this.#cause === cause
    if (isMine) this.#cause = undefined
    return isMine
  }

  /** That of mints that did not help. */
  endPause(): void {
    this.#useless = this.#pausedUntil = 0
  }

  /** The new token was accepted. */
  noteHelpfulMint({ status, rowStatus }: Cause): void {
    this.endPause()
    if (rowStatus !== undefined) {
      const rows = this.#helped?.status === rowStatus ? this.#helped.rows : 0
      this.#helped = { status: rowStatus, rows: rows + 1 }
    }
    if (this.learnsStatuses && status !== 0 && status !== 401) this.learnedStatus = status
  }

  /** It was not, or nobody knows. */
  noteUselessMint({ token, rowStatus }: Cause, now: number): void {
    if (rowStatus !== undefined) this.#helped = undefined
    const { rejectedCooldownMs } = this.#rules
    const gaveSame = token === this.current
    const firstMs = gaveSame ? Math.min(SAME_TOKEN_PAUSE_MS, rejectedCooldownMs) : rejectedCooldownMs
    this.#pausedUntil = Math.floor(now + Math.min(firstMs * 2 ** this.#useless, rejectedCooldownMs * LONGEST_PAUSE))
    this.#useless += 1
  }

  /** A GET or HEAD got it with the new token, too. */
  forgetStatus(status: number): void {
    if (status === this.learnedStatus) this.learnedStatus = undefined
  }

  /** The service has accepted no token of this Org for two mints in a row. */
  get hasNoGoodToken(): boolean {
    return this.#useless > 1 && this.acceptedAt < 0
  }

  // ---- mints

  /** The mint has brought `token`, which may be the current one again. */
  take(token: AccessToken, random: number, now: number, day: number): void {
    const { current: before, minting: reason } = this
    this.minting = undefined
    const isSame = token.equals(before)
    // The same token is as old as it is, whatever brought it.
    const lifetimeMs = isSame ? Number.POSITIVE_INFINITY : this.#lifetimeMs
    const endOf = ({ mintedAt, statedLifeMs }: AccessToken) => mintedAt + Math.min(statedLifeMs, lifetimeMs)
    const isLater = reason !== 'rejected' && endOf(token) > endOf(before) + LATER_MS
    if (reason === 'rejected' && !isSame) this.#noteEndedYoung(token.mintedAt)
    this.acceptedAt = -1
    if (!isSame || isLater) {
      this.#former = reason === 'rejected' || isSame || this.#doubt !== undefined ? undefined : before
      this.current = token
      this.rejectedAt = -1
      this.#doubt = undefined
      this.row = this.rejectedRow = 0
    }
    if (isLater || (reason === 'rejected' && !isSame)) this.#planRenewal(random)
    else this.#tryAgainLater(now, day)
  }

  /** The current token was accepted, and then rejected while it was young, until another took its place. */
  #noteEndedYoung(now: number): void {
    const wasYoung = this.rejectedAt >= 0 && this.rejectedAt - this.current.mintedAt < this.#rules.settleTimeMs
    if (this.acceptedAt < 0 || !wasYoung) return
    if (now - this.#endedYoungAt < RIVAL_MS) this.rivalUntil = now + RIVAL_MS
    this.#endedYoungAt = now
  }

  noteMintFailed(now: number, day: number): void {
    this.minting = undefined
    if (this.current.ageAt(now, day) >= this.#lifetimeMs) this.#tryAgainLater(now, day)
  }

  /** A mint has brought no later end. */
  #tryAgainLater(now: number, day: number): void {
    const ageMs = this.current.ageAt(now, day)
    const leftMs = this.lifeMs - ageMs
    this.#renewAgeMs = ageMs + (leftMs > 0 ? Math.max(leftMs / 2, SOONEST_RETRY_MS) : LIFETIME_RETRY_MS)
  }

  /** Jittered, so that tokens minted together are not renewed together. */
  #planRenewal(random: number): void {
    const { lifeMs } = this
    const aheadMs = Math.min(lifeMs * AHEAD_SHARE, MOST_AHEAD_MS) * (1 - random / 2)
    this.#renewAgeMs = lifeMs - aheadMs
  }
}
