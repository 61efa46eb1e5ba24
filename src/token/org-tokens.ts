/**
 * The tokens of one org, and what is known of them. Pure: every instant is a parameter, in monotonic milliseconds.
 *
 * The *current* token is the newest. The *former* one stays at hand until the current one is known to work. A token is
 *
 *     new ──accepted──▶ proven ──rejected──▶ condemned ──its successor is accepted──▶ dead: its age is a lesson
 *
 * and a rejection of a token that is younger than the settle time condemns nothing as long as waiting may help.
 */

import type { OrgId } from '../http/org-id.ts'
import { type Death, OrgLifetime } from './lifetimes.ts'
import type { ServiceHabits, TokenRules } from './service-habits.ts'
import type { AccessToken, MintReason } from './token-source.ts'
import type { Turns } from './turns.ts'

/** `once`: a request that cannot be repeated. */
export type RequestKind = 'repeatable' | 'once' | 'handshake'

/** `behind` asks for a mint behind the request. */
export type Choice =
  | { readonly token: AccessToken; readonly result: 'hit' | 'stale'; readonly behind?: MintReason | undefined }
  | { readonly wait: 'mint'; readonly reason: MintReason }
  | { readonly wait: 'until'; readonly at: number }
  | { readonly wait: 'settled' }

/** A token that the service rejected although it was old enough to be known everywhere. */
interface Condemned {
  readonly token: AccessToken
  readonly death: Death
  /** No request is repeated with the successor, so the first request that the service accepts confirms the death. */
  readonly isUnrepeated: boolean
}

/** Rejections that had nothing to do with the token. Few orgs have any. */
interface OtherRejections {
  /** Mints in a row that did not help. */
  useless: number
  /** The token of the last of them. */
  uselessToken: AccessToken | undefined
  noMintUntil: number
  /** Of requests that are rejected by right. The oldest is forgotten first. */
  readonly shapes: Set<string>
}

/** A request that cannot be repeated keeps this distance from the end. */
const SAFE_SHARE = 1 / 50
const SAFE_MS = 100
/** A token that was accepted so long ago counts as accepted lately. */
const LATELY_MS = 10_000
/** A token that a request tries out is not tried by another for this time. */
const SCOUT_MS = 1_000
/** At least every second a hit looks at everything that is known. */
const QUIET_MS = 1_000
/** If a mint gave the same token again, this share of its life passes before the next mint. */
const SAME_TOKEN_SHARE = 1 / 40
const SAME_TOKEN_MS = 1_000
/** The same if the service has rejected the token. */
const SAME_DEAD_TOKEN_MS = 250
const MAX_SHAPES = 32
/** If more shapes of requests are rejected by right, a new one has to wait for the cool-down, too. */
const MAX_KNOWN_SHAPES = 3
/** Each useless mint makes the cool-down so many times as long, up to so many cool-downs. */
const COOLDOWN_GROWTH = 4
const MAX_COOLDOWNS = 4
/** Pauses between mints behind requests while these fail: doubled each time, and jittered. */
const FIRST_PAUSE_MS = 100
const MAX_PAUSE_MS = 5_000

export class OrgTokens {
  readonly org: OrgId
  readonly rules: TokenRules
  readonly habits: ServiceHabits
  current: AccessToken
  former: AccessToken | undefined
  /** Until this instant a request that can be repeated gets the current token, whatever else is known. */
  quietUntil = 0
  /** True while a mint replaces the rejected token. If that fails, one request a second still tries it. */
  isBeingReplaced = false
  /** While requests wait for a token that the service has never accepted. */
  turns: Turns | undefined
  /** When the last accepted request with the current token was sent; -1 before that. */
  acceptedAt = -1
  /** Requests that were rejected since the service last accepted the current token. */
  rejectedInRow = 0
  /** The same with a status that ends tokens at other services. */
  suspectedInRow = 0
  /** A request of this org was repeated to learn what such a status means. */
  hadTrial = false
  /** The last request that was rejected while the current token was young, and could not be repeated. */
  rejectedYoung: { readonly shape: string; readonly sentAt: number } | undefined
  #firstAcceptedAt = -1
  #uses = 0
  /** No request tries out the new token, or a rejected one, before. */
  #scoutedUntil = 0
  /** The current token was minted after the one before had been rejected. */
  isReplacement = false
  #failures = 0
  #hasPassingFailure = false
  /** After a failure, or a mint that brought nothing new, no request waits for another mint before. */
  #nextMintAt = 0
  #condemned: Condemned | undefined
  #others: OtherRejections | undefined
  readonly #life: OrgLifetime

  constructor(org: OrgId, token: AccessToken, rules: TokenRules, habits: ServiceHabits, random: number) {
    this.org = org
    this.current = token
    this.rules = rules
    this.habits = habits
    this.#life = new OrgLifetime(habits.lifetimes, rules, token, random)
  }

  // ---- which token a request gets

  /** Runs for a request that is not answered by `quietUntil`. */
  choose(kind: RequestKind, now: number): Choice {
    const { current } = this
    this.#life.noteAlive(this.acceptedAt - current.mintedAt)
    const former = this.usableFormer(now)
    const isRepeatable = kind === 'repeatable'
    if (this.isBeingReplaced) {
      // While no other can be had, a request tries the token now and then: the service may have been wrong.
      const mayTry = isRepeatable && this.#failures > 0 && !this.#isOver(now) && this.#isScout(now)
      return mayTry ? { token: current, result: 'stale' } : { wait: 'mint', reason: 'rejected' }
    }
    if (former !== undefined && this.#isBetter(former, kind, now)) return { token: former, result: 'hit' }
    if (this.turns !== undefined) return { wait: 'settled' }
    const settledAt = current.mintedAt + this.habits.delayMs(now)
    if (!isRepeatable && now < settledAt) return { wait: 'until', at: settledAt }
    if (this.#isOver(now)) return { wait: 'mint', reason: 'expired' }
    const isPausing = this.isPausingAt(now)
    const reason = this.#reasonToMint(kind, now)
    if (reason !== undefined) {
      const behind = isPausing ? undefined : reason
      // While mints fail, no request waits for the next failure.
      const goesOn = isPausing || (isRepeatable && this.#hasPassingFailure)
      return goesOn
        ? { token: current, result: this.#failures > 0 ? 'stale' : 'hit', behind }
        : { wait: 'mint', reason }
    }
    const aheadAt = current.mintedAt + this.#aheadMs(now)
    if (now >= aheadAt && this.#looksAhead && !isPausing) return { token: current, result: 'hit', behind: 'refresh' }
    const isQuiet = isRepeatable && former === undefined && !this.#isWatched
    if (isQuiet) this.quietUntil = Math.floor(Math.min(now + QUIET_MS, aheadAt))
    return { token: current, result: 'hit' }
  }

  /** True if the former token is more certainly good than the current one, which the service may not know yet. */
  #isBetter(former: AccessToken, kind: RequestKind, now: number): boolean {
    const isSettled = now - this.current.mintedAt >= this.habits.delayMs(now)
    if (kind === 'handshake' || (isSettled && this.acceptedAt >= 0)) return false
    if (kind === 'once') return this.#isSafe(former, now)
    return now - former.mintedAt < this.endMs && !(isSettled && this.#isScout(now))
  }

  #reasonToMint(kind: RequestKind, now: number): MintReason | undefined {
    const { current } = this
    const ageMs = now - current.mintedAt
    if (kind === 'repeatable') return ageMs < this.endMs || this.#life.isExplored ? undefined : 'expired'
    if (this.#condemned?.token === current && this.mayMintAfterRejection(now)) return 'rejected'
    if (kind === 'handshake' && ageMs > this.endMs / 2) return 'handshake'
    const isInTime = this.#isSafe(current, now) || (ageMs < this.endMs && !this.#looksAhead)
    return isInTime ? undefined : 'expired'
  }

  /** False for most tokens if the endpoint seldom has another before the end of the present one. */
  get #looksAhead(): boolean {
    return this.habits.ahead.areGood(1 - this.#life.lot / 1_000)
  }

  /** True for one request in a second, which tries a token. */
  #isScout(now: number): boolean {
    if (now < this.#scoutedUntil) return false
    this.#scoutedUntil = Math.floor(now + SCOUT_MS)
    return true
  }

  /** The current token is past the end that it states, unless the endpoint has given it again a moment ago. */
  #isOver(now: number): boolean {
    const isGivenAgain = this.#failures === 0 && this.isPausingAt(now)
    return now - this.current.mintedAt >= this.current.statedLifeMs && !isGivenAgain
  }

  #isSafe(token: AccessToken, now: number): boolean {
    const ageMs = now - token.mintedAt
    const { endMs } = this
    if (Number.isFinite(endMs)) return ageMs < endMs - Math.max(endMs * SAFE_SHARE, SAFE_MS)
    return ageMs < this.rules.lifetimeMs || now - this.acceptedAt < LATELY_MS
  }

  usableFormer(now: number): AccessToken | undefined {
    const { former } = this
    if (former === undefined) return undefined
    const hasSettled = this.#firstAcceptedAt >= 0 && now >= this.#firstAcceptedAt + this.rules.settleTimeMs
    if (hasSettled || now - former.mintedAt >= former.statedLifeMs) this.former = undefined
    return this.former
  }

  // ---- how long tokens live

  /** The age at which the current token will probably end. `Infinity` if nothing is known. */
  get endMs(): number {
    return this.#life.endMs
  }

  #aheadMs(now: number): number {
    const gapMs = this.#uses === 0 ? 0 : (this.acceptedAt - this.current.mintedAt) / this.#uses
    return this.#life.aheadMs(gapMs, 2 * this.habits.mintMs + this.habits.delayMs(now))
  }

  // ---- what the service says

  /** The next acceptance of the current token changes something: it is the first, or the first after a rejection. */
  get #isWatched(): boolean {
    return (
      this.acceptedAt < 0 || this.rejectedInRow + this.suspectedInRow > 0 || this.#condemned?.token === this.current
    )
  }

  /** The service accepted a request with `token` that was sent at `sentAt`. Returns true if waiting requests may go on. */
  noteAccepted(token: AccessToken, sentAt: number): boolean {
    if (token !== this.current) {
      if (token === this.former && sentAt > this.current.mintedAt + this.habits.mintMs)
        this.habits.noteFormer(false, sentAt)
      return false
    }
    this.habits.lifetimes.noteAccepted(token.mintedAt, sentAt)
    const isWatched = this.#isWatched
    this.#uses += 1
    if (sentAt > this.acceptedAt) this.acceptedAt = Math.floor(sentAt)
    if (!isWatched) return false
    this.rejectedInRow = 0
    this.suspectedInRow = 0
    const condemned = this.#condemned
    if (this.#firstAcceptedAt < 0) {
      this.#firstAcceptedAt = Math.floor(sentAt)
      if (condemned?.isUnrepeated === true) this.confirmDeath(condemned.token)
    }
    if (condemned?.token === token && sentAt > token.mintedAt + condemned.death.deadMs) {
      this.#condemned = undefined
      this.isBeingReplaced = false
    }
    return true
  }

  /** A request was rejected that was sent with the current token. Counts each request once. */
  noteRejected(): void {
    this.rejectedInRow += 1
    this.quietUntil = 0
  }

  /** Most often, such a status says something else. */
  noteSuspected(): void {
    this.suspectedInRow += 1
    this.quietUntil = 0
  }

  /** The rejection of a request sent at `sentAt` may be the end of the current token. */
  condemn(sentAt: number, isUnrepeated: boolean): void {
    const token = this.current
    this.quietUntil = 0
    if (this.#condemned?.token === token) return
    const aliveMs = Math.max(this.acceptedAt - token.mintedAt, 0)
    const deadMs = Math.max(sentAt - token.mintedAt, aliveMs)
    this.#condemned = { token, death: { mintedAt: token.mintedAt, aliveMs, deadMs }, isUnrepeated }
  }

  /** Another token was accepted where this one was rejected. */
  confirmDeath(token: AccessToken): void {
    const condemned = this.#condemned
    if (condemned?.token !== token || token === this.current) return
    this.#condemned = undefined
    if (this.#others !== undefined) this.#others.useless = 0
    this.#life.noteDeath(condemned.death)
  }

  /** The service accepted a request like the one that was `rejectedYoung`: it knows the token now. */
  noteKnown(token: AccessToken, sentAt: number): void {
    if (token !== this.current || this.rejectedYoung === undefined || sentAt < this.rejectedYoung.sentAt) return
    this.rejectedYoung = undefined
    this.habits.waitingOnce.note(true)
    this.habits.learnDelay(sentAt - token.mintedAt, sentAt)
  }

  /** The former token was rejected, and a newer one helped. If it was young enough to live on, its successor has ended it. */
  noteFormerEnded(token: AccessToken, sentAt: number, now: number): void {
    if (this.former === token) this.former = undefined
    if (sentAt - token.mintedAt < this.endMs && sentAt >= this.current.mintedAt) this.habits.noteFormer(true, now)
  }

  // ---- rejections that are not about the token

  /** True if a rejection may cause a mint now. A request of another shape than those that are rejected by right may, too. */
  mayMintAfterRejection(now: number, shape = ''): boolean {
    const others = this.#others
    if (others === undefined || !this.isCoolingDownAt(now)) return true
    const isOther = others.shapes.size > 0 && !others.shapes.has(shape)
    return isOther && this.acceptedAt >= 0 && others.shapes.size <= MAX_KNOWN_SHAPES
  }

  /** The current token was minted for a rejection a moment ago, and the service has never accepted it either. */
  hasReplacedInVain(now: number): boolean {
    return this.isReplacement && this.acceptedAt < 0 && now - this.current.mintedAt < this.rules.rejectedCooldownMs
  }

  noteUselessMint(now: number): void {
    const others = this.#ensureOthers()
    // Requests that waited for one mint tell of it once.
    if (others.uselessToken === this.current && now < others.noMintUntil) return
    others.uselessToken = this.current
    const cooldowns = Math.min(COOLDOWN_GROWTH ** others.useless, MAX_COOLDOWNS)
    others.useless += 1
    others.noMintUntil = now + this.rules.rejectedCooldownMs * cooldowns
    this.#condemned = undefined
  }

  isCoolingDownAt(now: number): boolean {
    return this.#others !== undefined && now < this.#others.noMintUntil
  }

  /** The service has rejected the current token from the start, as it did the one before. */
  get hasNoGoodToken(): boolean {
    return this.acceptedAt < 0 && this.#others?.uselessToken === this.current
  }

  markRejectedByRight(shape: string): void {
    const { shapes } = this.#ensureOthers()
    shapes.add(shape)
    if (shapes.size > MAX_SHAPES) for (const oldest of [...shapes].slice(0, 1)) shapes.delete(oldest)
  }

  get shapesByRight(): Set<string> | undefined {
    return this.#others?.shapes
  }

  #ensureOthers(): OtherRejections {
    this.#others ??= { useless: 0, uselessToken: undefined, noMintUntil: 0, shapes: new Set() }
    return this.#others
  }

  /**
   * `new`: not accepted yet. `fresh`: in use. `refreshing`: a new token is due. `rejected`: the service rejects it, and there
   * is no other yet.
   */
  stateAt(now: number): 'new' | 'fresh' | 'refreshing' | 'rejected' {
    if (this.isBeingReplaced) return 'rejected'
    if (now - this.current.mintedAt > this.#aheadMs(now)) return 'refreshing'
    return this.acceptedAt < 0 ? 'new' : 'fresh'
  }

  // ---- mints

  isPausingAt(now: number): boolean {
    return now < this.#nextMintAt
  }

  /** True if a request may go on with the current token in place of a new one: the end that is not stated is a guess. */
  servesAt(now: number): boolean {
    return !this.isBeingReplaced && now - this.current.mintedAt < this.current.statedLifeMs
  }

  /** Takes the token that a mint brought. Returns false if it is the current one again. */
  take(token: AccessToken, now: number, random: number): boolean {
    this.#failures = 0
    this.#hasPassingFailure = false
    if (token.equals(this.current)) {
      const lifeMs = Number.isFinite(this.endMs) ? this.endMs : 0
      this.#nextMintAt = Math.floor(now + Math.max(lifeMs * SAME_TOKEN_SHARE, SAME_TOKEN_MS))
      if (this.isBeingReplaced)
        this.#ensureOthers().noMintUntil = Math.max(this.#ensureOthers().noMintUntil, now + SAME_DEAD_TOKEN_MS)
      this.isBeingReplaced = false
      return false
    }
    const isCondemned = this.isBeingReplaced || this.#condemned?.token === this.current
    // A token that another replica had, or whose mint was under way, may have ended together with the rejected one.
    const rejectedAt = this.current.mintedAt + (this.#condemned?.death.deadMs ?? 0)
    this.isReplacement = isCondemned && token.mintedAt >= Math.floor(rejectedAt)
    this.#life.take(token, random)
    this.former = isCondemned || this.habits.endsFormer(now) ? undefined : this.current
    this.current = token
    this.quietUntil = 0
    this.isBeingReplaced = false
    this.acceptedAt = -1
    this.#firstAcceptedAt = -1
    this.#uses = 0
    this.rejectedInRow = 0
    this.suspectedInRow = 0
    this.rejectedYoung = undefined
    this.#scoutedUntil = 0
    this.#nextMintAt = 0
    return true
  }

  /** `isPassing`: it was no refusal of the org. */
  noteMintFailed(isPassing: boolean, now: number, random: number): void {
    // One request's trouble, perhaps: the others need not go without a token for it.
    if (this.rejectedInRow < 2 && this.acceptedAt >= 0) this.isBeingReplaced = false
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** this.#failures, MAX_PAUSE_MS) * (0.5 + random / 2)
    this.#failures += 1
    this.#hasPassingFailure = isPassing
    this.#nextMintAt = Math.floor(now + pauseMs)
  }
}
