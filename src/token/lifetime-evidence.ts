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

/** Deaths are rare where tokens are used now and then: they are remembered for so many lifetimes. */
const MEMORY_LIFETIMES = 8

interface Witness {
  readonly death: Death
  readonly at: number
  /** Tokens that the org has lost so far. */
  readonly deaths: number
}

export class LifetimeEvidence {
  /** By org: one that loses its tokens again and again is one witness. */
  readonly #witnesses = new Map<string, Witness>()
  /** Forgotten in two halves, so that they reach back over one to two lifetimes. */
  #survivals = 0
  #olderSurvivals = 0
  #halfSince = Number.NEGATIVE_INFINITY

  addDeath(death: Death, at: number): void {
    this.#witnesses.set(death.org, { death, at, deaths: (this.#witnesses.get(death.org)?.deaths ?? 0) + 1 })
  }

  addSurvival(): void {
    this.#survivals += 1
  }

  /** The deaths that tell of a shorter lifetime; empty where they may be the fate of a few orgs. `orgs` hold a token now. */
  weigh(estimateMs: number, orgs: number, minLifetimeMs: number): readonly Death[] {
    const witnesses = [...this.#witnesses.values()]
    const deaths = witnesses.map((witness) => witness.death)
    const heard = deaths.length + this.#survivals + this.#olderSurvivals
    const few = Math.min(MIN_WITNESSES, orgs)
    if (orgs === 1 && isOneSuddenDeath(witnesses, minLifetimeMs)) return []
    if (deaths.length >= Math.max(few, Math.min(heard * MIN_SHARE, MAX_WITNESSES))) return deaths
    const late = deaths.filter((death) => death.deadMs >= estimateMs * LATE_SHARE)
    return late.length >= few ? late : []
  }

  /** Drops what is too old to count. */
  age(at: number, lifetimeMs: number): void {
    for (const [org, witness] of this.#witnesses) {
      if (at - witness.at > MEMORY_LIFETIMES * lifetimeMs) this.#witnesses.delete(org)
    }
    if (at - this.#halfSince < lifetimeMs) return
    const isOutdated = at - this.#halfSince >= 2 * lifetimeMs
    this.#olderSurvivals = isOutdated ? 0 : this.#survivals
    this.#survivals = 0
    this.#halfSince = at
  }

  clear(): void {
    this.#witnesses.clear()
    this.#survivals = 0
    this.#olderSurvivals = 0
  }
}

/**
 * Where there is only one org it speaks for all; but one token that dies younger than any lifetime may be was revoked, and
 * orgs that come later should not pay for it.
 */
function isOneSuddenDeath(witnesses: readonly Witness[], minLifetimeMs: number): boolean {
  const [witness] = witnesses
  return witness !== undefined && witness.deaths === 1 && witness.death.deadMs < minLifetimeMs
}
