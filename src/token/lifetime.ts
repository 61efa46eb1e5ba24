/**
 * How long a token lives, learned from what the origin accepts and rejects: the service states no lifetime. Pure: every
 * instant is a parameter, nothing here reads a clock.
 *
 * It falls when tokens are found dead, and rises behind a scout: one token that is tried past the estimate while its
 * successor is already there.
 */

export interface LifetimeOptions {
  /** Assumed until something better is known. */
  readonly lifetimeMs: number
  readonly minLifetimeMs: number
  readonly maxLifetimeMs: number
  /** False: the estimate stays what it was given. */
  readonly learns: boolean
  readonly onChange?: ((estimateMs: number) => void) | undefined
}

/** A token found dead: alive at the one age, dead at the other. */
export interface Death {
  readonly aliveMs: number
  readonly deadMs: number
  /** When the token was minted. */
  readonly mintedAt: number
}

export interface Evidence {
  /** Orgs that hold a token at present: where there is only one, it speaks for all. */
  readonly orgs: number
  readonly at: number
}

/** Two orgs must tell the same, and one in five of those that were heard: a revocation is not a lifetime. */
const MIN_WITNESSES = 2
const MIN_SHARE = 1 / 5
/** Deaths kept for the estimate that follows from them. */
const MAX_SAMPLES = 64
/** A loose pair of ages says little: below its middle, and some way below its end. */
const SAFE_SHARE_OF_DEATH = 0.95
/** Tokens that end between two scouts: few after news, then ever more while scouts bring none. */
const FIRST_GAP = 2
const GAP_GROWTH = 4
const MAX_GAP = 32
/** Rises smaller than this are no news. */
const NEWS_SHARE = 1.05
/** A scout not heard of for this share of the estimate is given up. */
const PATIENCE_SHARE = 1 / 2

export class LifetimeEstimator {
  readonly #options: LifetimeOptions
  #estimateMs: number
  /** Evidence gathered since about one estimate ago; forgotten in two halves. */
  #deaths: Death[] = []
  #olderDeaths: Death[] = []
  #survivals = 0
  #olderSurvivals = 0
  #evidenceSince = Number.NEGATIVE_INFINITY
  /** Tokens minted before this say nothing of what holds now. */
  #validSince = Number.NEGATIVE_INFINITY
  #scout: object | undefined
  #scoutHeardAt = 0
  #scoutFromMs = 0
  #gap = FIRST_GAP
  #endsUntilScout = 1

  constructor(options: LifetimeOptions) {
    this.#options = options
    this.#estimateMs = options.lifetimeMs
  }

  /** For an org whose tokens die before those of the others. */
  forOneOrg(): LifetimeEstimator {
    return new LifetimeEstimator({ ...this.#options, lifetimeMs: this.#estimateMs, onChange: undefined })
  }

  get estimateMs(): number {
    return this.#estimateMs
  }

  /**
   * A token was rejected and its replacement then accepted. Once for each org, until the org's own lifetime is known.
   * False where this may be the fate of one org alone.
   */
  died(death: Death, evidence: Evidence): boolean {
    if (!this.#options.learns) return true
    this.#age(evidence.at)
    if (this.#deaths.length < MAX_SAMPLES) this.#deaths.push(death)
    const deaths = [...this.#olderDeaths, ...this.#deaths]
    const needed = Math.min(MIN_WITNESSES, evidence.orgs)
    const heard = deaths.length + this.#survivals + this.#olderSurvivals
    if (deaths.length < needed || deaths.length < heard * MIN_SHARE) return false
    this.#fall(deaths)
    return true
  }

  /** A token was replaced ahead of time, not known to be dead. */
  survived(at: number): void {
    this.#age(at)
    this.#survivals += 1
  }

  /** A token was accepted at an age beyond the estimate. */
  accepted(ageMs: number, mintedAt: number): void {
    if (!this.#options.learns || mintedAt < this.#validSince) return
    if (ageMs > this.#estimateMs) this.#set(ageMs)
  }

  /** Asked for each token that has reached its end: true where it is to be the scout. */
  electsScout(token: object, at: number): boolean {
    if (!this.#options.learns || this.#estimateMs >= this.#options.maxLifetimeMs) return false
    if (this.#scout !== undefined) {
      if (at - this.#scoutHeardAt <= this.#estimateMs * PATIENCE_SHARE) return false
      this.#scout = undefined
    }
    this.#endsUntilScout -= 1
    if (this.#endsUntilScout > 0) return false
    this.#scout = token
    this.#scoutHeardAt = at
    this.#scoutFromMs = this.#estimateMs
    return true
  }

  isScout(token: object): boolean {
    return token === this.#scout
  }

  scoutAccepted(ageMs: number, mintedAt: number, at: number): void {
    this.#scoutHeardAt = at
    this.accepted(ageMs, mintedAt)
    if (this.#estimateMs >= this.#options.maxLifetimeMs) this.dismissScout()
  }

  /** It has found the end. The estimate already lies below. */
  scoutDied(): void {
    const hasNews = this.#estimateMs > this.#scoutFromMs * NEWS_SHARE
    this.#scout = undefined
    this.#gap = hasNews ? FIRST_GAP : Math.min(this.#gap * GAP_GROWTH, MAX_GAP)
    this.#endsUntilScout = this.#gap
  }

  /** Without a result. */
  dismissScout(): void {
    this.#scout = undefined
    this.#endsUntilScout = this.#gap
  }

  #fall(deaths: Death[]): void {
    const byAge = deaths.toSorted((a, b) => a.deadMs - b.deadMs)
    // The middle one: a revocation or two among them carry no weight.
    const middle = byAge[byAge.length >> 1]
    if (middle === undefined) return
    const aliveMs = Math.max(...deaths.map((death) => (death.aliveMs < middle.deadMs ? death.aliveMs : 0)))
    const betweenMs = Math.min((aliveMs + middle.deadMs) / 2, middle.deadMs * SAFE_SHARE_OF_DEATH)
    this.#validSince = Math.min(...deaths.map((death) => death.mintedAt))
    this.#deaths = []
    this.#olderDeaths = []
    this.#survivals = 0
    this.#olderSurvivals = 0
    this.#gap = FIRST_GAP
    this.dismissScout()
    this.#set(Math.max(aliveMs, betweenMs))
  }

  #set(estimateMs: number): void {
    const { minLifetimeMs, maxLifetimeMs, onChange } = this.#options
    const bounded = Math.min(Math.max(estimateMs, minLifetimeMs), maxLifetimeMs)
    if (bounded === this.#estimateMs) return
    this.#estimateMs = bounded
    onChange?.(bounded)
  }

  #age(at: number): void {
    if (at - this.#evidenceSince < this.#estimateMs) return
    const isOutdated = at - this.#evidenceSince >= 2 * this.#estimateMs
    this.#olderDeaths = isOutdated ? [] : this.#deaths
    this.#olderSurvivals = isOutdated ? 0 : this.#survivals
    this.#deaths = []
    this.#survivals = 0
    this.#evidenceSince = at
  }
}
