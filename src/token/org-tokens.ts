/**
 * The tokens of one org, and what is known of them. Pure: every instant is a parameter, in monotonic milliseconds.
 *
 * The *current* token is the newest. The *former* one stays at hand until the current one is known to work. A token is
 *
 *     new ──accepted──▶ proven ──rejected──▶ condemned ──its successor is accepted──▶ dead: its age is a lesson
 *
 * and a rejection of a token that is younger than the settle time condemns nothing.
 */

import type { OrgId } from '../http/org-id.ts'
import { DeathAges } from './death-ages.ts'
import type { ServiceHabits } from './service-habits.ts'
import type { AccessToken, MintReason } from './token-source.ts'

export interface TokenRules {
  /** A younger token may not be known to all back ends of the service. */
  readonly settleTimeMs: number
  /** Assumed for requests that cannot be repeated, or for all requests if `learns` is false. */
  readonly lifetimeMs: number
  readonly learns: boolean
  /** How long rejections cause no mint after one that did not help. */
  readonly rejectedCooldownMs: number
  /** False if other processes share the tokens, because each of them would mint ahead. */
  readonly looksFarAhead: boolean
}

/** `once`: a request that cannot be repeated. */
export type RequestKind = 'repeatable' | 'once' | 'handshake'

/** `ahead` asks for a mint behind the request. */
export type Choice =
  | { readonly token: AccessToken; readonly result: 'hit' | 'stale'; readonly ahead?: MintReason | undefined }
  | { readonly wait: 'mint'; readonly reason: MintReason }
  | { readonly wait: 'until'; readonly at: number }
  | { readonly wait: 'settled' }

/** A token that the service rejected although it was old enough to be known everywhere. */
interface Condemned {
  readonly token: AccessToken
  readonly aliveMs: number
  readonly deadMs: number
  /** No request is repeated with the successor, so the first request that the service accepts confirms the death. */
  readonly isUnrepeated: boolean
}

/** Rejections that had nothing to do with the token. Few orgs have any. */
interface Grievances {
  /** Mints in a row that did not help. */
  useless: number
  /** The token of the last of them. */
  uselessToken: AccessToken | undefined
  noMintUntil: number
  /** Kinds of requests that are rejected by right. The oldest is forgotten first. */
  readonly kinds: Set<string>
}

/** The last tenth of a life, but no more than 30 s, is for a mint ahead of the end. */
const AHEAD_SHARE = 1 / 10
const MAX_AHEAD_MS = 30_000
const MIN_AHEAD_SHARE = 1 / 100
/** This share of the tokens lives to its end, so that a longer life is noticed. More while the end is known from other orgs only. */
const EXPLORED_SHARE = 1 / 16
const FIRST_EXPLORED_SHARE = 1 / 4
/** A token that is accepted at a greater age than expected, by this share, lives longer. */
const OUTLIVED_SHARE = 0.05
/** A request that cannot be repeated keeps this distance from the end. */
const SAFE_SHARE = 1 / 50
const SAFE_MS = 100
/** A token that was accepted so long ago counts as accepted lately. */
const LATELY_MS = 10_000
/** A new token that a request tries out is not tried by another for this time. */
const SCOUT_MS = 1_000
/** At least every second a hit looks at everything that is known. */
const QUIET_MS = 1_000
/** If a mint gave the same token again, this share of its life passes before the next mint. */
const SAME_TOKEN_SHARE = 1 / 40
const SAME_TOKEN_MS = 1_000
/** The same if the service has rejected the token. */
const SAME_DEAD_TOKEN_MS = 250
const MAX_KINDS = 32
/** If more kinds are rejected by right, a new kind has to wait for the cool-down, too. */
const MAX_KNOWN_KINDS = 3
/** Each useless mint makes the cool-down so many times as long, up to so many cool-downs. */
const COOLDOWN_GROWTH = 4
const MAX_COOLDOWNS = 4
/** Pauses between mints behind requests while these fail: doubled each time, and jittered. */
const FIRST_RETRY_MS = 100
const MAX_RETRY_MS = 5_000

export class OrgTokens {
  readonly org: OrgId
  readonly rules: TokenRules
  readonly habits: ServiceHabits
  current: AccessToken
  former: AccessToken | undefined
  /** Until this instant a request that can be repeated gets the current token, whatever else is known. */
  quietUntil = 0
  /** True while a mint replaces the rejected token. If that fails, one request a second still tries it. */
  isDead = false
  /** True while requests wait for a token that the service has never accepted. */
  hasWaiting = false
  /** When the last accepted request with the current token was sent; -1 before that. */
  acceptedAt = -1
  #firstAcceptedAt = -1
  #uses = 0
  /** Requests whose token was rejected since the last one that was accepted. */
  #rejectedInRow = 0
  /** When the first of them was sent. */
  #rejectedSince = 0
  /** The next acceptance of the current token changes something: it is the first, or the first after a rejection. */
  #isWatched = true
  /** No request tries out the new token before. */
  #scoutedUntil = 0
  /** The endpoint gave the rejected token again: rejections cause no mint before. */
  #sameUntil = 0
  #isReplacement = false
  /** Left to live to its end, so that a longer life is noticed. */
  #isExplored: boolean
  #looksAhead: boolean
  /** Spreads the mints ahead of tokens that were minted together: 50 to 100. */
  #jitterPercent: number
  #failures = 0
  #retryAt = 0
  #hasPassingFailure = false
  #condemned: Condemned | undefined
  #grievances: Grievances | undefined
  #own: DeathAges | undefined
  /** A token of this org has died, and none has outlived the expected end since. */
  #hasDied = false
  /** Tokens of this org are known to live longer. */
  #outlivedMs = 0

  constructor(org: OrgId, token: AccessToken, rules: TokenRules, habits: ServiceHabits, random: number) {
    this.org = org
    this.current = token
    this.rules = rules
    this.habits = habits
    this.#isExplored = this.#mayExplore(random, rules.looksFarAhead ? FIRST_EXPLORED_SHARE : EXPLORED_SHARE)
    this.#looksAhead = habits.ahead.areGood(random)
    this.#jitterPercent = 50 + Math.round(random * 50)
  }

  // ---- which token a request gets

  /** Runs for a request that is not answered by `quietUntil`. */
  choose(kind: RequestKind, now: number): Choice {
    this.#dropFormer(now)
    this.#noteOutlived()
    const choice = kind === 'repeatable' ? this.#chooseRepeatable(now) : this.#chooseOnce(kind, now)
    if (choice !== undefined) return choice
    const { current } = this
    const endMs = this.endMs
    const ageMs = now - current.mintedAt
    const aheadMs = endMs === undefined ? Number.POSITIVE_INFINITY : endMs - this.#aheadMs(endMs, now)
    if (ageMs >= aheadMs && this.#looksAhead && !this.#isExplored && !this.isPausingAt(now))
      return { token: current, result: 'hit', ahead: 'refresh' }
    if (kind === 'repeatable' && this.former === undefined && this.acceptedAt >= 0 && !this.#isWatched) {
      this.quietUntil = Math.floor(Math.min(now + QUIET_MS, current.mintedAt + aheadMs))
    }
    return { token: current, result: 'hit' }
  }

  #chooseRepeatable(now: number): Choice | undefined {
    const { current, former } = this
    if (this.isDead) return this.#chooseDead(now)
    if (former !== undefined && this.#isFormerPreferred(now)) return { token: former, result: 'hit' }
    if (this.hasWaiting) return { wait: 'settled' }
    const ageMs = now - current.mintedAt
    const endMs = this.endMs
    const isOver = this.#isOver(now)
    if (!isOver && (endMs === undefined || ageMs < endMs || this.#isExplored)) return undefined
    return this.#pastEnd(isOver, now)
  }

  /** While no other token can be had, a request tries the dead one now and then: the service may have been wrong. */
  #chooseDead(now: number): Choice {
    const mayTry = this.#failures > 0 && now >= this.#scoutedUntil && !this.#isOver(now)
    if (!mayTry) return { wait: 'mint', reason: 'rejected' }
    this.#scoutedUntil = Math.floor(now + SCOUT_MS)
    return { token: this.current, result: 'stale' }
  }

  /** The current token is past the end that it states, unless the endpoint has given it again a moment ago. */
  #isOver(now: number): boolean {
    const isGivenAgain = this.#failures === 0 && now < this.#retryAt
    return now - this.current.mintedAt >= this.current.statedLifeMs && !isGivenAgain
  }

  /** The token is past its stated or expected end: waits for a mint, unless mints fail or have just brought the same token. */
  #pastEnd(isOver: boolean, now: number): Choice | undefined {
    if (isOver) return { wait: 'mint', reason: 'expired' }
    if (now < this.#retryAt) return { token: this.current, result: this.#failures > 0 ? 'stale' : 'hit' }
    // While mints fail, no request waits for the next failure.
    if (this.#hasPassingFailure) return { token: this.current, result: 'stale', ahead: 'expired' }
    return { wait: 'mint', reason: 'expired' }
  }

  /** The token that is most certainly good: accepted lately, and not near its end. */
  #chooseOnce(kind: RequestKind, now: number): Choice | undefined {
    const { current, former } = this
    if (this.isDead) return { wait: 'mint', reason: 'rejected' }
    const ageMs = now - current.mintedAt
    const settledMs = this.habits.delayMs(now, this.rules.settleTimeMs)
    const isUnsettled = this.acceptedAt < 0 || ageMs < settledMs
    if (former !== undefined && isUnsettled && kind === 'once' && this.#isSafe(former, now)) {
      return { token: former, result: 'hit' }
    }
    if (this.hasWaiting) return { wait: 'settled' }
    if (ageMs < settledMs) return { wait: 'until', at: current.mintedAt + settledMs }
    if (this.#isOver(now)) return { wait: 'mint', reason: 'expired' }
    if (this.isPausingAt(now)) return undefined
    if (this.#condemned?.token === current && this.mayMintAfterRejection(now))
      return { wait: 'mint', reason: 'rejected' }
    if (kind === 'handshake' && ageMs > this.#assumedLifeMs() / 2) return { wait: 'mint', reason: 'handshake' }
    return this.#isSafe(current, now) ? undefined : { wait: 'mint', reason: 'expired' }
  }

  #isFormerPreferred(now: number): boolean {
    const { current, former } = this
    if (former === undefined) return false
    const endMs = this.endMs
    if (endMs !== undefined && now - former.mintedAt >= endMs) return false
    if (now - current.mintedAt < this.habits.delayMs(now, this.rules.settleTimeMs)) return true
    if (this.acceptedAt >= 0) return false
    if (now < this.#scoutedUntil) return true
    this.#scoutedUntil = Math.floor(now + SCOUT_MS)
    return false
  }

  #isSafe(token: AccessToken, now: number): boolean {
    const ageMs = now - token.mintedAt
    const endMs = this.endMs
    if (endMs !== undefined) return ageMs < endMs - Math.max(endMs * SAFE_SHARE, SAFE_MS)
    return ageMs < this.rules.lifetimeMs || now - this.acceptedAt < LATELY_MS
  }

  /** The token before the current one, if it may still work. */
  usableFormer(now: number): AccessToken | undefined {
    this.#dropFormer(now)
    return this.former
  }

  #dropFormer(now: number): void {
    const { former } = this
    if (former === undefined) return
    const hasSettled = this.#firstAcceptedAt >= 0 && now >= this.#firstAcceptedAt + this.rules.settleTimeMs
    if (hasSettled || now - former.mintedAt >= former.statedLifeMs) this.former = undefined
  }

  // ---- how long tokens live

  /** The age at which the current token will probably end; undefined if nothing is known. */
  get endMs(): number | undefined {
    const { learns, lifetimeMs } = this.rules
    const learnedMs = this.#learnedEndMs ?? Number.POSITIVE_INFINITY
    const isOutlived = learnedMs * (1 + OUTLIVED_SHARE) < this.#outlivedMs
    const expectedMs = isOutlived ? Number.POSITIVE_INFINITY : learnedMs
    const endMs = Math.min(learns ? expectedMs : lifetimeMs, this.current.statedLifeMs)
    return endMs === Number.POSITIVE_INFINITY ? undefined : endMs
  }

  /** The org's own deaths count first, those of others only where it has none that say otherwise. */
  get #learnedEndMs(): number | undefined {
    const { deaths } = this.habits
    const told = this.current.expectedLifeMs
    const shared = told !== undefined && deaths.agreeWith(told) ? Math.min(told, deaths.endMs ?? told) : deaths.endMs
    const isShared = shared !== undefined && this.#own?.agreeWith(shared) !== false
    return this.#own?.endMs ?? (isShared ? shared : told)
  }

  /** Takes note if the service has accepted the token past its expected end. */
  #noteOutlived(): void {
    const endMs = this.#learnedEndMs
    const aliveMs = this.acceptedAt - this.current.mintedAt
    if (endMs === undefined || aliveMs <= endMs * (1 + OUTLIVED_SHARE) || aliveMs <= this.#outlivedMs) return
    if (this.#outlivedMs === 0) this.habits.deaths.add({ org: this.org, aliveMs, deadMs: Number.POSITIVE_INFINITY })
    this.#outlivedMs = Math.floor(aliveMs)
    this.#own = undefined
    this.#hasDied = false
  }

  /** A token that has lived for long will probably live on. */
  #assumedLifeMs(): number {
    return this.endMs ?? Math.max(this.rules.lifetimeMs, 4 * (this.acceptedAt - this.current.mintedAt))
  }

  /** How long before the end a mint ahead begins: so early that one request will come, and that the new token is known by then. */
  #aheadMs(endMs: number, now: number): number {
    const gapMs = this.#uses === 0 ? 0 : (this.acceptedAt - this.current.mintedAt) / this.#uses
    const comesMs = this.rules.looksFarAhead ? (gapMs * this.#jitterPercent) / 100 : 0
    const workMs = 2 * this.habits.mintMs + this.habits.delayMs(now, this.rules.settleTimeMs)
    const latest = Math.min(endMs * AHEAD_SHARE, MAX_AHEAD_MS)
    return Math.min(Math.max(comesMs + workMs, endMs * MIN_AHEAD_SHARE), latest)
  }

  // ---- what the service says

  /** The service accepted a request with `token` that was sent at `sentAt`. Returns true if waiting requests may go on. */
  noteAccepted(token: AccessToken, sentAt: number): boolean {
    if (token !== this.current) {
      if (token === this.former && sentAt > this.current.mintedAt + this.habits.mintMs) this.habits.formerLivesOn()
      return false
    }
    this.#uses += 1
    if (sentAt > this.acceptedAt) this.acceptedAt = Math.floor(sentAt)
    if (!this.#isWatched) return false
    this.#rejectedInRow = 0
    if (this.#firstAcceptedAt < 0) {
      this.#firstAcceptedAt = Math.floor(sentAt)
      if (this.#condemned?.isUnrepeated === true && this.#condemned.token !== token)
        this.confirmDeath(this.#condemned.token)
    }
    if (this.#condemned?.token === token && sentAt > token.mintedAt + this.#condemned.deadMs) {
      this.#condemned = undefined
      this.isDead = false
    }
    this.#isWatched = this.#condemned?.token === token
    return true
  }

  /** A request was rejected that was sent with the current token. Counts each request once. */
  noteRejected(sentAt: number): void {
    if (this.#rejectedInRow === 0) this.#rejectedSince = sentAt
    this.#rejectedInRow += 1
    this.#isWatched = true
    this.quietUntil = 0
  }

  /** Requests that were rejected since the service last accepted the current token. */
  get rejectedInRow(): number {
    return this.#rejectedInRow
  }

  /** The rejection of a request sent at `sentAt` may be the end of the current token. */
  condemn(sentAt: number, isUnrepeated: boolean): void {
    const token = this.current
    this.#isWatched = true
    this.quietUntil = 0
    if (this.#condemned?.token === token) return
    const aliveMs = Math.max(this.acceptedAt - token.mintedAt, 0)
    const rejectedAt = this.#rejectedInRow > 0 ? Math.min(sentAt, this.#rejectedSince) : sentAt
    const deadMs = Math.max(rejectedAt - token.mintedAt, aliveMs)
    this.#condemned = { token, aliveMs, deadMs, isUnrepeated }
  }

  /** Another token was accepted where this one was rejected. */
  confirmDeath(token: AccessToken): void {
    const condemned = this.#condemned
    if (condemned?.token !== token) return
    this.#condemned = undefined
    if (this.#grievances !== undefined) this.#grievances.useless = 0
    if (!this.rules.learns) return
    const { aliveMs, deadMs } = condemned
    const death = { org: this.org, aliveMs, deadMs }
    const { deaths } = this.habits
    const isUsual = deaths.isUsual(death)
    deaths.add(death)
    this.#outlivedMs = 0
    this.#hasDied = true
    if (isUsual && this.#own === undefined) return
    this.#own ??= new DeathAges({ capacity: 4, minDeaths: 2, minOrgs: 1, share: 0.75, tolerance: 0.02 })
    this.#own.add(death)
    if (deaths.endMs !== undefined && this.#own.agreeWith(deaths.endMs)) this.#own = undefined
  }

  /** The former token was rejected, and a newer one helped. If it was young enough to live on, its successor has ended it. */
  noteFormerEnded(token: AccessToken, sentAt: number, now: number): void {
    if (this.former === token) this.former = undefined
    const endMs = this.endMs
    const ageMs = sentAt - token.mintedAt
    if (endMs !== undefined && ageMs >= endMs) return
    if (sentAt >= this.current.mintedAt) this.habits.formerEnded(now)
  }

  // ---- rejections that are not about the token

  /** True if a rejection may cause a mint now. A kind of request that is not the one rejected by right may, too. */
  mayMintAfterRejection(now: number, kind = ''): boolean {
    if (now < this.#sameUntil) return false
    const grievances = this.#grievances
    if (grievances === undefined || !this.isCoolingDownAt(now)) return true
    const isOtherKind = grievances.kinds.size > 0 && !grievances.kinds.has(kind)
    return isOtherKind && this.acceptedAt >= 0 && grievances.kinds.size <= MAX_KNOWN_KINDS
  }

  /** The current token was minted for a rejection a moment ago, and the service has never accepted it either. */
  isUselessAt(now: number): boolean {
    return this.#isReplacement && this.acceptedAt < 0 && now - this.current.mintedAt < this.rules.rejectedCooldownMs
  }

  /** A mint after a rejection did not help. */
  noteUselessMint(now: number): void {
    const grievances = this.#grieve()
    // Requests that waited for one mint tell of it once.
    if (grievances.uselessToken === this.current && now < grievances.noMintUntil) return
    grievances.uselessToken = this.current
    const cooldowns = Math.min(COOLDOWN_GROWTH ** grievances.useless, MAX_COOLDOWNS)
    grievances.useless += 1
    grievances.noMintUntil = now + this.rules.rejectedCooldownMs * cooldowns
    this.#condemned = undefined
  }

  /** Rejections cause no mint yet after one that did not help. */
  isCoolingDownAt(now: number): boolean {
    return this.#grievances !== undefined && now < this.#grievances.noMintUntil
  }

  /** The service has rejected the current token from the start, as it did the one before. */
  get isUseless(): boolean {
    return this.acceptedAt < 0 && this.#grievances?.uselessToken === this.current
  }

  get uselessMints(): number {
    return this.#grievances?.useless ?? 0
  }

  isRejectedByRight(kind: string): boolean {
    return this.#grievances?.kinds.has(kind) ?? false
  }

  markRejectedByRight(kind: string): void {
    const { kinds } = this.#grieve()
    kinds.add(kind)
    if (kinds.size > MAX_KINDS) for (const oldest of [...kinds].slice(0, 1)) kinds.delete(oldest)
  }

  unmark(kind: string): void {
    this.#grievances?.kinds.delete(kind)
  }

  get hasMarks(): boolean {
    return this.#grievances !== undefined && this.#grievances.kinds.size > 0
  }

  #grieve(): Grievances {
    this.#grievances ??= { useless: 0, uselessToken: undefined, noMintUntil: 0, kinds: new Set() }
    return this.#grievances
  }

  stateAt(now: number): 'new' | 'fresh' | 'refreshing' | 'rejected' {
    if (this.isDead) return 'rejected'
    const endMs = this.endMs
    if (endMs !== undefined && now - this.current.mintedAt > endMs - this.#aheadMs(endMs, now)) return 'refreshing'
    return this.acceptedAt < 0 ? 'new' : 'fresh'
  }

  // ---- mints

  /** True after a failure, or after a mint that brought nothing new, until the next mint behind a request. */
  isPausingAt(now: number): boolean {
    return now < this.#retryAt
  }

  /** Takes the token that a mint brought. Returns false if it is the current one again. */
  take(token: AccessToken, now: number, random: number): boolean {
    this.#failures = 0
    this.#hasPassingFailure = false
    this.#looksAhead = this.habits.ahead.areGood(1 - random)
    if (token.equals(this.current)) {
      const lifeMs = this.endMs ?? 0
      this.#retryAt = Math.floor(now + Math.max(lifeMs * SAME_TOKEN_SHARE, SAME_TOKEN_MS))
      if (this.isDead) this.#sameUntil = Math.floor(now + SAME_DEAD_TOKEN_MS)
      this.isDead = false
      return false
    }
    const isCondemned = this.isDead || this.#condemned?.token === this.current
    this.#isReplacement = isCondemned
    this.former = isCondemned || this.habits.endsFormer(now) ? undefined : this.current
    this.current = token
    this.quietUntil = 0
    this.isDead = false
    this.acceptedAt = -1
    this.#firstAcceptedAt = -1
    this.#uses = 0
    this.#rejectedInRow = 0
    this.#isWatched = true
    this.#scoutedUntil = 0
    this.#retryAt = 0
    // In a fleet, only the replica that mints explores, and each org dies at one replica in many.
    const isKnown = this.#hasDied || !this.rules.looksFarAhead
    this.#isExplored = this.#mayExplore(random, isKnown ? EXPLORED_SHARE : FIRST_EXPLORED_SHARE)
    this.#jitterPercent = 50 + Math.round(random * 50)
    return true
  }

  /** Not a token that another process has minted and knows the life of: if each explored it, each would meet its end. */
  #mayExplore(random: number, share: number): boolean {
    return this.rules.learns && this.current.expectedLifeMs === undefined && random < share
  }

  /** `isPassing`: it was no refusal of the org. */
  noteMintFailed(isPassing: boolean, now: number, random: number): void {
    // One request's trouble, perhaps: the others need not go without a token for it.
    if (this.#rejectedInRow < 2 && this.acceptedAt >= 0) this.isDead = false
    const pauseMs = Math.min(FIRST_RETRY_MS * 2 ** this.#failures, MAX_RETRY_MS) * (0.5 + random / 2)
    this.#failures += 1
    this.#hasPassingFailure = isPassing
    this.#retryAt = Math.floor(now + pauseMs)
  }
}
