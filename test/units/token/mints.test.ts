import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { TokenError, type TokenErrorCode, type TokenErrorOptions } from '../../../src/errors.ts'
import type { OrgId } from '../../../src/org-id.ts'
import { MintQueue } from '../../../src/token/mint-queue.ts'
import { Mints, type MintsOptions } from '../../../src/token/mints.ts'
import { Orgs, type OrgsOptions } from '../../../src/token/orgs.ts'
import { RequestToken } from '../../../src/token/request-token.ts'
import { AccessToken, type MintOptions, type TokenSource } from '../../../src/token/token-source.ts'
import { ORGS_OPTIONS } from '../../support/orgs-options.ts'
import { fc } from '../../support/properties.ts'
import { tokenUser } from './simulation/simulation.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: 0, toFake: ['setTimeout', 'clearTimeout', 'Date', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
const REFUSED = 'org_access_refused'
const TIMEOUT = 'token_endpoint_timeout'

const now = () => Date.now()
const advance = (ms: number) => vi.advanceTimersByTimeAsync(ms)
const orgs = (count: number, prefix: string) => Array.from({ length: count }, (_, i) => `${prefix}-${i}`)

/** How a call ends: after some time, with a token or a failure. */
interface Behaviour {
  readonly ms?: number
  readonly code?: TokenErrorCode | undefined
  readonly options?: TokenErrorOptions
}

const HANGS: Behaviour = { ms: Number.POSITIVE_INFINITY }
const fails = (code: TokenErrorCode, options: TokenErrorOptions = {}): Behaviour => ({ code, options })

/** A token endpoint that follows `behave`, within four fifths of `mintTimeout`, and records every call. */
class Endpoint implements TokenSource {
  readonly calls: { readonly org: string; readonly at: number }[] = []
  readonly #longestMs: number
  underway = 0
  behave: (org: string) => Behaviour = () => ({})

  constructor(mintTimeoutMs: number) {
    this.#longestMs = (mintTimeoutMs * 4) / 5
  }

  async mint(org: OrgId, { withinMs = Number.POSITIVE_INFINITY }: MintOptions = {}): Promise<AccessToken> {
    const name = `token-${this.calls.push({ org, at: now() })}`
    const { ms = 0, code, options } = this.behave(org)
    const longestMs = Math.min(this.#longestMs, withinMs)
    this.underway += 1
    if (ms > 0) await new Promise((resolve) => setTimeout(resolve, Math.min(ms, longestMs)))
    this.underway -= 1
    if (ms > longestMs) throw new TokenError(TIMEOUT, 'scripted')
    if (code !== undefined) throw new TokenError(code, 'scripted', options)
    return new AccessToken(name, now())
  }

  callsOf(org: string): number[] {
    return this.calls.filter((call) => call.org === org).map(({ at }) => at)
  }
}

interface Outcome {
  code?: TokenErrorCode | 'ok'
  error?: TokenError
  tookMs?: number
}

class World {
  readonly endpoint: Endpoint
  readonly mints: Mints
  readonly orgs: Orgs

  constructor(options: Partial<MintsOptions & OrgsOptions> = {}) {
    const mintTimeoutMs = options.mintTimeoutMs ?? 5_000
    this.endpoint = new Endpoint(mintTimeoutMs)
    const usual = { ...ORGS_OPTIONS, mintConcurrency: 32, mintRate: 10_000 }
    this.mints = new Mints({ ...usual, ...options, mintTimeoutMs }, this.endpoint, () => this.orgs)
    this.orgs = new Orgs({ ...usual, ...options, mintTimeoutMs, whyLate: () => this.mints.rejection }, this.mints)
  }

  /** The outcome is filled in when the mint settles. Somebody waits for it as long as a request may. */
  mint(org = 'acme', options: MintOptions = {}): Outcome {
    const startedAt = now()
    const outcome: Outcome = {}
    this.mints.mint(org as OrgId, { awaitedBy: () => options, ...options }).then(
      () => Object.assign(outcome, { code: 'ok', tookMs: now() - startedAt }),
      (error: TokenError) => Object.assign(outcome, { code: error.code, error, tookMs: now() - startedAt }),
    )
    return outcome
  }

  refusalOf(org: string) {
    return this.orgs.peek(org as OrgId)?.refusal
  }

  /** A mint whose calls all end in this way at once. */
  async call(org: string, behaviour: Behaviour = {}): Promise<Outcome & { readonly calls: number }> {
    const before = this.endpoint.calls.length
    this.endpoint.behave = () => behaviour
    const outcome = this.mint(org)
    await advance(700)
    return { ...outcome, calls: this.endpoint.calls.length - before }
  }

  /** These orgs ask again as soon as they are answered, for so long. */
  async poll(names: readonly string[], forMs: number): Promise<void> {
    const outcomes = names.map((org) => this.mint(org))
    for (let ms = 0; ms < forMs; ms += 50) {
      await advance(50)
      names.forEach((org, i) => {
        if (outcomes[i]?.code !== undefined) outcomes[i] = this.mint(org)
      })
    }
  }
}

describe('a failure', () => {
  test.each([DOWN, TIMEOUT, 'token_response_invalid'] as const)(
    '%s: is repeated after 150 and 450 ms',
    async (code) => {
      const world = new World()
      const { endpoint } = world
      endpoint.behave = () => (endpoint.calls.length < 3 ? fails(code) : {})
      const outcome = world.mint()
      await advance(5_000)
      expect(endpoint.callsOf('acme')).toEqual([0, 150, 600])
      expect(outcome).toEqual({ code: 'ok', tookMs: 600 })
      expect([world.refusalOf('acme'), world.orgs.troubled, vi.getTimerCount()]).toEqual([undefined, [], 0])
    },
  )

  test('then the Org pauses for a second, twice as long each time, up to four; no other Org does', async () => {
    const world = new World()
    for (const pauseMs of [1_000, 2_000, 4_000, 4_000]) {
      world.endpoint.behave = () => fails(DOWN)
      const first = world.mint()
      await advance(600)
      expect(first).toMatchObject({ code: DOWN, tookMs: 600 })
      await advance(pauseMs - 1)
      const next = world.mint()
      world.endpoint.behave = () => ({})
      const other = world.mint(`other-${pauseMs}-${now()}`)
      await advance(0)
      expect(next).toMatchObject({ code: DOWN, tookMs: 0, error: { retryAfterSeconds: 1, trouble: 'failure' } })
      expect(other.code).toBe('ok')
      await advance(1)
    }
    expect(await world.call('acme')).toMatchObject({ code: 'ok' })
    await world.call('acme', fails(DOWN))
    await advance(900)
    expect(await world.call('acme'), 'a success starts the pauses anew').toMatchObject({ code: 'ok' })
  })

  test('is not repeated beyond the time of a request, and a repeat ends with it', async () => {
    const world = new World()
    world.endpoint.behave = () => HANGS
    const outcome = world.mint()
    await advance(4_200)
    expect([world.endpoint.callsOf('acme'), world.endpoint.underway]).toEqual([[0, 4_150], 1])
    await advance(800)
    expect(outcome).toMatchObject({ code: TIMEOUT, tookMs: 5_000 })
    expect(world.endpoint.underway).toBe(0)
  })

  // At a sidecar: its minter has repeated the call, and pauses.
  test('that tells when to ask again is not repeated before that', async () => {
    const world = new World()
    expect(await world.call('acme', fails(DOWN, { retryAfterSeconds: 3 }))).toMatchObject({ code: DOWN, calls: 1 })
    await advance(2_200)
    expect(await world.call('acme')).toMatchObject({ code: DOWN, calls: 0 })
    expect(await world.call('acme')).toMatchObject({ code: 'ok' })
  })
})

describe('a refusal and a limit', () => {
  test('a refusal is remembered for refusalTtl, and the pace stays', async () => {
    const world = new World({ refusalTtlMs: 3_000 })
    expect(await world.call('acme', fails(REFUSED, { tokenEndpointStatus: 404 }))).toMatchObject({ calls: 1 })
    await advance(2_200)
    const again = await world.call('acme')
    expect(again).toMatchObject({ calls: 0, error: { code: REFUSED, tokenEndpointStatus: 404 } })
    expect(again.error?.retryAfterSeconds).toBeUndefined()
    expect([world.mints.pace, world.orgs.troubled]).toEqual([1, []])
    expect(await world.call('acme')).toMatchObject({ code: 'ok' })
  })

  test('a limit is kept to its end, or for a second, twice as long each time', async () => {
    const world = new World()
    await world.call('acme', fails(LIMITED, { retryAfterSeconds: 60 }))
    await advance(59_200)
    expect(await world.call('acme')).toMatchObject({ calls: 0, error: { code: LIMITED, retryAfterSeconds: 1 } })
    for (const pauseMs of [2_000, 4_000, 8_000]) {
      await world.call('acme', fails(LIMITED))
      await advance(pauseMs - 701)
      expect(world.refusalOf('acme')).toMatchObject({ code: LIMITED })
      await advance(1)
      expect(world.refusalOf('acme')).toBeUndefined()
    }
  })

  test('each halves the pace of all calls, down to a tenth, and each success doubles it', async () => {
    const world = new World({ mintRate: 100 })
    for (const org of orgs(5, 'limited')) await world.call(org, fails(LIMITED, { retryAfterSeconds: 60 }))
    expect(world.mints.pace).toBe(1 / 10)
    world.endpoint.behave = () => fails(REFUSED)
    const before = world.endpoint.calls.length
    for (const org of orgs(100, 'new')) world.mint(org)
    await advance(999)
    expect(world.endpoint.calls.length - before).toBeGreaterThanOrEqual(9)
    expect(world.endpoint.calls.length - before).toBeLessThanOrEqual(10)
    await advance(10_000)
    for (const pace of [0.2, 0.4, 0.8, 1]) {
      await world.call('good')
      expect(world.mints.pace).toBe(pace)
    }
  })
})

describe('a 401', () => {
  test('before any other answer, to one Org: the others wait for their turn, one call at a time, one a second', async () => {
    const world = new World()
    const rejects = (org: string) => ({ ms: 30, ...(org.startsWith('bad') ? fails(REJECTED) : fails(DOWN)) })
    await world.call('bad', fails(REJECTED))
    world.endpoint.behave = rejects
    const others = orgs(3, 'down').map((org) => world.mint(org))
    await advance(4_800)
    expect(others.map(({ code }) => code)).toEqual([DOWN, DOWN, DOWN])
    world.endpoint.calls.reduce((last, { at }) => {
      expect(at - last).toBeGreaterThanOrEqual(1_000)
      return at
    }, -1_000)
  })

  test('a request that waits in vain is told so, whether the mint is its own or was begun ahead', async () => {
    const world = new World()
    await world.call('bad', fails(REJECTED))
    world.endpoint.behave = () => HANGS
    world.mint('slow')
    world.orgs.mint('warm' as OrgId, 'warm')
    const outcomes = ['warm', 'cold'].map((org) =>
      world.orgs.awaitMint(org as OrgId, 'cold', {}).catch((error: TokenError) => error.code),
    )
    await advance(5_001)
    expect(await Promise.all(outcomes)).toEqual([REJECTED, REJECTED])
  })

  test('to two Orgs: whoever waits or asks is told at once, but for one call a second: first for Orgs that were not refused', async () => {
    const world = new World()
    await world.call('bad-0', fails(REJECTED))
    world.endpoint.behave = (org) => ({ ms: 30, ...(org === 'good' ? {} : fails(REJECTED)) })
    const waiting = orgs(5, 'bad').map((org) => world.mint(org))
    await advance(1_200)
    expect(waiting.filter(({ code }) => code === REJECTED)).toHaveLength(4)
    await advance(1_100)
    expect(waiting.map(({ code }) => code)).toEqual(waiting.map(() => REJECTED))
    await advance(4_000)
    const [first, second] = [world.mint('bad-0'), world.mint('bad-1')]
    await advance(200)
    expect(first.code, 'the turn was free').toBe(REJECTED)
    const [third, good, last] = [
      world.mint('bad-2', { awaitedBy: () => world }),
      world.mint('good'),
      world.mint('bad-3'),
    ]
    await advance(0)
    expect([second, third, last]).toMatchObject([{ code: REJECTED }, { code: REJECTED }, { code: REJECTED }])
    expect(last.error?.retryAfterSeconds).toBe(1)
    await advance(1_100)
    expect(good.code).toBe('ok')
    const others = orgs(20, 'good').map((org) => world.mint(org))
    world.endpoint.behave = () => ({})
    await advance(100)
    expect(others.map(({ code }) => code)).toEqual(others.map(() => 'ok'))
  })

  test('the App is rejected from the second Org on, for a minute at a time; asking by itself is no second time', async () => {
    const world = new World()
    const { mints } = world
    world.endpoint.behave = () => fails(REJECTED)
    const ask = async (org: string, options: MintOptions = {}) => {
      world.mint(org, options)
      await advance(5_000)
      return mints.isAppRejected
    }
    expect([await ask('a'), await ask('a')]).toEqual([false, false])
    expect(await ask('b')).toBe(true)
    await advance(30_000)
    for (const org of ['a', 'b']) expect(await ask(org, { reason: 'warm' })).toBe(true)
    await advance(14_000)
    expect(mints.isAppRejected).toBe(true)
    for (const org of ['a', 'b']) expect(await ask(org, { reason: 'warm' })).toBe(false)
    expect(await ask('b')).toBe(true)
    mints.resume('credentials')
    expect(mints.isAppRejected).toBe(false)
    expect([await ask('a'), await ask('b')]).toEqual([false, true])
    world.endpoint.behave = () => ({})
    expect(await ask('c')).toBe(false)
  })

  test('to Orgs that had a token: the App was accepted and is no longer, once that has lasted a minute for two of them', async () => {
    const world = new World()
    const { mints } = world
    await world.call('a')
    const replaces = new AccessToken('former', now())
    const renew = async (org: string, behaviour: Behaviour = fails(REJECTED)) => {
      world.endpoint.behave = () => behaviour
      world.mint(org, { replaces })
      await advance(10_000)
    }
    const lasting = async (...names: string[]) => {
      for (let i = 0; i < 4; i += 1) for (const org of names) await renew(org)
      return mints.isAppRevoked
    }
    expect(await lasting('a', 'a'), 'one Org may be unlinked').toBe(false)
    await renew('b')
    expect(mints.isAppRevoked).toBe(true)
    await renew('b', {})
    expect(mints.isAppRevoked, 'a call has succeeded').toBe(false)
    expect(await lasting('a')).toBe(false)
    await renew('b', fails(DOWN))
    expect(mints.isAppRevoked).toBe(false)
    expect(await lasting('a', 'b')).toBe(true)
    await advance(300_000)
    expect(mints.isAppRevoked, 'no 401 comes any more').toBe(false)
    expect(await lasting('a', 'b')).toBe(true)
    mints.resume('credentials')
    expect(mints.isAppRevoked, 'a new secret').toBe(false)
    for (const org of orgs(4, 'cold')) world.mint(org)
    await advance(70_000)
    expect(await lasting('a'), 'Orgs that never had a token may not be linked').toBe(false)
    mints.resume()
    for (let i = 0; i < 8; i += 1) await renew('b', fails(DOWN))
    expect(await lasting('a', 'a'), 'nor is an endpoint that fails').toBe(false)
    await renew('b')
    expect(mints.isAppRevoked).toBe(true)
    await advance(300_001)
    await renew('b')
    await renew('a')
    expect(mints.isAppRevoked, 'after five quiet minutes, it begins anew').toBe(false)
  })

  test('once another answer came, it pauses its Org alone; a new secret ends that, and no other pause', async () => {
    const world = new World()
    await world.call('first', fails(REFUSED))
    await world.call('a', fails(REJECTED))
    await world.call('b', fails(REFUSED, { trouble: 'credentials', tokenEndpointStatus: 401 }))
    await world.call('c', fails(LIMITED, { retryAfterSeconds: 60 }))
    expect(await world.call('d')).toMatchObject({ code: 'ok', tookMs: 0 })
    expect(world.orgs.troubled.map(({ org }) => org)).toEqual(['c', 'b', 'a'])
    world.mints.resume('credentials')
    for (const org of ['a', 'b']) expect(await world.call(org)).toMatchObject({ code: 'ok' })
    expect(await world.call('c')).toMatchObject({ code: LIMITED, calls: 0 })
    world.mints.resume()
    expect(world.mints.pace).toBe(1)
    expect(await world.call('c')).toMatchObject({ code: 'ok' })
  })
})

describe('the trouble of some is not that of others', () => {
  test('forty Orgs hang: they hold all places for four seconds, and later half of them', async () => {
    const world = new World()
    world.endpoint.behave = (org) => (org.startsWith('hangs') ? HANGS : { ms: 30 })
    const polling = world.poll(orgs(40, 'hangs'), 60_000)
    await advance(100)
    const first = world.mint('first')
    await advance(4_200)
    expect(first).toMatchObject({ code: 'ok', tookMs: 3_880 })
    for (let i = 0; i < 100; i += 1) {
      const good = world.mint(`good-${i}`)
      await advance(500)
      expect(good).toMatchObject({ code: 'ok', tookMs: 30 })
      expect(world.endpoint.underway).toBeLessThanOrEqual(32)
    }
    await polling
  })

  test('an endpoint that hangs is back: each Org that asks has a token within five seconds', async () => {
    for (const outageMs of [20_000, 21_000, 22_500, 24_000, 25_500]) {
      const world = new World()
      world.endpoint.behave = () => HANGS
      const outage = world.poll(orgs(8, 'org'), outageMs)
      await advance(outageMs)
      await outage
      world.endpoint.behave = () => ({ ms: 100 })
      const backAt = now()
      await world.poll(orgs(8, 'org'), 5_100)
      expect(world.orgs.troubled).toEqual([])
      for (const org of orgs(8, 'org')) expect(world.endpoint.callsOf(org).some((at) => at >= backAt)).toBe(true)
    }
  })

  test('the memory is bounded, whatever the number of Orgs', async () => {
    const world = new World({ maxOrgs: 100, refusalTtlMs: 60_000, mintRate: 1e9 })
    world.endpoint.behave = () => fails(DOWN, { retryAfterSeconds: 60 })
    for (let i = 0; i < 1_000; i += 1) world.orgs.mint(`org-${i}` as OrgId, 'refresh')
    await advance(5_000)
    expect(world.endpoint.calls).toHaveLength(1_000)
    expect(world.orgs.troubled).toHaveLength(100)
  })
})

describe('turns', () => {
  test('a requester with one Org goes before one with a thousand', async () => {
    const world = new World({ mintConcurrency: 4 })
    world.endpoint.behave = () => ({ ms: 100 })
    const flood = {}
    for (const org of orgs(1_000, 'flood')) world.mint(org, { awaitedBy: () => flood })
    await advance(1_000)
    const one = world.mint('one')
    await advance(300)
    expect(one).toMatchObject({ code: 'ok' })
    expect(one.tookMs).toBeLessThanOrEqual(200)
  })

  test('a call that nobody waits for any more is not begun, and neither is one that waited too long', async () => {
    const world = new World({ mintConcurrency: 1 })
    world.endpoint.behave = (org) => (org === 'slow' ? { ms: 2_000 } : {})
    let isWanted = true
    world.mint('slow')
    const left = world.mint('left', { awaitedBy: () => (isWanted ? world : undefined) })
    const background = world.mint('background', { reason: 'refresh', awaitedBy: () => undefined })
    await advance(1_000)
    isWanted = false
    await advance(1_001)
    expect([left.code, background.code]).toEqual([DOWN, 'ok'])
    expect(world.endpoint.calls.map(({ org }) => org)).toEqual(['slow', 'background'])

    const narrow = new World({ mintRate: 1, mintTimeoutMs: 2_000 })
    const [first, second, third] = ['a', 'b', 'c'].map((org) => narrow.mint(org))
    await advance(5_000)
    expect([first?.code, second?.code]).toEqual(['ok', 'ok'])
    const error = { code: DOWN, retryAfterSeconds: 5, message: expect.stringContaining('tokens.mintRate') }
    expect(third).toMatchObject({ tookMs: 1_800, error })
  })

  /** `count` mints ahead of an end, for which nobody waits, at ten a second. */
  const renewing = (count: number) => {
    const { orgs: all, endpoint } = new World({ mintRate: 10, mintTimeoutMs: 10_000 })
    for (const org of orgs(count, 'ahead')) all.mint(org as OrgId, 'refresh')
    /** When the requests of these Orgs had a token. */
    const obtain = (names: readonly string[], requester: object = {}) => {
      const times: number[] = []
      for (const org of names) {
        const user = { ...tokenUser(), requester }
        new RequestToken(all, org as OrgId, { withToken: () => '' }, user).take()?.then(() => times.push(now()))
      }
      return times
    }
    return { endpoint, obtain }
  }

  test('a renewal goes after a request, though the requester of that had more calls', async () => {
    const world = new World({ mintRate: 1 })
    const busy = {}
    const [first, second, third] = ['a', 'b', 'c'].map((org) => world.mint(org, { awaitedBy: () => busy }))
    const renewal = world.mint('ahead', { reason: 'refresh', awaitedBy: () => undefined })
    await advance(2_300)
    expect([first, second, third, renewal].map((each) => each?.code)).toEqual(['ok', 'ok', 'ok', undefined])
    await advance(1_100)
    expect([renewal.code, vi.getTimerCount()], 'and no timer is left').toEqual(['ok', 0])
  })

  test('a renewal that a request joins goes first, and by the share of its requester', async () => {
    const { obtain } = renewing(240)
    await advance(1_000)
    const joined = obtain(orgs(240, 'ahead').slice(200))
    await advance(500)
    const modest = obtain(['new'])
    await advance(8_000)
    expect([joined.length, modest.length]).toEqual([40, 1])
    expect(modest[0]).toBeLessThanOrEqual(1_500 + 250)
    expect(Math.max(...joined)).toBeLessThanOrEqual(1_000 + 42 * 110)
  })

  const ask = fc.record({
    afterMs: fc.constantFrom(0, 0, 0, 1, 10, 300, 1_500),
    lastsMs: fc.constantFrom(0, 5, 50, 700, 4_000),
    isTroubled: fc.boolean(),
    requester: fc.integer({ min: 0, max: 3 }),
  })
  const limits = fc.record({ places: fc.integer({ min: 1, max: 8 }), rate: fc.constantFrom(0.5, 1, 7, 100, 1_000) })

  test('whatever is asked: no second and no moment has more calls than it may, and every call has its turn', async () => {
    const run = async (
      asks: (typeof ask extends fc.Arbitrary<infer T> ? T : never)[],
      { places, rate }: { places: number; rate: number },
    ) => {
      vi.clearAllTimers()
      const turns = new MintQueue(() => ({ places, rate, mostWaiting: asks.length }))
      const requesters = Array.from({ length: 4 }, () => ({}))
      const begun: number[] = []
      let underway = 0
      let troubled = 0
      for (const { afterMs, lastsMs, isTroubled, requester } of asks) {
        await advance(afterMs)
        turns.enter({ isTroubled, awaitedBy: () => requesters[requester], isAhead: false }).then((leave) => {
          begun.push(now())
          underway += 1
          if (isTroubled) troubled += 1
          expect(underway).toBeLessThanOrEqual(places)
          expect(troubled).toBeLessThanOrEqual(Math.max(1, Math.floor(places / 2)))
          setTimeout(() => {
            underway -= 1
            if (isTroubled) troubled -= 1
            leave?.()
          }, lastsMs)
        })
      }
      await advance(asks.length * (4_000 + 1_100 / rate))
      expect(begun).toHaveLength(asks.length)
      const windowMs = Math.max(1_000, 1_000 / rate)
      for (const from of begun) {
        const inWindow = begun.filter((at) => at >= from && at < from + windowMs)
        expect(inWindow.length).toBeLessThanOrEqual(Math.max(1, rate))
      }
    }
    await fc.assert(fc.asyncProperty(fc.array(ask, { maxLength: 60 }), limits, run), { numRuns: 60 })
  })
})

test('a process that stands still past the end of a mint sets no timer below zero', async () => {
  vi.useRealTimers()
  const standStill = () => {
    const until = performance.now() + 400
    while (performance.now() < until);
  }
  const mint = async () => {
    setImmediate(standStill)
    throw new TokenError(DOWN, 'scripted')
  }
  const options = { ...ORGS_OPTIONS, mintTimeoutMs: 300, mintConcurrency: 1, mintRate: 100 }
  const timers = vi.spyOn(globalThis, 'setTimeout')
  const mints = new Mints(options, { mint }, () => orgs)
  const orgs = new Orgs(options, mints)
  await expect(orgs.mint('acme' as OrgId, 'cold').token).rejects.toThrow()
  expect(timers.mock.calls.filter(([, ms = 0]) => ms < 0)).toEqual([])
  timers.mockRestore()
})
