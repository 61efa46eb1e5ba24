/**
 * How long tokens live, as far as their deaths tell. Pure.
 *
 * An org's own last death counts if the one before agrees with it, or those of other orgs. Where an org has none that counts, the
 * age at which tokens of several orgs died is expected, unless a token of any org has lived longer. Too great an age costs
 * little. Too small a one costs mints, until a token is accepted that is older.
 */

import type { TokenRules } from './service-habits.ts'
import type { AccessToken } from './token-source.ts'

/** The service accepted a token at one age, and rejected it at a later one. */
export interface Death {
  /** Monotonic milliseconds. */
  readonly mintedAt: number
  readonly aliveMs: number
  readonly deadMs: number
}

type OrgDeath = readonly [org: object, death: Death]

/** Of so many orgs the last death is kept, and so many must agree. */
const KEPT_DEATHS = 12
const MIN_DEATHS = 3
/** Two ages that differ by a smaller share are the same: mints and requests take time. */
const TOLERANCE = 0.05
/** A token that is accepted at a greater age, by this share, shows that some live longer. */
const OUTLIVED_SHARE = 0.01
/** After a token has outlived the death before it, none is minted ahead until so many have died at the age of the one before. */
const DOUBTS = 3
/** Of a thousand tokens, so many are left to live to their end, so that a longer life is noticed. */
const EXPLORED = 42
/** The last tenth of a life, but no more than 30 s, is for a mint ahead of the end. */
const AHEAD_SHARE = 1 / 10
const MAX_AHEAD_MS = 30_000
const MIN_AHEAD_SHARE = 1 / 200
const UNKNOWN = Number.POSITIVE_INFINITY

/** What is known of all orgs. */
export class Lifetimes {
  readonly rules: TokenRules
  /** All tokens are left to live to their ends until so many have died as expected. */
  doubts = 0
  /** The greatest age of an accepted token. */
  oldestMs = 0
  /** The last deaths may all have come between these instants, whatever the ages: a change of keys, or the end of an hour. */
  #momentFrom = Number.NEGATIVE_INFINITY
  #momentTo = Number.NEGATIVE_INFINITY
  /** How many they are, or less than none if one of them has shown that they did not. */
  #together = 0
  #deaths: OrgDeath[] = []
  #usualMs = UNKNOWN

  constructor(rules: TokenRules) {
    this.rules = rules
  }

  /** The least age at which tokens of several orgs died, if none has lived longer. `Infinity` if there is none. */
  get endMs(): number {
    return this.#unlessOutlived(this.#usualMs)
  }

  /** The same with one death of any org. */
  get leastMs(): number {
    return this.#unlessOutlived(leastOf(this.#deaths))
  }

  #unlessOutlived(ageMs: number): number {
    return ageMs * (1 + OUTLIVED_SHARE) < this.oldestMs ? UNKNOWN : ageMs
  }

  /** A token was accepted that may show that not all died together. Runs for every request. */
  noteAccepted(mintedAt: number, sentAt: number): void {
    if (mintedAt < this.#momentFrom && sentAt > this.#momentTo) this.#together = Number.NEGATIVE_INFINITY
  }

  /** True if the last deaths may all have come at one moment, this one too. Then their ages teach nothing. */
  mayHaveDiedTogether({ mintedAt, aliveMs, deadMs }: Death): boolean {
    const from = mintedAt + aliveMs
    const to = mintedAt + deadMs
    if (mintedAt > this.#momentTo) {
      this.#momentFrom = from
      this.#momentTo = to
      this.#together = Math.max(Math.floor(this.#together / 2), 0)
    }
    const isApart = from > this.#momentTo || to < this.#momentFrom
    this.#together = isApart ? Number.NEGATIVE_INFINITY : this.#together + 1
    if (this.#together < MIN_DEATHS) return false
    this.#deaths = []
    this.#usualMs = UNKNOWN
    return true
  }

  /** `org` is any object that stands for it. Returns the age at which tokens of several orgs died, if this one did. */
  noteDeath(org: object, death: Death): number {
    this.#deaths = [...this.#deaths.filter(([other]) => other !== org), [org, death] as const].slice(-KEPT_DEATHS)
    this.#usualMs = Math.min(...this.#deaths.map(([, each]) => this.#sharedMs(each)))
    return this.#sharedMs(death)
  }

  #sharedMs({ deadMs }: Death): number {
    const alike = this.#deaths.filter(([, death]) => agrees(death, deadMs))
    return alike.length < MIN_DEATHS ? UNKNOWN : leastOf(alike)
  }
}

function leastOf(deaths: readonly OrgDeath[]): number {
  return Math.min(...deaths.map(([, { deadMs }]) => deadMs))
}

/** What is known of the tokens of one org. */
export class OrgLifetime {
  readonly #all: Lifetimes
  #token: AccessToken
  /** 0 to 999, drawn for each token: spreads the mints ahead of those that were minted together. */
  lot = 0
  /** The last death, unless a token has outlived it since. */
  #death: Death | undefined
  /** Its age, if the death before agrees, or those of other orgs. */
  #ageMs = UNKNOWN

  constructor(all: Lifetimes, token: AccessToken, random: number) {
    this.#all = all
    this.#token = token
    this.take(token, random)
  }

  take(token: AccessToken, random: number): void {
    this.#token = token
    this.lot = Math.floor(random * 1_000)
  }

  /** The service has accepted the token at this age. */
  noteAlive(aliveMs: number): void {
    if (aliveMs > this.#all.oldestMs) this.#all.oldestMs = aliveMs
    if (this.#death === undefined || aliveMs <= this.#death.deadMs * (1 + TOLERANCE)) return
    if (agrees(this.#death, this.#learnedMs)) this.#all.doubts = DOUBTS
    this.#death = undefined
    this.#ageMs = UNKNOWN
  }

  /** A token of the org has ended: the present one, or one before. */
  noteDeath(death: Death): void {
    const all = this.#all
    if (!all.rules.learns || all.mayHaveDiedTogether(death)) return
    const before = this.#death
    const isRegular = before !== undefined && agrees(death, before.deadMs)
    if (isRegular) all.doubts = Math.max(0, all.doubts - 1)
    this.#ageMs = Math.min(all.noteDeath(this, death), isRegular ? Math.min(death.deadMs, before.deadMs) : UNKNOWN)
    this.#death = death
  }

  /** The age at which the token will probably end. `Infinity` if nothing is known. */
  get endMs(): number {
    const { learns, lifetimeMs } = this.#all.rules
    return Math.min(learns ? this.#learnedMs : lifetimeMs, this.#token.statedLifeMs)
  }

  /** The same for requests that cannot be repeated: one death of any org makes an age doubtful. */
  get safeMs(): number {
    return this.#all.rules.learns ? Math.min(this.endMs, this.#all.leastMs) : this.endMs
  }

  get #learnedMs(): number {
    return Math.min(this.#ageMs, this.#all.endMs, this.#token.expectedLifeMs ?? UNKNOWN)
  }

  /** The token is left to live to its end. None of another process that knows its life: each would meet its end. */
  get isExplored(): boolean {
    const isDrawn = this.#all.rules.learns && this.lot < EXPLORED && this.#token.expectedLifeMs === undefined
    return isDrawn || this.#all.doubts > 0
  }

  /**
   * The age for a mint ahead of the end: so early that one request will come, and that the new token is known by then. The one
   * before came `gapMs` ago, and a token is known `workMs` after the request that asks for it.
   */
  aheadMs(gapMs: number, workMs: number): number {
    const { endMs } = this
    if (this.isExplored || !Number.isFinite(endMs)) return this.#token.statedLifeMs
    const comesMs = this.#all.rules.looksFarAhead ? gapMs * (this.lot / 1_000) : 0
    return endMs - Math.min(comesMs + workMs + endMs * MIN_AHEAD_SHARE, endMs * AHEAD_SHARE, MAX_AHEAD_MS)
  }
}

/** True if a token that died like this could have died at `ageMs`. */
function agrees({ aliveMs, deadMs }: Death, ageMs: number): boolean {
  return aliveMs <= ageMs * (1 + TOLERANCE) && deadMs >= ageMs * (1 - TOLERANCE)
}
