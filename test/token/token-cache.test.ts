import { describe, expect, test } from 'vitest'
import { TokenError } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { LifetimeEstimator } from '../../src/token/lifetime.ts'
import { TokenCache, type TokenCacheOptions } from '../../src/token/token-cache.ts'
import { AccessToken, MintGoesOn } from '../../src/token/token-source.ts'
import { ManualClock } from '../support/clock.ts'
import { ScriptedSource, settled } from './scripted-source.ts'

const ACME = 'acme' as OrgId
const GLOBEX = 'globex' as OrgId
const LIFETIME_MS = 100_000
/** The largest jitter: the refresh begins with the last tenth. */
const EARLY = 0.999

interface Fixture {
  readonly cache: TokenCache
  readonly source: ScriptedSource
  readonly clock: ManualClock
  readonly estimator: LifetimeEstimator
  readonly events: string[]
}

function setUp(options: Partial<TokenCacheOptions> = {}, learns = false): Fixture {
  const clock = new ManualClock(1_000_000)
  const source = new ScriptedSource(clock.now)
  const events: string[] = []
  const estimator = new LifetimeEstimator({
    lifetimeMs: LIFETIME_MS,
    minLifetimeMs: 10_000,
    maxLifetimeMs: 3_600_000,
    learns,
  })
  const cache = new TokenCache(
    {
      maxOrgs: 100,
      refusalTtlMs: 5_000,
      rejectedCooldownMs: 10_000,
      estimator,
      now: clock.now,
      random: () => EARLY,
      observer: {
        tokenRejected: (org) => events.push(`rejected ${org}`),
        tokenEvicted: (org) => events.push(`evicted ${org}`),
        orgRefused: (org) => events.push(`refused ${org}`),
      },
      ...options,
    },
    source,
  )
  return { cache, source, clock, estimator, events }
}

/** Mints a token for the org now. */
async function withToken(fixture: Fixture, org = ACME): Promise<AccessToken> {
  const obtained = fixture.cache.obtain(org)
  await fixture.source.last.issue()
  return (await obtained).token
}

async function codeOf(promise: Promise<unknown>): Promise<string> {
  const error = await promise.catch((reason: unknown) => reason)
  if (error instanceof TokenError) return error.code
  throw new Error('no TokenError')
}

describe('one mint per org', () => {
  test('T-TK-03 a thousand waiting requests share it', async () => {
    const fixture = setUp()
    const { cache, source } = fixture
    expect(cache.get(ACME)).toBeUndefined()
    const leases = Array.from({ length: 1_000 }, () => cache.obtain(ACME))
    const token = await source.last.issue()
    const results = (await Promise.all(leases)).map((lease) => {
      expect(lease.token).toBe(token)
      return lease.result
    })
    expect(source.mints).toHaveLength(1)
    expect(source.last.options.reason).toBe('cold')
    expect(results.filter((result) => result === 'miss')).toHaveLength(1)
    expect(results.filter((result) => result === 'joined')).toHaveLength(999)
    expect(cache.get(ACME)).toEqual({ token, result: 'hit' })
  })

  test('a failed mint fails all waiting requests, and the next request mints again', async () => {
    const { cache, source } = setUp()
    const waiting = [cache.obtain(ACME), cache.obtain(ACME)]
    await source.last.fail('token_endpoint_unavailable')
    expect(await Promise.all(waiting.map(codeOf))).toEqual(['token_endpoint_unavailable', 'token_endpoint_unavailable'])
    const again = cache.obtain(ACME)
    expect(source.mints).toHaveLength(2)
    await source.last.issue()
    expect((await again).result).toBe('miss')
  })

  test('T-ID-24 orgs that wait at the same time each get their own outcome, in whatever order', async () => {
    const { cache, source } = setUp()
    const acme = cache.obtain(ACME)
    const globex = cache.obtain(GLOBEX)
    const initech = cache.obtain('initech' as OrgId)
    const [ofAcme, ofGlobex, ofInitech] = source.mints
    const forGlobex = await ofGlobex?.issue()
    await ofInitech?.fail('org_access_refused')
    const forAcme = await ofAcme?.issue()
    expect((await globex).token).toBe(forGlobex)
    expect((await acme).token).toBe(forAcme)
    expect(await codeOf(initech)).toBe('org_access_refused')
    expect(cache.get(ACME)?.token).toBe(forAcme)
    expect(cache.get(GLOBEX)?.token).toBe(forGlobex)
  })

  test('T-TK-27 more orgs at once than the cache holds: each gets its token', async () => {
    const { cache, source, events } = setUp({ maxOrgs: 2 })
    const orgs = Array.from({ length: 10 }, (_, i) => `org-${i}` as OrgId)
    const leases = orgs.map((org) => cache.obtain(org))
    for (const mint of source.mints) await mint.issue(`token-of-${mint.org}`)
    const tokens = (await Promise.all(leases)).map((lease) => lease.token.reveal())
    expect(tokens).toEqual(orgs.map((org) => `Bearer token-of-${org}`))
    expect(source.mints).toHaveLength(10)
    expect(cache.size).toBe(2)
    expect(events).toHaveLength(8)
  })

  test('T-TK-27 the least recently used goes first', async () => {
    const fixture = setUp({ maxOrgs: 2 })
    const { cache, events } = fixture
    await withToken(fixture, ACME)
    await withToken(fixture, GLOBEX)
    cache.get(ACME)
    await withToken(fixture, 'initech' as OrgId)
    expect(events).toEqual(['evicted globex'])
    expect(cache.knownOrgs()).toEqual(['initech', 'acme'])
  })
})

describe('ahead of time', () => {
  test('in the last tenth: requests get the present token, and one mint runs in the background', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS * 0.9 - 1)
    expect(cache.get(ACME)).toEqual({ token, result: 'hit' })
    expect(source.mints).toHaveLength(1)
    clock.advance(1_000)
    for (let i = 0; i < 100; i += 1) expect(cache.get(ACME)).toEqual({ token, result: 'refreshing' })
    expect(source.mints).toHaveLength(2)
    expect(source.last.options.reason).toBe('refresh')
    const successor = await source.last.issue()
    expect(cache.get(ACME)).toEqual({ token: successor, result: 'hit' })
  })

  test('but at most 30 s before the end', async () => {
    const bounds = { minLifetimeMs: 10_000, maxLifetimeMs: 3_600_000 }
    const estimator = new LifetimeEstimator({ ...bounds, lifetimeMs: 3_600_000, learns: false })
    const fixture = setUp({ estimator })
    await withToken(fixture)
    fixture.clock.advance(3_600_000 - 31_000)
    expect(fixture.cache.get(ACME)?.result).toBe('hit')
    fixture.clock.advance(2_000)
    expect(fixture.cache.get(ACME)?.result).toBe('refreshing')
  })

  test('jittered: tokens minted together are not renewed together', async () => {
    const draws = [0, 1, 0.5].values()
    const fixture = setUp({ random: () => draws.next().value ?? 0 })
    const { cache, clock } = fixture
    for (const org of ['a', 'b', 'c'] as OrgId[]) await withToken(fixture, org)
    clock.advance(LIFETIME_MS * 0.92)
    const results = (['a', 'b', 'c'] as OrgId[]).map((org) => cache.get(org)?.result)
    expect(results).toEqual(['hit', 'refreshing', 'hit'])
  })

  test('T-TK-25 a failing refresh keeps the good token, and is tried again with growing pauses, not on every request', async () => {
    const fixture = setUp({ random: () => 1 })
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS * 0.905)
    const triedAt: number[] = []
    for (let i = 0; i < 4_500; i += 1) {
      expect(cache.get(ACME)?.token).toBe(token)
      if (source.mints.length > 1 + triedAt.length) {
        triedAt.push(clock.now())
        await source.last.fail('token_endpoint_unavailable')
      }
      clock.advance(5)
    }
    const pauses = triedAt.slice(1).map((at, i) => at - (triedAt[i] ?? 0))
    expect(pauses, 'five seconds at most').toEqual([100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000])
  })

  test('after a refresh that succeeds, pauses start anew, and past the estimate a request waits again', async () => {
    const fixture = setUp({ random: () => 1 })
    const { cache, source, clock } = fixture
    await withToken(fixture)
    clock.advance(LIFETIME_MS * 0.95)
    for (const pauseMs of [100, 200, 400]) {
      cache.get(ACME)
      await source.last.fail('token_endpoint_unavailable')
      clock.advance(pauseMs)
    }
    cache.get(ACME)
    await source.last.issue()
    clock.advance(LIFETIME_MS * 0.95)
    const mints = source.mints.length
    cache.get(ACME)
    await source.last.fail('token_endpoint_unavailable')
    clock.advance(99)
    cache.get(ACME)
    expect(source.mints).toHaveLength(mints + 1)
    clock.advance(1)
    cache.get(ACME)
    expect(source.mints).toHaveLength(mints + 2)
    await source.last.issue()
    clock.advance(LIFETIME_MS * 1.01)
    expect(cache.get(ACME)).toBeUndefined()
  })

  test('a background mint that fails causes no unhandled rejection', async () => {
    const unhandled: unknown[] = []
    const note = (reason: unknown) => unhandled.push(reason)
    process.on('unhandledRejection', note)
    const fixture = setUp()
    await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS * 0.95)
    fixture.cache.get(ACME)
    await fixture.source.last.failWith(new Error('a fault of ours'))
    // Node reports them at the end of a turn.
    await new Promise((resolve) => setImmediate(resolve))
    process.off('unhandledRejection', note)
    expect(unhandled).toEqual([])
  })

  test('an unused token is never renewed', async () => {
    const fixture = setUp()
    await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS * 10)
    await settled()
    expect(fixture.source.mints).toHaveLength(1)
  })

  test('a handshake gets a token in the first half of its life', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS / 2 - 1)
    expect(cache.getForHandshake(ACME)).toEqual({ token, result: 'hit' })
    clock.advance(1)
    expect(cache.getForHandshake(ACME)).toBeUndefined()
    const obtained = cache.obtain(ACME, { forHandshake: true })
    expect(source.last.options.reason).toBe('handshake')
    const fresh = await source.last.issue()
    expect(await obtained).toEqual({ token: fresh, result: 'miss' })
    expect(cache.get(ACME)?.token).toBe(fresh)
  })

  test('a handshake gets the present token if no other can be had', async () => {
    const fixture = setUp()
    const token = await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS * 0.7)
    const obtained = fixture.cache.obtain(ACME, { forHandshake: true })
    await fixture.source.last.fail('token_endpoint_unavailable')
    expect(await obtained).toEqual({ token, result: 'hit' })
  })
})

describe('past the estimate', () => {
  test('a request waits for a mint', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    await withToken(fixture)
    clock.advance(LIFETIME_MS)
    expect(cache.get(ACME)).toBeUndefined()
    const obtained = cache.obtain(ACME)
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
  ] as const)(
    'if the mint fails with %s, requests get the old token, and nobody waits for the next failure',
    async (code) => {
      const fixture = setUp()
      const { cache, source, clock } = fixture
      const token = await withToken(fixture)
      clock.advance(LIFETIME_MS * 2)
      const obtained = cache.obtain(ACME)
      await source.last.fail(code)
      expect(await obtained).toEqual({ token, result: 'stale' })
      for (let i = 0; i < 100; i += 1) expect(cache.get(ACME)).toEqual({ token, result: 'stale' })
      expect(source.mints).toHaveLength(2)
      clock.advance(5_000)
      expect(cache.get(ACME)).toEqual({ token, result: 'stale' })
      expect(source.mints).toHaveLength(3)
      const fresh = await source.last.issue()
      expect(cache.get(ACME)).toEqual({ token: fresh, result: 'hit' })
    },
  )

  test('T-TK-10 a refusal of the org is not a passing failure', async () => {
    const fixture = setUp()
    await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS * 2)
    const obtained = fixture.cache.obtain(ACME)
    await fixture.source.last.fail('org_access_refused', { tokenEndpointStatus: 403 })
    expect(await codeOf(obtained)).toBe('org_access_refused')
  })

  test('a rejected token is not used again', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    expect(cache.retire(ACME, token)).toBe(true)
    clock.advance(1)
    expect(cache.get(ACME)).toBeUndefined()
    const obtained = cache.obtain(ACME)
    expect(source.last.options.reason).toBe('rejected')
    await source.last.fail('token_endpoint_unavailable')
    expect(await codeOf(obtained)).toBe('token_endpoint_unavailable')
  })

  test('a token is not used past its stated end', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const obtained = cache.obtain(ACME)
    await source.last.issue('jwt', clock.now() + 40_000)
    await obtained
    clock.advance(35_999)
    expect(cache.get(ACME)?.result).toBe('hit')
    clock.advance(100)
    expect(cache.get(ACME)?.result).toBe('refreshing')
    clock.advance(4_000)
    expect(cache.get(ACME)).toBeUndefined()
  })
})

describe('rejected by the origin', () => {
  test('T-TK-18 the token is replaced once, and resolves with the replacement', async () => {
    const fixture = setUp()
    const { cache, source, events } = fixture
    const token = await withToken(fixture)
    const replacement = cache.rejected(ACME, token)
    expect(source.last.options.reason).toBe('rejected')
    expect(cache.get(ACME)).toBeUndefined()
    const fresh = await source.last.issue()
    expect(await replacement).toBe(fresh)
    expect(cache.get(ACME)?.token).toBe(fresh)
    expect(events).toEqual(['rejected acme'])
  })

  test('T-TK-20 a thousand rejections of one token cause one mint', async () => {
    const fixture = setUp()
    const { cache, source } = fixture
    const token = await withToken(fixture)
    const replacements = Array.from({ length: 1_000 }, () => cache.rejected(ACME, token))
    const fresh = await source.last.issue()
    for (const replacement of replacements) expect(await replacement).toBe(fresh)
    for (let i = 0; i < 1_000; i += 1) expect(await cache.rejected(ACME, token)).toBe(fresh)
    expect(source.mints).toHaveLength(2)
  })

  test('T-TK-21 a late rejection of an old token does not retire its successor', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const old = await withToken(fixture)
    clock.advance(LIFETIME_MS * 0.95)
    cache.get(ACME)
    const fresh = await source.last.issue()
    expect(await cache.rejected(ACME, old)).toBe(fresh)
    expect(cache.retire(ACME, old)).toBe(false)
    expect(cache.get(ACME)?.token).toBe(fresh)
    expect(source.mints).toHaveLength(2)
  })

  test('T-TK-19 an origin that always rejects costs one mint per cool-down', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    await withToken(fixture)
    let passedOn = 0
    for (let i = 0; i < 1_000; i += 1) {
      const lease = cache.get(ACME)
      if (lease === undefined) throw new Error('no token')
      const replacement = cache.rejected(ACME, lease.token)
      if (replacement === undefined) passedOn += 1
      else {
        const fresh = await source.last.issue()
        cache.repeatSettled(ACME, fresh, false)
      }
      clock.advance(25) // 25 s in all: two cool-downs and a half
    }
    expect(source.mints).toHaveLength(1 + 3)
    expect(passedOn).toBe(1_000 - 3)
  })

  test('in the cool-down the token is kept', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const first = await withToken(fixture)
    cache.rejected(ACME, first)
    const second = await source.last.issue()
    clock.advance(9_999)
    expect(cache.rejected(ACME, second)).toBeUndefined()
    expect(cache.retire(ACME, second)).toBe(false)
    expect(cache.get(ACME)?.token).toBe(second)
    clock.advance(1)
    expect(cache.retire(ACME, second)).toBe(true)
    expect(cache.get(ACME)).toBeUndefined()
  })

  test('a token that is issued again unchanged causes no loop', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const obtained = cache.obtain(ACME)
    await source.last.issue('always-the-same')
    const { token } = await obtained
    const replacement = cache.rejected(ACME, token)
    await source.last.issue('always-the-same')
    expect(await replacement).toBe(token)
    expect(cache.rejected(ACME, token)).toBeUndefined()
    clock.advance(9_999)
    expect(cache.rejected(ACME, token)).toBeUndefined()
    expect(source.mints).toHaveLength(2)
  })

  test('a rejection whose mint fails gets the error, and the next request mints', async () => {
    const fixture = setUp()
    const { cache, source } = fixture
    const token = await withToken(fixture)
    const replacement = cache.rejected(ACME, token)
    await source.last.fail('token_endpoint_unavailable')
    expect(await codeOf(replacement ?? Promise.resolve())).toBe('token_endpoint_unavailable')
    // A request that was sent with the dead token does not get this error. It waits for the next mint, like any other.
    const later = cache.rejected(ACME, token)
    const obtained = cache.obtain(ACME)
    const fresh = await source.last.issue()
    expect(await later).toBe(fresh)
    expect((await obtained).token).toBe(fresh)
    expect(source.mints).toHaveLength(3)
  })

  test('rejections of an org that was evicted meanwhile: one mint for all', async () => {
    const fixture = setUp({ maxOrgs: 1 })
    const { cache, source } = fixture
    const token = await withToken(fixture)
    await withToken(fixture, GLOBEX)
    const replacements = [cache.rejected(ACME, token), cache.rejected(ACME, token)]
    const fresh = await source.last.issue()
    expect(await Promise.all(replacements)).toEqual([fresh, fresh])
    expect(source.mints).toHaveLength(3)
  })
})

describe('deaths in quick succession', () => {
  /** The token is accepted, dies and is replaced. Undefined in the cool-down. */
  async function die(fixture: Fixture, token: AccessToken): Promise<AccessToken | undefined> {
    const replacement = fixture.cache.rejected(ACME, token)
    if (replacement !== undefined) await fixture.source.last.issue()
    return await replacement
  }

  test('cause a mint each as long as each new token was accepted, three in a cool-down', async () => {
    const fixture = setUp()
    const { cache, clock } = fixture
    let token = await withToken(fixture)
    for (let death = 0; death < 3; death += 1) {
      clock.advance(1_000)
      const successor = await die(fixture, token)
      expect(successor).toBeDefined()
      token = successor ?? token
      cache.repeatSettled(ACME, token, true)
    }
    clock.advance(1_000)
    expect(await die(fixture, token)).toBeUndefined()
    clock.advance(7_000)
    expect(await die(fixture, token), 'the first of the three is ten seconds ago').toBeDefined()
  })

  test('cause one mint if the token before was accepted and its replacement is not', async () => {
    const fixture = setUp()
    const old = await withToken(fixture)
    fixture.cache.accepted(ACME, old)
    const token = (await die(fixture, old)) ?? old
    expect(token).not.toBe(old)
    expect(await die(fixture, token)).toBeUndefined()
  })

  test('cause one mint if the endpoint gives the accepted token again', async () => {
    const fixture = setUp()
    const { cache, source } = fixture
    const token = await withToken(fixture)
    cache.accepted(ACME, token)
    const replacement = cache.rejected(ACME, token)
    await source.last.issue(token.reveal().slice('Bearer '.length))
    expect(await replacement).toBe(token)
    expect(cache.rejected(ACME, token)).toBeUndefined()
  })

  test('cause none if the new token was not accepted yet, or an older one was', async () => {
    const fixture = setUp()
    const { cache } = fixture
    const old = await withToken(fixture)
    const token = (await die(fixture, old)) ?? old
    cache.accepted(ACME, old)
    expect(await die(fixture, token)).toBeUndefined()
    cache.accepted(ACME, token)
    expect(await die(fixture, token)).toBeDefined()
  })
})

describe('the source gets', () => {
  test('the reason, the token to be replaced, and who asks', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const requester = { connection: 1 }
    const obtained = cache.obtain(ACME, { requester })
    const { options } = source.last
    expect(options).toMatchObject({ reason: 'cold', replaces: undefined })
    expect(options.requester).toBe(requester)
    const token = await source.last.issue()
    await obtained
    clock.advance(LIFETIME_MS * 0.95)
    cache.get(ACME)
    expect(source.last.options.reason).toBe('refresh')
    expect(source.last.options.replaces).toBe(token)
    await source.last.fail('token_endpoint_unavailable')
    cache.rejected(ACME, token)
    expect(source.last.options.reason).toBe('rejected')
    expect(source.last.options.replaces).toBe(token)
  })
})

test('a rejection during a mint causes no other, and starts no cool-down', async () => {
  const fixture = setUp()
  const { cache, source, clock } = fixture
  const first = await withToken(fixture)
  clock.advance(LIFETIME_MS * 0.95)
  expect(cache.get(ACME)).toEqual({ token: first, result: 'refreshing' })
  clock.advance(100)
  cache.rejected(ACME, first)
  const second = await source.last.issue()
  expect(source.mints).toHaveLength(2)

  const replacement = cache.rejected(ACME, second)
  expect(source.mints).toHaveLength(3)
  const third = await source.last.issue()
  await expect(replacement).resolves.toBe(third)
  expect(cache.rejected(ACME, third), 'the replacement was rejected too').toBeUndefined()
})

describe('a token that comes late', () => {
  async function untilLate(fixture: Fixture) {
    const { cache, source, clock } = fixture
    const obtained = cache.obtain(ACME)
    let issue: (token: AccessToken) => void = () => {}
    const late = new Promise<AccessToken>((resolve) => {
      issue = resolve
    })
    await source.last.failWith(new MintGoesOn('token_endpoint_unavailable', 'scripted', late))
    expect(await codeOf(obtained)).toBe('token_endpoint_unavailable')
    expect(cache.get(ACME)).toBeUndefined()
    return async () => {
      issue(new AccessToken('late', clock.now()))
      await settled()
    }
  }

  test('is kept for its org', async () => {
    const fixture = setUp()
    const issue = await untilLate(fixture)
    await issue()
    expect(fixture.cache.get(ACME)?.token.reveal()).toBe('Bearer late')
  })

  test('is not kept if the org was purged meanwhile, or has a newer one', async () => {
    const purged = setUp()
    const issue = await untilLate(purged)
    purged.cache.purge(ACME)
    await issue()
    expect(purged.cache.get(ACME)).toBeUndefined()

    const renewed = setUp()
    const issueOld = await untilLate(renewed)
    const token = await withToken(renewed)
    await issueOld()
    expect(renewed.cache.get(ACME)?.token).toBe(token)
  })
})

test('of two late tokens, the one that was requested last is kept', async () => {
  const { cache, source, clock } = setUp()
  const issueLate: ((token: AccessToken) => void)[] = []
  for (let i = 0; i < 2; i += 1) {
    const obtained = cache.obtain(ACME)
    const late = new Promise<AccessToken>((resolve) => issueLate.push(resolve))
    await source.last.failWith(new MintGoesOn('token_endpoint_unavailable', 'scripted', late))
    expect(await codeOf(obtained)).toBe('token_endpoint_unavailable')
  }
  for (const [i, issue] of issueLate.entries()) {
    issue(new AccessToken(`late-${i}`, clock.now()))
    await settled()
  }
  expect(cache.get(ACME)?.token.reveal()).toBe('Bearer late-1')
})

describe('the endpoint issues the same token again', () => {
  test('it keeps its age; the refresh is tried again, but not at once', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const obtained = cache.obtain(ACME)
    await source.last.issue('cached-there')
    const { token } = await obtained
    clock.advance(LIFETIME_MS * 0.91)
    cache.get(ACME)
    await source.last.issue('cached-there')
    for (let i = 0; i < 100; i += 1) expect(cache.get(ACME)).toEqual({ token, result: 'refreshing' })
    expect(source.mints).toHaveLength(2)
    clock.advance(LIFETIME_MS / 40)
    cache.get(ACME)
    expect(source.mints).toHaveLength(3)
    await source.last.issue('cached-there')
    clock.advance(LIFETIME_MS)
    expect(cache.get(ACME)).toEqual({ token, result: 'stale' })
    const fresh = await source.last.issue('another')
    expect(cache.get(ACME)).toEqual({ token: fresh, result: 'hit' })
  })
})

describe('refusals', () => {
  test('T-TK-10 are remembered for that org alone, and for a while', async () => {
    const fixture = setUp()
    const { cache, source, clock, events } = fixture
    const first = cache.obtain(ACME)
    await source.last.fail('org_access_refused', { tokenEndpointStatus: 404 })
    expect(await codeOf(first)).toBe('org_access_refused')
    for (let i = 0; i < 100; i += 1) {
      await expect(cache.obtain(ACME)).rejects.toMatchObject({ code: 'org_access_refused', tokenEndpointStatus: 404 })
    }
    expect(source.mints).toHaveLength(1)
    expect(events).toEqual(['refused acme'])
    await withToken(fixture, GLOBEX)
    clock.advance(5_000)
    const again = cache.obtain(ACME)
    await source.last.issue()
    expect((await again).result).toBe('miss')
  })

  test('passing failures are not remembered', async () => {
    const { cache, source } = setUp()
    for (let i = 1; i <= 3; i += 1) {
      const obtained = cache.obtain(ACME)
      await source.last.fail('token_endpoint_rate_limited')
      await codeOf(obtained)
      expect(source.mints).toHaveLength(i)
    }
  })

  test('T-TK-29 a flood of unknown orgs evicts no token', async () => {
    const fixture = setUp({ maxOrgs: 10 })
    const { cache, source, events } = fixture
    const token = await withToken(fixture)
    for (let i = 0; i < 1_000; i += 1) {
      const obtained = cache.obtain(`unknown-${i}` as OrgId)
      await source.last.fail('org_access_refused', { tokenEndpointStatus: 404 })
      await codeOf(obtained)
    }
    expect(cache.get(ACME)?.token).toBe(token)
    expect(cache.size).toBe(1)
    expect(cache.status().filter((org) => org.state === 'refused')).toHaveLength(10)
    expect(events.filter((event) => event.startsWith('evicted'))).toEqual([])
  })

  test('a token stays in use if only its refresh is refused', async () => {
    const fixture = setUp()
    const token = await withToken(fixture)
    fixture.clock.advance(LIFETIME_MS * 0.95)
    fixture.cache.get(ACME)
    await fixture.source.last.fail('org_access_refused', { tokenEndpointStatus: 403 })
    expect(fixture.cache.get(ACME)).toEqual({ token, result: 'refreshing' })
    expect(fixture.cache.status()[0]).toMatchObject({ org: 'acme', lastRefusal: { tokenEndpointStatus: 403 } })
  })
})

describe('purging', () => {
  test('drops the token, the refusal, and the mint under way', async () => {
    const fixture = setUp()
    const { cache, source } = fixture
    await withToken(fixture)
    expect(cache.purge(ACME)).toBe(true)
    expect(cache.purge(ACME)).toBe(false)
    const before = cache.obtain(ACME)
    const underway = source.last
    cache.purge(ACME)
    const after = cache.obtain(ACME)
    const fresh = await source.last.issue('after')
    await underway.issue('before')
    expect((await before).token.reveal()).toBe('Bearer before')
    expect((await after).token).toBe(fresh)
    expect(cache.get(ACME)?.token).toBe(fresh)
  })

  test('of all returns their number', async () => {
    const fixture = setUp()
    await withToken(fixture, ACME)
    await withToken(fixture, GLOBEX)
    expect(fixture.cache.purgeAll()).toBe(2)
    expect(fixture.cache.size).toBe(0)
  })
})

describe('status', () => {
  test('age, assumed lifetime and state of each org, never a token', async () => {
    const fixture = setUp()
    const { cache, source, clock } = fixture
    const token = await withToken(fixture)
    clock.advance(1_000)
    expect(cache.status()).toEqual([
      { org: 'acme', state: 'fresh', ageMs: 1_000, lifetimeMs: LIFETIME_MS, lastRefusal: undefined },
    ])
    clock.advance(LIFETIME_MS * 0.95)
    expect(cache.status()[0]?.state).toBe('refreshing')
    clock.advance(LIFETIME_MS)
    expect(cache.status()[0]?.state).toBe('stale')
    cache.retire(ACME, token)
    expect(cache.status()[0]?.state).toBe('rejected')
    const refused = cache.obtain(GLOBEX)
    await source.last.fail('org_access_refused', { tokenEndpointStatus: 403 })
    await codeOf(refused)
    clock.advance(7)
    expect(cache.status()[1]).toEqual({
      org: 'globex',
      state: 'refused',
      ageMs: undefined,
      lifetimeMs: undefined,
      lastRefusal: { tokenEndpointStatus: 403, agoMs: 7 },
    })
    expect(JSON.stringify(cache.status())).not.toContain('token-')
  })
})

describe('learning', () => {
  /** Uses the org's token until `ageMs`, as its last accepted age. */
  function useUntil({ cache, clock }: Fixture, token: AccessToken, ageMs: number): void {
    clock.advance(token.mintedAt + ageMs - clock.now())
    cache.accepted(ACME, token, clock.now())
  }

  async function die(fixture: Fixture, token: AccessToken, deadMs: number, isReplacementAccepted = true) {
    const { cache, source, clock } = fixture
    clock.advance(token.mintedAt + deadMs - clock.now())
    const replacement = cache.rejected(ACME, token)
    await source.last.issue()
    const successor = await replacement
    if (successor === undefined) throw new Error('in the cool-down')
    cache.repeatSettled(ACME, successor, isReplacementAccepted)
    return successor
  }

  test('a death counts once the replacement was accepted', async () => {
    const fixture = setUp({}, true)
    const token = await withToken(fixture)
    useUntil(fixture, token, 39_000)
    await die(fixture, token, 40_000)
    expect(fixture.estimator.estimateMs).toBe(39_000)
  })

  test('an origin that rejects the replacement too does not change the lifetime', async () => {
    const fixture = setUp({}, true)
    const token = await withToken(fixture)
    await die(fixture, token, 40_000, false)
    expect(fixture.estimator.estimateMs).toBe(LIFETIME_MS)
  })

  describe('a rejection while the replacement is under way', () => {
    const LATE_MS = LIFETIME_MS - 100

    async function rejectWhileReplaced(fixture: Fixture): Promise<AccessToken> {
      const { cache, source, clock } = fixture
      const token = await withToken(fixture)
      clock.advance(token.mintedAt + LATE_MS - clock.now())
      expect(cache.get(ACME)?.result).toBe('refreshing')
      clock.advance(10)
      const replacement = cache.rejected(ACME, token)
      const successor = await source.last.issue()
      expect(await replacement).toBe(successor)
      cache.repeatSettled(ACME, successor, true)
      return successor
    }

    test('does not count for the lifetime, but the next token shows whether the old one died of age', async () => {
      const fixture = setUp({}, true)
      const successor = await rejectWhileReplaced(fixture)
      expect(fixture.estimator.estimateMs).toBe(LIFETIME_MS)
      fixture.clock.advance(successor.mintedAt + LATE_MS - fixture.clock.now())
      expect(fixture.cache.get(ACME)).toEqual({ token: successor, result: 'hit' })
      await die(fixture, successor, LATE_MS + 10)
      expect(fixture.estimator.estimateMs).toBeLessThan(LATE_MS)
    })

    test('once the origin has accepted the next token at that age, it is replaced in the background', async () => {
      const fixture = setUp({}, true)
      const successor = await rejectWhileReplaced(fixture)
      useUntil(fixture, successor, LIFETIME_MS / 2)
      useUntil(fixture, successor, LATE_MS)
      expect(fixture.cache.get(ACME)).toEqual({ token: successor, result: 'refreshing' })
      expect(fixture.estimator.estimateMs).toBe(LIFETIME_MS)
    })
  })

  test('the age at the sending counts: a slow answer does not make a token older', async () => {
    const fixture = setUp({}, true)
    const { cache, clock } = fixture
    const token = await withToken(fixture)
    const sentAt = clock.now() + 20_000
    clock.advance(39_000)
    cache.accepted(ACME, token, sentAt)
    await die(fixture, token, 40_000)
    expect(fixture.estimator.estimateMs).toBe(30_000)
  })

  test('an org whose tokens alone die early gets a lifetime of its own', async () => {
    const fixture = setUp({}, true)
    await withToken(fixture, GLOBEX)
    const token = await withToken(fixture)
    useUntil(fixture, token, 39_000)
    await die(fixture, token, 40_000)
    expect(fixture.estimator.estimateMs).toBe(LIFETIME_MS)
    const lifetimes = new Map(fixture.cache.status().map(({ org, lifetimeMs }) => [org, lifetimeMs]))
    expect(lifetimes).toEqual(
      new Map([
        ['acme', 39_000],
        ['globex', LIFETIME_MS],
      ]),
    )
  })

  /** The first two tokens end as the settings say, so the next one begins a trial. */
  function setUpBeforeTrial() {
    const fixture = setUp({}, true)
    for (let ends = 0; ends < 2; ends += 1) fixture.estimator.elects({}, fixture.clock.now())
    return fixture
  }

  /** The old token was accepted late in its life and has a successor. It is past the estimate, so a trial may begin. */
  async function beforeTrial() {
    const fixture = setUpBeforeTrial()
    const { cache, source, clock } = fixture
    const old = await withToken(fixture)
    useUntil(fixture, old, 92_000)
    cache.get(ACME)
    const successor = await source.last.issue()
    expect(cache.get(ACME)?.token).toBe(successor)
    clock.advance(9_000)
    return { ...fixture, old, successor }
  }

  test('a trial: now and then one repeatable request carries the old token, the others carry its successor', async () => {
    const { cache, clock, estimator, old, successor } = await beforeTrial()
    expect(cache.getUnrepeatable(ACME)?.token).toBe(successor)
    expect(cache.get(ACME)?.token).toBe(old)
    expect(cache.get(ACME)?.token).toBe(successor)
    cache.accepted(ACME, old, clock.now())
    expect(estimator.estimateMs).toBe(101_000)
  })

  test('a trial that is rejected costs a repeat, but no mint and no wait, and does not lower the estimate', async () => {
    const { cache, source, clock, estimator, old, successor } = await beforeTrial()
    expect(cache.get(ACME)?.token).toBe(old)
    expect(await cache.rejected(ACME, old)).toBe(successor)
    cache.repeatSettled(ACME, successor, true)
    expect(source.mints).toHaveLength(2)
    expect(estimator.estimateMs).toBe(LIFETIME_MS)
    clock.advance(50_000)
    expect(cache.get(ACME)?.token).toBe(successor)
  })

  test('a token on trial and its successor that have both died: the second rejection mints', async () => {
    const { cache, source, old, successor } = await beforeTrial()
    expect(cache.get(ACME)?.token).toBe(old)
    expect(await cache.rejected(ACME, old)).toBe(successor)
    cache.repeatSettled(ACME, successor, false)
    const replacement = cache.rejected(ACME, successor)
    expect(source.mints).toHaveLength(3)
    const token = await source.last.issue()
    expect(await replacement).toBe(token)
  })

  test('late answers for the old token do not count for the age of the new one', async () => {
    const fixture = setUp({}, true)
    const { cache, source, clock, estimator } = fixture
    const old = await withToken(fixture)
    clock.advance(30_000)
    const sentAt = clock.now()
    const replacement = cache.rejected(ACME, old)
    const token = await source.last.issue()
    await replacement
    cache.accepted(ACME, old, sentAt)
    cache.repeatSettled(ACME, token, false)
    clock.advance(40_000)
    await die(fixture, token, 40_000)
    expect(estimator.estimateMs, 'half-way to the death of a token that was never seen alive').toBe(20_000)
  })

  test('past the estimate a request that cannot be repeated carries no token on trial', async () => {
    const fixture = setUpBeforeTrial()
    const { cache, source, clock } = fixture
    await withToken(fixture)
    clock.advance(LIFETIME_MS * 1.5)
    expect(cache.getUnrepeatable(ACME)).toBeUndefined()
    expect(source.mints).toHaveLength(1)
  })

  test('the first tokens carry nobody past the lifetime that the settings state', async () => {
    const fixture = setUp({}, true)
    const { cache, source, clock } = fixture
    await withToken(fixture)
    for (let ends = 0; ends < 2; ends += 1) {
      clock.advance(LIFETIME_MS * 1.1)
      expect(cache.get(ACME)).toBeUndefined()
      const renewed = cache.obtain(ACME)
      const token = await source.last.issue()
      expect((await renewed).token).toBe(token)
      expect(cache.get(ACME)?.token).toBe(token)
    }
  })

  test('past the estimate a request may try the present token, and a mint runs in the background', async () => {
    const fixture = setUpBeforeTrial()
    const { cache, source, clock, estimator } = fixture
    const token = await withToken(fixture)
    clock.advance(LIFETIME_MS * 1.5)
    expect(cache.get(ACME)).toEqual({ token, result: 'refreshing' })
    expect(source.mints).toHaveLength(2)
    cache.accepted(ACME, token, clock.now())
    expect(estimator.estimateMs).toBe(LIFETIME_MS * 1.5)
  })
})
