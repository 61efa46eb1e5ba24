import { describe, expect, test } from 'vitest'
import { orgStatuses } from '../../src/admin/status.ts'
import { TokenError } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { TokenCache, type TokenCacheOptions } from '../../src/token/token-cache.ts'
import type { AccessToken } from '../../src/token/token-source.ts'
import { eventually } from '../support/changes.ts'
import { ManualClock } from '../support/clock.ts'
import { TOKEN_CACHE_OPTIONS } from '../support/token-cache-options.ts'
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

/** By default nothing is learned, so that every token is expected to live for `LIFETIME_MS`. */
function setUp(options: Partial<TokenCacheOptions> = {}): Fixture {
  const clock = new ManualClock(1_000_000)
  const source = new ScriptedSource(clock.now)
  const events: string[] = []
  const cache = new TokenCache(
    {
      ...TOKEN_CACHE_OPTIONS,
      lifetimeMs: LIFETIME_MS,
      learns: false,
      mintTimeoutMs: 60_000,
      now: clock.now,
      // No token is left to live past its expected end.
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
  fixture.cache.orgs.peek(org)?.noteAccepted(token, fixture.clock.now(), REQUEST)
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

  test('the more rarely an org asks, the earlier the mint; at most a fiftieth of the life before its end', async () => {
    const fixture = setUp()
    const { cache, clock } = fixture
    const token = await withToken(fixture)
    for (let i = 0; i < 2; i += 1) {
      clock.advance(LIFETIME_MS * 0.4)
      cache.orgs.peek(ACME)?.noteAccepted(token, clock.now(), REQUEST)
    }
    clock.advance(LIFETIME_MS * 0.179)
    expect(cache.get(ACME, 'repeatable')?.result).toBe('hit')
    clock.advance(LIFETIME_MS * 0.002)
    expect(cache.get(ACME, 'repeatable')?.result).toBe('refreshing')
  })

  test('one request tries the new token; the others get the one before until the service has accepted it', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const former = await withToken(fixture, ACME, LIFETIME_MS * 0.999)
    clock.advance(LIFETIME_MS * 0.995)
    cache.get(ACME, 'repeatable')
    const token = await source.last.issue()
    expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
    expect(cache.get(ACME, 'repeatable')?.token).toBe(former)
    expect(cache.get(ACME, 'once')?.token, 'too near its end').toBe(token)
    clock.advance(LIFETIME_MS * 0.004)
    expect(cache.get(ACME, 'repeatable')?.token, 'the stated end').toBe(token)
    cache.orgs.peek(ACME)?.noteAccepted(token, clock.now(), REQUEST)
    expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
  })

  test('a mint that fails keeps the good token, and is tried again with growing pauses, not for every request', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS - 900)
    const triedAt: number[] = []
    for (let i = 0; i < 4_500; i += 1) {
      expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
      if (source.mints.length > 1 + triedAt.length) {
        triedAt.push(clock.now())
        await source.last.fail('token_endpoint_unavailable')
      }
      clock.advance(5)
    }
    const pauses = triedAt.slice(1).map((at, i) => at - (triedAt[i] ?? 0))
    expect(pauses, 'five seconds at most').toEqual([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000])
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

  test('a token that the endpoint gives again keeps its age, and the next mint comes later', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS - 100)
    cache.get(ACME, 'repeatable')
    await source.last.issue(token.reveal().slice('Bearer '.length))
    for (let i = 0; i < 100; i += 1) expect(cache.get(ACME, 'repeatable')?.token).toBe(token)
    clock.advance(2_000)
    expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'hit' })
    expect(source.mints).toHaveLength(2)
    clock.advance(501)
    cache.get(ACME, 'repeatable')
    const renewed = cache.obtain(ACME, REPEATABLE)
    expect(source.mints).toHaveLength(3)
    const fresh = await source.last.issue()
    expect((await renewed).token).toBe(fresh)
  })
})

describe('requests that cannot be repeated', () => {
  test('keep a distance from the end', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS * 0.97)
    expect(cache.get(ACME, 'once')).toEqual({ token, result: 'hit' })
    clock.advance(LIFETIME_MS * 0.011)
    expect(cache.get(ACME, 'once')).toBeUndefined()
    const obtained = cache.obtain(ACME, { kind: 'once' })
    const fresh = await source.last.issue()
    expect(await obtained).toEqual({ token: fresh, result: 'miss' })
  })

  test('get the present token if there is no better one', async () => {
    const fixture = setUp()
    const token = await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS * 0.99)
    const obtained = fixture.cache.obtain(ACME, { kind: 'once' })
    await fixture.source.last.fail('token_endpoint_unavailable')
    expect(await obtained).toEqual({ token, result: 'stale' })
  })

  test('a handshake gets a token in the first half of its life', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS / 2)
    expect(cache.get(ACME, 'handshake')).toEqual({ token, result: 'hit' })
    clock.advance(1)
    expect(cache.get(ACME, 'handshake')).toBeUndefined()
    const obtained = cache.obtain(ACME, { kind: 'handshake' })
    expect(source.last.options.reason).toBe('handshake')
    const fresh = await source.last.issue()
    expect(await obtained).toEqual({ token: fresh, result: 'miss' })
  })

  test('where no life is known, a token is good that was accepted lately, or is not much older than one that was', async () => {
    const fixture = setUp({ learns: true })
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    await withToken(fixture, GLOBEX)
    clock.advance(LIFETIME_MS * 3)
    expect(cache.get(ACME, 'once')).toBeUndefined()
    cache.orgs.peek(ACME)?.noteAccepted(token, clock.now(), REQUEST)
    clock.advance(14_000)
    expect(cache.get(ACME, 'once')?.token).toBe(token)
    expect(cache.get(ACME, 'handshake')?.token).toBe(token)
    source.last.options.onDeathTold?.(LIFETIME_MS * 3.1)
    expect(cache.get(ACME, 'once'), 'one of another replica died at about this age').toBeUndefined()
    source.last.options.onDeathTold?.(LIFETIME_MS * 2)
    expect(cache.get(ACME, 'once'), 'lives differ').toBeUndefined()
    cache.orgs.peek(ACME)?.noteAccepted(token, clock.now() - 9_000, REQUEST)
    expect(cache.get(ACME, 'once')?.token).toBe(token)
    cache.orgs.peek(GLOBEX)?.condemn(clock.now())
    expect(cache.get(ACME, 'once'), 'another one of this age may have died').toBeUndefined()
  })
})

describe('past the expected end', () => {
  test('one request waits a little for an endpoint that hangs; the next ones get the old token at once', async () => {
    const fixture = setUp({ mintTimeoutMs: 60_000 })
    const { cache, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS * 2)
    expect(await cache.obtain(ACME, REPEATABLE)).toEqual({ token, result: 'stale' })
    for (let i = 0; i < 100; i += 1) {
      expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'stale' })
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

  test('a request that waits little loses its token meanwhile: it waits on', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    await withToken(fixture)
    clock.advance(LIFETIME_MS)
    const obtained = cache.obtain(ACME, REPEATABLE)
    cache.purge()
    await eventually(() => source.mints.length === 3 || undefined, 'the next wait')
    const fresh = await source.last.issue()
    expect((await obtained).token).toBe(fresh)
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
      for (let i = 0; i < 100; i += 1) expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'stale' })
      expect(source.mints).toHaveLength(2)
      clock.advance(5_001)
      expect(cache.get(ACME, 'repeatable')).toEqual({ token, result: 'stale' })
      expect(source.mints).toHaveLength(3)
      const fresh = await source.last.issue()
      expect(cache.get(ACME, 'repeatable')?.token).toBe(fresh)
    },
  )

  test.each([
    ['as long as a mint may take if its token has stated its end', 40_000, 60_000],
    ['a little if it can go on with its token', undefined, 250],
  ])('a request waits %s', async (_, lifeMs, waitMs) => {
    const delays: number[] = []
    const wait: TokenCache['wait'] = async (delayMs, sooner) => {
      delays.push(delayMs)
      return await sooner
    }
    const fixture = setUp({ learns: lifeMs !== undefined, wait })
    const { cache, source, clock } = fixture
    await withToken(fixture, ACME, lifeMs)
    clock.advance(LIFETIME_MS)
    const next = cache.obtain(ACME, REPEATABLE)
    const fresh = await source.last.issue('next')
    expect((await next).token).toBe(fresh)
    expect(delays.at(-1)).toBe(waitMs)
  })

  test('a token is never sent past the end that it states', async () => {
    const fixture = setUp({ learns: true })
    const { cache, source, clock } = fixture
    await withToken(fixture, ACME, 40_000)
    clock.advance(35_900)
    expect(cache.get(ACME, 'repeatable')?.result).toBe('hit')
    clock.advance(3_799)
    expect(cache.get(ACME, 'repeatable')?.result).toBe('refreshing')
    await source.last.fail('token_endpoint_unavailable')
    clock.advance(400)
    for (const kind of ['repeatable', 'once', 'handshake'] as const) expect(cache.get(ACME, kind)).toBeUndefined()
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

test.each([
  ['', 0.999],
  [' that is left to live to its end', 0],
])('a token%s that the endpoint gives again past its stated end: one mint in a second', async (_, random) => {
  const fixture = setUp({ learns: true, random: () => random })
  const { cache, source, clock } = fixture
  const token = await withToken(fixture, ACME, 40_000)
  clock.advance(41_000)
  const waiting = cache.obtain(ACME, REPEATABLE)
  await source.last.issue(token.reveal().slice('Bearer '.length))
  expect((await waiting).token).toBe(token)
  for (const kind of ['repeatable', 'once', 'handshake'] as const) expect(cache.get(ACME, kind)?.token).toBe(token)
  clock.advance(1_100)
  expect(cache.get(ACME, 'repeatable')).toBeUndefined()
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
    expect(fixture.cache.get(ACME, 'repeatable')).toEqual({ token, result: 'stale' })
    expect(fixture.source.mints).toHaveLength(2)
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
