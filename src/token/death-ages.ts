/**
 * The ages at which tokens died lately, and whether they are regular enough to foresee the next death. Pure.
 *
 * A death is known as an interval: the service accepted the token at one age and rejected it at a later one. If tokens of
 * several orgs died together, all tokens may have ended at that moment, whatever their age: a change of keys, or the end of an
 * hour. Their age counts as soon as a token that lived at the same time is accepted later.
 */

/** How one token ended. */
export interface Ending {
  readonly org: string
  /** Monotonic milliseconds. */
  readonly mintedAt: number
  readonly aliveMs: number
  readonly deadMs: number
}

const CAPACITY = 12
/** Deaths at one age, and orgs that had them, before the age counts as regular; also the orgs that may have died together. */
const MIN_DEATHS = 3
const MIN_ORGS = 3
/** Two ages that differ by a smaller share are the same: mints and requests take time. */
const TOLERANCE = 0.05
/** Share of the endings that must agree. */
const AGREEING_SHARE = 4 / 5
/** A token that was not used for a larger part of its life says too little about its end. */
const MAX_UNSEEN_SHARE = 0.6
/** Requests that overtake each other on their way differ by less. */
const OVERTAKING_MS = 20
/** Mints differ by so many times their mean, and the ages of tokens with them. */
const MINTS = 2

export class DeathAges {
  /** The age at which tokens die; undefined if it is unknown or not regular. */
  endMs: number | undefined
  /** A token that was minted before this, and is accepted after `diedAt`, is a survivor. `-Infinity` once there was one. */
  bornBefore = Number.NEGATIVE_INFINITY
  diedAt = 0
  /** An accepted token of a greater age shows that some orgs' tokens live longer. `Infinity` if there is nothing to show. */
  disprovedAfterMs = Number.POSITIVE_INFINITY
  /** Tokens of some orgs live longer than this. */
  #longerMs = 0
  #slackMs = 0
  readonly #endings: Ending[] = []
  /** Minted later than this, a token was not among those that may have died together. */
  #togetherBefore = Number.NEGATIVE_INFINITY
  readonly #together = new Set<string>()

  /** These deaths may have another reason than the age of the tokens. */
  get mayHaveDiedTogether(): boolean {
    return Number.isFinite(this.bornBefore) && this.#together.size >= MIN_ORGS
  }

  /** True if every token could have died at this age. */
  agreeWith(ageMs: number): boolean {
    return this.#endings.every((ending) => agrees(ending, ageMs))
  }

  /** The age at which the tokens of any org probably die. */
  get endOfAllMs(): number | undefined {
    return Number.isFinite(this.disprovedAfterMs) ? this.endMs : undefined
  }

  /** `mintMs` is the mean time of a mint. */
  add(ending: Ending, mintMs: number): void {
    this.#slackMs = MINTS * mintMs + OVERTAKING_MS
    this.#endings.push(ending)
    if (this.#endings.length > CAPACITY) this.#endings.shift()
    const { org, mintedAt, aliveMs, deadMs } = ending
    const seenAt = mintedAt + aliveMs
    const diedAt = mintedAt + deadMs + OVERTAKING_MS
    if (mintedAt >= this.#togetherBefore) {
      this.#together.clear()
      this.#togetherBefore = seenAt
      this.bornBefore = seenAt
      this.diedAt = diedAt
    } else if (seenAt > this.diedAt || this.#togetherBefore > diedAt) this.bornBefore = Number.NEGATIVE_INFINITY
    this.#together.add(org)
    this.#judge()
  }

  noteSurvivor(): void {
    this.bornBefore = Number.NEGATIVE_INFINITY
    this.#judge()
  }

  disprove(): void {
    this.#longerMs = this.disprovedAfterMs
    this.disprovedAfterMs = Number.POSITIVE_INFINITY
  }

  #judge(): void {
    const ages = this.#endings.map(({ deadMs }) => deadMs).toSorted((a, b) => a - b)
    this.endMs = this.mayHaveDiedTogether ? undefined : ages.find((ageMs) => this.#isRegular(ageMs))
    const { endMs = 0 } = this
    this.disprovedAfterMs = endMs > this.#longerMs ? endMs + this.#slackMs : Number.POSITIVE_INFINITY
  }

  /** True if enough tokens died at this age, and most could have died at it. */
  #isRegular(ageMs: number): boolean {
    const agreeing = this.#endings.filter((ending) => agrees(ending, ageMs))
    const deaths = agreeing.filter(isTelling)
    if (deaths.length < MIN_DEATHS || agreeing.length < this.#endings.length * AGREEING_SHARE) return false
    return new Set(deaths.map(({ org }) => org)).size >= MIN_ORGS
  }
}

/** True if a token that ended like this could have died at `ageMs`. */
export function agrees({ aliveMs, deadMs }: Ending, ageMs: number): boolean {
  return aliveMs <= ageMs * (1 + TOLERANCE) && deadMs >= ageMs * (1 - TOLERANCE)
}

/** True if the age of the death is known well enough. */
export function isTelling({ aliveMs, deadMs }: Ending): boolean {
  return deadMs - aliveMs <= deadMs * MAX_UNSEEN_SHARE
}
