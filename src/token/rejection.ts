/**
 * One request whose token was rejected, or may have ended: rules R1 to R8 of docs/tokens.md. Says what to do next, until the
 * service accepts the request or nothing is left that may help. Pure: for `now` and `day` see `org-tokens.ts`.
 */

import { ageOf, LONG_ROW, type OrgTokens, type RequestKind, type RequestLine } from './org-tokens.ts'
import type { Meaning } from './service-facts.ts'
import type { AccessToken } from './token-source.ts'

/** What the service answered to one try. */
export interface Answer {
  readonly token: AccessToken
  readonly sentAt: number
  readonly status: number
}

/**
 * Undefined: the client gets the answer. Otherwise, the request is repeated: with `token`, after a pause; with one that it waits
 * for as T1 to T6 have it, but not after `until`; or with that of a mint. If the mint fails, the client gets its error, or what
 * the service says to a last repeat.
 */
export type Next =
  | undefined
  | { readonly token: AccessToken; readonly afterMs: number }
  | { readonly wait: 'turn'; readonly until: number }
  | { readonly wait: 'mint'; readonly ifItFails: 'error' | 'pass' }

/**
 * The outcome of a rejection. `accepted`, `rejected`: the repeat was. `failed`: the proxy got no new token, or the repeat no
 * answer. `refused`: the request could not be repeated. `passed`: the client got the rejection at once.
 */
export type RepeatOutcome = 'accepted' | 'rejected' | 'failed' | 'refused' | 'passed'

/**
 * What a rejection turned out to be, by the rules of docs/tokens.md. `expired`: a newer token was accepted (R1, R6).
 * `unsettled`: the token was too young to be known to all of the service (R3). `forbidden`: the service rejects this kind of
 * request with a good token (R2, R5, R6). `bad_back_end`: the same token was accepted at once (R4). `unexplained`: nothing told.
 */
export const REJECTION_KINDS = ['expired', 'unsettled', 'forbidden', 'bad_back_end', 'unexplained'] as const
export type RejectionKind = (typeof REJECTION_KINDS)[number]

const AGAIN_AFTER_MS = [50, 150, 450] // R3
const MOMENT_MS = 5_000 // R4

export class Rejection {
  readonly #request: RequestLine
  readonly #kind: RequestKind
  readonly #rejected = new Set<AccessToken>()
  #isCounted = false // R7: in the row of the Org
  #waitsUntil = Number.POSITIVE_INFINITY // R3: set when it first waits until a token is known
  #repeats = 0 // R3: with a young token that is proven
  #hasRetried = false // R4
  #mintAskedAt = Number.POSITIVE_INFINITY // R6: a token that was minted later is the last one that it tries
  #trial = 0 // R8: the status whose meaning the repeat under way tells; 0 if there is none
  #isOver = false // the client gets the next answer, whatever it is
  #presumed: RejectionKind | undefined // what the rejection is if the repeat under way is accepted
  kind: RejectionKind | undefined // set at the end, if a token was rejected
  outcome: RepeatOutcome | undefined // set at the end, if a token was rejected or the request was repeated

  constructor(request: RequestLine, kind: RequestKind) {
    this.#request = request
    this.#kind = kind
  }

  /** `tokens` are those of the Org; undefined if they were purged while the request was under way. */
  judge(tokens: OrgTokens | undefined, answer: Answer, meaning: Meaning, now: number, day: number): Next {
    const { token, sentAt, status } = answer
    const isTrial = this.#trial > 0
    if (isTrial) this.#endTrial(tokens, meaning === 'accepted', now)
    if (this.#presumed !== undefined) this.outcome = meaning === 'rejected' || isTrial ? 'rejected' : 'accepted'
    if (meaning === 'accepted') {
      tokens?.noteAccepted(token, sentAt, this.#kind, this.#request)
      if (tokens !== undefined) this.#learn(tokens, answer, now)
      return this.#pass(this.#presumed)
    }
    tokens?.noteStatus(status)
    if (meaning === 'rejected' && !this.#isOver) return this.#findRemedy(tokens, answer, now, day)
    if (meaning === 'other' && !this.#isOver && this.#mayTry(tokens, answer, now, day)) {
      this.#trial = status
      this.#rejected.add(token)
      tokens?.suspectCurrent('R8', now, day)
      return this.#mint('pass', now) // R8
    }
    if (meaning === 'doubtful' && tokens !== undefined) this.#suspectFor('next', tokens, answer, now, day)
    const isRejection = meaning === 'rejected' || meaning === 'doubtful' || this.#presumed !== undefined
    return this.#pass(isRejection ? 'unexplained' : undefined)
  }

  /** R1 to R7, in this order. */
  #findRemedy(tokens: OrgTokens | undefined, answer: Answer, now: number, day: number): Next {
    const isOnce = this.#kind === 'once'
    const { token, sentAt } = answer
    if (tokens === undefined) {
      const isLast = isOnce || this.#hasMinted(token)
      return isLast ? this.#pass('unexplained') : this.#mint('error', now)
    }
    const { current, acceptedAt } = tokens
    const { settleTimeMs } = tokens.service.rules
    const isNewer = token !== current && !this.#rejected.has(current)
    this.#rejected.add(token)
    if (token === current && !this.#isCounted) {
      this.#isCounted = true
      tokens.row += 1
    }
    const isKnown = tokens.isForbidden(this.#request, now)
    const isForbidden = isKnown && tokens.row < LONG_ROW
    if (token !== current || !isForbidden) tokens.noteRejected(token, sentAt)
    if (isOnce) {
      if (!isForbidden) this.#suspectFor('once', tokens, answer, now, day)
      return this.#pass('unexplained')
    }
    if (tokens.hasEndedAt(now, day) && !this.#hasMinted(current)) return this.#mint('error', now) // T2
    if (isNewer) return this.#repeat('expired', current) // R1
    if (isForbidden) return this.#passAsForbidden(tokens, now) // R2
    const isProven = acceptedAt >= 0
    if (ageOf(current, now, day) < settleTimeMs) {
      const former = tokens.formerAt(now, day)
      if (former !== undefined) return this.#repeat('unsettled', former) // R3
      this.#waitsUntil = Math.min(this.#waitsUntil, now + settleTimeMs)
      if (!isProven && now < this.#waitsUntil) {
        this.#presumed = 'unsettled'
        return { wait: 'turn', until: this.#waitsUntil }
      }
      const afterMs = AGAIN_AFTER_MS[this.#repeats]
      if (isProven && afterMs !== undefined) {
        this.#repeats += 1
        return this.#repeat('unsettled', current, afterMs)
      }
    }
    if (isProven && now - acceptedAt < MOMENT_MS && !this.#hasRetried) {
      this.#hasRetried = true
      return this.#repeat('bad_back_end', current) // R4
    }
    if (acceptedAt > sentAt || this.#hasMinted(current)) {
      tokens.forbid(this.#request, now) // R5, R6
      return this.#passAsForbidden(tokens, now)
    }
    const rule = tokens.ruleForMint(now, isKnown)
    if (rule === undefined) return this.#pass('unexplained')
    tokens.suspectCurrent(rule, now, day)
    return this.#mint(rule === 'R6' ? 'error' : 'pass', now) // R6, R7
  }

  #repeat(presumed: RejectionKind, token: AccessToken, afterMs = 0): Next {
    this.#presumed = presumed
    return { token, afterMs }
  }

  #mint(ifItFails: 'error' | 'pass', now: number): Next {
    this.#mintAskedAt = Math.floor(now)
    this.#presumed = 'expired'
    return { wait: 'mint', ifItFails }
  }

  /** The token comes from a mint that this request caused or joined, and from no other process. */
  #hasMinted(token: AccessToken): boolean {
    return token.mintedAt >= this.#mintAskedAt
  }

  #pass(kind: RejectionKind | undefined): undefined {
    this.kind = kind
    if (kind !== undefined) this.outcome ??= this.#kind === 'once' ? 'refused' : 'passed'
  }

  /** Of the requests that waited for a mint, the first that is rejected to the end tells that it was useless (R6). */
  #passAsForbidden(tokens: OrgTokens, now: number): undefined {
    const { suspect, current } = tokens
    const hasSuccessor = suspect !== undefined && suspect.token !== current && this.#rejected.has(suspect.token)
    if (this.#hasMinted(current) && hasSuccessor) tokens.noteUselessMint(suspect, now)
    return this.#pass('forbidden')
  }

  /** The client gets the rejection. If nothing shows that the settled token is alive, a later request waits for a new one. */
  #suspectFor(by: 'once' | 'next', tokens: OrgTokens, { token, sentAt }: Answer, now: number, day: number): void {
    const { current, acceptedAt, suspect, service } = tokens
    tokens.noteRejected(token, sentAt)
    const isAlive = token !== current || acceptedAt > sentAt
    if (isAlive || ageOf(current, now, day) < service.rules.settleTimeMs || suspect?.token === current) return
    if (suspect?.by === by) tokens.noteUselessMint(suspect, now)
    else tokens.suspectCurrent(by, now, day)
  }

  #mayTry(tokens: OrgTokens | undefined, { token, status }: Answer, now: number, day: number): boolean {
    if (tokens === undefined || this.#kind === 'once' || this.#hasMinted(token)) return false
    if (!tokens.mayHaveEnded(token, now, day)) return false
    return tokens.service.mayTry(status, this.#request.method, now)
  }

  /** Of the requests that waited for one mint, the first to be answered tells: one death is one proof. */
  #endTrial(tokens: OrgTokens | undefined, isAccepted: boolean, now: number): void {
    const isFirst = tokens?.suspect?.by === 'R8'
    if (isFirst || !isAccepted) tokens?.service.noteTrial(this.#trial, isAccepted, now)
    if (isFirst && !isAccepted) tokens.suspect = undefined
    this.#trial = 0
  }

  /** A repeat was accepted. */
  #learn(tokens: OrgTokens, { token, sentAt }: Answer, now: number): void {
    const { suspect, current, service } = tokens
    const wasRejected = this.#rejected.has(token)
    if (wasRejected && this.#presumed === 'unsettled') service.noteDelay(sentAt - token.mintedAt, now) // T6
    const isSuccessor = token === current && !wasRejected
    if (isSuccessor && suspect !== undefined && this.#rejected.has(suspect.token)) tokens.confirmDeath(suspect) // L
  }

  /** The mint failed, or brought the same token: a last repeat shows the client what it would have got without one. */
  giveUp(tokens: OrgTokens | undefined, now: number): void {
    this.#isOver = true
    if (this.#trial > 0) this.#endTrial(tokens, false, now)
  }
}
