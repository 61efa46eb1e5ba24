/** What is known against the present estimate: which orgs lost a token too early, and how many did not. */

/** A token found dead: alive at the one age, dead at the other. */
export interface Death {
  readonly org: string
  readonly aliveMs: number
  readonly deadMs: number
  /** When the token was minted. */
  readonly mintedAt: number
}

/**
 * How many orgs must have lost a token before it is taken for the lifetime and not for a revocation: two, and one in five
 * of the tokens heard of; but this many are enough, or thousands of orgs would have to find out for themselves.
 */
const MIN_WITNESSES = 2
const MIN_SHARE = 1 / 5
const MAX_WITNESSES = 16
/** A token that got so near the estimate was hardly revoked, and believing it costs little: two orgs will do. */
const LATE_SHARE = 0.8

/** Forgotten in two halves, so that it reaches back over one to two lifetimes. */
export class LifetimeEvidence {
  #deaths = new Map<string, Death>()
  #olderDeaths = new Map<string, Death>()
  #survivals = 0
  #olderSurvivals = 0
  #since = Number.NEGATIVE_INFINITY

  addDeath(death: Death): void {
    this.#deaths.set(death.org, death)
  }

  addSurvival(): void {
    this.#survivals += 1
  }

  /** The deaths that tell of a shorter lifetime; empty where they may be the fate of a few orgs. `orgs` hold a token now. */
  weigh(estimateMs: number, orgs: number): readonly Death[] {
    const deaths = [...new Map([...this.#olderDeaths, ...this.#deaths]).values()]
    const heard = deaths.length + this.#survivals + this.#olderSurvivals
    const few = Math.min(MIN_WITNESSES, orgs)
    if (deaths.length >= Math.max(few, Math.min(heard * MIN_SHARE, MAX_WITNESSES))) return deaths
    const late = deaths.filter((death) => death.deadMs >= estimateMs * LATE_SHARE)
    return late.length >= few ? late : []
  }

  /** Drops what is older than a lifetime. */
  age(at: number, lifetimeMs: number): void {
    if (at - this.#since < lifetimeMs) return
    const isOutdated = at - this.#since >= 2 * lifetimeMs
    this.#olderDeaths = isOutdated ? new Map() : this.#deaths
    this.#olderSurvivals = isOutdated ? 0 : this.#survivals
    this.#deaths = new Map()
    this.#survivals = 0
    this.#since = at
  }

  clear(): void {
    this.#deaths = new Map()
    this.#olderDeaths = new Map()
    this.#survivals = 0
    this.#olderSurvivals = 0
  }
}
