/**
 * One request whose token the service has rejected: decides what is tried next, until the service accepts the request or
 * nothing is left that may help.
 */

import type { OrgId } from '../http/org-id.ts'
import type { OrgTokens } from './org-tokens.ts'
import type { Meaning, Odds } from './service-habits.ts'
import type { AccessToken, Asker, RejectionKind } from './token-source.ts'

/** The request, as far as it matters for its token. */
export interface RejectedRequest extends Asker {
  readonly org: OrgId
  readonly method: string
  readonly path: string
  /** False if the content was not kept. */
  readonly isRepeatable: boolean
  readonly isHandshake: boolean
}

/** What the service answered to one try. */
export interface Answer {
  readonly token: AccessToken
  readonly sentAt: number
  readonly status: number
  /** `WWW-Authenticate`; empty if the response has none. */
  readonly challenge: string
}

/**
 * What the cache does for the request. `pass`: the client gets the response. `isAccepted`: its token is good. `kind` tells what
 * the rejection before it turned out to be. `turn`: waits with all others for a token that nobody could use yet.
 */
export type Step =
  | { readonly step: 'pass'; readonly isAccepted?: boolean; readonly kind?: RejectionKind }
  | { readonly step: 'use'; readonly token: AccessToken; readonly delayMs: number }
  | { readonly step: 'turn'; readonly token: AccessToken }
  | { readonly step: 'mint' }

const PASS: Step = { step: 'pass' }

type Remedy = 'newer' | 'former' | 'waited' | 'again' | 'minted' | 'trial'

/** What the rejection turned out to be if its remedy has helped. */
const KINDS: Readonly<Record<Remedy, RejectionKind>> = {
  newer: 'expired',
  minted: 'expired',
  trial: 'expired',
  former: 'unsettled',
  waited: 'unsettled',
  again: 'not_the_token',
}

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
  readonly #shape: string
  readonly #rejected = new Set<AccessToken>()
  /** The remedy that was tried last. */
  #remedy: Remedy | undefined
  /** The status whose meaning the repeat under way is to tell. */
  #trialStatus: number | undefined
  /** The first answer that rejected a token, and its arrival. */
  #first: Answer | undefined
  #firstAt = 0
  #tries = 0
  #agains = 0
  #hasMinted = false
  /** This request waits, and its outcome will count for these odds. */
  #waitOdds: Odds | undefined
  /** What the rejection is if the request is not repeated. */
  #kindIfPassed: RejectionKind = 'not_the_token'

  constructor(request: RejectedRequest) {
    this.request = request
    this.#shape = shapeOf(request)
  }

  get isRepeated(): boolean {
    return this.#remedy !== undefined
  }

  /** A trial got no new token. The same answer again is better for the client than a failure of our own. */
  giveUpTrial(): boolean {
    this.#trialStatus = undefined
    return this.#remedy === 'trial'
  }

  /** Decides after a rejection if the org's tokens were forgotten while the request was under way. */
  nextWithout({ challenge }: Answer): Step {
    if (this.#hasMinted || !this.request.isRepeatable || INSUFFICIENT_SCOPE.test(challenge)) return PASS
    return this.#mint('minted')
  }

  /** Decides after a response. `tokens` may have changed since the request was sent. `random` is a share of one. */
  next(answer: Answer, tokens: OrgTokens, now: number, random: number): Step {
    const { habits } = tokens
    const meaning = habits.meaningOf(answer.status)
    const isSuspect = meaning === 'suspect' && (!this.isRepeated || this.#remedy === 'trial')
    if (meaning !== 'rejected' && !isSuspect) return this.#end(answer, meaning, tokens, now)
    const step = isSuspect ? this.#try(answer, tokens, now) : this.#findRemedy(answer, tokens, now, random)
    if (step !== undefined) return step
    if (this.#trialStatus !== undefined) habits.trialFailed(now)
    if (isSuspect) return PASS
    return { step: 'pass', kind: this.isRepeated ? 'not_the_token' : this.#kindIfPassed }
  }

  /** The first remedy that may still help; undefined if there is none. */
  #findRemedy(answer: Answer, tokens: OrgTokens, now: number, random: number): Step | undefined {
    const { token, sentAt } = answer
    const { current, habits, rules } = tokens
    const isFirst = this.#first === undefined
    if (isFirst) {
      this.#first = answer
      this.#firstAt = now
    }
    this.#tries += 1
    if (this.#remedy === 'again') habits.again.note(false)
    if (INSUFFICIENT_SCOPE.test(answer.challenge)) return undefined
    if (isFirst && token === current) tokens.noteRejected()
    this.#rejected.add(token)
    if (!this.request.isRepeatable) return this.#noteUnrepeated(answer, tokens, now)
    const hasWaitedLong = this.#remedy === 'waited' && now - this.#firstAt > rules.settleTimeMs + LAST_WAIT_MS
    if (hasWaitedLong || this.#tries > MAX_TRIES) return this.#giveUp(tokens, now)
    const isByRight = tokens.rejectedInRow <= MAX_BY_RIGHT_IN_ROW && tokens.shapesByRight?.has(this.#shape)
    if (isByRight && !this.isRepeated) return undefined
    if (!this.#rejected.has(current)) {
      this.#noteVainWait()
      return this.#use('newer', current)
    }
    const isYoung = sentAt - current.mintedAt < rules.settleTimeMs
    const step = isYoung ? this.#waitUntilKnown(sentAt, tokens, now, random) : this.#tryAgain(sentAt, tokens, random)
    if (step !== undefined) return step
    this.#noteVainWait()
    // A request that was sent later was accepted: the token is good.
    const isGood = !isYoung && tokens.acceptedAt > sentAt
    if (isGood || (this.#hasMinted && tokens.isReplacement)) return this.#giveUp(tokens, now)
    if (tokens.hasReplacedInVain(now) || !tokens.mayMintAfterRejection(now, this.#shape)) return undefined
    tokens.condemn(sentAt, false)
    tokens.isBeingReplaced = true
    return this.#mint('minted')
  }

  /** The client gets the rejection at once, and the next request of the org profits from it. */
  #noteUnrepeated({ token, sentAt }: Answer, tokens: OrgTokens, now: number): undefined {
    const { current, acceptedAt, habits, rules } = tokens
    if (token !== current || acceptedAt > sentAt) return
    const isYoung = sentAt - current.mintedAt < rules.settleTimeMs
    this.#kindIfPassed = isYoung ? 'unsettled' : 'unexplained'
    if (isYoung && !habits.again.areProven) {
      tokens.rejectedYoung = { shape: this.#shape, sentAt }
      if (acceptedAt < 0) habits.expectDelay(current.mintedAt + rules.settleTimeMs)
    } else if (tokens.rejectedYoung !== undefined && acceptedAt < 0) {
      tokens.rejectedYoung = undefined
      habits.waitingOnce.note(false)
    }
    const mayHaveEnded = !isYoung || (this.request.isHandshake && !habits.hasDelay(now))
    if (!mayHaveEnded || !tokens.mayMintAfterRejection(now, this.#shape)) return
    if (tokens.hasReplacedInVain(now)) tokens.noteUselessMint(now)
    else tokens.condemn(sentAt, true)
  }

  /** A young token: real services copy tokens to their back ends, and some do not know a new one for seconds. */
  #waitUntilKnown(sentAt: number, tokens: OrgTokens, now: number, random: number): Step | undefined {
    const { current, acceptedAt, habits, rules } = tokens
    const former = tokens.usableFormer(now)
    if (former !== undefined && !this.#rejected.has(former)) return this.#use('former', former)
    const isNew = acceptedAt < 0
    if (!isNew && tokens.rejectedInRow > MAX_DELAYED_IN_ROW && now - acceptedAt > MAX_DELAYED_MS) return undefined
    const odds = isNew ? habits.waiting : habits.waitingPartly
    const mayHelp = (this.#waitOdds !== undefined || odds.areGood(random)) && !(isNew && tokens.isCoolingDownAt(now))
    const isInDelay = habits.hasDelay(now) && sentAt - current.mintedAt < habits.delayMs(now)
    if (!mayHelp && !isInDelay) return undefined
    const settledAt = current.mintedAt + rules.settleTimeMs
    if (mayHelp) this.#waitOdds = odds
    this.#remedy = 'waited'
    // All who wait for a token that nobody could use yet take turns; one that works for others is tried alone.
    if (isNew) return { step: 'turn', token: current }
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** (this.#tries - 1), MAX_PAUSE_MS)
    return this.#use('waited', current, Math.min(pauseMs, Math.max(settledAt - now, 0)))
  }

  /** The service accepted the token a moment ago, or meanwhile: one back end, or this request, may be the reason. */
  #tryAgain(sentAt: number, tokens: OrgTokens, random: number): Step | undefined {
    const { current, acceptedAt, rejectedInRow } = tokens
    const { again } = tokens.habits
    this.#noteVainWait()
    const isAlone = rejectedInRow < 2 || again.areProven
    const wasGood = acceptedAt >= 0 && sentAt - acceptedAt < MOMENT_MS && isAlone
    if (this.#agains >= (again.areProven ? MAX_AGAIN : 1)) return undefined
    if (acceptedAt <= sentAt && !(wasGood && again.areGood(random))) return undefined
    this.#agains += 1
    return this.#use('again', current, this.#agains === 1 ? 0 : FIRST_PAUSE_MS)
  }

  /** The status may say that a token has ended. One repeat with another token tells. */
  #try({ token, sentAt, status, challenge }: Answer, tokens: OrgTokens, now: number): Step | undefined {
    const { current, habits, rules } = tokens
    if (this.#remedy === 'trial') {
      // The new token may not be known yet.
      const isUnknown = token === current && tokens.acceptedAt < 0 && sentAt - current.mintedAt < rules.settleTimeMs
      return isUnknown && this.#trialStatus !== undefined ? { step: 'turn', token } : undefined
    }
    if (!this.request.isRepeatable || INSUFFICIENT_SCOPE.test(challenge)) return undefined
    if (token === current) {
      tokens.noteSuspected()
      if (tokens.acceptedAt < 0 || tokens.acceptedAt > sentAt || tokens.isPausingAt(sentAt)) return undefined
      if (!tokens.mayMintAfterRejection(sentAt, this.#shape)) return undefined
      // While no request of the org gets through, each org has a trial of its own.
      const isUrgent = tokens.suspectedInRow > 1 && !tokens.hadTrial
      if (!isUrgent && !habits.mayTryAt(now)) return undefined
      tokens.condemn(sentAt, false)
      tokens.hadTrial = true
    }
    this.#trialStatus = status
    this.#rejected.add(token)
    return token === current ? this.#mint('trial') : this.#use('trial', current)
  }

  /** Ends the request: nothing in the response speaks against the token. Learns from what was tried. */
  #end(answer: Answer, meaning: Meaning, tokens: OrgTokens, now: number): Step {
    const remedy = this.#remedy
    if (remedy === undefined || (remedy === 'trial' && meaning !== 'accepted')) return PASS
    const isAccepted = meaning !== 'neither'
    const { habits } = tokens
    if (this.#trialStatus !== undefined) {
      if (meaning === 'suspect') habits.trialFailed(now)
      if (meaning !== 'accepted') return PASS
      habits.learnStatus(this.#trialStatus)
    }
    if (isAccepted) this.#noteHelped(remedy, answer, tokens, now)
    return { step: 'pass', isAccepted, kind: isAccepted ? KINDS[remedy] : 'not_the_token' }
  }

  #noteHelped(remedy: Remedy, { token, sentAt }: Answer, tokens: OrgTokens, now: number): void {
    const { habits } = tokens
    const [first] = this.#rejected
    if (first !== undefined && first !== token) tokens.confirmDeath(first)
    if (first !== undefined && remedy === 'newer') tokens.noteFormerEnded(first, this.#first?.sentAt ?? sentAt, now)
    if (remedy === 'again') habits.again.note(true)
    // The new token is known later than now, nobody knows when.
    if (remedy === 'former') habits.learnDelay(Math.max(0, this.#firstAt - tokens.current.mintedAt) * 2, now)
    if (remedy !== 'waited') return
    this.#waitOdds?.note(true)
    // Where bad back ends are everyday, a young token that is rejected now and then shows nothing.
    if (!habits.again.areProven) habits.learnDelay(sentAt - token.mintedAt, now)
  }

  /** Nothing has helped: the request is rejected whatever its token. */
  #giveUp(tokens: OrgTokens, now: number): undefined {
    this.#noteVainWait()
    const [first] = this.#rejected
    // The endpoint gave the same token again. It may give another in a moment.
    if (this.#hasMinted && tokens.current === first) return
    if (this.#hasMinted) tokens.noteUselessMint(now)
    tokens.markRejectedByRight(this.#shape)
  }

  #noteVainWait(): void {
    this.#waitOdds?.note(false)
    this.#waitOdds = undefined
  }

  #use(remedy: Remedy, token: AccessToken, delayMs = 0): Step {
    this.#remedy = remedy
    return { step: 'use', token, delayMs }
  }

  #mint(remedy: 'minted' | 'trial'): Step {
    this.#remedy = remedy
    this.#hasMinted ||= remedy === 'minted'
    return { step: 'mint' }
  }
}

/** Requests that look alike have the same shape: the method, and the path without the parts that name single things. */
export function shapeOf({ method, path }: Pick<RejectedRequest, 'method' | 'path'>): string {
  return `${method} ${path.replace(/[^/]*\d[^/]*/g, '*')}`
}
