/**
 * The proxy's tokens beside a careful client, over services of many kinds. The printed table is the measure: `docs/tokens.md`
 * shows it.
 */

import { describe, expect, test } from 'vitest'
import { Random } from '../support/seed.ts'
import { SERVICES, type ServiceKind } from './simulation/services.ts'
import { compare, type Load, type Outcome } from './simulation/simulation.ts'

/** Every run has the same seed, unless `TEST_SEED` gives another. */
const { TEST_SEED = '20261122' } = process.env
const LOAD: Load = { orgs: 40, perSecond: 80, seconds: 325, onceShare: 0.05 }

interface Expected {
  /** Mints of the proxy, as a multiple of those of the client. Some services give either a few more by chance. */
  readonly mints: number
  /** Rejections at the service, as a multiple of those of the client. */
  readonly rejections: number
  /** Share of the requests that cannot be repeated which may see a rejection. */
  readonly onceRejected: number
  /** Failures of our own, as a multiple of those of the client. */
  readonly failed?: number
}

/** Irregular deaths cannot be foreseen, and a bad back end rejects what it gets. */
const UNFORESEEN = 0.05
const FORBIDDEN_AND_LATE = { mints: 0.6, rejections: 0.4, onceRejected: 0.004 }
const EXPECTED: Readonly<Record<keyof typeof SERVICES, Expected>> = {
  'one lifetime of 20 s': { mints: 1.06, rejections: 0.2, onceRejected: 0.002 },
  'one lifetime of 2 min': { mints: 1.06, rejections: 0.5, onceRejected: 0.004 },
  'one lifetime of a day': { mints: 1, rejections: 1, onceRejected: 0 },
  'lifetimes of 15 s, 1 min and 1 h, by org': { mints: 1.2, rejections: 0.5, onceRejected: 0.01 },
  'irregular lifetimes, 10 to 60 s': { mints: 1.2, rejections: 1.1, onceRejected: UNFORESEEN },
  'all tokens end at each minute': { mints: 1.05, rejections: 1.2, onceRejected: UNFORESEEN },
  'a lifetime that changes: 1 min, 20 s, 1 min': { mints: 1.2, rejections: 0.5, onceRejected: 0.005 },
  'a token that is extended by use, 5 s': { mints: 1.05, rejections: 1.1, onceRejected: 0.001 },
  'unknown to all back ends for 0.1 to 0.5 s': { mints: 1.2, rejections: 0.5, onceRejected: 0.002 },
  'unknown to all back ends for up to 4.5 s': { mints: 1.2, rejections: 0.5, onceRejected: 0.004 },
  'unknown to each of three back ends for up to 2 s': { mints: 1.2, rejections: 0.5, onceRejected: 0.002 },
  'unknown to one of five back ends for up to 1 s': { mints: 1.05, rejections: 1.1, onceRejected: 0.002 },
  'one live token per org': { mints: 1.2, rejections: 0.3, onceRejected: 0.002 },
  'one live token per org, unknown to all back ends for up to 1 s': {
    mints: 1.2,
    rejections: 0.8,
    onceRejected: 0.004,
  },
  'one live token per org, and others mint': { mints: 1.1, rejections: 1.2, onceRejected: UNFORESEEN },
  'the same token until its end': { mints: 1.1, rejections: 0.6, onceRejected: 0.005 },
  'the same token until 10 s before its end': { mints: 1.2, rejections: 0.6, onceRejected: 0.005 },
  'a tenth of the requests is forbidden': { mints: 0.25, rejections: 1.3, onceRejected: 0.002 },
  'a third is forbidden, irregular lifetimes': { mints: 0.25, rejections: 1.1, onceRejected: UNFORESEEN },
  'one request in fifty meets a bad back end': { mints: 0.3, rejections: 1.2, onceRejected: 0.04 },
  'one request in five meets a bad back end': { mints: 0.5, rejections: 1.1, onceRejected: 0.25 },
  'tokens end with 403': { mints: 1.2, rejections: 0.3, onceRejected: 0.002 },
  'tokens end with 419, irregular lifetimes': { mints: 1.1, rejections: 1.1, onceRejected: UNFORESEEN },
  'mints take 3 s': { mints: 1.2, rejections: 0.1, onceRejected: 0.005 },
  'a JWT that states its end': { mints: 1.1, rejections: 0.1, onceRejected: 0.001 },
  'a tenth is forbidden, and unknown to all back ends for up to 3 s': FORBIDDEN_AND_LATE,
  'a tenth is forbidden, and unknown to two of three back ends for up to 3 s': FORBIDDEN_AND_LATE,
  'all tokens end at each minute, and are unknown for up to 2 s': {
    mints: 1.1,
    rejections: 1.1,
    onceRejected: UNFORESEEN,
  },
  'good tokens are rejected for 3 s, and the endpoint fails for 100 s': {
    mints: 1.2,
    rejections: 1,
    onceRejected: 0.02,
    failed: 1.2,
  },
  'tokens end with 403, and a tenth is forbidden with 403': { mints: 0.6, rejections: 0.4, onceRejected: UNFORESEEN },
  'uploads alone, late at two back ends of three': { mints: 1.2, rejections: 0.3, onceRejected: 0.012 },
  'uploads alone, all of them forbidden': { mints: 0.25, rejections: 0.2, onceRejected: 0 },
}

const rows: string[] = []

function row(name: string, proxy: Outcome, client: Outcome): string {
  const pair = (of: (outcome: Outcome) => number, digits = 0) =>
    `${of(proxy).toFixed(digits)} / ${of(client).toFixed(digits)}`
  const cells = [
    name,
    pair(({ rejected }) => rejected),
    pair(({ rejectedOnce }) => rejectedOnce),
    pair(({ mints }) => mints),
    pair(({ rejectedByService }) => rejectedByService),
    pair(({ meanWaitMs }) => meanWaitMs, 1),
  ]
  return `| ${cells.join(' | ')} |`
}

describe('beside a careful client', () => {
  test.each(Object.entries(SERVICES) as [keyof typeof SERVICES, ServiceKind][])('%s', async (name, kind) => {
    const { proxy, client } = await compare(kind, LOAD, new Random(Number(TEST_SEED)))
    rows.push(row(name, proxy, client))
    const expected = EXPECTED[name]
    expect(proxy.requests).toBe(client.requests)
    expect(proxy.failed).toBeLessThanOrEqual(client.failed * (expected.failed ?? 0))
    expect(proxy.rejected, 'rejections that the client hides').toBeLessThanOrEqual(client.rejected)
    expect(proxy.rejectedOnce / (proxy.requests * (kind.load?.onceShare ?? LOAD.onceShare))).toBeLessThanOrEqual(
      expected.onceRejected,
    )
    expect(proxy.mints / client.mints).toBeLessThanOrEqual(expected.mints)
    expect(proxy.rejectedByService / Math.max(client.rejectedByService, 1)).toBeLessThanOrEqual(expected.rejections)
    // Where new tokens take a while, a request that is forbidden waits for one, too.
    const hasDelay = 'delaysMs' in kind || (kind.load?.onceShare ?? 0) > 0
    if (!hasDelay) expect(proxy.forbiddenP99Ms, 'a request that is rejected by right').toBeLessThanOrEqual(10)
  })

  test('a thousand orgs whose tokens end in the same moment: each is minted once', async () => {
    const kind: ServiceKind = { lifeMs: (_org, now) => 90_000 - (now % 90_000) }
    const load = { orgs: 1_000, perSecond: 300, seconds: 170, onceShare: 0 }
    const { proxy } = await compare(kind, load, new Random(Number(TEST_SEED)))
    expect(proxy.rejected + proxy.failed).toBe(0)
    expect(proxy.mints).toBeLessThanOrEqual(2_000)
  })

  test('the table', () => {
    console.info(
      [
        '| service | rejections seen | the same, once only | mints | rejections at the service | mean wait, ms |',
        '|---|---|---|---|---|---|',
        ...rows,
      ].join('\n'),
    )
    expect(rows).toHaveLength(Object.keys(SERVICES).length)
  })
})
