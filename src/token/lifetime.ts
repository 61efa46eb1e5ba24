/**
 * Learns how long tokens live from what the origin accepts and rejects: the service states no lifetime. Pure: every instant
 * is a parameter, and nothing here reads a clock.
 *
 * The estimate falls when tokens are found dead. It rises behind a *scout*: one token that is tried past the estimate while
 * its successor is already there. One scout is out at a time; each one that dies costs one repeated request.
 */

/** A token found dead: alive at one age, dead at the other. */
export interface Death {
  readonly org: string
  readonly aliveMs: number
  readonly deadMs: number
  /** When the token was minted. */
  readonly mintedAt: number
}

export interface LifetimeOptions {
  /** Assumed until something better is known. */
  readonly lifetimeMs: number
  readonly minLifetimeMs: number
  readonly maxLifetimeMs: number
  /** False: the estimate stays what it was given. */
  readonly learns: boolean
  /** Called when the estimate has changed by a tenth: behind a scout it rises in many small steps. */
  readonly onChange?: ((estimateMs: number) => void) | undefined
}

const TOLD_SHARE = 1 / 10
/** If the ages alive and dead lie far apart, the lifetime is taken to be below their middle, and below this share of the end. */
const SAFE_SHARE_OF_DEATH = 0.95

export class LifetimeEstimator {
  readonly #options: LifetimeOptions
  readonly #evidence = new Evidence()
  readonly #scouts = new ScoutSchedule()
  #estimateMs: number
  #toldMs: number
  /** Tokens minted before this say nothing about the present lifetime. */
  #validSince = Number.NEGATIVE_INFINITY

  constructor(options: LifetimeOptions) {
    this.#options = options
    this.#estimateMs = options.lifetimeMs
    this.#toldMs = options.lifetimeMs
  }

  /** For an org whose tokens die before those of the others. It starts from the shared estimate. */
  forOneOrg(): LifetimeEstimator {
    return new LifetimeEstimator({ ...this.#options, lifetimeMs: this.#estimateMs, onChange: undefined })
  }

  get estimateMs(): number {
    return this.#estimateMs
  }

  /** Takes over what another proxy has learned. `onChange` is not called: it tells what was learned here. */
  adopt(estimateMs: number): void {
    if (!this.#options.learns || !(estimateMs > 0)) return
    this.#estimateMs = this.#bound(estimateMs)
    this.#toldMs = this.#estimateMs
  }

  /**
   * A token was rejected at `at`, and its replacement was then accepted. `orgs` is how many orgs hold a token now: if there
   * is only one, it speaks for all. Returns false if this may concern that org alone.
   */
  died(death: Death, orgs: number, at: number): boolean {
    if (!this.#options.learns) return true
    this.#evidence.age(at, this.#estimateMs)
    this.#evidence.addDeath(death, at)
    const deaths = this.#evidence.weigh(this.#estimateMs, orgs, this.#options.minLifetimeMs)
    if (deaths.length === 0) return false
    this.#fall(deaths)
    return true
  }

  /** A token reached the end of the estimate and was replaced. It had been accepted until late in its life. */
  survived(at: number): void {
    this.#evidence.age(at, this.#estimateMs)
    this.#evidence.addSurvival()
  }

  /** A token was accepted at that age. */
  accepted(ageMs: number, mintedAt: number): void {
    if (!this.#options.learns || mintedAt < this.#validSince) return
    if (ageMs > this.#estimateMs) this.#set(ageMs)
  }

  /** To be asked once for each token that reaches its end. Returns true if the token is the next scout. */
  electsScout(token: object, at: number): boolean {
    if (!this.#options.learns || this.#estimateMs >= this.#options.maxLifetimeMs) return false
    return this.#scouts.elects(token, at, this.#estimateMs)
  }

  isScout(token: object): boolean {
    return this.#scouts.isScout(token)
  }

  scoutAccepted(ageMs: number, mintedAt: number, at: number): void {
    this.#scouts.heard(at)
    this.accepted(ageMs, mintedAt)
    if (this.#estimateMs >= this.#options.maxLifetimeMs) this.#scouts.dismiss()
  }

  /** The scout has found the end. The estimate lies below it already. */
  scoutDied(): void {
    this.#scouts.died(this.#estimateMs)
  }

  /** The scout's end says nothing: the origin rejects its successor too. */
  dismissScout(): void {
    this.#scouts.dismiss()
  }

  #fall(deaths: readonly Death[]): void {
    // The median: one or two revocations among them carry no weight.
    const deadMs = median(deaths.map((death) => death.deadMs))
    const aliveMs = Math.max(0, ...deaths.map((death) => death.aliveMs).filter((ageMs) => ageMs < deadMs))
    const betweenMs = Math.min((aliveMs + deadMs) / 2, deadMs * SAFE_SHARE_OF_DEATH)
    this.#validSince = Math.min(...deaths.map((death) => death.mintedAt))
    this.#evidence.clear()
    const beforeMs = this.#estimateMs
    this.#set(Math.max(aliveMs, betweenMs))
    this.#scouts.fell(beforeMs, this.#estimateMs)
  }

  #set(estimateMs: number): void {
    this.#estimateMs = this.#bound(estimateMs)
    if (Math.abs(this.#estimateMs - this.#toldMs) < this.#toldMs * TOLD_SHARE) return
    this.#toldMs = this.#estimateMs
    this.#options.onChange?.(this.#estimateMs)
  }

  #bound(estimateMs: number): number {
    return Math.min(Math.max(estimateMs, this.#options.minLifetimeMs), this.#options.maxLifetimeMs)
  }
}

/**
 * How many orgs must have lost a token too early before that counts as the lifetime and not as a revocation: two, and one in
 * five of the tokens heard of. Sixteen are always enough, or thousands of orgs would each have to find out.
 */
const MIN_WITNESSES = 2
const MIN_SHARE = 1 / 5
const MAX_WITNESSES = 16
/** A token that lived for this share of the estimate was hardly revoked, and believing it costs little: two orgs are enough. */
const LATE_SHARE = 0.8
/** Deaths are rare if tokens are used only now and then, so they are remembered for this many lifetimes. */
const MEMORY_LIFETIMES = 8

interface Witness {
  readonly death: Death
  readonly at: number
  /** Tokens that the org has lost so far. */
  readonly deaths: number
}

/** What speaks against the present estimate: the orgs that lost a token too early, and how many tokens did not die. */
class Evidence {
  /** By org: an org that loses its tokens again and again is one witness. */
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

  /** The deaths that show a shorter lifetime. Empty if they may concern a few orgs only. `orgs` hold a token now. */
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
 * If there is only one org, it speaks for all. But a single token that dies younger than any lifetime may be was revoked, and
 * orgs that come later should not pay for it.
 */
function isOneSuddenDeath(witnesses: readonly Witness[], minLifetimeMs: number): boolean {
  const [witness] = witnesses
  return witness !== undefined && witness.deaths === 1 && witness.death.deadMs < minLifetimeMs
}

/** How many tokens end before the next scout goes out. The gap grows while scouts find nothing new, and starts again after news. */
const FIRST_GAP = 2
const GAP_GROWTH = 2.5
const MAX_GAP = 48
/** With many orgs tokens end all the time, so at most this many scouts go out in one lifetime. */
const MAX_SCOUTS = 8
/** A smaller rise or fall of the estimate is no news. */
const NEWS_SHARE = 1.25
/** A scout that was not heard of for this share of the estimate is given up: its org may have gone quiet. */
const PATIENCE_SHARE = 1 / 2

/** Decides which token is tried past the estimate, and when. */
class ScoutSchedule {
  #scout: object | undefined
  #heardAt = 0
  #estimateAtStartMs = 0
  #gap = FIRST_GAP
  #endsUntilNext = 1
  #nextAt = Number.NEGATIVE_INFINITY

  /** To be asked once for each token that reaches its end. Returns true if it is the next scout. */
  elects(token: object, at: number, estimateMs: number): boolean {
    if (this.#scout !== undefined) {
      if (at - this.#heardAt <= estimateMs * PATIENCE_SHARE) return false
      this.#scout = undefined
    }
    this.#endsUntilNext -= 1
    if (this.#endsUntilNext > 0 || at < this.#nextAt) return false
    this.#scout = token
    this.#heardAt = at
    this.#estimateAtStartMs = estimateMs
    this.#nextAt = at + estimateMs / MAX_SCOUTS
    return true
  }

  isScout(token: object): boolean {
    return token === this.#scout
  }

  heard(at: number): void {
    this.#heardAt = at
  }

  /** The scout has found the end. */
  died(estimateMs: number): void {
    const hasNews = estimateMs > this.#estimateAtStartMs * NEWS_SHARE
    this.#gap = hasNews ? FIRST_GAP : Math.min(Math.round(this.#gap * GAP_GROWTH), MAX_GAP)
    this.dismiss()
  }

  /** The scout is no longer needed, or its end says nothing. */
  dismiss(): void {
    this.#scout = undefined
    this.#endsUntilNext = this.#gap
  }

  /** The estimate has fallen. If that is news, ages above it are worth another look soon. */
  fell(fromMs: number, toMs: number): void {
    if (fromMs > toMs * NEWS_SHARE) this.#gap = FIRST_GAP
    this.dismiss()
  }
}

/** The upper one of two. */
function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.POSITIVE_INFINITY
}
