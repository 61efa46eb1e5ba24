/**
 * How long tokens live, as far as their deaths tell. Pure.
 *
 * The own deaths of an org count first, and it takes two in a row at one age. Before that it shares the age at which tokens of
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
/** The ages of tokens of one life differ by two mints, and by requests that overtake each other on their way. */
const MINTS = 2
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
  /** The age at which tokens of several orgs died. */
  #usualMs: number | undefined
  /** All tokens are left to live to their ends until so many have died as expected. */
  doubts = 0
  readonly #deaths = new Map<object, Death>()
  #slackMs = 0
  /** The greatest age of an accepted token. */
  #oldestMs = 0
  /** The last deaths may all have come between these instants, whatever the ages: a change of keys, or the end of an hour. */
  #momentFrom = Number.NEGATIVE_INFINITY
  #momentTo = Number.NEGATIVE_INFINITY
  #together = 0

  get mayHaveDiedTogether(): boolean {
    return this.#together >= MIN_DEATHS
  }

  get usualMs(): number | undefined {
    return this.mayHaveDiedTogether ? undefined : this.#usualMs
  }

  /** The same, if no token of any org has lived longer. */
  get endMs(): number | undefined {
    const { usualMs = 0 } = this
    return usualMs + this.#slackMs < this.#oldestMs ? undefined : this.usualMs
  }

  /** A token was accepted at `sentAt`. Runs for every request. */
  noteAccepted(mintedAt: number, sentAt: number): void {
    if (mintedAt < this.#momentFrom && sentAt > this.#momentTo) this.#noteSurvivor()
  }

  noteAlive(aliveMs: number): void {
    if (aliveMs > this.#oldestMs) this.#oldestMs = aliveMs
  }

  /** `org` is any object that stands for it. `mintMs` is the mean time of a mint. */
  noteDeath(org: object, death: Death, mintMs: number): void {
    this.#slackMs = MINTS * mintMs + OVERTAKING_MS
    this.#noteMoment(death)
    this.#deaths.delete(org)
    this.#deaths.set(org, death)
    const [oldest] = this.#deaths.keys()
    if (this.#deaths.size > KEPT_DEATHS && oldest !== undefined) this.#deaths.delete(oldest)
    const deaths = [...this.#deaths.values()]
    const ages = deaths.map(({ deadMs }) => deadMs).toSorted((a, b) => a - b)
    this.#usualMs = ages.find((ageMs) => deaths.filter((each) => agrees(each, ageMs)).length >= MIN_DEATHS)
  }

  #noteMoment({ mintedAt, aliveMs, deadMs }: Death): void {
    const isNew = mintedAt > this.#momentTo
    const from = mintedAt + aliveMs
    const to = mintedAt + deadMs + OVERTAKING_MS
    this.#momentFrom = isNew ? from : Math.max(this.#momentFrom, from)
    this.#momentTo = isNew ? to : Math.min(this.#momentTo, to)
    this.#together = isNew ? 1 : this.#together + 1
    if (this.#momentFrom > this.#momentTo) this.#noteSurvivor()
  }

  #noteSurvivor(): void {
    this.#together = Number.NEGATIVE_INFINITY
    this.#momentFrom = Number.NEGATIVE_INFINITY
  }
}

/** What is known of the tokens of one org. */
export class OrgLifetime {
  readonly #all: Lifetimes
  readonly #rules: TokenRules
  #token: AccessToken
  /** The last death, unless a token has outlived it since, and how many in a row came at its age, and at no usual one. */
  #death: Death | undefined
  #inRow = 0
  /** 0 to 999, drawn for each token: spreads the mints ahead of those that were minted together. */
  lot = 0

  constructor(all: Lifetimes, rules: TokenRules, token: AccessToken, random: number) {
    this.#all = all
    this.#rules = rules
    this.#token = token
    this.take(token, random)
  }

  take(token: AccessToken, random: number): void {
    this.#token = token
    this.lot = Math.floor(random * 1_000)
  }

  /** The token was accepted at `sentAt`. Runs for every request. */
  noteAccepted(sentAt: number): void {
    this.#all.noteAccepted(this.#token.mintedAt, sentAt)
  }

  /** The service has accepted the token at this age. */
  noteAlive(aliveMs: number): void {
    this.#all.noteAlive(aliveMs)
    if (this.#death === undefined || aliveMs <= this.#death.deadMs * (1 + TOLERANCE)) return
    this.#death = undefined
    this.#inRow = 0
    this.#all.doubts = DOUBTS
  }

  /** A token of the org has ended: the present one, or one before. */
  noteDeath(death: Death, mintMs: number): void {
    if (!this.#rules.learns) return
    const all = this.#all
    all.noteDeath(this, death, mintMs)
    if (all.mayHaveDiedTogether) return
    const before = this.#death
    const isRegular = before !== undefined && agrees(death, before.deadMs)
    if (isRegular) all.doubts = Math.max(0, all.doubts - 1)
    const isUsual = all.usualMs !== undefined && agrees(death, all.usualMs)
    this.#inRow = isRegular && !isUsual ? this.#inRow + 1 : 1
    this.#death = isRegular ? { ...death, deadMs: Math.min(death.deadMs, before.deadMs) } : death
  }

  /** The age at which the token will probably end. `Infinity` if nothing is known. */
  get endMs(): number {
    const { learns, lifetimeMs } = this.#rules
    return Math.min(learns ? this.#learnedMs : lifetimeMs, this.#token.statedLifeMs)
  }

  get #learnedMs(): number {
    const { usualMs, endMs } = this.#all
    const { expectedLifeMs: toldMs = Number.POSITIVE_INFINITY } = this.#token
    const own = this.#death
    if (own === undefined) return Math.min(toldMs, endMs ?? Number.POSITIVE_INFINITY)
    if (this.#inRow > 1) return own.deadMs
    return usualMs !== undefined && agrees(own, usualMs) ? Math.min(toldMs, usualMs) : toldMs
  }

  /** The token is left to live to its end. None of another process that knows its life: each would meet its end. */
  get isExplored(): boolean {
    const isDrawn = this.#rules.learns && this.lot < EXPLORED && this.#token.expectedLifeMs === undefined
    return isDrawn || this.#all.doubts > 0
  }

  /**
   * The age for a mint ahead of the end: so early that one request will come, and that the new token is known by then. Requests
   * come every `gapMs`, and a token is known `workMs` after the request that asks for it.
   */
  aheadMs(gapMs: number, workMs: number): number {
    const { endMs } = this
    if (this.isExplored || !Number.isFinite(endMs)) return this.#token.statedLifeMs
    const comesMs = this.#rules.looksFarAhead ? gapMs * (1 / 2 + this.lot / 2_000) : 0
    const latestMs = Math.min(endMs * AHEAD_SHARE, MAX_AHEAD_MS)
    return endMs - Math.min(Math.max(comesMs + workMs, endMs * MIN_AHEAD_SHARE), latestMs)
  }
}

/** True if a token that died like this could have died at `ageMs`. */
function agrees({ aliveMs, deadMs }: Death, ageMs: number): boolean {
  return aliveMs <= ageMs * (1 + TOLERANCE) && deadMs >= ageMs * (1 - TOLERANCE)
}
