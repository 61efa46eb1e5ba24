/**
 * The tokens of one Org, and which of them a request gets: rules T1 to T6 of docs/tokens.md, and what R1 to R8 remember. Pure.
 * `now` is in monotonic milliseconds; `day` is the time of day, or 0 where nobody has read it. The *former* token is the one
 * before the *current* one. *Proven*: the service has accepted it. *Young*: younger than `settleTimeMs`.
 */

import { aheadAgeMs, isExplored, Lives, lastAgeMs } from './lives.ts'
import { isTried, pauseMs, type ServiceFacts } from './service-facts.ts'
import type { AccessToken, MintReason } from './token-source.ts'

export type RequestKind = 'repeatable' | 'once'
/** The path has no query. */
export type RequestLine = { readonly method: string; readonly path: string }

/** `behind`: begin a mint, and do not wait for it. */
export type Choice =
  | { readonly token: AccessToken; readonly result: 'hit' | 'stale'; readonly behind?: MintReason | undefined }
  | { readonly wait: 'mint'; readonly reason: MintReason }
  | { readonly wait: 'until'; readonly at: number }

/** A token that may have ended. Whether the service accepts its successor will tell. */
interface Suspect {
  readonly token: AccessToken
  /**
   * Who waits for the successor. `R6`: all requests. `R7`, `R8`: only those that were rejected. `once`: the next request that
   * cannot be repeated. `next`: the next of any kind.
   */
  readonly by: 'R6' | 'R7' | 'R8' | 'once' | 'next'
  readonly aliveMs: number // L: its age at the last accepted request; below zero if none was, or one was after all
  readonly deadMs: number // L: its age at the first rejected request after that
  readonly rejectedAt: number // when that was sent
}

const NEXT_TRY_MS = 1_000 // T3, and R6 until a mint succeeds: one request in this time tries the token
const TURN_MS = 150 // T4: the same where others wait for it; the longer of this and a share of its age
const TURN_SHARE = 1 / 10
const UNKNOWN_LIFE_MS = 300_000 // T5: where no life is known, a request that cannot be repeated gets a younger token,
const LATELY_MS = 10_000 // or one that was accepted in this time
const NEXT_MINT_MS = 1_000 // T5: the least time to the next mint after one that failed, or brought the same token
const MAX_KINDS = 16 // R2
const MAX_KIND_LENGTH = 256 // R2: longer paths are told apart by their beginnings
const KIND_MEMORY_MS = 300_000 // R2
const FIRST_PAUSE_MS = 250 // R6
const LONGEST_PAUSE_MS = 300_000 // R6, R7
const UNPROVEN_MS = 10_000 // R8: an unproven token is known everywhere from this age on, or from the settle time on
export const LONG_ROW = 5 // R2, R7, R8

export class OrgTokens {
  readonly service: ServiceFacts
  readonly lives = new Lives()
  current: AccessToken
  former: AccessToken | undefined // undefined once it was rejected, or the current one is proven and no longer young
  #statedMs = 0 // T2: the age at which the current token ends, as it was last stated; `Infinity` if it was not
  acceptedAt = -1 // when the last accepted request with the current token was sent; -1 before that
  #rejectedAt = -1 // when the first rejected one after that was sent; -1 if there is none
  row = 0 // R7: requests whose first answer with the current token was a rejection, since it was last accepted
  #status = 0 // R8: the status of the last answer that was not accepted,
  #statusRow = 0 // and how many answers in a row had it
  #nextTryAt = 0 // T3, T4: nobody tries the current token before
  #nextMintAt = 0 // T5: the end of a known life causes no mint before
  #lot = 0 // T5, L: 0 to 999, drawn for each token
  mintsFail = false // the last mint failed or took too long: nobody waits for the next one if a token serves
  suspect: Suspect | undefined // the current token, or the one before until its successor was judged
  #forbidden: Map<string, number> | undefined // R2: kinds of requests, and until when they are known. Few Orgs have any
  #useless = 0 // R6: useless mints in a row,
  #noMintUntil = 0 // and the end of the pause after the last
  #uselessForced = 0 // R7: useless forced mints in a row,
  #forcedAt = Number.NEGATIVE_INFINITY // and when the last one began or proved useless

  constructor(token: AccessToken, service: ServiceFacts, lot: number) {
    this.service = service
    this.current = token
    this.#begin(token, lot)
  }

  // ---- which token a request gets

  /** Runs on every request. */
  choose(kind: RequestKind, now: number, day: number): Choice {
    const { current, service } = this
    const isRepeatable = kind === 'repeatable'
    const ageMs = ageOf(current, now, day)
    if (ageMs >= this.#statedMs) return { wait: 'mint', reason: 'expired' } // T2
    const isProven = this.acceptedAt >= 0
    if (!isProven && this.former !== undefined) {
      if (isRepeatable && this.#takesTurn(now, NEXT_TRY_MS)) return { token: current, result: 'hit' } // T3
      const former = this.formerAt(now, day)
      const isGood = former !== undefined && (isRepeatable || this.#isSafe(former, ageOf(former, now, day), now))
      if (isGood) return { token: former, result: 'hit' }
    }
    if (this.isBeingReplaced) {
      const tries = isRepeatable && this.#takesTurn(now, NEXT_TRY_MS)
      return tries ? { token: current, result: 'stale' } : { wait: 'mint', reason: 'rejected' }
    }
    if (!isProven && this.#rejectedAt >= 0 && ageMs < service.rules.settleTimeMs) {
      if (!isRepeatable) return { wait: 'until', at: now + service.rules.settleTimeMs - ageMs } // T4
      const tries = this.#takesTurn(now, Math.max(TURN_MS, ageMs * TURN_SHARE))
      return tries ? { token: current, result: 'hit' } : { wait: 'until', at: this.#nextTryAt }
    }
    const reason = this.#reasonToWait(isRepeatable, ageMs, now)
    if (reason !== undefined && !this.mintsFail) return { wait: 'mint', reason } // T5
    const delayMs = isRepeatable ? 0 : service.delayMs(now)
    if (ageMs < delayMs) return { wait: 'until', at: now + delayMs - ageMs } // T6
    if (reason !== undefined) return { token: current, result: 'stale', behind: reason }
    const isDue = now >= this.#nextMintAt && this.isAtItsEnd(ageMs)
    return { token: current, result: 'hit', behind: isDue ? 'refresh' : undefined }
  }

  /** The token is suspect, or past its known life. */
  #reasonToWait(isRepeatable: boolean, ageMs: number, now: number): MintReason | undefined {
    const by = this.#isInDoubt ? this.suspect?.by : undefined
    const isSuspect = by === 'next' || (by === 'once' && !isRepeatable)
    if (isSuspect && now >= this.#noMintUntil) return 'rejected'
    const isGood = isRepeatable ? ageMs < this.lifeMs(this.current) : this.#isSafe(this.current, ageMs, now)
    return isGood || now < this.#nextMintAt ? undefined : 'expired'
  }

  /** T5, for a request that cannot be repeated. */
  #isSafe(token: AccessToken, ageMs: number, now: number): boolean {
    const lifeMs = this.lifeMs(token)
    if (lifeMs < Number.POSITIVE_INFINITY) return ageMs < lastAgeMs(lifeMs)
    if (ageMs < Math.max(UNKNOWN_LIFE_MS, this.service.oldestMs)) return true
    return token === this.current && this.acceptedAt >= 0 && now - this.acceptedAt < LATELY_MS
  }

  /** True for one request, which tries the current token. The next one may try it after `delayMs`. */
  #takesTurn(now: number, delayMs: number): boolean {
    if (now < this.#nextTryAt) return false
    this.#nextTryAt = Math.floor(now + delayMs)
    return true
  }

  /** The known life of the token: stated, configured or learned. `Infinity` if there is none. */
  lifeMs(token: AccessToken): number {
    const isCurrent = token === this.current
    const learnedMs = isCurrent && isExplored(this.#lot) ? Number.POSITIVE_INFINITY : this.lives.knownMs
    return Math.min(isCurrent ? this.#statedMs : token.statedLifeMs, this.service.rules.lifetimeMs ?? learnedMs)
  }

  /** T5: at this age, a mint ahead of the end of the current token is due. */
  isAtItsEnd(ageMs: number): boolean {
    return ageMs >= aheadAgeMs(this.lifeMs(this.current), this.#lot)
  }

  /** The same without jitter, for a holder that keeps the token. */
  isDueAt(now: number, day: number): boolean {
    return now >= this.#nextMintAt && ageOf(this.current, now, day) >= aheadAgeMs(this.lifeMs(this.current), 0)
  }

  /** Of the current token, as the last mint that brought it said. */
  get statedLifeMs(): number {
    return this.#statedMs
  }

  formerAt(now: number, day: number): AccessToken | undefined {
    return this.former && ageOf(this.former, now, day) < this.former.statedLifeMs ? this.former : undefined
  }

  /** True if ages depend on the time of day. */
  get needsDay(): boolean {
    return Math.min(this.#statedMs, this.former?.statedLifeMs ?? this.#statedMs) < Number.POSITIVE_INFINITY
  }

  /** The current token is suspect, and was not accepted since. */
  get #isInDoubt(): boolean {
    return this.#rejectedAt >= 0 && this.suspect?.token === this.current
  }

  /** R6: it was rejected, and a mint is to replace it. */
  get isBeingReplaced(): boolean {
    return this.#isInDoubt && this.suspect?.by === 'R6'
  }

  /** T2 */
  hasEndedAt(now: number, day: number, token = this.current): boolean {
    return ageOf(token, now, day) >= (token === this.current ? this.#statedMs : token.statedLifeMs)
  }

  // ---- what the service says

  /** The service accepted a request that was sent at `sentAt`. Runs for every request. */
  noteAccepted(token: AccessToken, sentAt: number, kind: RequestKind, request: RequestLine): void {
    this.#statusRow = 0
    if (this.#forbidden?.delete(kindOf(request)) && this.#forbidden.size === 0) this.#forbidden = undefined
    if (token !== this.current) return
    const { suspect } = this
    if (sentAt > this.#rejectedAt) {
      this.row = 0
      this.#rejectedAt = -1
      // A mint that is under way goes on, and may prove useless.
      const isMinting = suspect?.by === 'R6' || suspect?.by === 'R7' || suspect?.by === 'R8'
      if (suspect?.token === token) this.suspect = isMinting ? { ...suspect, aliveMs: -1 } : undefined
    }
    if (sentAt > this.acceptedAt) this.acceptedAt = Math.floor(sentAt)
    const ageMs = sentAt - token.mintedAt
    if (ageMs > this.service.oldestMs) this.service.oldestMs = ageMs
    this.lives.noteAccepted(ageMs)
    if (this.former !== undefined && ageMs >= this.service.rules.settleTimeMs) this.former = undefined
    if (suspect === undefined || suspect.token === token) return
    const isAlike = suspect.by === 'next' ? !isTried(request.method) : suspect.by === 'once' && kind === 'once'
    if (isAlike) this.confirmDeath(suspect)
  }

  noteRejected(token: AccessToken, sentAt: number): void {
    if (token === this.former) this.former = undefined
    const isFirst = token === this.current && this.#rejectedAt < 0 && sentAt >= this.acceptedAt
    if (isFirst) this.#rejectedAt = Math.floor(sentAt)
  }

  noteStatus(status: number): void {
    this.#statusRow = status === this.#status ? this.#statusRow + 1 : 1
    this.#status = status
  }

  /**
   * R8: five answers in a row had the same status, and this token was proven, or is old enough to be known everywhere. Without the
   * latter, a token that ends before anything has accepted it would be used for ever.
   */
  mayHaveEnded(token: AccessToken, now: number, day: number): boolean {
    if (this.#statusRow < LONG_ROW || token !== this.current) return false
    return this.acceptedAt >= 0 || ageOf(token, now, day) >= Math.max(this.service.rules.settleTimeMs, UNPROVEN_MS)
  }

  /** The rule by which a rejection may cause a mint now, or join one. One of a kind that is known to be forbidden makes nobody wait. */
  ruleForMint(now: number, isKnown: boolean): 'R6' | 'R7' | undefined {
    const by = this.suspect?.token === this.current ? this.suspect.by : undefined
    if (by === 'R7' || by === 'R8') return 'R7' // its mint is under way
    if (now >= this.#noMintUntil) return isKnown ? 'R7' : 'R6'
    const waitMs = pauseMs(this.service.rules.rejectedCooldownMs, 2, this.#uselessForced, LONGEST_PAUSE_MS)
    return this.row >= LONG_ROW && now - this.#forcedAt >= waitMs ? 'R7' : undefined
  }

  suspectCurrent(by: Suspect['by'], now: number, day: number): void {
    const { current: token, acceptedAt } = this
    const rejectedAt = this.#rejectedAt < 0 ? Math.floor(now) : this.#rejectedAt
    const aliveMs = acceptedAt < 0 ? -1 : acceptedAt - token.mintedAt
    if (by === 'R6') this.#nextTryAt = Math.floor(now + NEXT_TRY_MS)
    if (by === 'R7') this.#forcedAt = now
    this.suspect = { token, by, aliveMs, deadMs: ageOf(token, now, day) - (now - rejectedAt), rejectedAt }
  }

  /** L: the successor was accepted. One whose mint began before the rejected request was sent may have caused the rejection. */
  confirmDeath({ token, aliveMs, deadMs, rejectedAt }: Suspect): void {
    this.suspect = undefined
    this.#useless = this.#uselessForced = this.#noMintUntil = 0
    if (this.former === token) this.former = undefined
    if (aliveMs >= 0 && this.current.mintedAt > rejectedAt) this.lives.noteDeath(aliveMs, deadMs)
  }

  /** R6, R7: the successor was rejected, too, or there is none. */
  noteUselessMint({ by }: Pick<Suspect, 'by'>, now: number): void {
    this.suspect = undefined
    this.#noMintUntil = now + pauseMs(FIRST_PAUSE_MS, 4, this.#useless, LONGEST_PAUSE_MS)
    this.#useless += 1
    if (by !== 'R7') return
    this.#uselessForced += 1
    this.#forcedAt = now
  }

  /** The service has rejected the current token from the start, as it did the one before. */
  get hasNoGoodToken(): boolean {
    return this.acceptedAt < 0 && this.#useless > 0
  }

  /** R2 */
  isForbidden(request: RequestLine, now: number): boolean {
    return this.#forbidden !== undefined && now < (this.#forbidden.get(kindOf(request)) ?? 0)
  }

  /** R5, R6: the service rejects this kind of request with a good token. */
  forbid(request: RequestLine, now: number): void {
    this.#forbidden ??= new Map()
    this.#forbidden.delete(kindOf(request))
    const [oldest = ''] = this.#forbidden.keys()
    if (this.#forbidden.size === MAX_KINDS) this.#forbidden.delete(oldest)
    this.#forbidden.set(kindOf(request), now + KIND_MEMORY_MS)
  }

  // ---- mints

  /** Takes the token that a mint brought; it may be the current one again. `lot`: an integer from 0 to 999. */
  take(token: AccessToken, reason: MintReason, now: number, day: number, lot: number): void {
    const { current: before, suspect } = this
    const isSame = token.equals(before)
    const endMs = ageOf(before, token.mintedAt, token.mintedDayAt) + token.statedLifeMs // as an age of the token before
    const isNoLater = isSame || (reason === 'refresh' && endMs < this.#statedMs * 1.5)
    this.mintsFail = false
    if (isSame) {
      this.#statedMs = endMs
      if (suspect?.token === before && suspect.by !== 'R8') this.noteUselessMint(suspect, now) // R6
    } else {
      this.former = this.#rejectedAt < 0 ? before : undefined
      if (suspect?.token !== before) this.suspect = undefined
      this.current = token
      this.#begin(token, lot)
    }
    if (!isNoLater) return
    const restMs = this.lifeMs(this.current) - ageOf(this.current, now, day) // T5: the next mint waits for the end
    this.#nextMintAt = Math.floor(now + Math.min(Math.max(restMs, NEXT_MINT_MS), UNKNOWN_LIFE_MS))
  }

  #begin(token: AccessToken, lot: number): void {
    this.#statedMs = token.statedLifeMs
    this.#lot = lot
    this.acceptedAt = this.#rejectedAt = -1
    this.row = this.#statusRow = this.#nextTryAt = this.#nextMintAt = 0
    if (token.knownLifeMs < Number.POSITIVE_INFINITY) this.lives.knownMs = token.knownLifeMs
  }

  noteMintFailed(now: number): void {
    this.mintsFail = true
    this.#nextMintAt = Math.max(this.#nextMintAt, Math.floor(now + NEXT_MINT_MS))
    if (this.suspect?.by === 'R7' || this.suspect?.by === 'R8' || this.#rejectedAt < 0) this.suspect = undefined
  }
}

/** The greater of what both clocks say. */
export const ageOf = ({ mintedAt, mintedDayAt }: AccessToken, now: number, day: number): number =>
  Math.max(now - mintedAt, day - mintedDayAt)

/** R2: the method and the path, with segments that hold a digit taken as one. */
export function kindOf({ method, path }: RequestLine): string {
  // Each match begins behind a slash. Without that, a long segment without a digit takes quadratic time.
  return `${method} ${path.slice(0, MAX_KIND_LENGTH).replace(/(?<=\/)[^/\d]*\d[^/]*/g, '*')}`
}
