/** One request on its way to an answer: whether it is sent again, and with which token. Pure, as `org-tokens.ts` is. */

import { type Cause, LONG_ROW, type OrgTokens, type ServiceAnswer } from './org-tokens.ts'
import type { AccessToken } from './token-source.ts'

/** Undefined: the client gets the answer. Otherwise, the request is sent again: with `token`, after a pause, or after a mint. */
export type Next =
  | undefined
  | { readonly token: AccessToken }
  | { readonly pauseMs: number }
  | { readonly mint: 'expired' | 'rejected'; readonly ifItFails: 'error' | 'answer' }

/**
 * What became of a request whose token was rejected. `repeated`: it was accepted in the end. `not_kept`: it could not be sent
 * again. `useless`: it caused a mint, which did not help. `passed`: its client got the rejection.
 */
export const REJECTION_OUTCOMES = ['repeated', 'passed', 'not_kept', 'useless'] as const
export type RejectionOutcome = (typeof REJECTION_OUTCOMES)[number]

const FIRST_REPEAT_MS = 50
const REPEAT_SHARE = 1 / 4
const MOMENT_MS = 5_000
const MOST_REJECTIONS = 25

export class Repeats {
  readonly #settleTimeMs: number
  readonly #rejected = new Set<AccessToken>()
  #countedWith: AccessToken | undefined // the request is in the row of this token
  #waitsUntil = Number.POSITIVE_INFINITY // for a young token to be known
  #rejections = 0
  #hasRetried = false // with a token that was accepted lately
  #cause: Cause | undefined // of its mint
  #isLast = false // the client gets the next answer, whatever it is
  outcome: RejectionOutcome | undefined // set at the end, if a token was rejected

  constructor(settleTimeMs: number) {
    this.#settleTimeMs = settleTimeMs
  }

  judge(org: OrgTokens, answer: ServiceAnswer, now: number, day: number): Next {
    const { token, status, isKept, isSafe } = answer
    const { current } = org
    const meaning = org.meaningOf(answer)
    if (meaning === 'accepted') return this.#accept(org, answer)
    if (meaning === 'neither') return this.#pass(org, answer, now)
    if (token === current && this.#countedWith !== token) {
      this.#countedWith = token
      org.row += 1
      if (meaning === 'rejected') org.rejectedRow += 1
    }
    if (meaning === 'other') return this.#judgeRow(org, answer, now, day)
    this.#rejected.add(token)
    org.noteRejected(token, now, day)
    this.#rejections += 1
    if (this.#isLast || this.#rejections === MOST_REJECTIONS) return this.#pass(org, answer, now)
    if (!isKept || (status !== 401 && !isSafe)) {
      if (token === current) org.noteDoubt(status === 401 ? 'not kept' : 'not safe', now, day)
      return this.#pass(org, answer, now, 'not_kept')
    }
    if (!this.#rejected.has(current)) return { token: current }
    if (current.hasEndedAt(now, day)) return { mint: 'expired', ifItFails: 'error' }
    if (org.isYoungAt(now, day)) return this.#awaitKnown(org, answer, now, day)
    if (!this.#hasRetried && org.acceptedAt >= 0 && now - org.acceptedAt < MOMENT_MS) {
      this.#hasRetried = true
      return { token: current }
    }
    return this.#mint(org, answer, 'error', now, day)
  }

  #accept(org: OrgTokens, { token, sentAt }: ServiceAnswer): undefined {
    org.noteAccepted(token, sentAt)
    if (this.#rejected.size > 0) this.outcome = 'repeated'
    if (this.#cause !== undefined && org.endCause(this.#cause)) org.noteHelpfulMint(this.#cause)
  }

  /** The client gets the answer. */
  #pass(
    org: OrgTokens,
    { status, isSafe }: ServiceAnswer,
    now: number,
    outcome: RejectionOutcome = 'passed',
  ): undefined {
    const wasCause = this.end(org, now)
    if (this.#rejected.size > 0) this.outcome = wasCause ? 'useless' : outcome
    if (this.#rejected.size > 1 && isSafe) org.forgetStatus(status)
  }

  /** A row of other answers rejects the token. */
  #judgeRow(org: OrgTokens, answer: ServiceAnswer, now: number, day: number): Next {
    const isLong = org.learnsStatuses && org.row >= LONG_ROW && answer.token === org.current
    if (!isLong || org.isYoungAt(now, day)) return this.#pass(org, answer, now)
    if (answer.isKept && answer.isSafe) return this.#mint(org, answer, 'answer', now, day)
    if (org.mayMint(now, day)) org.noteDoubt('row', now, day, answer.status)
    return this.#pass(org, answer, now)
  }

  #awaitKnown(org: OrgTokens, answer: ServiceAnswer, now: number, day: number): Next {
    const former = org.formerAt(now, day)
    if (former !== undefined && !this.#rejected.has(former)) return { token: former }
    this.#waitsUntil = Math.min(this.#waitsUntil, now + this.#settleTimeMs)
    if (now >= this.#waitsUntil) return this.#pass(org, answer, now)
    const ageMs = org.current.ageAt(now, day)
    return { pauseMs: Math.min(Math.max(FIRST_REPEAT_MS, ageMs * REPEAT_SHARE), this.#settleTimeMs - ageMs) }
  }

  #mint(org: OrgTokens, answer: ServiceAnswer, ifItFails: 'error' | 'answer', now: number, day: number): Next {
    if (this.#cause !== undefined || this.#isLast || !org.mayMint(now, day)) return this.#pass(org, answer, now)
    this.#rejected.add(answer.token)
    this.causeMint(org, now, answer.status)
    return { mint: 'rejected', ifItFails }
  }

  /** Only the request that causes a mint, and joins none, tells whether it helped. `status` is 0 if it was not sent before. */
  causeMint(org: OrgTokens, now: number, status = 0): void {
    this.#cause = { token: org.current, status, rowStatus: org.rowStatus, at: Math.floor(now) }
    if (org.minting !== 'rejected') org.causeMint(this.#cause)
  }

  /** The mint that the request waited for has brought this token. */
  take(org: OrgTokens, token: AccessToken): void {
    // There is no other: a last repeat shows the client what the service says.
    if (this.#rejected.has(token)) this.#isLast = true
    // From another replica, or through a minter. It may be dead, too, so this was not the mint.
    else if (this.#cause !== undefined && token.mintedAt < this.#cause.at) this.releaseCause(org)
  }

  releaseCause(org: OrgTokens): void {
    if (this.#cause !== undefined) org.endCause(this.#cause)
    this.#cause = undefined
  }

  /** The request gets no further answer: it was answered, has failed, or its client has left. Returns true if it had caused a mint. */
  end(org: OrgTokens, now: number): boolean {
    if (this.#cause === undefined || !org.endCause(this.#cause)) return false
    org.noteUselessMint(this.#cause, now)
    return true
  }
}
