/**
 * The story of a seed, as data: settings, peers, what each request meets, and what the operator does. The runner takes parts of it away
 * to find the smallest story that still fails.
 */

import { GROUNDS, type Ground, groundStory } from './grounds.ts'
import { ODD_GROUNDS } from './odd-grounds.ts'
import type { Pace } from './peers/wire.ts'
import type { Stall } from './world/loop.ts'
import { Random } from './world/random.ts'
import type { Fate, Line } from './world/tcp.ts'

export interface Story {
  readonly seed: number
  readonly profile: Profile
  readonly limits: Limits
  readonly lines: readonly Line[]
  readonly tokens: TokenPlan
  readonly service: ServicePlan
  readonly clients: readonly ClientPlan[]
  readonly operator: readonly OperatorStep[]
  readonly stalls: readonly { readonly at: number; readonly lengthMs: number; readonly kind: Stall }[]
}

export type Profile =
  | Ground
  | 'broad'
  | 'uploads'
  | 'tunnels'
  | 'ends'
  | 'full pool'
  | 'resets'
  | 'bad secret'
  | 'stop under load'
  | 'cold crowd'
  | 'idle connections'
  | 'a minter'
  | 'a fleet'

/** The settings of the proxy that the oracles know. */
export interface Limits {
  readonly maxInFlight: number
  readonly maxConnections: number
  readonly headersTimeoutMs: number
  readonly idleTimeoutMs: number
  readonly keepAliveTimeoutMs: number
  readonly connections: number
  readonly connectTimeoutMs: number
  readonly responseTimeoutMs: number
  readonly serviceIdleTimeoutMs: number
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  readonly mintRate: number
  readonly settleTimeMs: number
  readonly lifetimeMs: number | undefined
  readonly replayBytes: number
  /** `tokens.rejectedStatuses`. */
  readonly rejectedStatuses?: readonly number[]
  readonly shutdownMs: number
}

export type MintTrouble = 'refuse' | 'error' | 'hang' | 'cut' | 'limit' | 'credentials' | 'garbage'

export interface TokenPlan {
  /** Of each Org: how long a token lives. */
  readonly livesMs: readonly number[]
  /** The answer states the end. */
  readonly isStated: boolean
  /** A new token is known by the service only so much later. */
  readonly lagMs: number
  /** A new token ends the one before. */
  readonly hasOneLive: boolean
  readonly answerMs: readonly [number, number]
  readonly troubles: readonly {
    readonly org?: number
    readonly from: number
    readonly to: number
    readonly kind: MintTrouble
  }[]
  /** The secret of the file is wrong until then. */
  readonly wrongSecretUntil: number
  /** The endpoint gives the token that it has again, as long as it lives for longer than this. */
  readonly keepsMs?: number
  /** The service accepts no token of this Org in this time. */
  readonly deaf?: { readonly org: number; readonly from: number; readonly to: number }
  /** In place of 401. */
  readonly rejectsWith?: number
}

export interface ServicePlan {
  /** Closes connections that have been idle for so long; says so, or does not. */
  readonly idleMs: number
  /** The same before the first request. */
  readonly firstIdleMs?: number
  readonly tellsIdle: boolean
  /** Connections meet these fates in these times. */
  readonly outages: readonly { readonly from: number; readonly to: number; readonly fate: Fate }[]
}

export interface ClientPlan {
  readonly at: number
  readonly requests: readonly RequestPlan[]
  /** When its last answer has come: it closes, or leaves the connection open. */
  readonly stays: boolean
  /** Then it sends parts of empty lines. */
  readonly dribbles?: boolean
  /** It sends a request so long after the one before, whether or not that was answered (pipelining). */
  readonly pipelinesAfterMs?: number
  /** It never closes its side: it is silent, or sends bytes now and then, when the proxy has ended the other. */
  readonly keepsOpen?: 'silent' | 'dripping'
}

export interface RequestPlan {
  /** In the path, so that everybody knows which it is. */
  readonly id: string
  readonly org: number
  readonly method: string
  /** Since the last answer. */
  readonly afterMs: number
  /** Undefined without content. */
  readonly content: ContentPlan | undefined
  readonly writePace: Pace | undefined
  readonly readPace: Pace | undefined
  /** The client leaves: so long after its first byte, or never. */
  readonly leaves: { readonly afterMs: number; readonly how: 'end' | 'close' | 'reset' } | undefined
  readonly answer: AnswerPlan
  readonly socket: SocketPlan | undefined
  /** The client speaks HTTP/1.0: for it, the end of the connection may be the end of the answer. */
  readonly isHttp10?: boolean
  /** It takes so much of the answer, and then nothing for so long. */
  readonly takes?: { readonly bytes: number; readonly forMs: number }
  /** It sends this behind its request, again and again, up to so much. */
  readonly surplus?: { readonly text: string; readonly bytes: number; readonly pace: Pace }
}

export interface ContentPlan {
  readonly bytes: number
  readonly isChunked: boolean
  readonly expects: boolean
  /** It waits for 100 (Continue) for half a minute, not for a second. */
  readonly isPatient?: boolean
  /** It does not wait for 100 (Continue) at all. */
  readonly isImpatient?: boolean
  /** It sends so much, and falls silent. */
  readonly stopsAt?: number
}

export interface AnswerPlan {
  readonly status: number
  readonly bytes: number
  readonly framing: 'length' | 'chunked' | 'end'
  /** The service answers to the head, in the middle of the content, or behind all of it. */
  readonly when: 'head' | 'middle' | 'end'
  readonly afterMs: number
  readonly interims: number
  readonly pace: Pace | undefined
  /** After so much of the content it breaks off, or never. -1: before any byte of an answer. `malformed`: by what is no chunk; `silence`: by nothing. */
  readonly cut: { readonly at: number; readonly how: 'close' | 'reset' | 'malformed' | 'silence' } | undefined
  /** The service never answers. */
  readonly hangs: boolean
  /** Then it sends such without end. */
  readonly drips?: 'interims' | 'fields'
  /** It reads no more of the content, once it has answered. */
  readonly stopsReading: boolean
  /** What becomes of the connection behind it. `surplus`: a while later comes an answer to nothing. */
  readonly afterwards: 'keep' | 'announced close' | 'close' | 'reset' | 'surplus'
  /** Of `surplus`: so long behind the answer, or together with it; once, or without end. */
  readonly stray?: { readonly text: string; readonly afterMs: number; readonly isEndless: boolean }
  /** A rejection comes at once, or behind the content. */
  readonly rejectsAt: 'head' | 'end'
  /** Of its content, a megabyte, so much comes. */
  readonly rejection?: { readonly sends: number; readonly pace: Pace }
}

/** A WebSocket: what each side does. */
export interface SocketPlan {
  readonly client: SidePlan
  readonly service: SidePlan
}

export interface SidePlan {
  readonly sends: number
  readonly pace: Pace | undefined
  /** Whether it reads. */
  readonly reads: 'all' | 'nothing' | 'late'
  /** How late. */
  readonly lateMs?: number
  /** When it has sent all and so long has passed. */
  readonly ends: { readonly how: 'end' | 'close' | 'reset'; readonly afterMs: number } | undefined
}

export type OperatorStep = { readonly at: number } & (
  | { readonly what: 'reload' | 'purge all' | 'resume' | 'rotate' | 'revoke the App' | 'stop' }
  | { readonly what: 'purge' | 'revoke'; readonly org: number }
)

export const PROFILES: readonly Profile[] = [
  'uploads',
  'tunnels',
  'ends',
  'full pool',
  'resets',
  'bad secret',
  'stop under load',
  'cold crowd',
  'idle connections',
]

/** Every so many seeds, one is a profile. */
export const PROFILE_EVERY = 5
/** Of a division by it: another one of them is of one ground. */
export const GROUND_REST = 3
/** Every so many seeds, and of a division by it: one is of peers that do what few do. */
export const ODD_EVERY = 10
export const ODD_REST = 6

/** The most that a content may have. */
const SMALL = [5_000, 5_000, 5_000, 50_000, 50_000, 800_000]
const LARGE = [5_000, 50_000, 800_000, 800_000]

/** How long clients begin new requests. */
const STORY_MS = 20_000

export function storyOf(seed: number): Story {
  if (seed % PROFILE_EVERY === GROUND_REST)
    return groundStory(seed, GROUNDS[((seed - GROUND_REST) / PROFILE_EVERY) % GROUNDS.length] as Ground)
  if (seed % ODD_EVERY === ODD_REST)
    return groundStory(seed, ODD_GROUNDS[((seed - ODD_REST) / ODD_EVERY) % ODD_GROUNDS.length] as Ground)
  const random = new Random(seed, 'story')
  const profile = seed % PROFILE_EVERY === 0 ? (PROFILES[(seed / PROFILE_EVERY) % PROFILES.length] as Profile) : 'broad'
  return new Author(random, profile).write(seed)
}

class Author {
  readonly #random: Random
  readonly #profile: Profile
  readonly #orgs: number
  readonly #limits: Limits
  /** So often something goes wrong. */
  readonly #trouble: number
  #lastId = 0

  constructor(random: Random, profile: Profile) {
    this.#random = random
    this.#profile = profile
    this.#trouble = random.pick([0, 0.02, 0.1, 0.3])
    this.#orgs = this.#is('cold crowd') ? 40 : random.pick([1, 2, 3, 8, 20])
    this.#limits = this.#chooseLimits()
  }

  #is(...profiles: readonly Profile[]): boolean {
    return profiles.includes(this.#profile)
  }

  write(seed: number): Story {
    const random = this.#random
    const clients = this.#is('cold crowd') ? random.whole(60, 120) : random.whole(5, 40)
    return {
      seed,
      profile: this.#profile,
      limits: this.#limits,
      lines: Array.from({ length: random.whole(1, 4) }, () => ({
        latencyMs: random.spread(0.05, 40),
        segmentBytes: Math.ceil(random.spread(random.chance(0.2) ? 64 : 1460, 65_536)),
        sendBytes: Math.ceil(random.spread(8_192, 262_144)),
        receiveBytes: Math.ceil(random.spread(4_096, 262_144)),
      })),
      tokens: this.#tokens(),
      service: this.#service(),
      clients: Array.from({ length: clients }, () => this.#client()),
      operator: this.#operator(),
      stalls: random.chance(0.2)
        ? Array.from({ length: random.whole(1, 3) }, () => ({
            at: random.between(0, STORY_MS),
            lengthMs: random.spread(50, 15_000),
            kind: random.pick<Stall>(['asleep', 'interrupted']),
          }))
        : [],
    }
  }

  #chooseLimits(): Limits {
    const random = this.#random
    const isSmall = this.#is('full pool', 'cold crowd', 'ends') || random.chance(0.3)
    return {
      maxInFlight: this.#is('cold crowd') ? random.pick([16, 32, 64]) : random.pick(isSmall ? [8, 16] : [64, 256]),
      maxConnections: random.pick(isSmall && !this.#is('cold crowd') ? [16, 64] : [256, 1_024]),
      headersTimeoutMs: 2_000,
      idleTimeoutMs: random.pick([2_000, 5_000, 15_000]),
      keepAliveTimeoutMs: random.pick([1_000, 5_000]),
      connections: random.pick(isSmall ? [1, 2, 4] : [16, 64]),
      connectTimeoutMs: random.pick([500, 1_000, 3_000]),
      responseTimeoutMs: random.pick([1_000, 3_000, 6_000]),
      serviceIdleTimeoutMs: random.pick([2_000, 8_000]),
      mintTimeoutMs: random.pick([1_000, 3_000, 10_000]),
      mintConcurrency: random.pick([1, 2, 4, 32]),
      mintRate: random.pick([5, 20, 100]),
      settleTimeMs: random.pick([0, 500, 5_000]),
      lifetimeMs: random.chance(0.2) ? random.pick([1_000, 5_000]) : undefined,
      replayBytes: random.pick([0, 4_096, 65_536]),
      shutdownMs: random.pick([1_000, 5_000]),
    }
  }

  #tokens(): TokenPlan {
    const random = this.#random
    const isShort = this.#is('ends') || random.chance(0.3)
    const troubles = []
    const times = this.#is('bad secret') || random.chance(this.#trouble) ? random.whole(1, 4) : 0
    for (let i = 0; i < times; i++) {
      const from = random.between(0, STORY_MS)
      const to = from + random.spread(50, 8_000)
      const kinds = ['refuse', 'error', 'hang', 'cut', 'limit', 'credentials', 'garbage'] as const
      troubles.push({
        from,
        to,
        kind: random.pick(kinds),
        ...(random.chance(0.5) && { org: random.whole(0, this.#orgs - 1) }),
      })
    }
    return {
      livesMs: Array.from({ length: this.#orgs }, () => (isShort ? random.spread(300, 8_000) : 3_600_000)),
      isStated: random.chance(this.#is('ends') ? 0.8 : 0.5),
      lagMs: random.chance(0.2) ? random.spread(1, 400) : 0,
      hasOneLive: random.chance(0.2),
      answerMs: random.pick([
        [0, 5],
        [5, 50],
        [50, 900],
      ] as const),
      troubles,
      wrongSecretUntil: this.#is('bad secret') ? random.between(500, 8_000) : 0,
    }
  }

  #service(): ServicePlan {
    const random = this.#random
    const hasOutage = random.chance(this.#trouble)
    const from = random.between(0, STORY_MS)
    return {
      idleMs: this.#is('idle connections') ? random.spread(50, 1_000) : random.pick([1_000, 5_000, 60_000]),
      tellsIdle: random.chance(0.3),
      outages: hasOutage
        ? [{ from, to: from + random.spread(100, 5_000), fate: random.pick<Fate>(['refuse', 'swallow', 'hang']) }]
        : [],
    }
  }

  #client(): ClientPlan {
    const random = this.#random
    const isCrowd = this.#is('cold crowd', 'full pool')
    const requests = this.#is('tunnels') ? random.whole(1, 2) : random.whole(1, isCrowd ? 3 : 6)
    const at = isCrowd ? random.between(0, 200) : random.between(0, STORY_MS * 0.7)
    return { at, requests: Array.from({ length: requests }, () => this.#request()), stays: random.chance(0.3) }
  }

  #request(): RequestPlan {
    const random = this.#random
    const id = `r${++this.#lastId}`
    const isSocket = random.chance(this.#is('tunnels') ? 0.8 : 0.05)
    const hasContent = !isSocket && random.chance(this.#is('uploads', 'resets') ? 0.8 : 0.35)
    const method = hasContent
      ? random.pick(['POST', 'PUT', 'PATCH'])
      : isSocket
        ? 'GET'
        : random.pick(['GET', 'GET', 'GET', 'HEAD', 'DELETE', 'POST', 'OPTIONS'])
    const bytes = this.#size()
    const answer = this.#answer(hasContent)
    return {
      id,
      org: random.whole(0, this.#orgs - 1),
      method,
      afterMs: random.chance(0.5) ? 0 : random.spread(0.1, 4_000),
      content: hasContent ? { bytes, isChunked: random.chance(0.3), expects: random.chance(0.2) } : undefined,
      writePace: this.#pace(bytes),
      readPace: this.#pace(answer.bytes),
      leaves: random.chance(this.#is('resets') ? 0.3 : this.#trouble / 2)
        ? { afterMs: random.spread(0.1, 3_000), how: random.pick(['end', 'close', 'reset'] as const) }
        : undefined,
      answer,
      socket: isSocket ? { client: this.#side(), service: this.#side() } : undefined,
    }
  }

  /** Most are small. */
  #size(): number {
    const random = this.#random
    if (random.chance(0.2)) return 0
    return Math.floor(random.spread(1, random.pick(this.#is('uploads') ? LARGE : SMALL)))
  }

  /** Whatever the size, it takes some seconds at most. */
  #pace(bytes: number): Pace | undefined {
    const random = this.#random
    if (!random.chance(this.#is('uploads') ? 0.4 : 0.15)) return undefined
    const pieces = random.whole(2, 30)
    return { bytes: Math.max(100, Math.ceil(bytes / pieces)), everyMs: random.spread(0.5, 200) }
  }

  #answer(hasContent: boolean): AnswerPlan {
    const random = this.#random
    const hasTrouble = random.chance(this.#is('resets') ? 0.3 : this.#trouble)
    const bytes = this.#size()
    return {
      status: random.chance(0.85) ? 200 : random.pick([201, 204, 304, 400, 403, 404, 409, 422, 500, 503]),
      bytes,
      framing: random.pick(
        this.#is('resets') ? (['length', 'end'] as const) : (['length', 'length', 'chunked', 'end'] as const),
      ),
      when:
        hasContent && random.chance(this.#is('uploads') ? 0.5 : 0.25)
          ? random.pick(['head', 'middle'] as const)
          : 'end',
      afterMs: random.chance(0.5) ? 0 : random.spread(0.1, hasTrouble ? 10_000 : this.#is('ends') ? 1_500 : 600),
      interims: random.chance(0.1) ? random.whole(1, 3) : 0,
      pace: this.#pace(bytes),
      cut:
        hasTrouble && random.chance(0.4)
          ? { at: random.chance(0.3) ? -1 : random.whole(0, bytes), how: random.pick(['close', 'reset'] as const) }
          : undefined,
      hangs: hasTrouble && random.chance(0.15),
      stopsReading: random.chance(0.5),
      afterwards: random.chance(this.#is('uploads') ? 0.4 : 0.85)
        ? 'keep'
        : random.pick(['announced close', 'close', 'reset', 'surplus'] as const),
      rejectsAt: random.pick(['head', 'end'] as const),
    }
  }

  #side(): SidePlan {
    const random = this.#random
    const sends = random.chance(0.2) ? 0 : Math.floor(random.spread(1, 600_000))
    return {
      sends,
      pace: this.#pace(sends),
      reads: random.chance(0.75) ? 'all' : random.pick(['nothing', 'late'] as const),
      ends: random.chance(0.6)
        ? { how: random.pick(['end', 'end', 'close', 'reset'] as const), afterMs: random.spread(0.1, 3_000) }
        : undefined,
    }
  }

  #operator(): OperatorStep[] {
    const random = this.#random
    const steps: OperatorStep[] = []
    const count = random.chance(0.4) ? random.whole(1, 4) : 0
    for (let i = 0; i < count; i++) {
      const at = random.between(0, STORY_MS)
      const what = random.pick(['reload', 'purge', 'purge all', 'resume', 'rotate', 'revoke', 'revoke'] as const)
      const org = random.whole(0, this.#orgs - 1)
      steps.push(what === 'purge' || what === 'revoke' ? { at, what, org } : { at, what })
    }
    if (this.#is('stop under load')) steps.push({ at: random.between(500, STORY_MS / 2), what: 'stop' })
    return steps.sort((one, other) => one.at - other.at)
  }
}
