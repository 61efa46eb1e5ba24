/**
 * The cache and the estimator with a scripted service and a virtual clock: hours pass in a second, and the same seed gives
 * the same run. The cache is real; only time and the network are simulated.
 */

import type { OrgId } from '../../../src/http/org-id.ts'
import { LifetimeEstimator } from '../../../src/token/lifetime.ts'
import { TokenCache } from '../../../src/token/token-cache.ts'
import { jwtRestMs } from '../../../src/token/token-reply.ts'
import { AccessToken } from '../../../src/token/token-source.ts'
import type { Random } from '../../support/seed.ts'
import { EventQueue } from './event-queue.ts'

export type Traffic = 'steady' | 'bursty'

export interface SimulationOptions {
  readonly orgs: number
  readonly traffic: Traffic
  /** Mean time between two requests of one org. */
  readonly gapMs: number
  /** Lifetime of a token issued at that instant, in milliseconds. */
  readonly lifetimeMs: (issuedAt: number) => number
  /** Revokes tokens early: the age at which this one ends, or undefined. */
  readonly revokedAtMs?: (org: OrgId) => number | undefined
  /** Makes the tokens JWTs: the claim `exp` of one that ends at that instant. */
  readonly expClaim?: (deadAt: number) => unknown
  readonly random: Random
}

/** Counted since the last `reset`. */
export interface Counts {
  mints: number
  mintsOf: Map<OrgId, number>
  requests: number
  replays: number
  /** Requests that had to wait for a mint. */
  waits: number
  /** Rejections that reached a client. */
  rejections: number
}

const ONE_WAY_MS = 5
const MINT_MS = 20
const BURST_REQUESTS = 8
const BURST_SPREAD_MS = 400
export const GUESS_MS = 5 * 60_000

export class Simulation {
  readonly estimator: LifetimeEstimator
  readonly #options: SimulationOptions
  readonly #queue = new EventQueue()
  readonly #cache: TokenCache
  readonly #deadAt = new WeakMap<AccessToken, number>()
  #now = 0
  #isSettled = true
  counts: Counts = noCounts()

  constructor(options: SimulationOptions) {
    this.#options = options
    this.estimator = new LifetimeEstimator({
      lifetimeMs: GUESS_MS,
      minLifetimeMs: 10_000,
      maxLifetimeMs: 3_600_000,
      learns: true,
    })
    this.#cache = new TokenCache(
      {
        maxOrgs: 10_000,
        refusalTtlMs: 5_000,
        rejectedCooldownMs: 10_000,
        estimator: this.estimator,
        now: () => this.#now,
        random: () => options.random.next(),
      },
      { mint: (org) => this.#mint(org) },
    )
    for (let index = 0; index < options.orgs; index += 1) {
      this.#after(options.random.next() * options.gapMs, () => this.#next(`org-${index}` as OrgId))
    }
  }

  get now(): number {
    return this.#now
  }

  /** The median of the assumed lifetimes of the cached tokens. */
  get medianLifetimeMs(): number {
    const lifetimes = this.#cache.status().map((org) => org.lifetimeMs ?? 0)
    return lifetimes.toSorted((a, b) => a - b)[lifetimes.length >> 1] ?? 0
  }

  async runUntil(at: number): Promise<void> {
    while (this.#queue.nextAt <= at) {
      this.#now = this.#queue.nextAt
      this.#queue.take()?.()
      if (!this.#isSettled) await this.#settle()
    }
    this.#now = at
  }

  reset(): void {
    this.counts = noCounts()
  }

  /** The next request of the org, or its next burst. */
  #next(org: OrgId): void {
    const { traffic, gapMs, random } = this.#options
    // Gaps from half to one and a half of the mean, so that no two orgs stay in step.
    const spread = 0.5 + random.next()
    if (traffic === 'steady') {
      this.#request(org)
      this.#after(gapMs * spread, () => this.#next(org))
      return
    }
    for (let i = 0; i < BURST_REQUESTS; i += 1) this.#after(random.next() * BURST_SPREAD_MS, () => this.#request(org))
    this.#after(gapMs * BURST_REQUESTS * spread, () => this.#next(org))
  }

  #request(org: OrgId): void {
    this.counts.requests += 1
    const lease = this.#cache.get(org)
    if (lease !== undefined) {
      this.#send(org, lease.token)
      return
    }
    this.counts.waits += 1
    this.#isSettled = false
    this.#cache.obtain(org).then((obtained) => this.#send(org, obtained.token))
  }

  #send(org: OrgId, token: AccessToken): void {
    const sentAt = this.#now
    if (this.#isAccepted(token, sentAt + ONE_WAY_MS)) this.#cache.accepted(org, token, sentAt)
    else this.#after(2 * ONE_WAY_MS, () => this.#rejected(org, token))
  }

  #rejected(org: OrgId, token: AccessToken): void {
    const replacement = this.#cache.rejected(org, token)
    if (replacement === undefined) {
      this.counts.rejections += 1
      return
    }
    this.#isSettled = false
    replacement.then((successor) => this.#repeat(org, successor))
  }

  #repeat(org: OrgId, token: AccessToken): void {
    this.counts.replays += 1
    const isAccepted = this.#isAccepted(token, this.#now + ONE_WAY_MS)
    if (!isAccepted) this.counts.rejections += 1
    this.#after(2 * ONE_WAY_MS, () => this.#cache.repeatSettled(org, token, isAccepted))
  }

  #isAccepted(token: AccessToken, at: number): boolean {
    return at < (this.#deadAt.get(token) ?? 0)
  }

  #mint(org: OrgId): Promise<AccessToken> {
    const mintedAt = this.#now
    this.counts.mints += 1
    this.counts.mintsOf.set(org, (this.counts.mintsOf.get(org) ?? 0) + 1)
    const issuedAt = mintedAt + MINT_MS / 2
    const revokedAtMs = this.#options.revokedAtMs?.(org) ?? Number.POSITIVE_INFINITY
    const deadAt = issuedAt + Math.min(this.#options.lifetimeMs(issuedAt), revokedAtMs)
    const text = this.#tokenText(org, deadAt)
    const restMs = jwtRestMs(text, issuedAt)
    const token = new AccessToken(text, mintedAt, restMs === undefined ? undefined : mintedAt + restMs)
    this.#deadAt.set(token, deadAt)
    return new Promise((resolve) => {
      this.#after(MINT_MS, () => {
        this.#isSettled = false
        resolve(token)
      })
    })
  }

  #tokenText(org: OrgId, deadAt: number): string {
    const { expClaim } = this.#options
    const id = `${this.counts.mints}-of-${org}-at-${this.#now}`
    if (expClaim === undefined) return id
    const payload = Buffer.from(JSON.stringify({ id, exp: expClaim(deadAt) })).toString('base64url')
    return `e30.${payload}.c2lnbmF0dXJl`
  }

  #after(delayMs: number, run: () => void): void {
    this.#queue.add(this.#now + delayMs, run)
  }

  /** Runs all reactions to settled promises now. */
  async #settle(): Promise<void> {
    this.#isSettled = true
    await new Promise((resolve) => {
      setImmediate(resolve)
    })
  }
}

function noCounts(): Counts {
  return { mints: 0, mintsOf: new Map(), requests: 0, replays: 0, waits: 0, rejections: 0 }
}
