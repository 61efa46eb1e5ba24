/**
 * The ages at which tokens died, and whether they are regular enough to foresee the next death. Pure.
 *
 * A death is known as an interval: the service accepted the token at one age and rejected it at a later one.
 */

/** How one token ended. `deadMs` is `Infinity` for a token that outlived the expected end. */
export interface Ending {
  readonly org: string
  readonly aliveMs: number
  readonly deadMs: number
}

interface DeathAgesOptions {
  readonly capacity: number
  /** Deaths at one age, and orgs that had them, before the age counts as regular. */
  readonly minDeaths: number
  readonly minOrgs: number
  /** Two ages that differ by a smaller share are the same: mints and requests take time. */
  readonly tolerance: number
}

/** Share of the endings that must agree. */
const AGREEING_SHARE = 4 / 5
/** A token that was not used for a larger part of its life says too little about its end. */
const MAX_UNSEEN_SHARE = 0.6

export class DeathAges {
  /** The age at which tokens die; undefined if it is unknown or not regular. */
  endMs: number | undefined
  readonly #options: DeathAgesOptions
  readonly #endings: Ending[] = []

  constructor(options: DeathAgesOptions) {
    this.#options = options
  }

  /** True if a token has outlived the end that was expected lately. */
  get isDoubted(): boolean {
    return this.#endings.some(({ deadMs }) => deadMs === Number.POSITIVE_INFINITY)
  }

  /** True if every token could have died at this age. */
  agreeWith(ageMs: number): boolean {
    return this.#endings.every((ending) => this.#agrees(ending, ageMs))
  }

  /** Returns true if the ending was to be expected. */
  add(ending: Ending): boolean {
    const isUsual = this.endMs !== undefined && this.#agrees(ending, this.endMs)
    this.#endings.push(ending)
    if (this.#endings.length > this.#options.capacity) this.#endings.shift()
    const ages = this.#endings.map(({ deadMs }) => deadMs).filter(Number.isFinite)
    this.endMs = ages.sort((a, b) => a - b).find((ageMs) => this.#isRegular(ageMs))
    return isUsual
  }

  /** True if enough tokens died at this age, and most could have died at it. */
  #isRegular(ageMs: number): boolean {
    const { minDeaths, minOrgs } = this.#options
    const agreeing = this.#endings.filter((ending) => this.#agrees(ending, ageMs))
    const deaths = agreeing.filter(isTelling)
    if (deaths.length < minDeaths || agreeing.length < this.#endings.length * AGREEING_SHARE) return false
    return new Set(deaths.map(({ org }) => org)).size >= minOrgs
  }

  /** True if a token that ended like this could have died at `ageMs`. */
  #agrees({ aliveMs, deadMs }: Ending, ageMs: number): boolean {
    const { tolerance } = this.#options
    return aliveMs <= ageMs * (1 + tolerance) && deadMs >= ageMs * (1 - tolerance)
  }
}

function isTelling({ aliveMs, deadMs }: Ending): boolean {
  return Number.isFinite(deadMs) && deadMs - aliveMs <= deadMs * MAX_UNSEEN_SHARE
}
