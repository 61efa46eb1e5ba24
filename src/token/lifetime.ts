/**
 * Learns how long tokens live from what the origin accepts and rejects: the service states no lifetime. Pure: every instant
 * is a parameter, and nothing here reads a clock.
 *
 * The estimate falls when tokens die early. It rises through *trials*: now and then one token stays in use past the estimate,
 * although its successor is there or under way. While the origin accepts it, the estimate follows its age. When the origin
 * rejects it, one request is repeated with the successor. There is one trial at a time.
 */

/** A token that the origin accepted at one age and rejected at another. */
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
  /** If false, the estimate stays at its first value. */
  readonly learns: boolean
  /** Called when the estimate has changed by a tenth: in a trial it rises in many small steps. */
  readonly onChange?: ((estimateMs: number) => void) | undefined
}

const TOLD_SHARE = 1 / 10
/** The estimate falls to at most this share of the age of death, unless tokens were accepted at a greater age. */
const SAFE_SHARE_OF_DEATH = 0.95

export class LifetimeEstimator {
  readonly #options: LifetimeOptions
  readonly #evidence = new Evidence()
  readonly #trials = new TrialSchedule()
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

  /** Takes over what another proxy has learned. `onChange` is not called: it reports what this proxy has learned. */
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

  /** Call it once for each token that reaches its end. Returns true if this token begins the next trial. */
  elects(token: object, at: number): boolean {
    if (!this.#options.learns || this.#estimateMs >= this.#options.maxLifetimeMs) return false
    return this.#trials.elects(token, at, this.#estimateMs)
  }

  isOnTrial(token: object): boolean {
    return this.#trials.isOnTrial(token)
  }

  trialAccepted(ageMs: number, mintedAt: number, at: number): void {
    this.#trials.heard(at)
    this.accepted(ageMs, mintedAt)
    if (this.#estimateMs >= this.#options.maxLifetimeMs) this.#trials.drop()
  }

  /** The origin has rejected the token on trial. The estimate is already below its age. */
  trialDied(): void {
    this.#trials.died(this.#estimateMs)
  }

  /** Ends the trial without a result: the origin rejects the successor too. */
  dropTrial(): void {
    this.#trials.drop()
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
    this.#trials.fell(beforeMs, this.#estimateMs)
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
 * Tokens that die early show a shorter lifetime if they belong to at least two orgs, and are one in five of the tokens that
 * ended lately. Fewer may have been revoked. Sixteen orgs are always enough, or thousands of orgs would each have to find out.
 */
const MIN_WITNESSES = 2
const MIN_SHARE = 1 / 5
const MAX_WITNESSES = 16
/** A token that lived for this share of the estimate was probably not revoked, and a small fall costs little: two orgs are enough. */
const LATE_SHARE = 0.8
/** Deaths are rare if tokens are used only now and then, so they are remembered for this many lifetimes. */
const MEMORY_LIFETIMES = 8

interface Witness {
  readonly death: Death
  readonly at: number
  /** Tokens that the org has lost so far. */
  readonly deaths: number
}

/** The evidence since the estimate last fell: the orgs that lost a token early, and the number of tokens that did not die. */
class Evidence {
  /** By org: an org that loses many tokens is still one witness. */
  readonly #witnesses = new Map<string, Witness>()
  /** Counted in two periods of one lifetime each; the older one is dropped when a new one begins. */
  #survivals = 0
  #olderSurvivals = 0
  #periodSince = Number.NEGATIVE_INFINITY

  addDeath(death: Death, at: number): void {
    this.#witnesses.set(death.org, { death, at, deaths: (this.#witnesses.get(death.org)?.deaths ?? 0) + 1 })
  }

  addSurvival(): void {
    this.#survivals += 1
  }

  /** The deaths that show a shorter lifetime. Empty if only a few orgs may be concerned. `orgs` is how many hold a token now. */
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
    if (at - this.#periodSince < lifetimeMs) return
    const isOutdated = at - this.#periodSince >= 2 * lifetimeMs
    this.#olderSurvivals = isOutdated ? 0 : this.#survivals
    this.#survivals = 0
    this.#periodSince = at
  }

  clear(): void {
    this.#witnesses.clear()
    this.#survivals = 0
    this.#olderSurvivals = 0
  }
}

/** A single token that dies below `minLifetimeMs` was revoked. Orgs that come later should not pay for it. */
function isOneSuddenDeath(witnesses: readonly Witness[], minLifetimeMs: number): boolean {
  const [witness] = witnesses
  return witness !== undefined && witness.deaths === 1 && witness.death.deadMs < minLifetimeMs
}

/** So many tokens end before the next trial begins. The gap grows while trials find nothing new. */
const FIRST_GAP = 2
const GAP_GROWTH = 2.5
const MAX_GAP = 48
/** With many orgs, tokens end all the time: at most this many trials begin in one lifetime. */
const MAX_TRIALS = 8
/** The estimate has to rise or fall by this factor to count as news: then the next trial comes soon again. */
const NEWS_FACTOR = 1.25
/** A trial without an answer for this share of the estimate is given up: its org may have gone quiet. */
const PATIENCE_SHARE = 1 / 2

/** Decides which token is tried past the estimate, and when. */
class TrialSchedule {
  /** The token on trial. */
  #token: object | undefined
  #heardAt = 0
  #estimateAtStartMs = 0
  #gap = FIRST_GAP
  /** Not the first token: a request past the lifetime that the settings state must wait for a mint. */
  #endsUntilNext = 1 + FIRST_GAP
  #nextAt = Number.NEGATIVE_INFINITY

  elects(token: object, at: number, estimateMs: number): boolean {
    if (this.#token !== undefined) {
      if (at - this.#heardAt <= estimateMs * PATIENCE_SHARE) return false
      this.#token = undefined
    }
    this.#endsUntilNext -= 1
    if (this.#endsUntilNext > 0 || at < this.#nextAt) return false
    this.#token = token
    this.#heardAt = at
    this.#estimateAtStartMs = estimateMs
    this.#nextAt = at + estimateMs / MAX_TRIALS
    return true
  }

  isOnTrial(token: object): boolean {
    return token === this.#token
  }

  heard(at: number): void {
    this.#heardAt = at
  }

  /** The origin has rejected the token on trial. */
  died(estimateMs: number): void {
    const hasNews = estimateMs > this.#estimateAtStartMs * NEWS_FACTOR
    this.#gap = hasNews ? FIRST_GAP : Math.min(Math.round(this.#gap * GAP_GROWTH), MAX_GAP)
    this.drop()
  }

  /** Ends the trial. */
  drop(): void {
    this.#token = undefined
    this.#endsUntilNext = this.#gap
  }

  /** The estimate has fallen. */
  fell(fromMs: number, toMs: number): void {
    if (fromMs > toMs * NEWS_FACTOR) this.#gap = FIRST_GAP
    this.drop()
  }
}

/** The greater one of two in the middle. */
function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.POSITIVE_INFINITY
}
