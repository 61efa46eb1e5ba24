/**
 * One request whose token the service has rejected: decides what is tried next, until the service accepts the request or
 * nothing is left that may help.
 */

import type { OrgId } from '../http/org-id.ts'
import type { OrgTokens } from './org-tokens.ts'
import type { Meaning } from './rejected-statuses.ts'
import type { Odds } from './service-habits.ts'
import type { AccessToken, RejectionKind, Requester } from './token-source.ts'

/** The request, as far as it matters for its token. */
export interface RejectedRequest {
  readonly org: OrgId
  readonly method: string
  readonly path: string
  /** False if the content was not kept. */
  readonly isRepeatable: boolean
  readonly isHandshake: boolean
  readonly requester: Requester | undefined
  readonly requestId: string | undefined
}

/** What the service answered to one try. */
export interface Answer {
  readonly token: AccessToken
  /** When the request was sent with it. */
  readonly sentAt: number
  readonly status: number
  /** `WWW-Authenticate`; empty if the response has none. */
  readonly challenge: string
}

/**
 * What the cache does for the request. `pass`: the client gets the response. `isAccepted`: its token is good. `kind` tells what
 * the rejection before it turned out to be. `same`: the same token, at once or later.
 */
export type Step =
  | { readonly step: 'pass'; readonly isAccepted?: boolean; readonly kind?: RejectionKind }
  | { readonly step: 'use'; readonly token: AccessToken }
  | { readonly step: 'same'; readonly token: AccessToken; readonly delayMs: number }
  | { readonly step: 'wait'; readonly token: AccessToken }
  | { readonly step: 'mint' }

const PASS: Step = { step: 'pass' }

/** The reason of the repeat that is under way. */
type Attempted = 'newer' | 'former' | 'waited' | 'again' | 'minted' | 'trial'

/** RFC 6750 §3.1: the token is good, and the request needs more rights than it gives. */
const INSUFFICIENT_SCOPE = /error="?insufficient_scope/i
/** A request waits for young tokens no longer than the settle time and this. */
const LAST_WAIT_MS = 1_000
/** Pauses before the next try of a token that other requests use already. */
const FIRST_PAUSE_MS = 50
const MAX_PAUSE_MS = 200
/** Repeats with the same token where bad back ends are everyday. */
const MAX_AGAIN = 4
/** The service accepted the token a moment ago. */
const MOMENT_MS = 5_000
const MAX_TRIES = 60
/** A young token was accepted before. If more requests than this in a row are rejected for this time, it has ended. */
const MAX_DELAYED_IN_ROW = 3
const MAX_DELAYED_MS = 1_000
/** If so many requests in a row are rejected, the token is the reason after all. */
const MAX_BY_RIGHT_IN_ROW = 5

export class Rejection {
  readonly request: RejectedRequest
  readonly #rejected: AccessToken[] = []
  /** The repeat under way is to tell what the first status means. */
  #isTelling = false
  #firstStatus = 0
  #firstSentAt = 0
  /** The first rejection arrived. */
  #firstAt = 0
  #tries = 0
  #agains = 0
  #hasMinted = false
  /** This request waits, and its outcome will count for these odds. */
  #waitOdds: Odds | undefined
  #attempted: Attempted | undefined
  #kindOfRequest: string | undefined
  /** What the rejection is if the request is not repeated. */
  #kindIfPassed: RejectionKind = 'not_the_token'

  constructor(request: RejectedRequest) {
    this.request = request
  }

  /** True once the request was sent a second time. */
  get isRepeated(): boolean {
    return this.#attempted !== undefined
  }

  /** A trial got no new token. The same answer again is better for the client than a failure of our own. */
  giveUpTrial(): boolean {
    this.#isTelling = false
    return this.#attempted === 'trial'
  }

  /** Decides after a rejection if the org's tokens were forgotten while the request was under way. */
  nextWithout({ challenge }: Answer): Step {
    if (this.#attempted !== undefined || !this.request.isRepeatable || INSUFFICIENT_SCOPE.test(challenge)) return PASS
    this.#hasMinted = true
    this.#attempted = 'minted'
    return { step: 'mint' }
  }

  /** Decides after a response. `tokens` may have changed since the request was sent. `random` is a share of one. */
  next(answer: Answer, tokens: OrgTokens, now: number, random: number): Step {
    const { statuses } = tokens.habits
    const meaning = statuses.meaningOf(answer.status)
    const mayTell = this.#attempted === undefined || this.#attempted === 'trial'
    if (meaning !== 'rejected' && !(meaning === 'suspect' && mayTell)) return this.#end(answer, meaning, tokens, now)
    const isRejected = meaning === 'rejected'
    const step = isRejected ? this.#nextTry(answer, tokens, now, random) : this.#nextTrial(answer, tokens, now)
    if (step !== PASS) return step
    if (this.#isTelling) statuses.trialFailed(this.request.org, now)
    return isRejected ? { step: 'pass', kind: this.#outcome(false) } : PASS
  }

  #nextTry(answer: Answer, tokens: OrgTokens, now: number, random: number): Step {
    const { token, sentAt } = answer
    const { current, habits, rules } = tokens
    const isFirst = this.#tries === 0
    if (isFirst) {
      this.#firstSentAt = sentAt
      this.#firstAt = now
    }
    this.#tries += 1
    if (this.#attempted === 'again') habits.again.failed()
    if (INSUFFICIENT_SCOPE.test(answer.challenge)) return PASS
    if (isFirst && token === current) tokens.noteRejected(sentAt)
    if (!this.#rejected.includes(token)) this.#rejected.push(token)
    if (!this.request.isRepeatable) return this.#passOnce(answer, tokens, now)
    const hasWaitedLong = this.#attempted === 'waited' && now - this.#firstAt > rules.settleTimeMs + LAST_WAIT_MS
    if (hasWaitedLong || this.#tries > MAX_TRIES) return this.#giveUp(tokens, now)
    const isUsual = tokens.rejectedInRow <= MAX_BY_RIGHT_IN_ROW && tokens.isRejectedByRight(this.#kind)
    if (isUsual && this.#attempted === undefined) return PASS
    if (token !== current && !this.#rejected.includes(current)) {
      this.#noteVainWait()
      return this.#use('newer', current)
    }
    if (sentAt - current.mintedAt < rules.settleTimeMs) return this.#settle(answer, tokens, now, random)
    return this.#judgeSettled(answer, tokens, now, random)
  }

  /** The status may say that a token has ended. One repeat with another token tells. */
  #nextTrial({ token, sentAt, status, challenge }: Answer, tokens: OrgTokens, now: number): Step {
    const { current, habits, rules } = tokens
    if (this.#attempted === 'trial') {
      // The new token may not be known yet.
      const isUnknown = token === current && tokens.acceptedAt < 0 && sentAt - current.mintedAt < rules.settleTimeMs
      return isUnknown && this.#isTelling ? { step: 'wait', token } : PASS
    }
    this.#firstStatus = status
    if (!this.request.isRepeatable || INSUFFICIENT_SCOPE.test(challenge)) return PASS
    if (token === current) {
      tokens.noteRejected(sentAt)
      if (tokens.acceptedAt < 0 || tokens.acceptedAt > sentAt || tokens.isPausingAt(sentAt)) return PASS
      if (!tokens.mayMintAfterRejection(sentAt, this.#kind)) return PASS
      if (!habits.statuses.mayTry(this.request.org, tokens.rejectedInRow > 1, now)) return PASS
      tokens.condemn(sentAt, false)
    }
    this.#isTelling = true
    this.#attempted = 'trial'
    this.#rejected.push(token)
    return token === current ? { step: 'mint' } : { step: 'use', token: current }
  }

  /** Ends the request: nothing in the response speaks against the token. Learns from what was tried. */
  #end({ token, sentAt }: Answer, meaning: Meaning, tokens: OrgTokens, now: number): Step {
    if (this.#attempted === undefined || (this.#attempted === 'trial' && meaning !== 'accepted')) return PASS
    const isAccepted = meaning !== 'neither'
    const { habits } = tokens
    if (this.#isTelling) {
      if (meaning === 'suspect') habits.statuses.trialFailed(this.request.org, now)
      if (meaning !== 'accepted') return PASS
      habits.statuses.learn(this.#firstStatus)
    }
    const [first] = this.#rejected
    if (isAccepted && first !== undefined) {
      if (first !== token) tokens.confirmDeath(first)
      if (this.#attempted === 'newer') tokens.noteFormerEnded(first, this.#firstSentAt, now)
      if (this.#attempted === 'again') habits.again.helped()
      // The new token is known later than now, nobody knows when.
      if (this.#attempted === 'former') habits.settled(Math.max(0, this.#firstAt - tokens.current.mintedAt) * 2, now)
      if (this.#attempted === 'waited') {
        this.#waitOdds?.helped()
        // Where bad back ends are everyday, a young token that is rejected now and then shows nothing.
        if (!habits.again.areProven) habits.settled(sentAt - token.mintedAt, now)
      }
    }
    return { step: 'pass', isAccepted, kind: this.#outcome(isAccepted) }
  }

  /** What the proxy believes of a rejection at its end, for the metrics. */
  #outcome(isAccepted: boolean): RejectionKind {
    switch (this.#attempted) {
      case 'newer':
      case 'minted':
      case 'trial':
        return isAccepted ? 'expired' : 'not_the_token'
      case 'waited':
      case 'former':
        return isAccepted ? 'unsettled' : 'not_the_token'
      case 'again':
        return 'not_the_token'
      case undefined:
        return this.#kindIfPassed
    }
  }

  get #kind(): string {
    this.#kindOfRequest ??= kindOf(this.request)
    return this.#kindOfRequest
  }

  /** The client gets the rejection at once, and the next request of the org profits from it. */
  #passOnce({ token, sentAt }: Answer, tokens: OrgTokens, now: number): Step {
    const { current, acceptedAt, habits, rules } = tokens
    if (token !== current || acceptedAt > sentAt) return PASS
    const isYoung = sentAt - current.mintedAt < rules.settleTimeMs
    this.#kindIfPassed = isYoung ? 'unsettled' : 'unexplained'
    const isRetired = !isYoung || (this.request.isHandshake && !habits.hasDelay(now))
    if (isRetired && tokens.mayMintAfterRejection(now, this.#kind)) {
      if (tokens.isUselessAt(now)) tokens.noteUselessMint(now)
      else tokens.condemn(sentAt, true)
    }
    return PASS
  }

  /** A young token: real services copy tokens to their back ends, and some do not know a new one for seconds. */
  #settle({ sentAt }: Answer, tokens: OrgTokens, now: number, random: number): Step {
    const { current, acceptedAt, habits, rules } = tokens
    const former = tokens.usableFormer(now)
    if (former !== undefined && !this.#rejected.includes(former)) return this.#use('former', former)
    const isNew = acceptedAt < 0
    const isDying = !isNew && tokens.rejectedInRow > MAX_DELAYED_IN_ROW && now - acceptedAt > MAX_DELAYED_MS
    const odds = isNew ? habits.waiting : habits.waitingPartly
    const mayHelp = (this.#waitOdds !== undefined || odds.areGood(random)) && !(isNew && tokens.isCoolingDownAt(now))
    const isInDelay = habits.hasDelay(now) && sentAt - current.mintedAt < habits.delayMs(now, rules.settleTimeMs)
    if (isDying || !(mayHelp || isInDelay)) {
      if (isDying) this.#noteVainWait()
      // Such a rejection is weighed like that of an old token.
      return this.#hasMinted ? this.#giveUp(tokens, now) : this.#mint(sentAt, tokens, now)
    }
    const settledAt = current.mintedAt + rules.settleTimeMs
    if (isNew) habits.unsettled(settledAt)
    if (mayHelp) this.#waitOdds = odds
    this.#attempted = 'waited'
    // All who wait for a token that nobody could use yet take turns; one that works for others is tried alone.
    if (isNew) return { step: 'wait', token: current }
    const delayMs = Math.min(FIRST_PAUSE_MS * 2 ** (this.#tries - 1), MAX_PAUSE_MS, Math.max(settledAt - now, 0))
    return { step: 'same', token: current, delayMs }
  }

  #judgeSettled({ sentAt }: Answer, tokens: OrgTokens, now: number, random: number): Step {
    const { current, acceptedAt } = tokens
    const { again } = tokens.habits
    this.#noteVainWait()
    // A request that was sent later was accepted: the token is good, and one back end or this request is the reason.
    const isGood = acceptedAt > sentAt
    const isAlone = tokens.rejectedInRow < 2 || again.areProven
    const wasGood = acceptedAt >= 0 && sentAt - acceptedAt < MOMENT_MS && isAlone
    const mayHelp = this.#agains < (again.areProven ? MAX_AGAIN : 1)
    if (mayHelp && (isGood || (wasGood && again.areGood(random)))) {
      this.#attempted = 'again'
      const delayMs = this.#agains === 0 ? 0 : FIRST_PAUSE_MS
      this.#agains += 1
      return { step: 'same', token: current, delayMs }
    }
    if (isGood || this.#hasMinted) return this.#giveUp(tokens, now)
    return this.#mint(sentAt, tokens, now)
  }

  #mint(sentAt: number, tokens: OrgTokens, now: number): Step {
    if (tokens.isUselessAt(now) || !tokens.mayMintAfterRejection(now, this.#kind)) return PASS
    tokens.condemn(sentAt, false)
    tokens.isDead = true
    this.#hasMinted = true
    this.#attempted = 'minted'
    return { step: 'mint' }
  }

  /** Nothing has helped: the request is rejected whatever its token. */
  #giveUp(tokens: OrgTokens, now: number): Step {
    this.#noteVainWait()
    // The endpoint gave the same token again. It may give another in a moment.
    if (this.#hasMinted && tokens.current === this.#rejected[0]) return PASS
    if (this.#hasMinted) tokens.noteUselessMint(now)
    tokens.markRejectedByRight(this.#kind)
    return PASS
  }

  #noteVainWait(): void {
    this.#waitOdds?.failed()
    this.#waitOdds = undefined
  }

  #use(attempted: Attempted, token: AccessToken): Step {
    this.#attempted = attempted
    return { step: 'use', token }
  }
}

/** Requests that look alike have the same kind: the method, and the path without the parts that name single things. */
export function kindOf({ method, path }: Pick<RejectedRequest, 'method' | 'path'>): string {
  return `${method} ${path.replace(/[^/]*\d[^/]*/g, '*')}`
}
