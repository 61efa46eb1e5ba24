/**
 * The ages at which tokens died, and whether they are regular enough to foresee the next death. Pure.
 *
 * A death is known as an interval: the service accepted the token at one age and rejected it at a later one.
 */

/** How one token ended. `deadMs` is `Infinity` for a token that outlived the expected end. */
export interface Ending {
  readonly org: string
  /** Monotonic milliseconds. */
  readonly mintedAt: number
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

/** Requests that overtake each other on their way may differ by this. */
const ONE_MOMENT_MS = 20
/** So many orgs whose tokens may have ended at one moment are no accident. */
const ORGS_AT_ONCE = 3
/** Share of the endings that must agree. */
const AGREEING_SHARE = 4 / 5
/** A token that was not used for a larger part of its life says too little about its end. */
const MAX_UNSEEN_SHARE = 0.6

export class DeathAges {
  /** The age at which tokens die; undefined if it is unknown or not regular. */
  endMs: number | undefined
  /** Nothing tells the age of these tokens from another reason that ended all of them at one moment. */
  areAtOnce = false
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
    this.areAtOnce = this.#areAtOnce()
    this.endMs = this.areAtOnce ? undefined : ages.sort((a, b) => a - b).find((ageMs) => this.#isRegular(ageMs))
    return isUsual
  }

  #areAtOnce(): boolean {
    const deaths = this.#endings.filter(isTelling)
    const livedOn = deaths.some((death) =>
      this.#endings.some(({ mintedAt, aliveMs }) => {
        const lastSeenAt = mintedAt + aliveMs
        return mintedAt < diedAt(death) && lastSeenAt > diedAt(death) + ONE_MOMENT_MS
      }),
    )
    const togetherWith = (death: Ending) =>
      deaths.filter((other) => other.mintedAt < diedAt(death) && death.mintedAt < diedAt(other))
    return !livedOn && deaths.some((death) => new Set(togetherWith(death).map(({ org }) => org)).size >= ORGS_AT_ONCE)
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

function diedAt({ mintedAt, deadMs }: Ending): number {
  return mintedAt + deadMs
}

function isTelling({ aliveMs, deadMs }: Ending): boolean {
  return Number.isFinite(deadMs) && deadMs - aliveMs <= deadMs * MAX_UNSEEN_SHARE
}
