/**
 * One request whose token the service has rejected: decides what is tried next, until the service accepts the request or
 * nothing is left that may help.
 */

import type { OrgId } from '../http/org-id.ts'
import type { OrgTokens } from './org-tokens.ts'
import type { Odds, ServiceHabits } from './service-habits.ts'
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

export interface Rejected {
  readonly token: AccessToken
  /** When the request was sent with it. */
  readonly sentAt: number
  readonly status: number
  /** `WWW-Authenticate`; empty if the response has none. */
  readonly challenge: string
}

/** What the cache does for the request. `again`: the same token, at once or later. */
export type Step =
  | { readonly step: 'pass' }
  | { readonly step: 'use'; readonly token: AccessToken }
  | { readonly step: 'again'; readonly token: AccessToken; readonly delayMs: number }
  | { readonly step: 'wait'; readonly token: AccessToken }
  | { readonly step: 'mint' }

const PASS: Step = { step: 'pass' }

/** The reason of the repeat that is under way. */
type Attempted = 'newer' | 'former' | 'waited' | 'again' | 'minted' | 'trial'

/** RFC 6750 §3.1: the token is good, and the request needs more rights than it gives. */
const INSUFFICIENT_SCOPE = /error="?insufficient_scope/i
/** A request waits for tokens no longer than the settle time and this. */
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

export interface StepRules {
  readonly now: number
  /** A share of one. */
  readonly random: number
  readonly settleTimeMs: number
}

export class Rejection {
  readonly request: RejectedRequest
  readonly pass = PASS
  readonly #rejected: AccessToken[] = []
  /** The repeat under way is to tell what the first status means. */
  isTelling = false
  #firstStatus = 0
  #firstAt = 0
  #firstSentAt = 0
  #tries = 0
  #agains = 0
  #pauses = 0
  #hasMinted = false
  /** The odds that this request's wait will tell something of. */
  #waitedFor: Odds | undefined
  #attempted: Attempted | undefined
  #kind: string | undefined
  /** What the rejection is if the request is not repeated. */
  #known: RejectionKind = 'not_the_token'

  constructor(request: RejectedRequest) {
    this.request = request
  }

  /** True once the request was sent a second time. */
  get isRepeated(): boolean {
    return this.#attempted !== undefined
  }

  /** This request finds out what its first status means. */
  get isTrial(): boolean {
    return this.#attempted === 'trial'
  }

  /** The status of the first response. */
  get firstStatus(): number {
    return this.#firstStatus
  }

  /** Decides after a rejection if the org's tokens were forgotten while the request was under way. */
  nextWithout({ challenge }: Rejected): Step {
    if (this.#attempted !== undefined || !this.request.isRepeatable || INSUFFICIENT_SCOPE.test(challenge)) return PASS
    this.#hasMinted = true
    this.#attempted = 'minted'
    return { step: 'mint' }
  }

  /** What the proxy believes of a rejection at its end, for the metrics. */
  outcome(isAccepted: boolean): RejectionKind {
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
        return this.#known
    }
  }

  /** Decides after a rejection. `tokens` may have changed since the request was sent. */
  next(rejected: Rejected, tokens: OrgTokens, habits: ServiceHabits, rules: StepRules): Step {
    const { token, sentAt, challenge } = rejected
    const { now } = rules
    const { current } = tokens
    const isFirst = this.#tries === 0
    if (isFirst) {
      this.#firstAt = now
      this.#firstSentAt = sentAt
    }
    this.#tries += 1
    if (this.#attempted === 'again') habits.again.failed()
    if (INSUFFICIENT_SCOPE.test(challenge)) return PASS
    if (isFirst && token === current) tokens.noteRejected(sentAt)
    if (!this.#rejected.includes(token)) this.#rejected.push(token)
    if (!this.request.isRepeatable) return this.#passOnce(rejected, tokens, habits, rules)
    if (this.#tries > MAX_TRIES || now - this.#firstAt > rules.settleTimeMs + LAST_WAIT_MS)
      return this.#giveUp(tokens, now)
    const isUsual = tokens.rejectedInRow <= MAX_BY_RIGHT_IN_ROW && tokens.isRejectedByRight(this.kind)
    if (isUsual && this.#attempted === undefined) return PASS
    if (token !== current && !this.#rejected.includes(current)) {
      this.#noteVainWait()
      return this.#use('newer', current)
    }
    if (sentAt - current.mintedAt < rules.settleTimeMs) return this.#settle(rejected, tokens, habits, rules)
    return this.#judgeSettled(rejected, tokens, habits, rules)
  }

  /**
   * Decides after a response whose status may say that a token has ended. One repeat with another token tells.
   * `isTrialDue` asks for leave to mint for that.
   */
  nextTrial(
    { token, sentAt, status, challenge }: Rejected,
    tokens: OrgTokens,
    settleTimeMs: number,
    isTrialDue: () => boolean,
  ): Step {
    const { current } = tokens
    if (this.isTrial) {
      // The new token may not be known yet.
      const isUnknown = token === current && tokens.acceptedAt < 0 && sentAt - current.mintedAt < settleTimeMs
      return isUnknown && this.isTelling ? { step: 'wait', token } : PASS
    }
    this.#firstStatus = status
    if (!this.request.isRepeatable || INSUFFICIENT_SCOPE.test(challenge)) return PASS
    if (token === current) {
      tokens.noteRejected(sentAt)
      if (tokens.acceptedAt < 0 || tokens.acceptedAt > sentAt || tokens.isPausingAt(sentAt)) return PASS
      if (!tokens.mayMintAfterRejection(sentAt, this.kind) || !isTrialDue()) return PASS
      tokens.condemn(sentAt, false)
    }
    this.isTelling = true
    this.#attempted = 'trial'
    this.#rejected.push(token)
    return token === current ? { step: 'mint' } : { step: 'use', token: current }
  }

  /** The service has accepted the request with `token`. */
  accepted({ token, sentAt }: Rejected, tokens: OrgTokens, habits: ServiceHabits, now: number): void {
    const [first] = this.#rejected
    if (first !== undefined && first !== token) tokens.confirmDeath(first)
    switch (this.#attempted) {
      case 'newer':
        if (first !== undefined) tokens.noteFormerEnded(first, this.#firstSentAt, now)
        break
      case 'waited':
        this.#waitedFor?.helped()
        // Where bad back ends are everyday, a young token that is rejected now and then shows nothing.
        if (!habits.again.areProven) habits.settled(sentAt - token.mintedAt, now)
        break
      case 'again':
        habits.again.helped()
        break
      case 'former':
        // The new token is known later than now, nobody knows when.
        habits.settled(Math.max(0, this.#firstAt - tokens.current.mintedAt) * 2, now)
        break
      case 'minted':
      case 'trial':
      case undefined:
        break
    }
  }

  get kind(): string {
    this.#kind ??= kindOf(this.request)
    return this.#kind
  }

  /** The client gets the rejection at once, and the next request of the org profits from it. */
  #passOnce({ token, sentAt }: Rejected, tokens: OrgTokens, habits: ServiceHabits, rules: StepRules): Step {
    const { current, acceptedAt } = tokens
    if (token !== current || acceptedAt > sentAt) return PASS
    const isYoung = sentAt - current.mintedAt < rules.settleTimeMs
    this.#known = isYoung ? 'unsettled' : 'unexplained'
    if (isYoung && acceptedAt < 0 && habits.waiting.areGood(1)) habits.unsettled(current.mintedAt + rules.settleTimeMs)
    const isRetired = !isYoung || (this.request.isHandshake && !habits.hasDelay(rules.now))
    if (isRetired && tokens.mayMintAfterRejection(rules.now, this.kind)) {
      if (tokens.isUselessAt(rules.now)) tokens.noteUselessMint(rules.now)
      else tokens.condemn(sentAt, true)
    }
    return PASS
  }

  /** A young token: real services copy tokens to their back ends, and some do not know a new one for seconds. */
  #settle(rejected: Rejected, tokens: OrgTokens, habits: ServiceHabits, rules: StepRules): Step {
    const { current, acceptedAt } = tokens
    const former = tokens.usableFormer(rules.now)
    if (former !== undefined && !this.#rejected.includes(former)) return this.#use('former', former)
    const isNew = acceptedAt < 0
    const isDying = tokens.rejectedInRow > MAX_DELAYED_IN_ROW && rules.now - acceptedAt > MAX_DELAYED_MS
    if (!isNew && isDying) {
      this.#noteVainWait()
      return this.#judgeUnhelpful(rejected, tokens, rules)
    }
    const mayHelp = this.#waitedFor !== undefined || habits.waiting.areGood(rules.random)
    const isHopeful = mayHelp && (!isNew || tokens.uselessMints === 0)
    const isInDelay =
      habits.hasDelay(rules.now) && rejected.sentAt - current.mintedAt < habits.delayMs(rules.now, rules.settleTimeMs)
    if (!isHopeful && !isInDelay) return this.#judgeUnhelpful(rejected, tokens, rules)
    const settledAt = current.mintedAt + rules.settleTimeMs
    if (isNew) habits.unsettled(settledAt)
    if (isHopeful) this.#waitedFor = habits.waiting
    this.#attempted = 'waited'
    // All who wait for a token that nobody could use yet take turns; one that works for others is tried alone.
    if (isNew) return { step: 'wait', token: current }
    const delayMs = Math.min(FIRST_PAUSE_MS * 2 ** this.#pauses++, MAX_PAUSE_MS)
    return { step: 'again', token: current, delayMs: Math.min(delayMs, Math.max(settledAt - rules.now, 0)) }
  }

  /** Waiting for young tokens has not helped lately: their rejections are weighed like those of others. */
  #judgeUnhelpful({ sentAt }: Rejected, tokens: OrgTokens, rules: StepRules): Step {
    if (this.#hasMinted) return this.#giveUp(tokens, rules.now)
    if (!tokens.mayMintAfterRejection(rules.now, this.kind)) return PASS
    return this.#mint(sentAt, tokens)
  }

  #judgeSettled({ sentAt }: Rejected, tokens: OrgTokens, habits: ServiceHabits, rules: StepRules): Step {
    const { current, acceptedAt } = tokens
    this.#noteVainWait()
    // A request that was sent later was accepted: the token is good, and one back end or this request is the reason.
    const isGood = acceptedAt > sentAt
    const isAlone = tokens.rejectedInRow < 2 || habits.again.areProven
    const wasGood = acceptedAt >= 0 && sentAt - acceptedAt < MOMENT_MS && isAlone
    const mayHelp = habits.again.areProven ? this.#agains < MAX_AGAIN : this.#agains === 0
    if (mayHelp && (isGood || (wasGood && habits.again.areGood(rules.random)))) {
      this.#attempted = 'again'
      const delayMs = this.#agains === 0 ? 0 : FIRST_PAUSE_MS
      this.#agains += 1
      return { step: 'again', token: current, delayMs }
    }
    if (isGood || this.#hasMinted) return this.#giveUp(tokens, rules.now)
    if (tokens.isUselessAt(rules.now)) return PASS
    if (!tokens.mayMintAfterRejection(rules.now, this.kind)) return PASS
    return this.#mint(sentAt, tokens)
  }

  #mint(sentAt: number, tokens: OrgTokens): Step {
    tokens.condemn(sentAt, false)
    this.#hasMinted = true
    this.#attempted = 'minted'
    tokens.isDead = true
    return { step: 'mint' }
  }

  /** Nothing has helped: the request is rejected whatever its token. */
  #giveUp(tokens: OrgTokens, now: number): Step {
    this.#noteVainWait()
    // The endpoint gave the same token again. It may give another in a moment.
    if (this.#hasMinted && tokens.current === this.#rejected[0]) return PASS
    if (this.#hasMinted) tokens.noteUselessMint(now)
    tokens.markRejectedByRight(this.kind)
    return PASS
  }

  #noteVainWait(): void {
    this.#waitedFor?.failed()
    this.#waitedFor = undefined
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
