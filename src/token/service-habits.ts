/**
 * What the proxy has seen of the service as a whole: which statuses reject a token, how long a new token takes to be known
 * everywhere, at what age tokens die, and which ways out of a rejection have helped lately. Pure: every instant is a parameter.
 *
 * A belief that never helps is dropped: what failed a few times in a row is tried for one request in many.
 */

import { Lifetimes } from './lifetimes.ts'
import type { TokenObserver } from './token-source.ts'

/** Each success in a row makes up for one further failure, up to so many. */
const MAX_CREDIT = 5
/** After so many failures in a row, something is tried for only this share of the requests. */
const PATIENCE = 3
const TRIED_SHARE = 1 / 200
/** If the service rejects good tokens of so many orgs in a row, it may know no token at all, probably for no longer than `OUTAGE_MS`. */
const OUTAGE_ORGS = 5
const OUTAGE_MS = 40_000
/** A longer row of rejections is not usual for all orgs. */
const MAX_ROW = 5
/** A delay of new tokens is expected for so long after it was last seen. */
const MEMORY_MS = 10 * 60_000
/** The expected delay is a little longer than the longest that was seen. */
const DELAY_MARGIN = 1.25
const DELAY_MARGIN_MS = 50
/** Statuses with which some services answer a token that has ended. Most often they mean something else. */
const SUSPECTS: ReadonlySet<number> = new Set([400, 403, 419, 440, 498])

/** `accepted`: the token is good. `suspect`: it may have ended. `neither`: a failure of the service, which says nothing. */
export type Meaning = 'accepted' | 'rejected' | 'suspect' | 'neither'

/** Whether something that may help has helped lately. */
export class Odds {
  /** In a row; below zero after successes. */
  #failures = 0

  /** True if it should be tried now. `random` is a share of one. */
  areGood(random: number): boolean {
    return this.#failures < PATIENCE || random < TRIED_SHARE
  }

  get areProven(): boolean {
    return this.#failures < 0
  }

  note(hasHelped: boolean): void {
    this.#failures = hasHelped ? Math.max(Math.min(this.#failures, 0) - 1, -MAX_CREDIT) : this.#failures + 1
  }
}

/** What is assumed of the service, and what is made of it. */
export interface TokenRules {
  /** A younger token may not be known to all back ends of the service. */
  readonly settleTimeMs: number
  /** Assumed for requests that cannot be repeated, or for all requests if `learns` is false. */
  readonly lifetimeMs: number
  readonly learns: boolean
  /** How long rejections cause no mint after one that did not help. */
  readonly rejectedCooldownMs: number
  readonly rejectedStatuses: Iterable<number>
  readonly observer?: TokenObserver | undefined
}

export class ServiceHabits {
  readonly lifetimes = new Lifetimes()
  /** Waiting until a young token is known. */
  readonly waiting = new Odds()
  /** Repeating a request with the very token that was rejected. */
  readonly again = new Odds()
  /** Keeping a token when its successor is there: fails if the successor has ended it. */
  readonly former = new Odds()
  /** Minting ahead of a token's end: fails if the endpoint gives the same token again. */
  readonly ahead = new Odds()
  /** Statuses that turned out to end tokens, beside those of the configuration. */
  readonly learnedStatuses: number[] = []
  /** Until then, only an org with a long row of rejections gets a trial of what a status means. */
  noTrialUntil = 0
  /** So many rejections in a row are usual in an org whose token is good. */
  usualRow = 1
  /** Until then, the service may reject a new token because of an outage. */
  outageUntil = Number.NEGATIVE_INFINITY
  /** Orgs whose good tokens were rejected since the service last accepted any, up to `OUTAGE_ORGS`. */
  readonly #rejectedOrgs = new Set<object>()
  /** What the last mint took. */
  mintMs = 0
  readonly #rejectedStatuses: Set<number>
  readonly rules: TokenRules
  #delayMs = 0
  #delaySeenAt = Number.NEGATIVE_INFINITY
  /** Until then, some back ends may reject any token, so only a sure delay counts. */
  #badBackEndsUntil = Number.NEGATIVE_INFINITY
  #unknownUntil = Number.NEGATIVE_INFINITY

  constructor(rules: TokenRules) {
    this.rules = rules
    this.#rejectedStatuses = new Set(rules.rejectedStatuses)
  }

  // ---- statuses

  meaningOf(status: number): Meaning {
    if (status < 400) return 'accepted'
    if (this.#rejectedStatuses.has(status)) return 'rejected'
    if (SUSPECTS.has(status)) return 'suspect'
    return status < 500 ? 'accepted' : 'neither'
  }

  /** The repeat with a new token was accepted. */
  learnStatus(status: number): void {
    if (this.#rejectedStatuses.has(status)) return
    this.#rejectedStatuses.add(status)
    this.learnedStatuses.push(status)
    this.rules.observer?.statusLearned?.(status)
  }

  // ---- rows of rejections, and outages

  /** So many in a row were not about the token. */
  learnRow(length: number): void {
    this.usualRow = Math.max(this.usualRow, Math.min(length, MAX_ROW))
  }

  /** The service rejected the token of the org, which it had accepted before. */
  noteRejected(org: object, sentAt: number): void {
    if (this.#rejectedOrgs.size === OUTAGE_ORGS || this.#rejectedOrgs.add(org).size < OUTAGE_ORGS) return
    this.outageUntil = sentAt + OUTAGE_MS
  }

  /** After an outage, other orgs may still have tokens of its time. Runs for every request. */
  noteAccepted(sentAt: number): void {
    if (this.#rejectedOrgs.size === 0 || sentAt < this.outageUntil - OUTAGE_MS) return
    this.#rejectedOrgs.clear()
    this.outageUntil = Math.min(this.outageUntil, sentAt + this.rules.settleTimeMs)
  }

  // ---- tokens

  /** After this time, a request begins no other wait for a token to become known: each may be replaced meanwhile. */
  get longestWaitMs(): number {
    return 2 * this.rules.settleTimeMs
  }

  /**
   * New tokens are known everywhere at about this age: the service rejected a younger one. `isSure`: it had never
   * accepted that one until then.
   */
  learnDelay(ageMs: number, now: number, isSure: boolean): void {
    if ((now < this.#badBackEndsUntil && !isSure) || (ageMs < this.#delayMs && this.hasDelay(now))) return
    this.#delayMs = ageMs
    this.#delaySeenAt = now
  }

  /** The service rejected a settled token that was alive, so it may reject young ones for the same reason. */
  noteBadBackEnd(now: number): void {
    if (now >= this.#badBackEndsUntil) this.#delaySeenAt = Number.NEGATIVE_INFINITY
    this.#badBackEndsUntil = now + MEMORY_MS
  }

  /** The service rejected a young token. Until then, requests that cannot be repeated wait for theirs to settle. */
  expectDelay(until: number): void {
    if (this.waiting.areGood(1)) this.#unknownUntil = Math.max(this.#unknownUntil, until)
  }

  hasDelay(now: number): boolean {
    return now - this.#delaySeenAt < MEMORY_MS
  }

  /** The age at which a new token is probably known everywhere. Zero if tokens work at once. */
  delayMs(now: number): number {
    if (!this.hasDelay(now)) return now < this.#unknownUntil ? this.rules.settleTimeMs : 0
    return Math.min(this.#delayMs * DELAY_MARGIN + DELAY_MARGIN_MS, this.rules.settleTimeMs)
  }
}
