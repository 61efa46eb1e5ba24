/**
 * How long a token lives, learned from what the origin accepts and rejects: the service states no lifetime. Pure: every
 * instant is a parameter, nothing here reads a clock.
 *
 * The estimate falls when tokens are found dead, and rises behind a scout: one token that is tried past the estimate
 * while its successor is already there.
 */

import { type Death, LifetimeEvidence } from './lifetime-evidence.ts'
import { ScoutSchedule } from './scout-schedule.ts'

export type { Death }

export interface LifetimeOptions {
  /** Assumed until something better is known. */
  readonly lifetimeMs: number
  readonly minLifetimeMs: number
  readonly maxLifetimeMs: number
  /** False: the estimate stays what it was given. */
  readonly learns: boolean
  /** Told of changes worth telling: behind a scout the estimate rises in many small steps. */
  readonly onChange?: ((estimateMs: number) => void) | undefined
}

const TOLD_SHARE = 1 / 10
/** Two ages far apart say little of what lies between: below their middle, and some way below the end. */
const SAFE_SHARE_OF_DEATH = 0.95

export class LifetimeEstimator {
  readonly #options: LifetimeOptions
  readonly #evidence = new LifetimeEvidence()
  readonly #schedule = new ScoutSchedule()
  #estimateMs: number
  #toldMs: number
  /** Tokens minted before this say nothing of what holds now. */
  #validSince = Number.NEGATIVE_INFINITY

  constructor(options: LifetimeOptions) {
    this.#options = options
    this.#estimateMs = options.lifetimeMs
    this.#toldMs = options.lifetimeMs
  }

  /** For an org whose tokens die before those of the others: it starts from what is assumed of all. */
  forOneOrg(): LifetimeEstimator {
    return new LifetimeEstimator({ ...this.#options, lifetimeMs: this.#estimateMs, onChange: undefined })
  }

  get estimateMs(): number {
    return this.#estimateMs
  }

  /**
   * A token was rejected at `at`, and its replacement then accepted. `orgs` hold a token at present: where there is only
   * one, it speaks for all. False where this may be the fate of the one org alone.
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

  /** A token has come to the end of the estimate and was replaced, accepted until late in its life. */
  survived(at: number): void {
    this.#evidence.age(at, this.#estimateMs)
    this.#evidence.addSurvival()
  }

  /** A token was accepted at that age. */
  accepted(ageMs: number, mintedAt: number): void {
    if (!this.#options.learns || mintedAt < this.#validSince) return
    if (ageMs > this.#estimateMs) this.#set(ageMs)
  }

  /** Asked once for each token that comes to its end: true where it is to be the next scout. */
  electsScout(token: object, at: number): boolean {
    if (!this.#options.learns || this.#estimateMs >= this.#options.maxLifetimeMs) return false
    return this.#schedule.elects(token, at, this.#estimateMs)
  }

  isScout(token: object): boolean {
    return this.#schedule.isScout(token)
  }

  scoutAccepted(ageMs: number, mintedAt: number, at: number): void {
    this.#schedule.heard(at)
    this.accepted(ageMs, mintedAt)
    if (this.#estimateMs >= this.#options.maxLifetimeMs) this.#schedule.dismiss()
  }

  /** It has found the end; the estimate lies below already. */
  scoutDied(): void {
    this.#schedule.died(this.#estimateMs)
  }

  /** Its end says nothing: the origin rejects its successor too. */
  dismissScout(): void {
    this.#schedule.dismiss()
  }

  #fall(deaths: readonly Death[]): void {
    // The middle one: a revocation or two among them carry no weight.
    const deadMs = median(deaths.map((death) => death.deadMs))
    const aliveMs = Math.max(0, ...deaths.map((death) => death.aliveMs).filter((ageMs) => ageMs < deadMs))
    const betweenMs = Math.min((aliveMs + deadMs) / 2, deadMs * SAFE_SHARE_OF_DEATH)
    this.#validSince = Math.min(...deaths.map((death) => death.mintedAt))
    this.#evidence.clear()
    const beforeMs = this.#estimateMs
    this.#set(Math.max(aliveMs, betweenMs))
    this.#schedule.fell(beforeMs, this.#estimateMs)
  }

  #set(estimateMs: number): void {
    const { minLifetimeMs, maxLifetimeMs, onChange } = this.#options
    const bounded = Math.min(Math.max(estimateMs, minLifetimeMs), maxLifetimeMs)
    this.#estimateMs = bounded
    if (Math.abs(bounded - this.#toldMs) < this.#toldMs * TOLD_SHARE) return
    this.#toldMs = bounded
    onChange?.(bounded)
  }
}

/** The upper one of two. */
function median(values: number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.POSITIVE_INFINITY
}
