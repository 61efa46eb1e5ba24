/**
 * The proxy's tokens beside a careful client, over services of many kinds. The printed table is the measure:
 * `simulation/README.md` shows it.
 */

import { describe, expect, test } from 'vitest'
import { Random } from '../support/seed.ts'
import { SERVICES, type ServiceKind } from '../units/token/simulation/services.ts'
import { compare, type Load, type Outcome } from '../units/token/simulation/simulation.ts'

/** Every run has the same seed, unless `TEST_SEED` gives another. */
const { TEST_SEED = '20261122' } = process.env
const LOAD: Load = { orgs: 40, perSecond: 80, seconds: 325, onceShare: 0.05 }

/** What the proxy may cost at most. Where the rules do less well than the client, that is their price. */
interface Price {
  /** Mints, as a multiple of those of the client. */
  readonly mints: number
  /** The share of the requests that cannot be repeated which may see a rejection. */
  readonly once: number
  /** The share of the others which may see a rejection that the client hides. */
  readonly seen?: number
  /** Failures of our own, as a multiple of those of the client. */
  readonly failed?: number
}

const ONE_THING: Price = { mints: 1.14, once: 0.03 }
const LATE: Price = { mints: 1.14, once: 0.055, seen: 0.001 }
const FORBIDDEN: Price = { mints: 0.45, once: 0.03 }
const FORBIDDEN_AND_LATE: Price = { mints: 0.75, once: 0.055, seen: 0.001 }
const EXPECTED: Readonly<Record<keyof typeof SERVICES, Price>> = {
  'one lifetime of 20 s': ONE_THING,
  'one lifetime of 2 min': ONE_THING,
  'one lifetime of a day': ONE_THING,
  'lifetimes of 15 s, 1 min and 1 h, by org': ONE_THING,
  'irregular lifetimes, 10 to 60 s': ONE_THING,
  'all tokens end at each minute': { mints: 1.4, once: 0.03 },
  'a lifetime that changes: 1 min, 20 s, 1 min': { mints: 1.6, once: 0.03 },
  'a token that is extended by use, 5 s': ONE_THING,
  'unknown to all back ends for 0.1 to 0.5 s': LATE,
  'unknown to all back ends for up to 4.5 s': LATE,
  'unknown to each of three back ends for up to 2 s': LATE,
  'unknown to one of five back ends for up to 1 s': LATE,
  'one live token per org': ONE_THING,
  'one live token per org, unknown to all back ends for up to 1 s': LATE,
  'one live token per org, and others mint': ONE_THING,
  'the same token until its end': { mints: 1.7, once: 0.03 },
  'the same token until 10 s before its end': ONE_THING,
  'a tenth of the requests is forbidden': FORBIDDEN,
  'a third is forbidden, irregular lifetimes': FORBIDDEN,
  'a third of the identifiers is forbidden': FORBIDDEN,
  'a third of the identifiers is forbidden, irregular lifetimes': { mints: 0.6, once: 0.05, seen: 0.03 },
  'half are uploads, a third of the identifiers is forbidden': { mints: 0.9, once: 0.01 },
  'one request in fifty meets a bad back end': { mints: 0.6, once: 0.04 },
  'one request in five meets a bad back end': { mints: 0.9, once: 0.25 },
  'one request in fifty meets a bad back end, and a third are uploads': { mints: 0.9, once: 0.04 },
  'tokens end with 403': { mints: 1.14, once: 0.03, seen: 0.0025 },
  'mints take 3 s': ONE_THING,
  'a JWT that states its end': ONE_THING,
  'a JWT that ends with the minute': { mints: 2, once: 0.01 },
  'a tenth is forbidden, and unknown to all back ends for up to 3 s': FORBIDDEN_AND_LATE,
  'a tenth is forbidden, and unknown to two of three back ends for up to 3 s': FORBIDDEN_AND_LATE,
  'all tokens end at each minute, and are unknown for up to 2 s': LATE,
  'good tokens are rejected for 3 s, and the endpoint fails for 100 s': { mints: 1.2, once: 0.02, failed: 1.2 },
  'no token works for 8 s, then only those minted later': { mints: 1.2, once: 0.06, seen: 0.01 },
  'tokens end with 403, and a tenth is forbidden with 403': { mints: 0.6, once: 0.03 },
  'uploads alone, late at two back ends of three': { mints: 1.2, once: 0.036 },
  'uploads alone, one in fifty meets a bad back end': { mints: 1.3, once: 0.04 },
  'uploads alone, all of them forbidden': { mints: 0.25, once: 0 },
}
/** The mean over all requests that are allowed. */
const MOST_WAIT_MS = 220

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
    const { mints, once, seen = 0, failed = 0 } = EXPECTED[name]
    const onceShare = kind.load?.onceShare ?? LOAD.onceShare
    expect(proxy.requests).toBe(client.requests)
    expect(proxy.failed).toBeLessThanOrEqual(client.failed * failed)
    const hidden = client.rejected + proxy.requests * (1 - onceShare) * seen
    expect(proxy.rejected, 'rejections that the client hides').toBeLessThanOrEqual(hidden)
    expect(proxy.rejectedOnce / (proxy.requests * onceShare)).toBeLessThanOrEqual(once)
    expect(proxy.mints / client.mints).toBeLessThanOrEqual(mints)
    expect(proxy.meanWaitMs).toBeLessThanOrEqual(MOST_WAIT_MS)
  })

  test('a thousand orgs whose tokens end in the same moment: each is minted once', async () => {
    const kind: ServiceKind = { lifeMs: (_org, now) => 90_000 - (now % 90_000) }
    const load = { orgs: 1_000, perSecond: 300, seconds: 170, onceShare: 0 }
    const { proxy } = await compare(kind, load, new Random(Number(TEST_SEED)))
    if (!process.env['LOOSE']) expect(proxy.rejected + proxy.failed).toBe(0)
    if (!process.env['LOOSE']) expect(proxy.mints).toBeLessThanOrEqual(2_000)
  })

  test('the table', () => {
    console.info(
      [
        '| service | rejections seen | by requests that cannot be repeated | mints | rejections at the service | mean wait, ms |',
        '|---|---|---|---|---|---|',
        ...rows,
      ].join('\n'),
    )
    expect(rows).toHaveLength(Object.keys(SERVICES).length)
  })
})
