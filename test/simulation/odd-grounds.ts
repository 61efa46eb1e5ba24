/** Stories of peers that do what few do, or what nobody may do: they fall silent, take nothing, break off, or send without end. */

import type { GroundAuthor, Parts } from './grounds.ts'
import type { AnswerPlan, ClientPlan, RequestPlan } from './story.ts'

export const ODD_GROUNDS = [
  'requests ahead',
  'silence in content',
  'nothing is taken',
  'broken answers',
  'no answer at all',
  'bytes behind a request',
  'bytes behind an answer',
  'rejections without end',
  'connections kept open',
  'uninvited content',
  'heads without end',
  'a stop with work',
  'short standstills',
  'much kept content',
  'ends of WebSockets',
  'early answers',
  'an endpoint in trouble',
  'clients that leave the queue',
  'a named status',
  'an Org that hangs',
] as const

export type OddGround = (typeof ODD_GROUNDS)[number]

export const isOddGround = (ground: string): ground is OddGround => ODD_GROUNDS.some((odd) => odd === ground)

const HOUR_MS = 3_600_000
/** What could be read as the next answer, or as a part of it. */
const STRAYS = [
  'HTTP/1.1 200 OK\r\nx-answer: surplus\r\ncontent-length: 0\r\n\r\n',
  'HTTP/1.1 200 OK\r\nx-ans',
  'HTTP/1.1 100 Continue\r\n\r\n',
  '\r\n',
  'x',
]
const SURPLUS = ['x', '\r\n', 'GET /v2/r0 HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: org-0\r\n\r\n']

export function oddParts(ground: OddGround, author: GroundAuthor): Parts {
  const { random } = author
  const client = (
    count: number,
    answer: (i: number) => Partial<AnswerPlan>,
    more: (i: number) => Partial<RequestPlan> = () => ({}),
    everyMs = 100,
  ): ClientPlan => {
    const { requests, stays } = author.poller(random.whole(0, 1), everyMs, count, answer)
    const each = requests.map((request, i) => ({ ...request, ...more(i) }))
    return { at: random.between(0, 1_500), requests: each, stays }
  }
  const tokens = author.lives(2, HOUR_MS)
  const content = (bytes: number) => ({ bytes, isChunked: random.chance(0.4), expects: false })
  /** Too short to be noticed: a time limit passes, or much comes at once. */
  const shortStalls = (everyMs: number): NonNullable<Parts['stalls']> =>
    author.each(60, (i) => ({
      at: 300 + i * everyMs,
      lengthMs: random.between(10, everyMs * 0.9),
      kind: random.pick(['asleep', 'interrupted'] as const),
    }))
  const framing = () => random.pick(['length', 'chunked', 'end'] as const)
  switch (ground) {
    case 'requests ahead':
      return {
        tokens,
        clients: author.each(8, () => ({
          ...client(
            6,
            () => ({ bytes: Math.floor(random.spread(1, 60_000)), afterMs: random.between(0, 30), framing: framing() }),
            () => (random.chance(0.3) ? { method: 'POST', content: content(random.whole(1, 3_000)) } : {}),
            random.pick([0, 50]),
          ),
          pipelinesAfterMs: random.pick([0, random.between(0, 60)]),
        })),
      }
    case 'silence in content':
      return {
        limits: { idleTimeoutMs: random.pick([2_000, 5_000]) },
        tokens,
        clients: author.each(8, () =>
          client(
            2,
            () => ({ when: random.pick(['head', 'end', 'end'] as const) }),
            () => {
              const bytes = Math.floor(random.spread(10, 200_000))
              return { method: 'POST', content: { ...content(bytes), stopsAt: random.whole(0, bytes - 1) } }
            },
          ),
        ),
      }
    case 'nothing is taken': {
      const idleTimeoutMs = random.pick([2_000, 5_000])
      return {
        limits: { idleTimeoutMs },
        tokens,
        clients: author.each(6, () =>
          client(
            1,
            () => ({ bytes: Math.floor(random.spread(10, 3_000_000)), framing: framing() }),
            () => ({
              takes: { bytes: random.pick([0, random.whole(1, 100_000)]), forMs: idleTimeoutMs * 1.25 + 15_000 },
            }),
          ),
        ),
      }
    }
    case 'broken answers':
      return {
        stalls: random.chance(0.5) ? shortStalls(80) : [],
        tokens,
        clients: author.each(8, () =>
          client(
            6,
            () => {
              const how = random.pick(['close', 'reset', 'malformed', 'silence'] as const)
              const bytes = Math.floor(random.spread(2, random.pick([3_000, 3_000, 300_000])))
              return {
                bytes,
                framing:
                  how === 'malformed' ? 'chunked' : how === 'reset' ? framing() : random.pick(['length', 'chunked']),
                cut: { at: random.whole(0, bytes - 1), how },
                afterMs: random.pick([0, random.between(0, 50)]),
              }
            },
            () => ({ isHttp10: random.chance(0.5) }),
          ),
        ),
      }
    case 'no answer at all':
      return {
        tokens,
        clients: author.each(6, () =>
          client(
            8,
            (i) =>
              i % 2 === 0
                ? { afterwards: random.pick(['announced close', 'keep'] as const) }
                : { cut: { at: -1, how: random.pick(['close', 'reset'] as const) }, afterMs: random.between(0, 20) },
            () => ({ method: random.pick(['GET', 'GET', 'PUT', 'POST']) }),
            random.between(50, 400),
          ),
        ),
      }
    case 'bytes behind a request':
      return {
        tokens,
        clients: author.each(6, () =>
          client(
            2,
            () => ({ afterMs: random.between(1_000, 4_000) }),
            () => ({
              surplus: {
                text: random.pick(SURPLUS),
                bytes: random.whole(1, 600_000),
                pace: { bytes: 16_384, everyMs: random.between(1, 20) },
              },
            }),
          ),
        ),
      }
    case 'bytes behind an answer':
      return {
        tokens,
        clients: author.each(6, () =>
          client(
            20,
            () => ({
              bytes: Math.floor(random.spread(1, 5_000)),
              framing: random.pick(['length', 'chunked'] as const),
              afterwards: random.pick(['keep', 'surplus'] as const),
              stray: {
                text: random.pick(STRAYS),
                afterMs: random.pick([0, random.spread(0.01, 30)]),
                isEndless: random.chance(0.2),
              },
            }),
            () => ({}),
            random.pick([0, random.between(0, 30)]),
          ),
        ),
      }
    case 'rejections without end':
      return {
        limits: { settleTimeMs: 0, connections: random.pick([2, 4, 64]) },
        tokens: author.lives(2, random.between(1_000, 3_000)),
        clients: author.each(4, () =>
          client(
            12,
            () => ({
              rejection: {
                sends: random.pick([0, 9, random.whole(1, 300_000)]),
                pace: { bytes: 8_192, everyMs: random.spread(0.5, 300) },
              },
            }),
            () => ({}),
            random.between(50, 300),
          ),
        ),
      }
    case 'connections kept open':
      return {
        tokens,
        clients: author.each(8, () => ({
          ...client(
            3,
            () => ({ bytes: Math.floor(random.spread(1, 100_000)), framing: framing() }),
            () => ({ isHttp10: random.chance(0.3) }),
          ),
          stays: true,
          keepsOpen: random.pick(['silent', 'dripping'] as const),
        })),
      }
    case 'uninvited content':
      return {
        tokens,
        clients: author.each(6, () =>
          client(
            4,
            () => ({ afterMs: random.between(0, 600) }),
            () => ({
              method: 'POST',
              content: { ...content(Math.floor(random.spread(1, 100_000))), expects: true, isImpatient: true },
              writePace: { bytes: random.whole(100, 20_000), everyMs: random.between(1, 50) },
            }),
          ),
        ),
      }
    case 'heads without end':
      return {
        tokens,
        clients: author.each(6, () =>
          client(2, () => ({ hangs: true, drips: random.pick(['interims', 'fields'] as const) })),
        ),
      }
    case 'a stop with work': {
      const stopAt = random.between(2_000, 5_000)
      const side = () => ({
        sends: random.pick([0, random.whole(1, 600_000)]),
        pace: random.chance(0.5) ? { bytes: 5_000, everyMs: random.between(10, 200) } : undefined,
        reads: random.pick(['all', 'all', 'nothing'] as const),
        ends: random.chance(0.5)
          ? { how: random.pick(['end', 'close', 'reset'] as const), afterMs: random.between(0, 4_000) }
          : undefined,
      })
      return {
        limits: { shutdownMs: random.pick([1_000, 5_000]) },
        tokens: {
          ...author.lives(8, HOUR_MS),
          troubles: author.each(6, (i) => ({ org: 2 + i, from: 0, to: HOUR_MS, kind: random.pick(['hang', 'error']) })),
        },
        clients: [
          ...author.each(8, () => ({
            ...client(
              1,
              () => ({}),
              () => ({ socket: { client: side(), service: side() } }),
            ),
            at: random.between(0, stopAt),
          })),
          ...author.each(6, (i) => ({ ...author.poller(2 + i, 50, 3), at: stopAt - random.between(0, 1_500) })),
        ],
        operator: [{ at: stopAt, what: 'stop' }],
      }
    }
    case 'short standstills':
      return {
        tokens,
        clients: author.each(12, () =>
          client(
            12,
            () => ({
              when: 'head',
              afterMs: random.between(60, 110),
              bytes: random.whole(100, 40_000),
              pace: { bytes: 2_000, everyMs: 5 },
              framing: 'length',
            }),
            () => ({ method: 'POST', content: { ...content(3_000), expects: true } }),
            20,
          ),
        ),
        stalls: shortStalls(60),
      }
    case 'ends of WebSockets': {
      const kernelBytes = random.whole(8_192, 65_536)
      const sender = () => ({
        sends: 2 * kernelBytes + random.whole(1, 100_000),
        pace: undefined,
        reads: 'all' as const,
        ends: { how: 'end' as const, afterMs: random.between(0, 100) },
      })
      // It ends its side, and takes the rest later.
      const reader = () => ({
        sends: random.pick([0, 1_000]),
        pace: undefined,
        reads: 'late' as const,
        lateMs: random.between(500, 4_000),
        ends: { how: 'end' as const, afterMs: random.between(0, 1_000) },
      })
      // Its bytes have left it, and wait at the proxy.
      const resetter = () => ({
        sends: 2 * kernelBytes + 64 * 1024 + random.whole(1, kernelBytes),
        pace: undefined,
        reads: 'all' as const,
        ends: { how: 'reset' as const, afterMs: random.between(0, 1_000) },
      })
      const stalled = { sends: 0, pace: undefined, reads: 'nothing' as const, ends: undefined }
      return {
        limits: { idleTimeoutMs: 15_000 },
        line: { sendBytes: kernelBytes, receiveBytes: kernelBytes },
        tokens,
        clients: author.each(6, () => {
          const [one, other] = random.chance(0.5) ? [sender(), reader()] : [resetter(), stalled]
          const [client_, service] = random.chance(0.5) ? [one, other] : [other, one]
          return client(
            1,
            () => ({}),
            () => ({ socket: { client: client_, service } }),
          )
        }),
      }
    }
    case 'early answers':
      return {
        // Slow, so that content is on its way while the service closes.
        line: { latencyMs: random.between(1, 6), sendBytes: 16_384, receiveBytes: 8_192 },
        tokens,
        stalls: shortStalls(100),
        clients: author.each(6, () =>
          client(
            3,
            () => ({
              when: random.pick(['head', 'middle'] as const),
              bytes: random.whole(1, 3_000),
              afterwards: random.pick(['close', 'announced close', 'keep'] as const),
              stopsReading: random.chance(0.3),
            }),
            () => ({ method: 'POST', content: content(Math.floor(random.spread(100_000, 2_000_000))) }),
          ),
        ),
      }
    case 'an endpoint in trouble': {
      const [troubled, others] = [random.whole(6, 10), 20]
      const kind = random.pick(['hang', 'error'] as const)
      const places = 2
      // By then, each of them has had its first call.
      const knownAt = (troubled / places) * 2_500 + 3_000
      return {
        limits: { mintTimeoutMs: 3_000, mintConcurrency: places },
        tokens: {
          ...author.lives(troubled + others, HOUR_MS),
          troubles: author.each(troubled, (org) => ({ org, from: 0, to: HOUR_MS, kind })),
        },
        clients: author.each(troubled + others, (org) => ({
          ...author.poller(org, random.between(300, 500), org < troubled ? 60 : 1),
          at: org < troubled ? 0 : knownAt + random.between(0, 6_000),
        })),
      }
    }
    case 'clients that leave the queue':
      return {
        limits: { mintRate: random.pick([3, 5]), mintConcurrency: random.whole(1, 4) },
        tokens: author.lives(40, HOUR_MS),
        clients: author.each(40, (org) => {
          const { requests, ...rest } = author.poller(org, 0, 1)
          const leaves = random.chance(0.7)
            ? { afterMs: random.between(50, 1_000), how: random.pick(['end', 'close', 'reset'] as const) }
            : undefined
          return { ...rest, requests: requests.map((request) => ({ ...request, leaves })) }
        }),
      }
    case 'a named status':
      return {
        limits: { settleTimeMs: 0, rejectedStatuses: [401, 403] },
        tokens: { ...author.lives(2, random.between(2_000, 4_000)), rejectsWith: 403 },
        clients: author.each(4, (i) =>
          client(
            40,
            () => ({}),
            () => ({ method: i % 2 === 0 ? 'GET' : random.pick(['POST', 'PUT', 'DELETE']) }),
            random.between(100, 300),
          ),
        ),
      }
    case 'an Org that hangs':
      return {
        limits: { connections: random.pick([4, 8]), maxInFlight: 64 },
        tokens,
        clients: [
          ...author.each(12, () => author.poller(0, 100, 3, () => ({ afterMs: random.between(1_000, 4_000) }))),
          ...author.each(3, () => author.poller(1, 200, 8)),
        ],
      }
    case 'much kept content':
      return {
        limits: { replayBytes: 1_048_576 },
        tokens: author.lives(1, HOUR_MS),
        clients: author.each(24, () => ({
          ...author.poller(0, 0, 1, () => ({ afterMs: 3_000 }), {
            method: 'POST',
            content: { bytes: random.whole(800_000, 1_000_000), isChunked: false, expects: false },
          }),
        })),
      }
  }
}
