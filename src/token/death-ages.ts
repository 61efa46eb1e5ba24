/**
 * The ages at which tokens died, and whether they are regular enough to foresee the next death. Pure.
 *
 * A death is known as an interval: the service accepted the token at one age and rejected it at a later one.
 */

/** How one token ended. `deadMs` is `Infinity` for a token that outlived the expected end. */
interface Ending {
  readonly org: string
  readonly aliveMs: number
  readonly deadMs: number
}

export interface DeathAgesOptions {
  /** Endings remembered. */
  readonly capacity: number
  /** Deaths at one age, and orgs that had them, before the age counts as regular. */
  readonly minDeaths: number
  readonly minOrgs: number
  /** Share of the endings that must agree. */
  readonly share: number
  /** Two ages that differ by a smaller share are the same: mints and requests take time. */
  readonly tolerance: number
}

/** A token that was not used for a larger part of its life says too little about its end. */
const MAX_UNSEEN_SHARE = 0.6

export class DeathAges {
  readonly #options: DeathAgesOptions
  readonly #endings: Ending[] = []
  #endMs: number | undefined

  constructor(options: DeathAgesOptions) {
    this.#options = options
  }

  /** The age at which tokens die; undefined if it is unknown or not regular. */
  get endMs(): number | undefined {
    return this.#endMs
  }

  /** True if every token could have died at this age. */
  agreeWith(ageMs: number): boolean {
    return this.#endings.every((ending) => this.#agrees(ending, ageMs))
  }

  isUsual(ending: Ending): boolean {
    return this.#endMs !== undefined && this.#agrees(ending, this.#endMs)
  }

  add(ending: Ending): void {
    this.#endings.push(ending)
    if (this.#endings.length > this.#options.capacity) this.#endings.shift()
    this.#endMs = this.#regularEnd()
  }

  /** The smallest age at which enough tokens died, and at which most could have died. */
  #regularEnd(): number | undefined {
    const { minDeaths, minOrgs, share } = this.#options
    const ages = this.#endings.map(({ deadMs }) => deadMs).filter(Number.isFinite)
    ages.sort((a, b) => a - b)
    return ages.find((ageMs) => {
      const agreeing = this.#endings.filter((ending) => this.#agrees(ending, ageMs))
      const deaths = agreeing.filter(isTelling)
      const orgs = new Set(deaths.map(({ org }) => org))
      return deaths.length >= minDeaths && orgs.size >= minOrgs && agreeing.length >= this.#endings.length * share
    })
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
