/** Stories of one ground each, which random ones hardly touch: quiet but for one kind of trouble, and long enough for it. */

import { isOddGround, type OddGround, oddParts } from './odd-grounds.ts'
import type { AnswerPlan, ClientPlan, Limits, OperatorStep, RequestPlan, SidePlan, Story, TokenPlan } from './story.ts'
import { Random } from './world/random.ts'
import type { Line } from './world/tcp.ts'

export const GROUNDS = [
  'polls',
  'steady renewals',
  'a slow endpoint',
  'a wrong secret',
  'one Org unlinked',
  'an App revoked',
  'a burst for one Org',
  'patient uploads',
  'stalled tunnels',
  'empty lines',
  'one Org hangs',
  'renewals and cold Orgs',
  'refused and purged',
  'useless mints',
  'POSTs and 403',
  'standing still',
  'ends in a closing pool',
  'purges and mints',
  'late rejections',
  'a crowded endpoint',
] as const

export type Ground = (typeof GROUNDS)[number] | OddGround

const HOUR_MS = 3_600_000

export function groundStory(seed: number, ground: Ground): Story {
  return new GroundAuthor(seed, ground).write()
}

export interface Parts {
  readonly limits?: Partial<Limits>
  readonly tokens?: Partial<TokenPlan>
  readonly idleMs?: number
  readonly line?: Partial<Line>
  readonly clients: readonly ClientPlan[]
  readonly operator?: readonly OperatorStep[]
  readonly stalls?: Story['stalls']
}

export class GroundAuthor {
  readonly #seed: number
  readonly #ground: Ground
  readonly random: Random
  #lastId = 0

  constructor(seed: number, ground: Ground) {
    this.#seed = seed
    this.#ground = ground
    this.random = new Random(seed, 'ground')
  }

  write(): Story {
    const random = this.random
    const { limits, tokens, idleMs = 60_000, line, clients, operator = [], stalls = [] } = this.#parts()
    return {
      seed: this.#seed,
      profile: this.#ground,
      limits: { ...this.#limits(), ...limits },
      lines: Array.from({ length: random.whole(1, 3) }, () => ({ ...this.#line(), ...line })),
      tokens: { ...this.#tokens(1, HOUR_MS), ...tokens },
      service: { idleMs, firstIdleMs: idleMs, tellsIdle: false, outages: [] },
      clients,
      operator,
      stalls,
    }
  }

  #parts(): Parts {
    const random = this.random
    const ground = this.#ground
    if (isOddGround(ground)) return oddParts(ground, this)
    switch (ground) {
      case 'polls':
        return {
          limits: { settleTimeMs: random.pick([0, 500, 5_000]) },
          clients: [this.poller(0, random.between(300, 900), 60, (i) => ({ status: i % 7 === 6 ? 200 : 404 }))],
        }
      case 'steady renewals': {
        const lifeMs = random.between(8_000, 14_000)
        // The endpoint gives the token that it has, until little of its life is left.
        const keepsMs = random.pick([undefined, lifeMs * 0.04, lifeMs * 0.06])
        return {
          tokens: { ...this.#tokens(2, lifeMs), isStated: true, ...(keepsMs !== undefined && { keepsMs }) },
          clients: [0, 1].map((org) => this.poller(org, random.between(100, 200), 300)),
        }
      }
      case 'a slow endpoint':
        return {
          limits: { settleTimeMs: random.pick([2_000, 5_000]) },
          tokens: { answerMs: [1_500, 4_000], lagMs: random.between(300, 1_600), ...this.lives(3, HOUR_MS) },
          clients: [0, 1, 2].map((org) => this.poller(org, 300, 30)),
        }
      case 'a wrong secret': {
        const orgs = random.whole(10, 30)
        return {
          limits: { mintTimeoutMs: random.pick([3_000, 10_000]) },
          tokens: { ...this.lives(orgs, HOUR_MS), wrongSecretUntil: random.between(6_000, 9_000) },
          clients: this.each(orgs, (org) => ({ ...this.poller(org, 500, 3), at: random.between(0, 3_000) })),
        }
      }
      case 'one Org unlinked':
        return {
          tokens: { ...this.lives(3, HOUR_MS), troubles: [{ org: 0, from: 0, to: HOUR_MS, kind: 'credentials' }] },
          clients: this.each(3, (org) => ({ ...this.poller(org, 400, 20), at: org === 0 ? 0 : 6_000 })),
        }
      case 'an App revoked':
        return {
          tokens: { ...this.lives(3, random.between(4_000, 9_000)), isStated: random.chance(0.5) },
          clients: this.each(3, (org) => this.poller(org, 1_500, 65)),
          operator: [{ at: random.between(5_000, 12_000), what: 'revoke the App' }],
        }
      case 'a burst for one Org': {
        const maxInFlight = random.pick([64, 128])
        const answerMs = random.pick([
          [200, 600],
          [5, 60],
        ] as const)
        return {
          limits: { maxInFlight },
          tokens: { ...this.lives(3, HOUR_MS), answerMs },
          clients: this.each(random.whole(maxInFlight / 8, maxInFlight / 3), () => ({
            ...this.poller(0, 0, 1),
            at: 100,
          })),
        }
      }
      case 'patient uploads':
        return {
          limits: { connections: random.whole(1, 2), responseTimeoutMs: 12_000, idleTimeoutMs: 2_000, maxInFlight: 64 },
          clients: this.each(6, () => ({
            ...this.poller(0, 200, 2, () => ({ afterMs: random.between(1_000, 4_000) }), {
              method: 'POST',
              content: { bytes: 3_000, isChunked: random.chance(0.3), expects: true, isPatient: random.chance(0.7) },
            }),
            at: random.between(0, 300),
          })),
        }
      case 'stalled tunnels': {
        // Such that the end is seen, and bytes wait behind a receiver that stalls.
        const kernelBytes = random.whole(8_192, 65_536)
        const isForEver = random.chance(0.4)
        return {
          limits: { idleTimeoutMs: isForEver ? random.pick([2_000, 5_000]) : 20_000 },
          line: { sendBytes: kernelBytes, receiveBytes: kernelBytes },
          clients: this.each(4, () => {
            const lateMs = random.between(11_000, 16_000)
            const reader: SidePlan = {
              sends: 0,
              pace: undefined,
              reads: isForEver ? 'nothing' : 'late',
              lateMs,
              ends: undefined,
            }
            const sender: SidePlan = {
              sends: 2 * kernelBytes + random.whole(1, isForEver ? 600_000 : 64 * 1024),
              pace: undefined,
              reads: 'all',
              ends: { how: 'end', afterMs: random.between(0, 100) },
            }
            const isToClient = random.chance(0.5)
            const socket = isToClient ? { client: reader, service: sender } : { client: sender, service: reader }
            return this.poller(0, 0, 1, () => ({}), { socket })
          }),
        }
      }
      case 'empty lines':
        return { clients: this.each(4, () => ({ ...this.poller(0, 100, 1), stays: true, dribbles: true })) }
      case 'one Org hangs': {
        const maxInFlight = random.pick([16, 32])
        return {
          limits: { maxInFlight, connections: random.pick([4, 64]), responseTimeoutMs: 6_000 },
          tokens: this.lives(2, HOUR_MS),
          clients: [
            ...this.each(maxInFlight + 8, () => ({
              ...this.poller(0, 100, 2, () => ({ afterMs: random.between(2_000, 5_000) })),
              at: random.between(0, 500),
            })),
            ...this.each(3, () => ({ ...this.poller(1, 100, 15, () => ({ afterMs: 100 })), at: 800 })),
          ],
        }
      }
      case 'renewals and cold Orgs': {
        const [held, cold, mintRate] = [random.whole(20, 30), random.whole(6, 15), random.pick([3, 5])]
        // Their tokens, one after the other, end together.
        const atOf = (org: number) => (org * 1_100) / mintRate
        const endMs = 60_000
        const livesMs = Array.from({ length: held + cold }, (_, org) => (org < held ? endMs - atOf(org) : HOUR_MS))
        return {
          limits: { mintRate, mintConcurrency: random.pick([2, 4]), mintTimeoutMs: 10_000 },
          tokens: { livesMs, isStated: true, answerMs: [5, 50] },
          clients: this.each(held + cold, (org) => {
            if (org >= held) return { ...this.poller(org, 300, 2), at: random.between(0.93, 0.97) * endMs }
            const { requests, stays } = this.poller(org, 200, 30)
            const waits = requests.map((request, i) =>
              i === 1 ? { ...request, afterMs: 0.92 * endMs - atOf(org) } : request,
            )
            return { at: atOf(org), requests: waits, stays }
          }),
        }
      }
      case 'refused and purged': {
        const at = random.between(2_000, 4_500)
        const purge: OperatorStep = random.chance(0.7) ? { at, what: 'purge', org: 0 } : { at, what: 'resume' }
        return {
          tokens: { ...this.lives(2, HOUR_MS), troubles: [{ org: 0, from: 0, to: at - 500, kind: 'refuse' }] },
          clients: this.each(2, (org) => this.poller(org, 300, 25)),
          operator: [purge],
        }
      }
      case 'useless mints': {
        const from = random.between(1_000, 3_000)
        const to = from + random.between(1_000, 3_000)
        return {
          limits: { settleTimeMs: 0 },
          tokens: { ...this.lives(1, HOUR_MS), deaf: { org: 0, from, to } },
          clients: [this.poller(0, 400, 50)],
          operator: [
            { at: to + 500, what: 'revoke', org: 0 },
            { at: to + random.between(1_000, 1_400), what: 'resume' },
          ],
        }
      }
      case 'POSTs and 403':
        return {
          limits: { settleTimeMs: 0 },
          tokens: { ...this.lives(1, random.between(4_000, 7_000)), rejectsWith: 403 },
          clients: [this.poller(0, 300, 140, () => ({}), { method: 'POST' })],
        }
      case 'standing still':
        return {
          limits: { mintTimeoutMs: random.pick([1_000, 3_000]), responseTimeoutMs: random.pick([1_000, 3_000]) },
          tokens: { ...this.lives(8, random.pick([2_000, 5_000, HOUR_MS])), answerMs: [50, 400] },
          clients: this.each(8, (org) => ({
            ...this.poller(org, random.between(50, 300), 30, () => ({ afterMs: random.between(0, 300) })),
            at: random.between(0, 4_000),
          })),
          stalls: Array.from({ length: 3 }, (_, i) => ({
            at: 200 + i * 10_000 + random.between(0, 4_000),
            lengthMs: random.between(1_000, 8_000),
            kind: random.pick(['asleep', 'interrupted'] as const),
          })),
        }
      case 'ends in a closing pool':
        return {
          limits: { maxInFlight: 16, connections: random.whole(1, 3), mintTimeoutMs: 10_000, responseTimeoutMs: 6_000 },
          tokens: {
            ...this.lives(2, random.between(3_100, 4_500)),
            isStated: true,
            answerMs: [300, 2_000],
          },
          // It closes the connections on which requests wait for their tokens.
          idleMs: random.between(100, 800),
          clients: this.each(10, () => ({
            ...this.poller(random.whole(0, 1), random.between(0, 800), 10, () => ({
              afterMs: random.between(0, 1_500),
              afterwards: random.pick(['keep', 'announced close'] as const),
            })),
            at: random.between(0, 3_000),
          })),
        }
      case 'purges and mints':
        return {
          tokens: {
            ...this.lives(2, random.between(2_000, 6_000)),
            answerMs: [200, 900],
            isStated: random.chance(0.5),
          },
          clients: this.each(4, (i) => this.poller(i % 2, random.between(100, 300), 60)),
          operator: Array.from({ length: 6 }, () => ({
            at: random.between(200, 14_000),
            what: 'purge' as const,
            org: random.whole(0, 1),
          })),
        }
      case 'late rejections': {
        // The service takes longer to reject the former token than its successor counts as accepted lately.
        const revokedAt = random.between(500, 1_500)
        const answer = () => ({ afterMs: random.between(5_500, 9_000) })
        return {
          limits: { settleTimeMs: random.pick([0, 500]), responseTimeoutMs: 12_000 },
          clients: [
            this.poller(0, 0, 1),
            ...this.each(3, () => ({ ...this.poller(0, 0, 1, answer), at: revokedAt + random.between(20, 60) })),
            { ...this.poller(0, 0, 1), at: revokedAt + 100 },
          ],
          operator: [{ at: revokedAt, what: 'revoke', org: 0 }],
        }
      }
      case 'a crowded endpoint':
        return {
          limits: { mintTimeoutMs: 1_000, mintConcurrency: random.whole(1, 3), mintRate: 100 },
          tokens: { ...this.lives(100, HOUR_MS), answerMs: [20, 200] },
          clients: this.each(100, (org) => ({ ...this.poller(org, 0, 1), at: random.between(0, 3_000) })),
        }
    }
  }

  each<T = ClientPlan>(count: number, make: (i: number) => T): T[] {
    return Array.from({ length: count }, (_, i) => make(i))
  }

  poller(
    org: number,
    everyMs: number,
    count: number,
    answer: (i: number) => Partial<AnswerPlan> = () => ({}),
    more: Partial<RequestPlan> = {},
  ): ClientPlan {
    const requests = Array.from({ length: count }, (_, i) => this.#request(org, i === 0 ? 0 : everyMs, answer(i), more))
    return { at: this.random.between(0, 100), requests, stays: false }
  }

  #request(org: number, afterMs: number, answer: Partial<AnswerPlan>, more: Partial<RequestPlan>): RequestPlan {
    return {
      id: `r${++this.#lastId}`,
      org,
      method: 'GET',
      afterMs,
      content: undefined,
      writePace: undefined,
      readPace: undefined,
      leaves: undefined,
      socket: undefined,
      ...more,
      answer: {
        status: 200,
        bytes: 10,
        framing: 'length',
        when: 'end',
        afterMs: 0,
        interims: 0,
        pace: undefined,
        cut: undefined,
        hangs: false,
        stopsReading: false,
        afterwards: 'keep',
        rejectsAt: 'end',
        ...answer,
      },
    }
  }

  #limits(): Limits {
    return {
      maxInFlight: 256,
      maxConnections: 1_024,
      headersTimeoutMs: 2_000,
      idleTimeoutMs: 5_000,
      keepAliveTimeoutMs: this.random.pick([1_000, 5_000]),
      connections: 64,
      connectTimeoutMs: 3_000,
      responseTimeoutMs: 6_000,
      serviceIdleTimeoutMs: 8_000,
      mintTimeoutMs: 10_000,
      mintConcurrency: 32,
      mintRate: 100,
      settleTimeMs: 500,
      lifetimeMs: undefined,
      replayBytes: 65_536,
      shutdownMs: 5_000,
    }
  }

  lives(orgs: number, lifeMs: number): Pick<TokenPlan, 'livesMs'> {
    return { livesMs: Array(orgs).fill(lifeMs) }
  }

  #tokens(orgs: number, lifeMs: number): TokenPlan {
    return {
      ...this.lives(orgs, lifeMs),
      isStated: false,
      lagMs: 0,
      hasOneLive: false,
      answerMs: this.random.pick([
        [0, 5],
        [5, 80],
      ] as const),
      troubles: [],
      wrongSecretUntil: 0,
    }
  }

  #line(): Line {
    const random = this.random
    return {
      latencyMs: random.spread(0.05, 10),
      segmentBytes: Math.ceil(random.spread(1_460, 65_536)),
      sendBytes: Math.ceil(random.spread(16_384, 262_144)),
      receiveBytes: Math.ceil(random.spread(16_384, 262_144)),
    }
  }
}
