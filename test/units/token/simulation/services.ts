/** Token services of many kinds. Each states as little as the real one: what a token is worth shows only when it is used. */

import type { Random } from '../../../support/seed.ts'
import type { Load } from './simulation.ts'

export interface ServiceKind {
  /** How long a token issued now lives, in milliseconds. */
  readonly lifeMs: (org: number, now: number, random: Random) => number
  /** How long each back end takes to know a new token. A request goes to any of them. */
  readonly delaysMs?: (random: Random) => readonly number[]
  /** A new token ends the one before. */
  readonly endsFormer?: boolean
  /** Use extends a token by its life. */
  readonly slides?: boolean
  /** The endpoint gives out the same token until so long before its end. */
  readonly givesSameUntilMs?: number
  /** Somebody else mints for an org, on average so often for all orgs together. */
  readonly othersMintEveryMs?: number
  /** Share of the requests that are rejected whatever their token, because they are forbidden. */
  readonly forbiddenShare?: number
  /** Share of the requests that meet a back end which rejects every token. */
  readonly flakyShare?: number
  readonly endStatus?: number
  readonly forbiddenStatus?: number
  /** All requests are rejected between these instants, whatever their token. */
  readonly trouble?: readonly [number, number]
  /** All tokens that were issued before this instant end at it. */
  readonly endsAllAt?: number
  /** Mints fail between these instants. */
  readonly endpointDown?: readonly [number, number]
  readonly load?: Partial<Load>
  readonly mintMs?: number
  /** The token states its end: a JWT. */
  readonly statesEnd?: boolean
}

const S = 1_000
const MIN = 60 * S
const between = (low: number, high: number) => (random: Random) => low + random.next() * (high - low)
const always = (lifeMs: number) => () => lifeMs

export const SERVICES = {
  'one lifetime of 20 s': { lifeMs: always(20 * S) },
  'one lifetime of 2 min': { lifeMs: always(2 * MIN) },
  'one lifetime of a day': { lifeMs: always(24 * 60 * MIN) },
  'lifetimes of 15 s, 1 min and 1 h, by org': { lifeMs: (org) => [15 * S, MIN, 60 * MIN][org % 3] ?? 0 },
  'irregular lifetimes, 10 to 60 s': { lifeMs: (_org, _now, random) => between(10 * S, MIN)(random) },
  'all tokens end at each minute': { lifeMs: (_org, now) => MIN - (now % MIN) },
  'a lifetime that changes: 1 min, 20 s, 1 min': {
    lifeMs: (_org, now) => (now < 100 * S || now > 200 * S ? MIN : 20 * S),
  },
  'a token that is extended by use, 5 s': { lifeMs: always(5 * S), slides: true },
  'unknown to all back ends for 0.1 to 0.5 s': {
    lifeMs: always(30 * S),
    delaysMs: (random) => [between(100, 500)(random)],
  },
  'unknown to all back ends for up to 4.5 s': {
    lifeMs: always(MIN),
    delaysMs: (random) => [between(0, 4_500)(random)],
  },
  'unknown to each of three back ends for up to 2 s': {
    lifeMs: always(30 * S),
    delaysMs: (random) => [between(0, 2_000)(random), between(0, 2_000)(random), between(0, 2_000)(random)],
  },
  'unknown to one of five back ends for up to 1 s': {
    lifeMs: always(5 * MIN),
    delaysMs: (random) => [0, 0, 0, 0, between(100, 1_000)(random)],
  },
  'one live token per org': { lifeMs: always(30 * S), endsFormer: true },
  'one live token per org, unknown to all back ends for up to 1 s': {
    lifeMs: always(30 * S),
    endsFormer: true,
    delaysMs: (random) => [between(0, 1_000)(random)],
  },
  'one live token per org, and others mint': { lifeMs: always(5 * MIN), endsFormer: true, othersMintEveryMs: 10 * S },
  'the same token until its end': { lifeMs: always(MIN), givesSameUntilMs: 0 },
  'the same token until 10 s before its end': { lifeMs: always(MIN), givesSameUntilMs: 10 * S },
  'a tenth of the requests is forbidden': { lifeMs: always(5 * MIN), forbiddenShare: 0.1 },
  'a third is forbidden, irregular lifetimes': {
    lifeMs: (_org, _now, random) => between(20 * S, 2 * MIN)(random),
    forbiddenShare: 0.3,
  },
  'a third of the identifiers is forbidden': { lifeMs: always(5 * MIN), forbiddenShare: 0.33 },
  'a third of the identifiers is forbidden, irregular lifetimes': {
    lifeMs: (_org, _now, random) => between(20 * S, 2 * MIN)(random),
    forbiddenShare: 0.33,
  },
  'half are uploads, a third of the identifiers is forbidden': {
    lifeMs: always(5 * MIN),
    forbiddenShare: 0.33,
    load: { largeShare: 0.5 },
  },
  'one request in fifty meets a bad back end': { lifeMs: always(5 * MIN), flakyShare: 0.02 },
  'one request in five meets a bad back end': { lifeMs: always(5 * MIN), flakyShare: 0.2 },
  'one request in fifty meets a bad back end, and a third are uploads': {
    lifeMs: always(45 * S),
    flakyShare: 0.02,
    load: { largeShare: 0.33 },
  },
  'tokens end with 403': { lifeMs: always(30 * S), endStatus: 403 },
  'mints take 3 s': { lifeMs: always(30 * S), mintMs: 3 * S },
  'a JWT that states its end': { lifeMs: always(MIN), statesEnd: true },
  'a JWT that ends with the minute': { lifeMs: (_org, now) => MIN - (now % MIN), statesEnd: true },
  'a tenth is forbidden, and unknown to all back ends for up to 3 s': {
    lifeMs: always(30 * S),
    delaysMs: (random) => [between(0, 3_000)(random)],
    forbiddenShare: 0.1,
  },
  'a tenth is forbidden, and unknown to two of three back ends for up to 3 s': {
    lifeMs: always(30 * S),
    delaysMs: (random) => [0, between(0, 3_000)(random), between(0, 3_000)(random)],
    forbiddenShare: 0.1,
  },
  'all tokens end at each minute, and are unknown for up to 2 s': {
    lifeMs: (_org, now) => MIN - (now % MIN),
    delaysMs: (random) => [between(0, 2_000)(random)],
  },
  'good tokens are rejected for 3 s, and the endpoint fails for 100 s': {
    lifeMs: always(5 * MIN),
    trouble: [100 * S, 103 * S],
    endpointDown: [100 * S, 200 * S],
  },
  'no token works for 8 s, then only those minted later': {
    lifeMs: always(10 * MIN),
    trouble: [100 * S, 108 * S],
    endsAllAt: 108 * S,
  },
  'tokens end with 403, and a tenth is forbidden with 403': {
    lifeMs: (_org, _now, random) => between(10 * S, MIN)(random),
    endStatus: 403,
    forbiddenShare: 0.1,
    forbiddenStatus: 403,
  },
  'uploads alone, late at two back ends of three': {
    lifeMs: always(30 * S),
    delaysMs: (random) => [0, between(0, 2_000)(random), between(0, 2_000)(random)],
    load: { largeShare: 1 },
  },
  'uploads alone, one in fifty meets a bad back end': {
    lifeMs: always(MIN),
    flakyShare: 0.02,
    load: { largeShare: 1 },
  },
  'uploads alone, all of them forbidden': { lifeMs: always(5 * MIN), forbiddenShare: 1, load: { largeShare: 1 } },
} satisfies Record<string, ServiceKind>

const QUIET: Partial<Load> = { perSecond: 2, seconds: 4_000 }
const POSTS: Partial<Load> = { postShare: 1, largeShare: 0 }
const STORM: Partial<Load> = { orgs: 4, perSecond: 200, seconds: 150 }

/** For these, no rule was made. */
export const FURTHER_SERVICES = {
  'a JWT, and a tenth is forbidden': { lifeMs: always(MIN), statesEnd: true, forbiddenShare: 0.1 },
  'a JWT, and a third is forbidden': { lifeMs: always(5 * MIN), statesEnd: true, forbiddenShare: 0.33 },
  'a JWT, a tenth is forbidden with 403': {
    lifeMs: always(MIN),
    statesEnd: true,
    forbiddenShare: 0.1,
    forbiddenStatus: 403,
  },
  'a JWT, unknown for up to 2 s, and a tenth is forbidden': {
    lifeMs: always(30 * S),
    statesEnd: true,
    delaysMs: (random) => [between(0, 2 * S)(random)],
    forbiddenShare: 0.1,
  },
  'a JWT, and one request in fifty meets a bad back end': { lifeMs: always(MIN), statesEnd: true, flakyShare: 0.02 },
  'quiet Orgs, 30 s': { lifeMs: always(30 * S), load: QUIET },
  'quiet Orgs, 5 min': { lifeMs: always(5 * MIN), load: QUIET },
  'quiet Orgs, an hour': { lifeMs: always(60 * MIN), load: QUIET },
  'quiet Orgs, 5 min, a third are uploads': { lifeMs: always(5 * MIN), load: { ...QUIET, largeShare: 0.33 } },
  'quiet Orgs, 5 min, a tenth is forbidden': { lifeMs: always(5 * MIN), forbiddenShare: 0.1, load: QUIET },
  'quiet Orgs, tokens end with 403': { lifeMs: always(5 * MIN), endStatus: 403, load: QUIET },
  'POSTs alone': { lifeMs: always(30 * S), load: POSTS },
  'POSTs alone, tokens end with 403': { lifeMs: always(30 * S), endStatus: 403, load: POSTS },
  'POSTs alone, tokens end with 302': { lifeMs: always(MIN), endStatus: 302, load: POSTS },
  'half are POSTs, tokens end with 404': { lifeMs: always(MIN), endStatus: 404, load: { postShare: 0.5 } },
  'POSTs alone, a tenth is forbidden': { lifeMs: always(MIN), forbiddenShare: 0.1, load: POSTS },
  'uploads alone, irregular lifetimes': {
    lifeMs: (_org, _now, random) => between(20 * S, 2 * MIN)(random),
    load: { largeShare: 1 },
  },
  'storms of forbidden requests': { lifeMs: always(MIN), forbiddenShare: 0.8, load: STORM },
  'storms of forbidden requests, irregular lifetimes': {
    lifeMs: (_org, _now, random) => between(15 * S, MIN)(random),
    forbiddenShare: 0.5,
    load: STORM,
  },
  'storms, unknown to each of three back ends for up to 1 s': {
    lifeMs: always(20 * S),
    delaysMs: (random) => [between(0, S)(random), between(0, S)(random), between(0, S)(random)],
    load: STORM,
  },
  'a fifth is answered 404': { lifeMs: always(MIN), forbiddenShare: 0.2, forbiddenStatus: 404 },
  'nine of ten are answered 404': { lifeMs: always(MIN), forbiddenShare: 0.9, forbiddenStatus: 404 },
  'a fifth is answered 404, and tokens end with 404': {
    lifeMs: always(MIN),
    endStatus: 404,
    forbiddenShare: 0.2,
    forbiddenStatus: 404,
  },
  'a life of 6 s': { lifeMs: always(6 * S) },
  'a life of 6 s, unknown to all back ends for up to 1 s': {
    lifeMs: always(6 * S),
    delaysMs: (random) => [between(0, S)(random)],
  },
  'six hours': { lifeMs: always(60 * MIN), load: { perSecond: 2, seconds: 21_600 } },
  'six hours, irregular lifetimes': {
    lifeMs: (_org, _now, random) => between(10 * MIN, 120 * MIN)(random),
    load: { perSecond: 2, seconds: 21_600 },
  },
  'one live token per org, and a tenth is forbidden': {
    lifeMs: always(30 * S),
    endsFormer: true,
    forbiddenShare: 0.1,
  },
  'the same token until its end, and a tenth is forbidden': {
    lifeMs: always(MIN),
    givesSameUntilMs: 0,
    forbiddenShare: 0.1,
  },
} satisfies Record<string, ServiceKind>

interface Issued {
  readonly name: string
  readonly org: number
  readonly at: number
  readonly lifeMs: number
  readonly delaysMs: readonly number[]
  endAt: number
}

export interface Answer {
  readonly status: number
}

/** One instance, with counts. */
export class TokenService {
  readonly kind: ServiceKind
  readonly #random: Random
  readonly #tokens = new Map<string, Issued>()
  readonly #latest = new Map<number, Issued>()
  mints = 0
  rejections = 0

  constructor(kind: ServiceKind, random: Random) {
    this.kind = kind
    this.#random = random
  }

  /** The token for a mint that arrives now; undefined if the endpoint fails. */
  mint(org: number, now: number): Issued | undefined {
    this.mints += 1
    if (isWithin(this.kind.endpointDown, now)) return undefined
    const { givesSameUntilMs } = this.kind
    const latest = this.#latest.get(org)
    if (givesSameUntilMs !== undefined && latest !== undefined && latest.endAt - now > givesSameUntilMs) return latest
    return this.#issue(org, now)
  }

  /** Somebody else mints for one of the orgs. */
  mintElsewhere(now: number): void {
    const orgs = [...this.#latest.keys()]
    const org = orgs[Math.floor(this.#random.next() * orgs.length)]
    if (org !== undefined) this.#issue(org, now)
  }

  #issue(org: number, now: number): Issued {
    const { lifeMs, delaysMs, endsFormer } = this.kind
    const former = this.#latest.get(org)
    if (endsFormer === true && former !== undefined) former.endAt = Math.min(former.endAt, now)
    const life = lifeMs(org, now, this.#random)
    const name = `token-${this.#tokens.size}`
    const { endsAllAt = 0 } = this.kind
    const endAt = now < endsAllAt ? Math.min(now + life, endsAllAt) : now + life
    const issued = { name, org, at: now, lifeMs: life, delaysMs: delaysMs?.(this.#random) ?? [0], endAt }
    this.#tokens.set(name, issued)
    this.#latest.set(org, issued)
    return issued
  }

  /** The status of a request that arrives now. */
  answer(name: string, isForbidden: boolean, now: number): number {
    const { endStatus = 401, forbiddenStatus = 401, flakyShare = 0, slides, trouble } = this.kind
    const token = this.#tokens.get(name)
    const delaysMs = token?.delaysMs ?? []
    const delayMs = delaysMs[Math.floor(this.#random.next() * delaysMs.length)] ?? 0
    const isKnown = token !== undefined && now <= token.endAt && now - token.at >= delayMs
    const isGood = isKnown && this.#random.next() >= flakyShare && !isWithin(trouble, now)
    if (isGood && slides === true) token.endAt = now + token.lifeMs
    if (isGood && !isForbidden) return 200
    this.rejections += 1
    return isGood ? forbiddenStatus : endStatus
  }
}

function isWithin(span: readonly [number, number] | undefined, now: number): boolean {
  return span !== undefined && now >= span[0] && now < span[1]
}
