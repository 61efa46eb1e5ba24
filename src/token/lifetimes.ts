/**
 * How long tokens live, as far as their deaths tell. Pure.
 *
 * An org's own last death counts if the one before agrees with it, or those of other orgs. Otherwise, the age at which tokens
 * of several orgs died counts. Too great an age costs little. Too small a one costs mints, until a token outlives it.
 */

import type { ServiceHabits } from './service-habits.ts'
import type { AccessToken } from './token-source.ts'

/** The service accepted a token at one age, and rejected it at a later one. */
export interface Death {
  readonly mintedAt: number
  readonly aliveMs: number
  readonly deadMs: number
}

/** How many orgs' last deaths are kept, and how many must agree. */
const KEPT_DEATHS = 12
const MIN_DEATHS = 3
/** Two ages that differ by a smaller share are the same: mints and requests take time. */
const TOLERANCE = 0.05
/** A token that is accepted at a greater age, by this share, shows that some live longer. */
const OUTLIVED_SHARE = 0.005
/** Of a thousand tokens, so many are left to live to their end, so that a longer life is noticed. */
const EXPLORED = 60
/** A mint ahead begins at most this share of the life before its end, and at most 30 s before it. */
const AHEAD_SHARE = 1 / 10
const MAX_AHEAD_MS = 30_000
/**
 * Requests that cannot be repeated do not get a token in this last share of its life. Chance makes no mint ahead begin earlier: it
 * may end the token, which large uploads still use.
 */
const LAST_SHARE = 1 / 50
const UNKNOWN = Number.POSITIVE_INFINITY

/** What is known of all orgs. */
export class Lifetimes {
  /** Above zero: a token has outlived the expected age, so none is replaced ahead. Each regular death counts it down. */
  doubts = 0
  /** The greatest age of an accepted token. */
  oldestMs = 0
  /** The age at the last rejection, until it is known whether that was a death. */
  suspectedMs = UNKNOWN
  /** The least age at which a token was rejected and a later one was accepted for the very same request. */
  leastProvenMs = UNKNOWN
  #leastMs = UNKNOWN
  #deaths: (Death & { readonly org: object })[] = []
  #usualMs = UNKNOWN
  #last: Death = { mintedAt: 0, aliveMs: 0, deadMs: 0 }
  /** Deaths since a token was last seen to survive one: all may have come at one moment, as with a change of keys. */
  #together = 0

  /** The least age at which tokens of three orgs died, or of one. `Infinity` if there is none, or if a token has lived longer. */
  endMs(of: 'several' | 'one'): number {
    if (of === 'several') return this.#unlessOutlived(this.#usualMs)
    return Math.min(this.#unlessOutlived(this.#leastMs), this.#unlessOutlived(this.suspectedMs))
  }

  #unlessOutlived(ageMs: number): number {
    return ageMs * (1 + OUTLIVED_SHARE) < this.oldestMs ? UNKNOWN : ageMs
  }

  /** Tokens have lived for so long, and none has died. */
  get provenMs(): number {
    return this.#leastMs === UNKNOWN ? this.oldestMs * (1 + TOLERANCE) : 0
  }

  /** A token died at this age, here or at another replica. Bound once, because every mint hands it on. */
  readonly noteAgeAtDeath = (ageMs: number): void => {
    this.#leastMs = Math.min(this.#leastMs, ageMs)
  }

  /** A token minted before the last death and accepted after it did not die with it. Runs for every request. */
  noteAccepted(token: { readonly mintedAt: number }, sentAt: number): void {
    const { mintedAt, aliveMs, deadMs } = this.#last
    if (token.mintedAt < mintedAt + aliveMs && sentAt > mintedAt + deadMs) this.#together = -KEPT_DEATHS
  }

  /** Returns the age at which tokens of several orgs died, if this one did; `undefined` if all may have died together. */
  noteDeath(org: object, death: Death): number | undefined {
    this.noteAgeAtDeath(death.deadMs)
    // A token minted after the last death died at another moment: it teaches, even where only one token is used at a time.
    if (death.mintedAt > this.#last.mintedAt + this.#last.deadMs) this.#together = Math.floor(this.#together / 2)
    this.#together += 1
    this.#last = death
    if (this.#together >= MIN_DEATHS) return undefined
    this.#deaths = [...this.#deaths.filter((each) => each.org !== org), { ...death, org }].slice(-KEPT_DEATHS)
    const sharedMs = ({ deadMs }: Death) => {
      const ages = this.#deaths.filter((each) => agrees(each, deadMs)).map((each) => each.deadMs)
      return ages.length < MIN_DEATHS ? UNKNOWN : Math.min(...ages)
    }
    this.#usualMs = Math.min(...this.#deaths.map(sharedMs))
    return sharedMs(death)
  }
}

/** The newest token of an org, and how long it will probably live. */
export class OrgLifetime {
  readonly habits: ServiceHabits
  current: AccessToken
  /** When the last accepted request with the current token was sent; -1 before that. */
  acceptedAt = -1
  /** 0 to 999, drawn for each token: so those minted together are not replaced together. */
  #lot: number
  /** The age of the last death, unless a token has outlived it since, and the age that is expected because of it. */
  #diedMs = UNKNOWN
  #ageMs = UNKNOWN

  constructor(token: AccessToken, habits: ServiceHabits, random: number) {
    this.current = token
    this.habits = habits
    this.#lot = Math.floor(random * 1_000)
  }

  replaceWith(token: AccessToken, random: number): void {
    this.current = token
    this.acceptedAt = -1
    this.#lot = Math.floor(random * 1_000)
  }

  /** The service accepted a request that was sent at `sentAt` with the token. Runs for every request. */
  noteAlive(sentAt: number): void {
    const all = this.habits.lifetimes
    all.noteAccepted(this.current, sentAt)
    if (sentAt <= this.acceptedAt) return
    this.acceptedAt = Math.floor(sentAt)
    const aliveMs = this.acceptedAt - this.current.mintedAt
    if (aliveMs > all.oldestMs) all.oldestMs = aliveMs
    // Where another org's token has outlived the expected age, less is enough.
    const share = all.doubts > 0 ? OUTLIVED_SHARE : TOLERANCE
    if (aliveMs <= this.#diedMs * (1 + share)) return
    if (this.#ageMs !== UNKNOWN) all.doubts = MIN_DEATHS
    this.#diedMs = UNKNOWN
    this.#ageMs = UNKNOWN
  }

  /** A token of the org has ended. */
  noteDeath(death: Death): void {
    const { lifetimes: all, rules } = this.habits
    const sharedMs = rules.learns ? all.noteDeath(this, death) : undefined
    if (sharedMs === undefined) return
    const isRegular = agrees(death, this.#diedMs)
    if (isRegular) all.doubts -= 1
    this.#ageMs = isRegular ? Math.min(sharedMs, death.deadMs, this.#diedMs) : sharedMs
    this.#diedMs = death.deadMs
  }

  /** The age at which the token will probably end. `Infinity` if nothing is known. */
  get endMs(): number {
    const { lifetimes: all, rules } = this.habits
    const { statedLifeMs, expectedLifeMs = UNKNOWN } = this.current
    // Replicas tell it on with each token, so a wrong one would never go away.
    const toldMs = expectedLifeMs * (1 + TOLERANCE) < all.oldestMs ? UNKNOWN : expectedLifeMs
    const learnedMs = Math.min(this.#ageMs, all.endMs('several'), toldMs)
    return Math.min(statedLifeMs, rules.learns ? learnedMs : rules.lifetimeMs)
  }

  /**
   * Requests that cannot be repeated get no older token: one death of any org makes an age doubtful. If that is hardly more than
   * the settle time, a few tokens are used for longer: a rejection for another reason must not cause mints for ever.
   */
  get safeMs(): number {
    const { lifetimes, rules } = this.habits
    const oneMs = rules.learns ? lifetimes.endMs('one') : UNKNOWN
    const isTried = this.#lot < EXPLORED && oneMs < 2 * rules.settleTimeMs
    const leastMs = Math.min(isTried ? UNKNOWN : oneMs, this.current.expectedLifeMs ?? UNKNOWN)
    return Math.min(this.endMs, leastMs) * (1 - LAST_SHARE)
  }

  /** The token may live to its end. Chance picks none of another replica: each replica would meet its end. */
  get isExplored(): boolean {
    const { lifetimes: all, rules } = this.habits
    return all.doubts > 0 || (rules.learns && this.#lot < EXPLORED && this.current.expectedLifeMs === undefined)
  }

  aheadMs(now: number): number {
    const { endMs, habits } = this
    if (this.isExplored) return this.current.statedLifeMs
    const jitterMs = endMs * LAST_SHARE * (this.#lot / 1_000)
    const workMs = 2 * habits.mintMs + habits.delayMs(now)
    return endMs - Math.min(jitterMs + workMs, endMs * AHEAD_SHARE, MAX_AHEAD_MS)
  }

  /** False for most tokens if the endpoint seldom has another before the end of the present one. */
  get looksAhead(): boolean {
    return this.habits.ahead.areGood(1 - this.#lot / 1_000)
  }
}

/** True if a token that died like this could have died at `ageMs`. */
function agrees({ aliveMs, deadMs }: Death, ageMs: number): boolean {
  return aliveMs <= ageMs * (1 + TOLERANCE) && deadMs >= ageMs * (1 - TOLERANCE)
}
