/**
 * One request whose token the service has rejected: decides what is tried next, until the service accepts the request or
 * nothing is left that may help.
 */

import type { OrgId } from '../http/org-id.ts'
import type { RejectionKind } from '../http/request-record.ts'
import { type OrgTokens, type RequestLine, shapeOf } from '../token/org-tokens.ts'
import type { Meaning } from '../token/service-habits.ts'
import type { TokenCache } from '../token/token-cache.ts'
import type { AccessToken, Asker, MintReason } from '../token/token-source.ts'

/** The request, as far as it matters for its token. */
interface RejectedRequest extends RequestLine, Asker {
  readonly org: OrgId
  /** False if the content was not kept. */
  readonly isRepeatable: boolean
  readonly isHandshake: boolean
}

/** What the service answered to one try. */
interface Answer {
  readonly token: AccessToken
  readonly sentAt: number
  readonly status: number
  /** `WWW-Authenticate`; empty if the response has none. */
  readonly challenge: string
}

type Remedy = 'newer' | 'former' | 'waited' | 'again' | 'minted'

/** What the rejection turned out to be if its remedy has helped. */
const KINDS: Readonly<Record<Remedy, RejectionKind>> = {
  newer: 'expired',
  minted: 'expired',
  former: 'unsettled',
  waited: 'unsettled',
  again: 'not_the_token',
}

/** RFC 6750 §3.1: the token is good, and the request needs more rights than it gives. */
const INSUFFICIENT_SCOPE = /error="?insufficient_scope/i
/** The first repeat with the same token is sent at once. This is the pause before each further one. */
const AGAIN_MS = 50
/** Repeats with the same token where bad back ends are everyday. */
const MAX_AGAIN = 4
/** The service accepted the token a moment ago. */
const MOMENT_MS = 5_000
const MAX_TRIES = 60
/** After a trial of a status that did not help, there is no other for this time, but for an org with a long row of rejections. */
const TRIAL_PAUSE_MS = 10 * 60_000
/** A mint for a request that cannot be repeated helps only the next one, so those that do not help are made more rarely. */
const UNREPEATED_COOLDOWNS = 4
/**
 * An older token is replaced although it is good for other requests: some tokens keep the permissions of their time, and a back
 * end may lose a token.
 */
const RENEW_AFTER_MS = 5 * 60_000

type Repeat = Promise<AccessToken>

export class RejectedToken {
  readonly request: RejectedRequest
  /** Set when the request has ended, if its token was rejected. */
  kind: RejectionKind | undefined
  readonly #cache: TokenCache
  readonly #shape: string
  readonly #rejected = new Set<AccessToken>()
  /** The remedy that was tried last. */
  #remedy: Remedy | undefined
  /** The status whose meaning the repeat under way is to tell. */
  #trialStatus: number | undefined
  /** The last status was a `suspect`: its meaning is open. */
  #isTrial = false
  /** When the request was sent that was rejected first. */
  #firstSentAt = 0
  #agains = 0
  #tries = 0
  #hasMinted = false
  /** Set when the request first waits until a token is known. */
  #waitsUntil = Number.POSITIVE_INFINITY
  /** This request waits because that may help; false once it did not. */
  #isWaiting: boolean | undefined
  /** The service had accepted the token for no request when it rejected it. */
  #wasUnused = false

  constructor(cache: TokenCache, request: RejectedRequest) {
    this.#cache = cache
    this.request = request
    this.#shape = shapeOf(request)
  }

  get isRepeated(): boolean {
    return this.#remedy !== undefined
  }

  /**
   * Takes note of a response whose status does not mean `accepted`, or that answers a repeat. Resolves with the token
   * for the next repeat; undefined if the client gets the response. The promise rejects with a `TokenError` if there is no
   * token.
   */
  judge(answer: Answer): Repeat | undefined {
    const { habits, now } = this.#cache
    const tokens = this.#cache.orgs.peek(this.request.org)
    const meaning = habits.meaningOf(answer.status)
    if (tokens === undefined) return meaning === 'rejected' ? this.#judgeWithout(answer) : undefined
    const random = this.#cache.random()
    const isRejected = meaning === 'rejected' || (meaning === 'suspect' && this.#isSuspect(answer, tokens, now()))
    if (this.#remedy === 'again' && meaning !== 'neither') habits.again.note(!isRejected)
    if (!isRejected) return this.#end(answer, meaning, tokens, now())
    this.#isTrial = meaning === 'suspect'
    const isForScope = INSUFFICIENT_SCOPE.test(answer.challenge)
    const repeat = isForScope ? undefined : this.#findRemedy(answer, tokens, now(), random)
    if (this.#isWaiting && (repeat === undefined || this.#remedy !== 'waited')) {
      this.#isWaiting = false
      habits.waiting.note(false)
    }
    if (repeat !== undefined) return repeat
    if (!this.#isTrial) this.kind ??= 'not_the_token'
    else if ((this.#hasMinted || this.#rejected.size > 1) && this.#tries <= MAX_TRIES)
      habits.noTrialUntil = now() + TRIAL_PAUSE_MS
    return undefined
  }

  /** The tokens of the org were forgotten while the request was under way. */
  #judgeWithout({ token, challenge }: Answer): Repeat | undefined {
    const mayHelp = !this.#hasMinted && this.request.isRepeatable && !INSUFFICIENT_SCOPE.test(challenge)
    return mayHelp ? this.#mint(token) : undefined
  }

  /** The status may say that a token has ended. A repeat with another token tells. */
  #isSuspect({ token, sentAt, status, challenge }: Answer, tokens: OrgTokens, now: number): boolean {
    if (this.isRepeated) return status === this.#trialStatus
    if (INSUFFICIENT_SCOPE.test(challenge)) return false
    // It cannot be repeated. In a long row, the next request gets a new token.
    if (!this.request.isRepeatable) {
      if (token === tokens.current) tokens.rejectedInRow += 1
      return tokens.isLongRow
    }
    const isOtherAtHand = token !== tokens.current || (tokens.acceptedAt < 0 && tokens.former !== undefined)
    if (!isOtherAtHand) {
      tokens.rejectedInRow += 1
      if ((tokens.acceptedAt < 0 && tokens.tokenOnTrial === undefined) || tokens.acceptedAt > sentAt) return false
      // An org with an unusually long row of rejections gets a trial even then.
      if (!tokens.isLongRow && now < tokens.habits.noTrialUntil) return false
    }
    this.#trialStatus = status
    return true
  }

  /** The first remedy that may still help; undefined if there is none. */
  #findRemedy({ token, sentAt }: Answer, tokens: OrgTokens, now: number, random: number): Repeat | undefined {
    this.#tries += 1
    const isAgain = this.#rejected.has(token)
    this.#rejected.add(token)
    this.#firstSentAt ||= sentAt
    const { current, habits } = tokens
    this.#wasUnused = tokens.acceptedAt < 0
    const isFormer = token === tokens.former
    if (this.#tries === 1 && (token === current || isFormer) && !this.#isTrial) tokens.rejectedInRow += 1
    if (isFormer && !this.#isTrial && (isAgain || !tokens.keepsFormer)) tokens.former = undefined
    const { isLongRow } = tokens
    const isByRight = !isLongRow && tokens.shapesByRight?.get(this.#shape) === 'all'
    if (isByRight && !this.isRepeated) return this.#renew(tokens, now)
    const wasGood = tokens.acceptedAt >= 0
    const isYoung = sentAt - current.mintedAt < habits.rules.settleTimeMs
    const isUrgent = isLongRow && wasGood && !isYoung && !tokens.isPausingAt(now) && tokens.givenAgain === 0
    const mayMint = isUrgent || tokens.mayMintAfterRejection(now)
    const isTelling = this.#tries === 1 && mayMint && wasGood && (isLongRow || !tokens.isMixed(this.#shape))
    if (isTelling) habits.noteRejected(tokens, sentAt)
    if (!this.request.isRepeatable) return this.#noteUnrepeated(token, sentAt, tokens, now)
    if (this.#tries > MAX_TRIES || now > this.#waitsUntil) return this.#giveUp(tokens, now)
    if (!this.#rejected.has(current)) return this.#use('newer', current)
    const again = isYoung ? undefined : this.#tryAgain(sentAt, tokens, random)
    if (again !== undefined) return again
    const former = isYoung || !this.#isTrial ? tokens.usableFormer(now) : undefined
    if (former !== undefined && !this.#rejected.has(former)) return this.#use('former', former)
    const known = isYoung ? this.#waitUntilKnown(sentAt, tokens, now, random) : undefined
    if (known !== undefined) return known
    if (!isLongRow && tokens.rejectsByRight(this.#shape, now)) return undefined
    // A request that was sent later was accepted: the token is good.
    const isGood = tokens.acceptedAt > sentAt || (isYoung && this.#isTrial)
    // After a failure, or the same token again, there is a pause in an outage, too.
    const holdsOut = this.#holdsOut(tokens, now) && !tokens.isPausingAt(now)
    if (isGood || (this.#hasMinted && tokens.isReplacement && !holdsOut)) return this.#giveUp(tokens, now)
    if ((tokens.hasReplacedInVain(now) || !mayMint) && !holdsOut) return undefined
    tokens.condemn(sentAt, this.#isTrial)
    // Nobody else waits for a trial.
    tokens.isBeingReplaced ||= !this.#isTrial
    return this.#mint(token)
  }

  /** The client gets the rejection at once, and the next request of the org profits from it. */
  #noteUnrepeated(token: AccessToken, sentAt: number, tokens: OrgTokens, now: number): undefined {
    const { current, acceptedAt, habits } = tokens
    if (token !== current || acceptedAt > sentAt) return
    const wasGoodLately = acceptedAt >= 0 && sentAt - acceptedAt < MOMENT_MS
    if (wasGoodLately && !tokens.isLongRow && tokens.isMixed(this.#shape)) return
    const isYoung = sentAt - current.mintedAt < habits.rules.settleTimeMs
    this.kind = isYoung ? 'unsettled' : 'unexplained'
    if (acceptedAt < 0) {
      if (isYoung) habits.expectDelay(sentAt + habits.longestWaitMs)
      else if (tokens.rejectedYoung !== undefined) habits.waiting.note(false)
      tokens.rejectedYoung = isYoung ? this.request : undefined
    }
    const isSecond = tokens.unrepeated?.shape === this.#shape && tokens.unrepeated.token !== current
    if (isSecond && !isYoung && acceptedAt >= 0) return this.#giveUp(tokens, now)
    if (!isSecond) tokens.unrepeated = { shape: this.#shape, token: current }
    const mayHaveEnded = !isYoung || (this.request.isHandshake && !habits.hasDelay(now))
    if (!mayHaveEnded || !tokens.mayMintAfterRejection(now, UNREPEATED_COOLDOWNS)) return
    if (tokens.hasReplacedInVain(now)) tokens.noteUselessMint(now + habits.rules.rejectedCooldownMs)
    else tokens.condemn(sentAt)
  }

  /** A young token: real services copy tokens to their back ends, and some do not know a new one for seconds. */
  #waitUntilKnown(sentAt: number, tokens: OrgTokens, now: number, random: number): Repeat | undefined {
    const { current, acceptedAt, habits } = tokens
    const former = tokens.usableFormer(now)
    // The token that the trial is about was good for others.
    const isOver = tokens.tokenOnTrial === undefined && (former !== undefined || acceptedAt >= 0)
    if (this.#isTrial && isOver) return this.#rejected.size > 1 ? undefined : this.#tryAgain(sentAt, tokens, random)
    const isHopeful = (this.#isWaiting ?? habits.waiting.areGood(random)) || this.#holdsOut(tokens, now)
    const isInDelay = sentAt - current.mintedAt < habits.delayMs(now)
    if (!isHopeful && !isInDelay && !this.#isTrial) return undefined
    this.#waitsUntil = Math.min(this.#waitsUntil, now + habits.longestWaitMs)
    if (isHopeful && this.#trialStatus === undefined) this.#isWaiting ??= true
    // Requests take turns in trying a token that was never accepted. In a trial, or if it was accepted, each tries it alone.
    if (acceptedAt < 0 && !this.#isTrial) {
      if (isHopeful) habits.expectDelay(current.mintedAt + habits.rules.settleTimeMs)
      this.#remedy = 'waited'
      tokens.awaitAcceptance(now)
      return this.#cache.obtain(this.request.org, { ...this.request, kind: 'repeatable' }).then((found) => found.token)
    }
    const restMs = Math.max(current.mintedAt + habits.rules.settleTimeMs - now, 0)
    return this.#use('waited', current, Math.min(tokens.turnMs(now), restMs))
  }

  /** In an outage, a request holds out as long as a token takes to settle. */
  #holdsOut(tokens: OrgTokens, now: number): boolean {
    return tokens.isInOutage(now) && now - this.#firstSentAt < tokens.habits.rules.settleTimeMs
  }

  /** The service accepted the token a moment ago, or meanwhile: one back end, or this request, may be the reason. */
  #tryAgain(sentAt: number, { current, acceptedAt, habits: { again } }: OrgTokens, random: number): Repeat | undefined {
    if (this.#agains >= (again.areProven ? MAX_AGAIN : 1)) return undefined
    const wasGoodLately = acceptedAt >= 0 && sentAt - acceptedAt < MOMENT_MS
    if (acceptedAt <= sentAt && !(wasGoodLately && again.areGood(random))) return undefined
    this.#agains += 1
    return this.#use('again', current, this.#agains === 1 ? 0 : AGAIN_MS)
  }

  /** Ends the request: nothing in the response speaks against the token. Learns from what was tried. */
  #end({ token, sentAt }: Answer, meaning: Meaning, tokens: OrgTokens, now: number): undefined {
    const remedy = this.#remedy
    if (remedy === undefined) return
    this.kind = meaning === 'accepted' ? KINDS[remedy] : 'not_the_token'
    if (meaning !== 'accepted') return
    const { habits } = tokens
    const [first] = this.#rejected
    // Of a trial, only a token that was never rejected proves something.
    const isProof = this.#trialStatus === undefined || !this.#rejected.has(token)
    if (isProof && this.#trialStatus !== undefined) habits.learnStatus(this.#trialStatus)
    if (isProof && first !== undefined && first !== token) {
      // The former token was rejected after its successor's mint, which may have ended it.
      const isFormer = remedy === 'newer' && this.#firstSentAt >= tokens.current.mintedAt
      if (isFormer && first !== tokens.tokenOnTrial) habits.former.note(false)
      const { lifetimes } = habits
      const ageMs = this.#firstSentAt - first.mintedAt
      if (this.kind === 'expired') lifetimes.leastProvenMs = Math.min(lifetimes.leastProvenMs, ageMs)
      tokens.confirmDeath(first)
    }
    if (this.#isWaiting) habits.waiting.note(true)
    const wasSettled = this.#firstSentAt - tokens.current.mintedAt >= habits.rules.settleTimeMs
    if (remedy === 'again') {
      if (wasSettled) habits.noteBadBackEnd(now)
      this.#renew(tokens, now)
    }
    // The current token has ended before the former one.
    if (remedy === 'former' && wasSettled) {
      tokens.condemn(this.#firstSentAt)
      if (!tokens.isPausingAt(now)) this.#mintBehind('rejected')
    }
    if (remedy === 'waited' && token === tokens.current)
      habits.learnDelay(sentAt - token.mintedAt, now, this.#wasUnused)
    tokens.noteAccepted(token, sentAt, this.request)
  }

  /** Mints behind the request if the token is old. */
  #renew(tokens: OrgTokens, now: number): undefined {
    const mayRenew = now - tokens.current.mintedAt > RENEW_AFTER_MS && !tokens.isPausingAt(now)
    if (mayRenew && tokens.habits.ahead.areGood(this.#cache.random())) this.#mintBehind('refresh')
  }

  #mintBehind(reason: MintReason): void {
    this.#cache.awaitMint(this.request.org, reason, this.request).catch(() => undefined)
  }

  /** Nothing has helped: the request is rejected whatever its token. */
  #giveUp(tokens: OrgTokens, now: number): undefined {
    const [first] = this.#rejected
    // The endpoint gave the same token again. It may give another in a moment.
    if ((this.#hasMinted && tokens.current === first) || tokens.isInOutage(now)) return
    // A useless trial delays no mint for statuses known to be about the token.
    if (this.#hasMinted) tokens.noteUselessMint(this.#isTrial ? 0 : now + tokens.habits.rules.rejectedCooldownMs)
    if (!this.#isTrial) tokens.markRejectedByRight(this.#shape, 'all')
  }

  async #use(remedy: Remedy, token: AccessToken, delayMs = 0): Repeat {
    this.#remedy = remedy
    if (delayMs > 0) await this.#cache.wait(delayMs)
    return token
  }

  #mint(rejected: AccessToken): Repeat {
    this.#remedy = 'minted'
    this.#hasMinted = true
    return this.#cache.awaitMint(this.request.org, 'rejected', this.request).catch((error: unknown) => {
      if (this.#trialStatus === undefined) throw error
      // The same answer again is better for the client than a failure of our own.
      this.#trialStatus = undefined
      return rejected
    })
  }
}
