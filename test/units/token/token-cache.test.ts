import { describe, expect, test } from 'vitest'
import { orgStatuses } from '../../../src/admin/status.ts'
import { TokenError } from '../../../src/errors.ts'
import type { OrgId } from '../../../src/org-id.ts'
import { TokenCache, type TokenCacheOptions } from '../../../src/token/token-cache.ts'
import type { AccessToken } from '../../../src/token/token-source.ts'
import { ManualClock } from '../../support/clock.ts'
import { collectGarbage } from '../../support/collect-garbage.ts'
import { TOKEN_CACHE_OPTIONS } from '../../support/token-cache-options.ts'
import { ScriptedSource } from './scripted-source.ts'

const ACME = 'acme' as OrgId
const GLOBEX = 'globex' as OrgId
const LIFETIME_MS = 100_000
const REPEATABLE = { kind: 'repeatable' } as const
const REQUEST = { method: 'GET', path: '/v2/things' }

interface Fixture {
  readonly cache: TokenCache
  readonly source: ScriptedSource
  readonly clock: ManualClock
  readonly events: string[]
}

/** By default, every token is replaced at the age of `LIFETIME_MS`. */
function setUp(options: Partial<TokenCacheOptions> = {}): Fixture {
  const clock = new ManualClock(1_000_000)
  const source = new ScriptedSource(clock.now)
  const events: string[] = []
  const cache = new TokenCache(
    {
      ...TOKEN_CACHE_OPTIONS,
      lifetimeMs: LIFETIME_MS,
      mintTimeoutMs: 60_000,
      now: clock.now,
      day: clock.now,
      random: () => 0.999,
      observer: {
        tokenEvicted: (org) => events.push(`evicted ${org}`),
      },
      ...options,
    },
    source,
  )
  return { cache, source, clock, events }
}

/** Mints a token for the org now, which may state its end, and the service accepts it. */
async function withToken(fixture: Fixture, org = ACME, lifeMs?: number): Promise<AccessToken> {
  const obtained = fixture.cache.obtain(org, REPEATABLE)
  await fixture.source.last.issue(undefined, lifeMs && fixture.clock.now() + lifeMs)
  const { token } = await obtained
  fixture.cache.orgs.peek(org)?.noteAccepted(token, fixture.clock.now(), 'repeatable', REQUEST)
  return token
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.catch((reason: unknown) => reason)
  if (error instanceof TokenError) return error.code
  throw new Error('no TokenError')
}

describe('one mint per org', () => {
  test('a thousand waiting requests share it', async () => {
    const fixture = setUp()
    const { cache, source } = fixture
    expect(cache.get(ACME, 'repeatable')).toBeUndefined()
    const leases = Array.from({ length: 1_000 }, () => cache.obtain(ACME, REPEATABLE))
    const token = await source.last.issue()
    const results = (await Promise.all(leases)).map((lease) => {
      expect(lease.token).toBe(token)
      return lease.result
    })
    expect(source.mints).toHaveLength(1)
    expect(source.last.options.reason).toBe('cold')
    expect(results.filter((result) => result === 'miss')).toHaveLength(1)
    expect(results.filter((result) => result === 'joined')).toHaveLength(999)
    expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'hit' })
  })

  test('a failed mint fails all waiting requests, and the next request mints again', async () => {
    const { cache, source } = setUp()
    const waiting = [cache.obtain(ACME, REPEATABLE), cache.obtain(ACME, REPEATABLE)]
    await source.last.fail('token_endpoint_unavailable')
    expect(await Promise.all(waiting.map(codeOf))).toEqual(['token_endpoint_unavailable', 'token_endpoint_unavailable'])
    const again = cache.obtain(ACME, REPEATABLE)
    expect(source.mints).toHaveLength(2)
    await source.last.issue()
    expect((await again).result).toBe('miss')
  })

  test('orgs that wait at the same time each get their own outcome, in whatever order', async () => {
    const { cache, source } = setUp()
    const acme = cache.obtain(ACME, REPEATABLE)
    const globex = cache.obtain(GLOBEX, REPEATABLE)
    const initech = cache.obtain('initech' as OrgId, REPEATABLE)
    const [ofAcme, ofGlobex, ofInitech] = source.mints
    const forGlobex = await ofGlobex?.issue()
    await ofInitech?.fail('org_access_refused')
    const forAcme = await ofAcme?.issue()
    expect((await globex).token).toBe(forGlobex)
    expect((await acme).token).toBe(forAcme)
    expect(await codeOf(initech)).toBe('org_access_refused')
    expect(cache.get(ACME, 'repeatable')?.token).toBe(forAcme)
    expect(cache.get(GLOBEX, 'repeatable')?.token).toBe(forGlobex)
  })

  test('more orgs at once than the cache holds: each gets its token', async () => {
    const { cache, source, events } = setUp({ maxOrgs: 2 })
    const orgs = Array.from({ length: 10 }, (_, i) => `org-${i}` as OrgId)
    const leases = orgs.map((org) => cache.obtain(org, REPEATABLE))
    for (const mint of source.mints) await mint.issue(`token-of-${mint.org}`)
    const tokens = (await Promise.all(leases)).map((lease) => lease.token.reveal())
    expect(tokens).toEqual(orgs.map((org) => `Bearer token-of-${org}`))
    expect(source.mints).toHaveLength(10)
    expect(cache.orgs.size).toBe(2)
    expect(events).toHaveLength(8)
  })
})

describe('ahead of the expected end', () => {
  test('one mint runs behind a request, and the others get the present token', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS * 0.9 - 1)
    expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'hit' })
    clock.advance(LIFETIME_MS * 0.095)
    for (let i = 0; i < 100; i += 1) {
      expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'refreshing' })
    }
    expect(source.mints).toHaveLength(2)
    expect(source.last.options.reason).toBe('refresh')
  })

  test.each([
    [0, 0.9],
    [0.999, 0.95],
  ])('the mint begins in the last tenth of the life, jittered for each token (%d)', async (random, share) => {
    const fixture = setUp({ random: () => random })
    await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS * share - 200)
    expect(fixture.cache.get(ACME, 'repeatable')?.result).toBe('hit')
    fixture.clock.advance(300)
    expect(fixture.cache.get(ACME, 'repeatable')?.result).toBe('refreshing')
  })

  test('one request a second tries the new token (T3); the others get the one before until the service accepts it', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const former = await withToken(fixture, ACME, LIFETIME_MS * 0.999)
    clock.advance(LIFETIME_MS * 0.97)
    cache.get(ACME, 'repeatable')
    const token = await source.last.issue()
    expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
    for (const kind of ['repeatable', 'once'] as const) expect(cache.get(ACME, kind)?.token).toBe(former)
    clock.advance(1_000)
    expect(cache.get(ACME, 'repeatable')?.token, 'the next try').toBe(token)
    clock.advance(LIFETIME_MS * 0.98 - LIFETIME_MS * 0.97)
    expect(cache.get(ACME, 'once')?.token, 'too near its end').toBe(token)
    clock.advance(LIFETIME_MS * 0.02)
    expect(cache.get(ACME, 'repeatable')?.token, 'the stated end').toBe(token)
    cache.orgs.peek(ACME)?.noteAccepted(token, clock.now(), 'repeatable', REQUEST)
    expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
  })

  test('a mint that fails keeps the good token, and is tried again once a second, not for every request', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS - 3_000)
    const triedAt: number[] = []
    for (let i = 0; i < 500; i += 1) {
      expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
      if (source.mints.length > 1 + triedAt.length) {
        triedAt.push(clock.now())
        await source.last.fail('token_endpoint_unavailable')
      }
      clock.advance(5)
    }
    const pauses = triedAt.slice(1).map((at, i) => at - (triedAt[i] ?? 0))
    expect(pauses).toEqual([1_000, 1_000])
  })

  test('a background mint that fails causes no unhandled rejection', async () => {
    const unhandled: unknown[] = []
    const note = (reason: unknown) => unhandled.push(reason)
    process.on('unhandledRejection', note)
    const fixture = setUp()
    await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS - 500)
    fixture.cache.get(ACME, 'repeatable')
    await fixture.source.last.failWith(new Error('a fault of ours'))
    // Node reports them at the end of a turn.
    await new Promise((resolve) => setImmediate(resolve))
    process.off('unhandledRejection', note)
    expect(unhandled).toEqual([])
  })

  test('a token that the endpoint gives again keeps its age, and the next mint waits for its end', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    const text = token.reveal().slice('Bearer '.length)
    clock.advance(LIFETIME_MS - 2_000)
    cache.get(ACME, 'repeatable')
    await source.last.issue(text)
    for (let i = 0; i < 19; i += 1) {
      expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'hit' })
      clock.advance(100)
    }
    expect(source.mints).toHaveLength(2)
    clock.advance(101)
    const renewed = cache.obtain(ACME, REPEATABLE)
    await source.last.issue(text)
    expect((await renewed).token).toBe(token)
    clock.advance(999)
    expect(cache.get(ACME, 'repeatable')?.token, 'then a second passes').toBe(token)
    expect(source.mints).toHaveLength(3)
  })

  test('a new token that states nearly the same end: the next mint waits for it', async () => {
    const fixture = setUp({ lifetimeMs: undefined })
    const { cache, source, clock } = fixture
    await withToken(fixture, ACME, 60_000)
    clock.advance(57_100)
    expect(cache.get(ACME, 'repeatable')?.result).toBe('refreshing')
    const token = await source.last.issue(undefined, clock.now() + 2_900)
    cache.orgs.peek(ACME)?.noteAccepted(token, clock.now(), 'repeatable', REQUEST)
    clock.advance(2_899)
    expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'hit' })
    clock.advance(1)
    expect(cache.get(ACME, 'repeatable')).toBeUndefined()
  })
})

describe('requests that cannot be repeated', () => {
  test('keep a distance from the end', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS * 0.97)
    expect(cache.get(ACME, 'once')?.token).toBe(token)
    clock.advance(LIFETIME_MS * 0.011)
    expect(cache.get(ACME, 'once')).toBeUndefined()
    const obtained = cache.obtain(ACME, { kind: 'once' })
    const fresh = await source.last.issue()
    expect((await obtained).token).toBe(fresh)
  })

  test('get the present token if there is no better one', async () => {
    const fixture = setUp()
    const token = await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS * 0.99)
    const obtained = fixture.cache.obtain(ACME, { kind: 'once' })
    await fixture.source.last.fail('token_endpoint_unavailable')
    expect(await obtained).toEqual({ token, result: 'stale' })
  })

  test('where no life is known, none that is older than five minutes, unless a token of the service lived longer', async () => {
    const fixture = setUp({ lifetimeMs: undefined })
    const { cache, clock } = fixture
    const token = await withToken(fixture)
    const other = await withToken(fixture, GLOBEX)
    clock.advance(300_000)
    expect(cache.get(ACME, 'once')).toBeUndefined()
    cache.orgs.peek(GLOBEX)?.noteAccepted(other, clock.now() + 60_000, 'repeatable', REQUEST)
    clock.advance(59_999)
    expect(cache.get(ACME, 'once')?.token).toBe(token)
    clock.advance(1)
    expect(cache.get(ACME, 'once')).toBeUndefined()
  })

  test('or unless it was accepted in the last ten seconds', async () => {
    const fixture = setUp({ lifetimeMs: undefined })
    const { cache, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(400_000)
    cache.orgs.peek(ACME)?.noteAccepted(token, clock.now(), 'repeatable', REQUEST)
    clock.advance(9_999)
    expect(cache.get(ACME, 'once')?.token).toBe(token)
    clock.advance(1)
    expect(cache.get(ACME, 'once')).toBeUndefined()
  })

  test('wait until a new token is as old as the delay that the service last showed, within an hour', async () => {
    const fixture = setUp({ lifetimeMs: undefined })
    const { cache, clock } = fixture
    cache.service.noteDelay(2_000, clock.now())
    const token = await withToken(fixture)
    expect(cache.get(ACME, 'once')).toBeUndefined()
    expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
    clock.advance(2_000)
    expect(cache.get(ACME, 'once')?.token).toBe(token)
    clock.advance(3_600_000)
    await withToken(fixture, GLOBEX)
    expect(cache.get(GLOBEX, 'once')).toBeDefined()
  })
})

describe('past the expected end', () => {
  test('one request waits for an endpoint that hangs; the next ones get the old token at once', async () => {
    const fixture = setUp({ mintTimeoutMs: 1 })
    const { cache, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS * 2)
    expect(await cache.obtain(ACME, REPEATABLE)).toEqual({ token, result: 'stale' })
    for (let i = 0; i < 100; i += 1) {
      for (const kind of ['repeatable', 'once'] as const) expect(cache.get(ACME, kind)?.token).toBe(token)
      clock.advance(100)
    }
    expect(fixture.source.mints).toHaveLength(2)
  })

  test('a request waits for a mint', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    await withToken(fixture)
    clock.advance(LIFETIME_MS)
    expect(cache.get(ACME, 'repeatable')).toBeUndefined()
    const obtained = cache.obtain(ACME, REPEATABLE)
    expect(source.last.options.reason).toBe('expired')
    const fresh = await source.last.issue()
    expect(await obtained).toEqual({ token: fresh, result: 'miss' })
  })

  test.each([
    'token_endpoint_unavailable',
    'token_endpoint_timeout',
    'token_endpoint_rate_limited',
    'app_credentials_rejected',
    'token_response_invalid',
    'org_access_refused',
  ] as const)(
    'if the mint fails with %s, requests get the old token, and nobody waits for the next failure',
    async (code) => {
      const fixture = setUp()
      const { cache, source, clock } = fixture
      const token = await withToken(fixture)
      clock.advance(LIFETIME_MS * 2)
      const obtained = cache.obtain(ACME, REPEATABLE)
      await source.last.fail(code)
      expect(await obtained).toEqual({ token, result: 'stale' })
      for (let i = 0; i < 100; i += 1) expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
      expect(source.mints).toHaveLength(2)
      clock.advance(5_001)
      expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'stale' })
      expect(source.mints).toHaveLength(3)
      const fresh = await source.last.issue()
      expect(cache.get(ACME, 'repeatable')?.token).toBe(fresh)
    },
  )

  test('a token is never sent past the end that it states', async () => {
    const fixture = setUp({ lifetimeMs: undefined })
    const { cache, source, clock } = fixture
    await withToken(fixture, ACME, 40_000)
    clock.advance(35_900)
    expect(cache.get(ACME, 'repeatable')?.result).toBe('hit')
    clock.advance(3_799)
    expect(cache.get(ACME, 'repeatable')?.result).toBe('refreshing')
    await source.last.fail('token_endpoint_unavailable')
    clock.advance(400)
    for (const kind of ['repeatable', 'once'] as const) expect(cache.get(ACME, kind)).toBeUndefined()
    const late = cache.obtain(ACME, REPEATABLE)
    await source.last.fail('token_endpoint_unavailable')
    expect(await codeOf(late), 'not even if there is no other').toBe('token_endpoint_unavailable')
  })
})

test('a request waits no longer for a mint than the limit; the token that comes later serves the next one', async () => {
  const { cache, source } = setUp({ mintTimeoutMs: 1 })
  expect(await codeOf(cache.obtain(ACME, REPEATABLE))).toBe('token_endpoint_timeout')
  const token = await source.last.issue()
  expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
  expect(source.mints).toHaveLength(1)
})

test('after the machine slept, a token that states its end is as old as the time of day says', async () => {
  let sleptMs = 0
  const { cache, source, clock } = setUp({ lifetimeMs: undefined, day: () => clock.now() + sleptMs })
  const waiting = cache.obtain(ACME, REPEATABLE)
  await source.last.issue('jwt', clock.now() + 600_000)
  const { token } = await waiting
  sleptMs = 599_999
  expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
  sleptMs = 600_000
  expect(cache.get(ACME, 'repeatable')).toBeUndefined()
})

test('an end that has passed when the token arrives is none', async () => {
  const fixture = setUp({ lifetimeMs: undefined })
  const { cache, source, clock } = fixture
  const token = await withToken(fixture, ACME, 40_000)
  clock.advance(41_000)
  const waiting = cache.obtain(ACME, REPEATABLE)
  await source.last.issue(token.reveal().slice('Bearer '.length))
  expect((await waiting).token).toBe(token)
  for (const kind of ['repeatable', 'once'] as const) expect(cache.get(ACME, kind)?.token).toBe(token)
  clock.advance(60_000)
  expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'hit' })
  expect(source.mints).toHaveLength(2)
})

describe('refusals', () => {
  test('are remembered for that org alone, and for a while', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const first = cache.obtain(ACME, REPEATABLE)
    await source.last.fail('org_access_refused', { tokenEndpointStatus: 404 })
    expect(await codeOf(first)).toBe('org_access_refused')
    for (let i = 0; i < 100; i += 1) {
      await expect(cache.obtain(ACME, REPEATABLE)).rejects.toMatchObject({
        code: 'org_access_refused',
        tokenEndpointStatus: 404,
      })
    }
    expect(source.mints).toHaveLength(1)
    await withToken(fixture, GLOBEX)
    clock.advance(5_001)
    const again = cache.obtain(ACME, REPEATABLE)
    await source.last.issue()
    expect((await again).result).toBe('miss')
  })

  test('a token stays in use if only its refresh is refused', async () => {
    const fixture = setUp()
    const token = await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS - 500)
    fixture.cache.get(ACME, 'repeatable')
    await fixture.source.last.fail('org_access_refused', { tokenEndpointStatus: 403 })
    expect(fixture.cache.get(ACME, 'repeatable')).toEqual({ token, result: 'hit' })
    expect(orgStatuses(fixture.cache)[0]).toMatchObject({ org: 'acme', lastRefusal: { tokenEndpointStatus: 403 } })
    fixture.clock.advance(1_000)
    expect(fixture.cache.get(ACME, 'repeatable')).toMatchObject({ token, result: 'stale' })
    expect(fixture.source.mints, 'the refusal is remembered').toHaveLength(2)
  })
})

describe('purging', () => {
  test('drops the token, the refusal, and the mint under way', async () => {
    const fixture = setUp()
    const { cache, source } = fixture
    await withToken(fixture)
    expect(cache.purge(ACME)).toEqual([ACME])
    expect(cache.purge(ACME)).toEqual([])
    const before = cache.obtain(ACME, REPEATABLE)
    const underway = source.last
    cache.purge(ACME)
    const after = cache.obtain(ACME, REPEATABLE)
    await underway.issue('before')
    expect((await before).token.reveal()).toBe('Bearer before')
    const fresh = await source.last.issue('after')
    expect((await after).token).toBe(fresh)
    expect(cache.get(ACME, 'repeatable')?.token).toBe(fresh)
  })
})

describe('status', () => {
  test('age, expected life and state of each org, never a token', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    await withToken(fixture)
    clock.advance(LIFETIME_MS - 10)
    await withToken(fixture, GLOBEX)
    const refused = cache.obtain('initech' as OrgId, REPEATABLE)
    await source.last.fail('org_access_refused', { tokenEndpointStatus: 404 })
    await codeOf(refused)
    const known = { lifetimeMs: LIFETIME_MS, lastRefusal: undefined }
    expect(orgStatuses(cache)).toEqual([
      { org: 'globex', state: 'fresh', ageMs: 0, ...known },
      { org: 'acme', state: 'refreshing', ageMs: LIFETIME_MS - 10, ...known },
      {
        org: 'initech',
        state: 'refused',
        ageMs: undefined,
        lifetimeMs: undefined,
        lastRefusal: { tokenEndpointStatus: 404 },
      },
    ])
    expect(JSON.stringify(orgStatuses(cache))).not.toContain('token-')
  })
})

test('an Org keeps nothing of the request that named it first in memory', async () => {
  const { cache, source } = setUp()
  const heapBytes = () => {
    collectGarbage()
    return process.memoryUsage().heapUsed
  }
  const before = heapBytes()
  for (let i = 0; i < 1_000; i++) {
    // Flat, as the parser makes it.
    const head = Buffer.from(`x-org-id: an-org-with-a-long-id-${i}\r\n`.padEnd(20_000, '.')).toString('latin1')
    cache.mint(head.slice(10, head.indexOf('\r')) as OrgId, 'cold').catch(() => undefined)
    await source.last.issue()
    source.mints.length = 0
  }
  expect(cache.orgs.size).toBe(1_000)
  expect(heapBytes() - before).toBeLessThan(5_000_000)
})
