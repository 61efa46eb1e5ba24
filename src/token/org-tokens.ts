/**
 * The tokens of one org, and what is known of them. Pure: every instant is a parameter, in monotonic milliseconds.
 *
 * The *current* token is the newest. The *former* one stays at hand until the current one is known to work. A token is
 *
 *     new ──accepted──▶ proven ──rejected──▶ condemned ──its successor is accepted──▶ dead: its age is a lesson
 *
 * and a rejection of a token that is younger than the settle time condemns nothing as long as waiting may help.
 */

import { type Death, OrgLifetime } from './lifetimes.ts'
import type { AccessToken, MintReason } from './token-source.ts'

/** `once`: a request that cannot be repeated. */
export type RequestKind = 'repeatable' | 'once' | 'handshake'

export interface RequestLine {
  readonly method: string
  readonly path: string
}

/** `behind`: begin a mint, and do not wait for it. */
export type Choice =
  | { readonly token: AccessToken; readonly result: 'hit' | 'stale'; readonly behind?: MintReason | undefined }
  | { readonly wait: 'mint'; readonly reason: MintReason }
  | { readonly wait: 'until'; readonly at: number }

/** A token that a rejection may have been about. */
interface Condemned extends Death {
  readonly token: AccessToken
  readonly isOnTrial: boolean
  /** When the last request was sent that was rejected. */
  readonly rejectedAt: number
}

/** A token that was accepted within this time counts as accepted lately. */
const LATELY_MS = 10_000
/** The time between two requests that try a token, if the others use another one, or if it was rejected. */
const NEXT_TRY_MS = 1_000
/** The same if the others wait for this token: the longer of this and a share of its age. */
const TURN_MS = 150
const TURN_SHARE = 1 / 10
/** If a mint gave the same token again, this share of its life passes before the next mint. */
const SAME_TOKEN_SHARE = 1 / 40
const SAME_TOKEN_MS = 1_000
/** The same if the service had rejected that token: the endpoint may have another any moment. Doubled each time. */
const SAME_DEAD_TOKEN_MS = 250
/** A longer row of rejections is never usual for an org. */
const MAX_ROW = 50
const MAX_SHAPES = 32
/** If more shapes of requests are rejected by right, any other may be one, too. */
const MAX_KNOWN_SHAPES = 3
/** Pauses between mints behind requests while these fail: doubled each time, and jittered. */
const FIRST_PAUSE_MS = 100
const MAX_PAUSE_MS = 5_000

export class OrgTokens extends OrgLifetime {
  former: AccessToken | undefined
  /** When the last accepted request with the former token was sent; -1 if none was since it came back into use. */
  #formerAcceptedAt = -1
  /** True while a mint replaces the rejected token. If that fails, one request a second still tries it. */
  isBeingReplaced = false
  /** Until then, requests wait for the current token, which the service has never accepted, and take turns in trying it. */
  #awaitedUntil = 0
  /** Requests whose token was rejected, or may have been, since the service last accepted a token of the org. */
  rejectedInRow = 0
  /** How many that were before the last mint. */
  #rowAtMint = 0
  /** So many in a row are usual here, because half as many were about another reason than the token. */
  #usualRow = 0
  /** The last request that could not be repeated and was rejected with a young token that had never been accepted. */
  rejectedYoung: { readonly isHandshake: boolean } | undefined
  /** A shape that cannot be repeated, and its first rejected token, until such a request is accepted. */
  unrepeated: { readonly shape: string; readonly token: AccessToken } | undefined
  /** No request tries the new token, or a rejected one, before this instant. */
  #nextTryAt = 0
  /** The current token was minted after the one before had been rejected, or was given again then. */
  isReplacement = false
  /** How often the endpoint has given the rejected token again. */
  givenAgain = 0
  #failures = 0
  /** After a failure, or a mint that brought nothing new, no request waits for another mint before this instant. */
  #nextMintAt = 0
  #condemned: Condemned | undefined
  /** After a mint that did not help, a rejection causes no other before this instant. */
  #noMintUntil = 0
  /** Shapes of requests of which all or some are rejected by right: whatever their token. Few orgs have any. */
  shapesByRight: Map<string, 'all' | 'some'> | undefined
  /** The former token stays in use until it ends: only a second token tells a rejection by right from a death. */
  keepsFormer = false

  // ---- which token a request gets

  /** Runs on every request. */
  choose(kind: RequestKind, now: number): Choice {
    const { current } = this
    const former = this.usableFormer(now)
    const isRepeatable = kind === 'repeatable'
    if (this.isBeingReplaced) {
      // While no other can be had, a request tries the token now and then: the service may have been wrong.
      const takesTurn = isRepeatable && this.#failures > 0 && !this.#isOver(now) && this.#takeTurn(now, NEXT_TRY_MS)
      return takesTurn ? { token: current, result: 'stale' } : { wait: 'mint', reason: 'rejected' }
    }
    if (former !== undefined && this.#isBetter(former, kind, now)) return { token: former, result: 'hit' }
    if (isRepeatable && now < this.#awaitedUntil) {
      return this.#takeTurn(now) ? { token: current, result: 'hit' } : { wait: 'until', at: this.#nextTryAt }
    }
    const settledAt = Math.max(current.mintedAt + this.habits.delayMs(now), this.#awaitedUntil)
    if (!isRepeatable && now < settledAt && !this.#isToBeReplaced(now)) return { wait: 'until', at: settledAt }
    if (this.#isOver(now)) return { wait: 'mint', reason: 'expired' }
    const aheadAt = current.mintedAt + this.aheadMs(now)
    const due = this.#reasonToMint(kind, now) ?? (now >= aheadAt && this.looksAhead ? 'refresh' : undefined)
    if (due === undefined) return { token: current, result: 'hit' }
    // While mints fail, no request waits for the next failure.
    const isBehind = due === 'refresh' || (isRepeatable && this.#failures > 0)
    const isPausing = this.isPausingAt(now)
    if (!isBehind && !isPausing) return { wait: 'mint', reason: due }
    const isStale = this.#failures > 0 && due !== 'refresh'
    return { token: current, result: isStale ? 'stale' : 'hit', behind: isPausing ? undefined : due }
  }

  /** True if the former token is more certainly good than the current one, which the service may not know yet. */
  #isBetter(former: AccessToken, kind: RequestKind, now: number): boolean {
    const isSettled = now - this.current.mintedAt >= this.habits.delayMs(now)
    const maySucceed = isSettled && this.tokenOnTrial !== former
    // Both take turns, so that both are known to work.
    if (maySucceed && this.keepsFormer && kind === 'repeatable') return this.#formerAcceptedAt < this.acceptedAt
    if (kind === 'handshake' || (maySucceed && this.acceptedAt >= 0)) return false
    if (kind === 'once') return this.#formerAcceptedAt >= 0 && this.#isSafe(former, now)
    return now - former.mintedAt < this.endMs && !(isSettled && this.#takeTurn(now, NEXT_TRY_MS))
  }

  #reasonToMint(kind: RequestKind, now: number): MintReason | undefined {
    const { current } = this
    const ageMs = now - current.mintedAt
    if (kind === 'repeatable') return ageMs < this.endMs || this.isExplored ? undefined : 'expired'
    if (this.#isToBeReplaced(now)) return 'rejected'
    if (kind === 'handshake' && ageMs > this.endMs / 2) return 'handshake'
    const isInTime = this.#isSafe(current, now) || (ageMs < this.endMs && !this.looksAhead)
    return isInTime ? undefined : 'expired'
  }

  #isToBeReplaced(now: number): boolean {
    return this.#condemned?.token === this.current && this.mayMintAfterRejection(now)
  }

  /** Returns true for one request, which tries the current token. The next one may try it after `pauseMs`. */
  #takeTurn(now: number, pauseMs = this.turnMs(now)): boolean {
    if (now < this.#nextTryAt) return false
    this.#nextTryAt = Math.floor(now + pauseMs)
    return true
  }

  /** Requests wait until the service accepts the current token, or until it is old enough. */
  awaitAcceptance(now: number): void {
    if (this.#awaitedUntil > 0) return
    this.#awaitedUntil = this.current.mintedAt + this.habits.rules.settleTimeMs
    this.#nextTryAt = Math.floor(now + this.turnMs(now))
  }

  turnMs(now: number): number {
    return Math.max(TURN_MS, (now - this.current.mintedAt) * TURN_SHARE)
  }

  /** The current token is past the end that it states, unless the endpoint has given it again a moment ago. */
  #isOver(now: number): boolean {
    const isGivenAgain = this.#failures === 0 && this.isPausingAt(now)
    return now - this.current.mintedAt >= this.current.statedLifeMs && !isGivenAgain
  }

  #isSafe(token: AccessToken, now: number): boolean {
    const ageMs = now - token.mintedAt
    const { safeMs } = this
    const { rules, lifetimes } = this.habits
    if (Number.isFinite(safeMs)) return ageMs < safeMs
    return ageMs < Math.max(rules.lifetimeMs, lifetimes.provenMs) || now - this.acceptedAt < LATELY_MS
  }

  usableFormer(now: number): AccessToken | undefined {
    const { former } = this
    if (former === undefined) return undefined
    const hasSettled = this.acceptedAt >= 0 && now >= this.current.mintedAt + this.habits.rules.settleTimeMs
    if ((hasSettled && !this.keepsFormer) || now - former.mintedAt >= former.statedLifeMs) this.former = undefined
    return this.former
  }

  // ---- what the service says

  /** The service accepted `request`, which was sent at `sentAt` with `token`. Runs for every request. */
  noteAccepted(token: AccessToken, sentAt: number, request: RequestLine): void {
    this.habits.noteAccepted(sentAt)
    const condemned = this.#condemned
    if (condemned?.token === token && sentAt > token.mintedAt + condemned.deadMs) {
      this.#condemned = undefined
      this.isBeingReplaced = false
      this.givenAgain = 0
      this.habits.lifetimes.suspectedMs = Number.POSITIVE_INFINITY
      if (this.unrepeated?.token === token) this.markRejectedByRight(this.unrepeated.shape, 'some')
    }
    if (this.unrepeated !== undefined || this.shapesByRight !== undefined)
      this.#noteAllowed(token, sentAt, shapeOf(request))
    if (token !== this.current) {
      if (token === this.former && sentAt > this.current.mintedAt + this.habits.mintMs) {
        this.habits.former.note(true)
        this.#formerAcceptedAt = Math.max(this.#formerAcceptedAt, Math.floor(sentAt))
        this.#endRow()
      }
      return
    }
    this.noteAlive(sentAt)
    this.#awaitedUntil = 0
    this.#endRow()
  }

  #endRow(): void {
    if (this.rejectedInRow > 0) this.habits.learnRow(this.rejectedInRow)
    this.rejectedInRow = 0
  }

  /** More requests in a row are rejected than is usual: perhaps for the token. */
  get isLongRow(): boolean {
    return this.rejectedInRow > Math.max(this.habits.usualRow, this.#usualRow)
  }

  /** The service accepted a request of this shape. */
  #noteAllowed(token: AccessToken, sentAt: number, shape: string): void {
    if (this.shapesByRight?.has(shape)) {
      this.shapesByRight.set(shape, 'some')
      this.keepsFormer = true
    }
    if (this.unrepeated?.shape !== shape || token !== this.current) return
    this.unrepeated = undefined
    // A rejected handshake has its token replaced. Without a wait, the new one would be rejected, too.
    if (this.rejectedYoung?.isHandshake) this.habits.learnDelay(sentAt - token.mintedAt, sentAt, true)
    this.rejectedYoung = undefined
    if (this.#condemned !== undefined) this.confirmDeath(this.#condemned.token)
  }

  /** The rejection of a request sent at `sentAt` may be the end of the current token. */
  condemn(sentAt: number, isOnTrial = false): void {
    const { current: token, acceptedAt } = this
    const { mintedAt } = token
    const aliveMs = Math.max(acceptedAt - mintedAt, 0)
    const deadMs = Math.max(sentAt - mintedAt, aliveMs)
    if (acceptedAt >= 0 && !isOnTrial) this.habits.lifetimes.suspectedMs = deadMs
    const first = this.#condemned?.token === token ? this.#condemned : { token, mintedAt, aliveMs, deadMs, isOnTrial }
    this.#condemned = { ...first, rejectedAt: sentAt, isOnTrial: first.isOnTrial && isOnTrial }
  }

  /** The token under trial. Other requests go on with it: their outcome shows whether it has ended. */
  get tokenOnTrial(): AccessToken | undefined {
    return this.#condemned?.isOnTrial === true ? this.#condemned.token : undefined
  }

  /** Another token was accepted where this one was rejected. If minted before the rejection, it may have ended this one. */
  confirmDeath(token: AccessToken): void {
    if (token === this.former) this.former = undefined
    const condemned = this.#condemned
    if (condemned?.token !== token || token === this.current) return
    this.#condemned = undefined
    const { mintedAt, aliveMs, deadMs } = condemned
    if (this.isReplacement) this.noteDeath({ mintedAt, aliveMs, deadMs })
  }

  // ---- rejections that are not about the token

  /** False in so many cool-downs after a mint that did not help. */
  mayMintAfterRejection(now: number, cooldowns = 1): boolean {
    const moreMs = (cooldowns - 1) * this.habits.rules.rejectedCooldownMs
    return this.#noMintUntil === 0 || now >= this.#noMintUntil + moreMs
  }

  /** The current token was minted for a rejection a moment ago, and the service has never accepted it either. */
  hasReplacedInVain(now: number): boolean {
    const isNew = now - this.current.mintedAt < this.habits.rules.rejectedCooldownMs
    return isNew && this.isReplacement && this.acceptedAt < 0
  }

  /** The service accepts nobody's token, nor the new one of this org. Mints and waits go on, because the outage may end. */
  isInOutage(now: number): boolean {
    return this.acceptedAt < 0 && now < this.habits.outageUntil
  }

  /** True if some requests of this shape are rejected by right, or if the org has so many such shapes that any may be one. */
  isMixed(shape: string): boolean {
    const known = this.shapesByRight?.get(shape)
    return known === 'some' || (this.shapesByRight?.size ?? 0) > MAX_KNOWN_SHAPES
  }

  /**
   * True if a rejection of such a request is by right, because the current token must be alive: it is younger than any token
   * at its death, and than the former token at its last accepted request.
   */
  rejectsByRight(shape: string, now: number): boolean {
    const { former, current } = this
    if (former === undefined || this.acceptedAt < 0 || !this.isMixed(shape)) return false
    const aliveMs = this.#formerAcceptedAt < current.mintedAt ? 0 : this.#formerAcceptedAt - former.mintedAt
    return now - current.mintedAt < Math.min(aliveMs, this.habits.lifetimes.leastProvenMs)
  }

  noteUselessMint(noMintUntil: number): void {
    this.habits.lifetimes.suspectedMs = Number.POSITIVE_INFINITY
    const { token, aliveMs = 0 } = this.#condemned ?? {}
    if (aliveMs > 0 && token !== this.current && this.habits.former.areGood(1)) {
      this.former = token
      this.#formerAcceptedAt = -1
    }
    this.#noMintUntil = Math.max(this.#noMintUntil, noMintUntil)
    if (this.#rowAtMint > this.habits.usualRow) this.#usualRow = Math.min(2 * this.#rowAtMint, MAX_ROW)
    this.habits.learnRow(this.#rowAtMint)
    this.#condemned = undefined
    this.isBeingReplaced = false
  }

  /** The service has rejected the current token from the start, as it did the one before. */
  get hasNoGoodToken(): boolean {
    return this.acceptedAt < 0 && this.isReplacement && this.#noMintUntil > this.current.mintedAt
  }

  markRejectedByRight(shape: string, which: 'all' | 'some'): void {
    this.habits.lifetimes.suspectedMs = Number.POSITIVE_INFINITY
    this.shapesByRight ??= new Map()
    if (this.shapesByRight.has(shape)) return
    this.shapesByRight.set(shape, which)
    if (this.shapesByRight.size > MAX_KNOWN_SHAPES) this.keepsFormer = true
    if (this.shapesByRight.size > MAX_SHAPES) this.shapesByRight.clear()
  }

  // ---- mints

  isPausingAt(now: number): boolean {
    return now < this.#nextMintAt
  }

  /** True if a request may go on with the current token in place of a new one: an end that it does not state is a guess. */
  servesAt(now: number): boolean {
    return !this.isBeingReplaced && now - this.current.mintedAt < this.current.statedLifeMs
  }

  /** Takes the token that a mint brought. Returns false if it is the current one again. */
  take(token: AccessToken, now: number, random: number): boolean {
    this.#failures = 0
    const isCondemned = this.#condemned?.token === this.current
    if (token.equals(this.current)) {
      const lifeMs = Number.isFinite(this.endMs) ? this.endMs : 0
      this.#nextMintAt = Math.floor(now + Math.max(lifeMs * SAME_TOKEN_SHARE, SAME_TOKEN_MS))
      if (isCondemned) {
        const pauseMs = Math.min(SAME_DEAD_TOKEN_MS * 2 ** this.givenAgain, this.habits.rules.rejectedCooldownMs)
        this.#noMintUntil = Math.max(this.#noMintUntil, now + pauseMs)
        this.givenAgain += 1
      }
      this.isReplacement = isCondemned
      this.isBeingReplaced = false
      return false
    }
    // A token that another replica had, or whose mint was under way, may have ended together with the rejected one.
    this.isReplacement = isCondemned && token.mintedAt >= Math.floor(this.#condemned?.rejectedAt ?? 0)
    this.former = (isCondemned && !this.tokenOnTrial) || !this.habits.former.areGood(random) ? undefined : this.current
    this.#formerAcceptedAt = this.acceptedAt
    this.givenAgain = 0
    this.replaceWith(token, random)
    this.isBeingReplaced = false
    this.#rowAtMint = this.rejectedInRow
    this.rejectedInRow = 0
    this.#nextTryAt = 0
    this.#nextMintAt = 0
    this.#awaitedUntil = 0
    return true
  }

  noteMintFailed(now: number, random: number): void {
    const pauseMs = Math.min(FIRST_PAUSE_MS * 2 ** this.#failures, MAX_PAUSE_MS) * (0.5 + random / 2)
    this.#failures += 1
    this.#nextMintAt = Math.floor(now + pauseMs)
  }
}

/** Requests that look alike have the same shape: the method, and the path without the parts that name single things. */
export function shapeOf({ method, path }: RequestLine): string {
  // Each match begins behind a slash. Without that, a long segment without a digit takes quadratic time.
  return `${method} ${path.replace(/(?<=\/)[^/\d]*\d[^/]*/g, '*')}`
}
