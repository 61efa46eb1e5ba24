/**
 * How long tokens live, as far as their deaths tell. Pure.
 *
 * An org whose tokens died at an age of their own twice in a row gets that age. The others share the age at which tokens of
 * several orgs died. Too great an age costs little. Too small a one costs mints, until a token is accepted that is older.
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

/** Of so many orgs the last death is kept, and so many must agree. */
const KEPT_DEATHS = 12
const MIN_DEATHS = 3
/** Two ages that differ by a smaller share are the same: mints and requests take time. */
const TOLERANCE = 0.05
/** A token that is accepted at a greater age, by this share, shows that some live longer. */
const OUTLIVED_SHARE = 0.01
/** The same for requests that cannot be repeated: they keep away from an age until more shows that it is harmless. */
const CAUTIOUS_SHARE = 0.03
/** Requests that overtake each other on their way differ by less. */
const OVERTAKING_MS = 20
/** After a token has outlived the death before it, none is minted ahead until so many have died at the age of the one before. */
const DOUBTS = 3
/** Of a thousand tokens, so many are left to live to their end, so that a longer life is noticed. */
const EXPLORED = 42
/** The last tenth of a life, but no more than 30 s, is for a mint ahead of the end. */
const AHEAD_SHARE = 1 / 10
const MAX_AHEAD_MS = 30_000
const MIN_AHEAD_SHARE = 1 / 100

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
  #together = 0
  #deaths: (readonly [org: object, death: Death])[] = []
  #usualMs = Number.POSITIVE_INFINITY
  #leastMs = Number.POSITIVE_INFINITY

  constructor(rules: TokenRules) {
    this.rules = rules
  }

  get mayHaveDiedTogether(): boolean {
    return this.#together >= MIN_DEATHS
  }

  /** The age at which tokens of several orgs died. `Infinity` if there is none. */
  get usualMs(): number {
    return this.mayHaveDiedTogether ? Number.POSITIVE_INFINITY : this.#usualMs
  }

  /** The same, if no token of any org has lived longer. */
  get endMs(): number {
    return this.usualMs * (1 + OUTLIVED_SHARE) < this.oldestMs ? Number.POSITIVE_INFINITY : this.usualMs
  }

  /** The least age at which a token of any org died lately, if none has lived longer. */
  get leastMs(): number {
    const isDoubtful = this.mayHaveDiedTogether || this.#leastMs * (1 + CAUTIOUS_SHARE) < this.oldestMs
    return isDoubtful ? Number.POSITIVE_INFINITY : this.#leastMs
  }

  /** A token was accepted that may show that not all died together. Runs for every request. */
  noteAccepted(mintedAt: number, sentAt: number): void {
    if (mintedAt < this.#momentFrom && sentAt > this.#momentTo) this.#together = Number.NEGATIVE_INFINITY
  }

  /** `org` is any object that stands for it. */
  noteDeath(org: object, death: Death): void {
    const from = death.mintedAt + death.aliveMs
    const to = death.mintedAt + death.deadMs + OVERTAKING_MS
    if (death.mintedAt > this.#momentTo) {
      this.#momentFrom = from
      this.#momentTo = to
      this.#together = 0
    }
    const isApart = from > this.#momentTo || to < this.#momentFrom
    this.#together = isApart ? Number.NEGATIVE_INFINITY : this.#together + 1
    this.#deaths = [...this.#deaths.filter(([other]) => other !== org), [org, death] as const].slice(-KEPT_DEATHS)
    const ages = this.#deaths.map(([, each]) => each.deadMs).toSorted((a, b) => a - b)
    this.#leastMs = ages[0] ?? Number.POSITIVE_INFINITY
    const least = Math.max(this.#deaths.length / 2, MIN_DEATHS)
    const isUsual = (ageMs: number) => this.#deaths.filter(([, each]) => agrees(each, ageMs)).length >= least
    this.#usualMs = ages.find(isUsual) ?? Number.POSITIVE_INFINITY
  }
}

/** What is known of the tokens of one org. */
export class OrgLifetime {
  readonly #all: Lifetimes
  #token: AccessToken
  /** 0 to 999, drawn for each token: spreads the mints ahead of those that were minted together. */
  lot = 0
  /** The last death, unless a token has outlived it since. */
  #death: Death | undefined
  /** It came at the age of the one before, and at no usual one. */
  #isOwnAge = false

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
  }

  /** A token of the org has ended: the present one, or one before. */
  noteDeath(death: Death): void {
    if (!this.#all.rules.learns) return
    const all = this.#all
    all.noteDeath(this, death)
    if (all.mayHaveDiedTogether) return
    const before = this.#death
    const isRegular = before !== undefined && agrees(death, before.deadMs)
    if (isRegular) all.doubts = Math.max(0, all.doubts - 1)
    this.#death = isRegular ? { ...death, deadMs: Math.min(death.deadMs, before.deadMs) } : death
    this.#isOwnAge = isRegular && !agrees(death, all.usualMs)
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
    const own = this.#death
    if (own !== undefined && this.#isOwnAge) return own.deadMs
    const { usualMs, endMs } = this.#all
    const sharedMs = own !== undefined && agrees(own, usualMs) ? usualMs : endMs
    return Math.min(sharedMs, this.#token.expectedLifeMs ?? Number.POSITIVE_INFINITY)
  }

  /** The token is left to live to its end. None of another process that knows its life: each would meet its end. */
  get isExplored(): boolean {
    const isDrawn = this.#all.rules.learns && this.lot < EXPLORED && this.#token.expectedLifeMs === undefined
    return isDrawn || this.#all.doubts > 0
  }

  /**
   * The age for a mint ahead of the end: so early that one request will come, and that the new token is known by then. Requests
   * come every `gapMs`, and a token is known `workMs` after the request that asks for it.
   */
  aheadMs(gapMs: number, workMs: number): number {
    const { endMs } = this
    if (this.isExplored || !Number.isFinite(endMs)) return this.#token.statedLifeMs
    const comesMs = this.#all.rules.looksFarAhead ? gapMs * (1 / 2 + this.lot / 2_000) : 0
    const latestMs = Math.min(endMs * AHEAD_SHARE, MAX_AHEAD_MS)
    return endMs - Math.min(Math.max(comesMs + workMs, endMs * MIN_AHEAD_SHARE), latestMs)
  }
}

/** True if a token that died like this could have died at `ageMs`. */
function agrees({ aliveMs, deadMs }: Death, ageMs: number): boolean {
  return aliveMs <= ageMs * (1 + TOLERANCE) && deadMs >= ageMs * (1 - TOLERANCE)
}
