import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { TokenError, type TokenErrorCode, type TokenErrorOptions } from '../../../src/errors.ts'
import type { OrgId } from '../../../src/org-id.ts'
import { MintGuard } from '../../../src/token/mint-guard.ts'
import type { MintBudget } from '../../../src/token/mint-queue.ts'
import { AccessToken, type MintReason, type OnCall, type TokenSource } from '../../../src/token/token-source.ts'
import { fc } from '../../support/properties.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: 0 })
  vi.spyOn(Math, 'random').mockReturnValue(1)
})
afterEach(() => {
  vi.useRealTimers()
  vi.restoreAllMocks()
})

const now = () => Date.now()
const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
const FAILURES = [DOWN, 'token_response_invalid', 'token_endpoint_timeout'] as const
const CALL_TIMEOUT_MS = 30_000

/** A token endpoint that follows `behave`, and records every call. */
class Endpoint implements TokenSource {
  readonly calls: { readonly org: string; readonly at: number }[] = []
  underway = 0
  brokenOff = 0
  lifeMs: number | undefined
  /** Returns the time of the answer, or throws the failure. */
  behave: (org: string) => number | Promise<number> = () => 0

  async mint(org: OrgId, _options?: unknown, onCall?: OnCall): Promise<AccessToken> {
    const name = `token-${this.calls.push({ org, at: now() })}`
    const breakOff = new Promise<false>((resolve) => onCall?.(() => resolve(false)))
    breakOff.then(() => this.brokenOff++)
    const answerMs = await this.behave(org)
    if (answerMs > 0) await this.#take(answerMs, breakOff)
    return new AccessToken(name, now(), this.lifeMs)
  }

  async #take(answerMs: number, breakOff: Promise<false>): Promise<void> {
    this.underway += 1
    const answer = new Promise<boolean>((resolve) => {
      setTimeout(() => resolve(answerMs <= CALL_TIMEOUT_MS), Math.min(answerMs, CALL_TIMEOUT_MS))
    })
    const hasAnswer = await Promise.race([answer, breakOff])
    this.underway -= 1
    if (!hasAnswer) throw new TokenError('token_endpoint_timeout', 'scripted')
  }
}

const failing = (code: TokenErrorCode, options?: TokenErrorOptions) => (): never => {
  throw new TokenError(code, 'scripted', options)
}
const hanging = () => Number.POSITIVE_INFINITY

type Code = TokenErrorCode | undefined

interface Outcome {
  code?: TokenErrorCode | 'ok'
  error?: TokenError
  tookMs?: number
  isCalled?: boolean
}

class World {
  readonly endpoint = new Endpoint()
  readonly events: string[] = []
  readonly guard: MintGuard

  constructor(budget: Partial<MintBudget> = {}) {
    const all = { mintTimeoutMs: 5_000, mintConcurrency: 32, mintRate: 10_000, ...budget }
    this.guard = new MintGuard(all, this.endpoint, {
      mintsPaused: (code, pauseMs) => this.events.push(`paused ${code} ${pauseMs}`),
      mintsResumed: () => this.events.push('resumed'),
    })
  }

  /** The outcome is filled in when the mint settles. */
  mint(org = 'acme', options: Parameters<TokenSource['mint']>[1] = { requester: {} }): Outcome {
    const startedAt = now()
    const outcome: Outcome = {}
    this.guard.mint(org as OrgId, options).then(
      () => Object.assign(outcome, { code: 'ok', tookMs: now() - startedAt }),
      (error: TokenError) => Object.assign(outcome, { code: error.code, error, tookMs: now() - startedAt }),
    )
    return outcome
  }

  mintAll(count: number, prefix: string): Outcome[] {
    return Array.from({ length: count }, (_, i) => this.mint(`${prefix}-${i}`))
  }

  /** Those whose mint has ended ask again: the cache makes one at a time. */
  mintAgain(outcomes: Outcome[], prefix: string): void {
    outcomes.forEach(({ code }, i) => {
      if (code !== undefined) outcomes[i] = this.mint(`${prefix}-${i}`)
    })
  }

  /** One mint whose call ends at once in this way, if one is made. */
  async call(org: string, code?: Code, retryAfterSeconds?: number, reason: MintReason = 'cold'): Promise<Outcome> {
    this.endpoint.behave = code === undefined ? () => 0 : failing(code, { retryAfterSeconds })
    const calls = this.endpoint.calls.length
    const outcome = this.mint(org, { requester: {}, reason })
    await advance(0)
    return { ...outcome, isCalled: this.endpoint.calls.length > calls }
  }

  /** One whose call ends when the test says so, and how. */
  async begin(org: string): Promise<(code?: Code, retryAfterSeconds?: number) => Promise<void>> {
    let end = (_: number | Promise<never>): void => undefined
    const answer = new Promise<number>((resolve) => {
      end = resolve
    })
    this.endpoint.behave = () => answer
    this.mint(org)
    await advance(0)
    return async (code, retryAfterSeconds) => {
      end(code === undefined ? 0 : Promise.reject(new TokenError(code, 'scripted', { retryAfterSeconds })))
      await advance(0)
    }
  }

  /** Orgs that had no trouble fail until all are paused. */
  async goDown(prefix = 'down'): Promise<void> {
    for (let i = 0; i < 12; i += 1) await this.call(`${prefix}-${i}`, DOWN)
  }
}

const advance = (ms: number) => vi.advanceTimersByTimeAsync(ms)

async function warmWorld(): Promise<World> {
  const world = new World()
  world.mint('warm')
  await advance(10)
  return world
}

const codes = (outcomes: readonly Outcome[]) => [...new Set(outcomes.map(({ code }) => code))]

describe('a passing failure', () => {
  test.each([DOWN, 'token_response_invalid'] as const)('%s: is tried again, with growing waits', async (code) => {
    const world = new World()
    const { endpoint } = world
    endpoint.behave = () => (endpoint.calls.length <= 5 ? failing(code)() : 0)
    const outcome = world.mint()
    await advance(5_000)
    expect(endpoint.calls.map(({ at }) => at)).toEqual([0, 151, 452, 1_053, 1_854, 2_655])
    expect(outcome).toEqual({ code: 'ok', tookMs: 2_655 })
    expect(vi.getTimerCount()).toBe(0)
  })

  test('is not tried again beyond the time for a mint, and then pauses the org', async () => {
    const world = new World()
    world.endpoint.behave = failing(DOWN)
    const outcome = world.mint()
    await advance(5_000)
    expect(outcome).toMatchObject({ code: DOWN, tookMs: 4_257 })
    const [next, other] = [world.mint(), world.mint('other')]
    await advance(0)
    expect([next.code, other.code]).toEqual([DOWN, undefined])
  })
})

test('a mint whose next attempt has no room in the budget is over', async () => {
  const world = new World({ mintRate: 1, mintTimeoutMs: 1_300 })
  world.endpoint.behave = failing(DOWN)
  const [outcome] = [world.mint('acme'), world.mint('other')]
  await advance(200)
  expect(outcome).toMatchObject({ code: DOWN, tookMs: 151 })
})

test('a call that has its answer is not broken off: the rest is read, and its connection kept', async () => {
  const world = new World()
  await world.guard.mint('acme' as OrgId)
  expect(world.endpoint.brokenOff).toBe(0)
})

describe('the endpoint is down', () => {
  test('no calls but single probes, the rest fail at once; ten minutes later it is back within 5 s', async () => {
    const world = new World()
    world.endpoint.behave = failing(DOWN)
    world.mintAll(5, 'first')
    await advance(5_000)
    expect(world.guard.pauseOfAll?.code).toBe(DOWN)
    const callsBefore = world.endpoint.calls.length
    for (let i = 0; i < 6_000; i += 1) {
      const outcome = world.mint(`org-${i % 50}`)
      await advance(100)
      expect(outcome).toMatchObject({ code: DOWN, tookMs: 0 })
    }
    // Orgs that have failed and others take turns of their own, each every 800 ms.
    expect(world.endpoint.calls.length - callsBefore).toBeLessThanOrEqual(2 * (600 / 0.8))
    world.endpoint.behave = () => 30
    const backAt = now()
    for (let outcome: Outcome = {}; outcome.code !== 'ok'; await advance(100)) {
      outcome = world.mint('acme')
      await advance(50)
    }
    expect(now() - backAt).toBeLessThan(5_000)
    await advance(1_500)
    const orgs = world.mintAll(50, 'org')
    await advance(2_000)
    expect(codes(orgs)).toEqual(['ok'])
  })

  test.each([
    [1, 20_000],
    [1, 21_000],
    [1, 22_500],
    [2, 24_000],
    [10, 25_500],
  ])('it hangs for %i orgs and is back after %i ms, slower: noticed within 5 s', async (count, outageMs) => {
    const world = await warmWorld()
    world.endpoint.behave = hanging
    const outcomes = world.mintAll(count, 'org')
    let isBack = false
    const ask = async () => {
      await advance(100)
      isBack = outcomes.some(({ code }) => code === 'ok')
      world.mintAgain(outcomes, 'org')
    }
    for (let ms = 0; ms < outageMs; ms += 100) await ask()
    expect(world.endpoint.underway).toBeLessThanOrEqual(count)
    world.endpoint.behave = () => 1_500
    const backAt = now()
    while (!isBack) await ask()
    expect(now() - backAt).toBeLessThan(5_000)
    for (let i = 0; i < 40; i += 1) await ask()
    await advance(60_000)
    expect(codes(outcomes)).toEqual(['ok'])
    expect([world.endpoint.underway, vi.getTimerCount()]).toEqual([0, 0])
  })

  test('a call that hangs is broken off after twice the time for a mint, and the next one after half of it', async () => {
    const world = await warmWorld()
    world.endpoint.behave = hanging
    const outcome = world.mint('org')
    await advance(9_900)
    expect([outcome.code, world.endpoint.underway]).toEqual([undefined, 1])
    await advance(200)
    expect([outcome.code, world.endpoint.underway]).toEqual([DOWN, 0])
    await advance(1_000)
    const next = world.mint('org')
    await advance(2_600)
    expect([next.code, world.endpoint.underway]).toEqual([DOWN, 0])
    await advance(1_000)
    expect(await world.call('org', 'org_access_refused')).toMatchObject({ code: 'org_access_refused' })
    expect(await world.call('org')).toMatchObject({ code: 'ok' })
    expect(world.guard.status).toBeUndefined()
  })

  test('while another org waits for its place, a call has the time for a mint', async () => {
    const world = new World({ mintConcurrency: 2 })
    world.endpoint.behave = (org) => (org.startsWith('hangs') ? hanging() : 30)
    const [first, second] = [world.mint('hangs-1'), world.mint('hangs-2')]
    await advance(3_000)
    const waiting = world.mint('healthy')
    await advance(1_900)
    expect(waiting.code).toBeUndefined()
    await advance(300)
    expect([waiting.code, first.code, second.code], 'one is enough').toEqual(['ok', DOWN, undefined])
  })

  // The token from before a purge came with the mint after it, and was cached.
  test('each mint of an org gets the token of its own call', async () => {
    const world = await warmWorld()
    world.endpoint.behave = () => 1_000
    const before = world.guard.mint('org' as OrgId)
    await advance(500)
    const after = world.guard.mint('org' as OrgId)
    await advance(1_000)
    expect((await before).equals(await after)).toBe(false)
  })

  test('also mints that wait for their turn are refused', async () => {
    const world = new World({ mintConcurrency: 2 })
    world.endpoint.behave = (org) =>
      org === 'slow' ? 500 : failing('token_endpoint_rate_limited', { retryAfterSeconds: 60 })()
    world.mint('slow')
    await advance(10)
    const outcomes = world.mintAll(20, 'org')
    await advance(10)
    expect(codes(outcomes)).toEqual(['token_endpoint_rate_limited'])
    expect(world.endpoint.calls.length).toBe(3)
    world.guard.resume()
    world.endpoint.behave = () => 0
    const resumed = world.mint('org-5')
    await advance(500)
    expect(resumed.code).toBe('ok')
  })
})

describe('a slow endpoint', () => {
  test('that takes seven seconds from the start works, with all orgs: no call is broken off or made twice', async () => {
    const world = new World()
    world.endpoint.behave = () => 6_000 + (world.endpoint.calls.length % 3) * 500
    for (let round = 0; round < 5; round += 1) {
      const outcomes = world.mintAll(30, `round-${round}`)
      await advance(8_000)
      expect(codes(outcomes)).toEqual(['ok'])
    }
    expect(world.endpoint.calls).toHaveLength(150)
    expect(world.events).toEqual([])
  })

  test('that takes three seconds from the start: what it answers first tells that the others do not hang', async () => {
    const world = new World()
    world.endpoint.behave = () => 1_800 + (world.endpoint.calls.length % 6) * 100
    const outcomes = world.mintAll(44, 'org')
    await advance(5_000)
    expect(codes(outcomes)).toEqual(['ok'])
    expect(world.endpoint.calls).toHaveLength(44)
  })

  test.each([
    [1, 4_000, 12],
    [3, 4_000, 36],
  ])('with %i places and sixty orgs, one that takes %i ms makes %i mints in a minute', async (places, ms, least) => {
    const world = new World({ mintConcurrency: places })
    world.endpoint.behave = () => ms
    const outcomes = world.mintAll(60, 'org')
    for (let i = 0; i < 300; i += 1) {
      await advance(200)
      world.mintAgain(outcomes, 'org')
    }
    const { calls, brokenOff, underway } = world.endpoint
    expect(calls.length - brokenOff - underway).toBeGreaterThanOrEqual(least)
  })

  test('forty orgs hang: healthy orgs wait for the first of them alone', async () => {
    const world = new World()
    world.endpoint.behave = (org) => (org.startsWith('hangs') ? hanging() : 30)
    const outcomes = world.mintAll(40, 'hangs')
    for (let i = 0; i < 100; i += 1) {
      await advance(5_000)
      world.mintAgain(outcomes, 'hangs')
      const healthy = world.mint(`healthy-${i}`)
      await advance(1_000)
      expect(healthy).toMatchObject({ code: 'ok' })
      expect(healthy.tookMs).toBeLessThan(500)
    }
    expect(world.events.filter((event) => event.startsWith('paused'))).toEqual([])
  })
})

/** So short that nothing is tried again. */
const ONCE = { mintTimeoutMs: 150, mintRate: 1e9 }

describe('an org whose trouble is its own', () => {
  test.each([
    [REJECTED, [1_000, 2_000, 4_000, 4_000]],
    [LIMITED, [1_000, 2_000, 4_000, 4_000]],
    [DOWN, [150, 300, 600, 800, 800]],
  ] as const)('%s: pauses that org, longer each time, and no other', async (code, lengths) => {
    const world = new World(ONCE)
    for (const lengthMs of lengths) {
      await world.call('sick', code)
      await advance(lengthMs - 1)
      expect(await world.call('sick')).toMatchObject({ code, isCalled: false })
      await advance(1)
    }
    expect(await world.call('sick')).toMatchObject({ code: 'ok' })
    expect(world.events).toEqual([])
    await world.call('sick', code)
    await advance(lengths[0])
    expect(await world.call('sick'), 'a success starts the pauses anew').toMatchObject({ code: 'ok' })
  })

  test('forty that fail always, and one that is healthy: they do not pause it again', async () => {
    const world = new World(ONCE)
    const sick = Array.from({ length: 40 }, (_, i) => `sick-${i}`)
    for (let i = 0; i < 4; i += 1) {
      for (const org of sick.slice(i * 10, i * 10 + 10)) await world.call(org, DOWN)
      await advance(1)
      await world.call('healthy')
    }
    for (let round = 0; round < 100; round += 1) {
      await advance(5_000)
      for (const org of sick) await world.call(org, DOWN)
      expect(await world.call('healthy'), `in round ${round}`).toMatchObject({ code: 'ok' })
    }
    expect(world.events).toEqual([])
  })

  test('its trouble is told until another succeeds', async () => {
    const world = new World(ONCE)
    await advance(1)
    await world.call('sick', DOWN)
    await advance(250_000)
    expect(world.guard.status).toMatchObject({ code: DOWN, leftMs: 0, isOfAll: false, orgs: ['sick'] })
    await world.call('healthy')
    expect(world.guard.status).toBeUndefined()
  })
})

describe('all orgs are paused', () => {
  test.each([REJECTED, LIMITED] as const)('by the %s of a second org, if none succeeds in between', async (code) => {
    for (const isPaused of [true, false]) {
      const world = new World(ONCE)
      await world.call('a', code)
      if (!isPaused) await world.call('healthy')
      await world.call('b', code)
      expect(world.guard.pauseOfAll?.code).toBe(isPaused ? code : undefined)
      expect(await world.call('new')).toMatchObject({ isCalled: !isPaused })
      world.guard.resume(REJECTED) // the secret has changed
      expect(await world.call('a')).toMatchObject({ isCalled: code === REJECTED })
    }
  })

  test.each(FAILURES)('by the failures of three orgs in a row: %s', async (code) => {
    const world = new World(ONCE)
    for (let i = 0; i < 60; i += 1) {
      await world.call(`org-${i % 2}`, code)
      await advance(800)
    }
    expect(world.guard.pauseOfAll?.code, 'two orgs').toBeUndefined()
    await world.call('third', code)
    expect(world.events).toEqual([`paused ${DOWN} 150`])
  })

  test('not by an endpoint that fails every other time', async () => {
    const world = new World(ONCE)
    for (let i = 0; i < 1_000; i += 1) await world.call(`org-${i % 50}`, i % 2 === 0 ? DOWN : undefined)
    expect(world.events).toEqual([])
  })

  test.each([undefined, 'org_access_refused', REJECTED] as const)(
    'while it is down, until it answers: %s',
    async (outcome) => {
      const world = new World(ONCE)
      await world.goDown()
      await advance(150)
      await world.call('new', outcome)
      expect(world.guard.pauseOfAll?.code).toBeUndefined()
      expect(world.events).toEqual([`paused ${DOWN} 150`, 'resumed'])
    },
  )

  test('again after a recovery', async () => {
    const world = new World(ONCE)
    await world.goDown()
    await advance(1_000)
    await world.call('down-0')
    expect(world.guard.pauseOfAll).toBeUndefined()
    await advance(1)
    await world.goDown('others')
    expect(world.guard.pauseOfAll?.code).toBe(DOWN)
  })
})

describe('the probe of a pause of all', () => {
  test('is one call at its end; its failure starts a longer pause, and so does one without an answer', async () => {
    const world = new World(ONCE)
    await world.goDown()
    for (const lengthMs of [150, 300, 600, 800, 800]) {
      await advance(lengthMs - 1)
      expect(await world.call('new'), `${lengthMs} ms`).toMatchObject({ isCalled: false })
      await advance(1)
      const end = await world.begin(`new-${lengthMs}-${now()}`)
      expect(await world.call('other')).toMatchObject({ isCalled: false })
      await end('token_endpoint_timeout')
    }
    await advance(800)
    await world.begin('hangs')
    await advance(75) // half the time for a mint
    expect(await world.call('another')).toMatchObject({ isCalled: true, code: 'ok' })
  })

  test('is soonest made by orgs that had a token, and latest by those that fail, however often these ask', async () => {
    const world = new World(ONCE)
    await world.goDown()
    const probes: string[] = []
    for (let i = 0; i < 200; i += 1) {
      await advance(20)
      const asks = i % 60 === 20 ? ['known'] : []
      for (const org of [...asks, `unknown-${i}`, `down-${i % 12}`]) {
        const reason = org === 'known' ? 'expired' : 'cold'
        if ((await world.call(org, DOWN, undefined, reason)).isCalled) probes.push(org)
      }
      if (probes.includes('known')) break
    }
    expect(probes.at(-1)).toBe('known')
    expect(probes.filter((org) => org.startsWith('down'))).toEqual([])
    expect(await world.call('healthy', undefined, undefined, 'rejected')).toMatchObject({ code: 'ok' })
    expect(world.guard.pauseOfAll?.code).toBeUndefined()
  })

  test('failures of calls that were under way neither lengthen the pause nor end the probe', async () => {
    const world = new World({ ...ONCE, mintTimeoutMs: 1_000 })
    const underway = [await world.begin('x'), await world.begin('y'), await world.begin('z')]
    world.endpoint.behave = failing(DOWN)
    world.mintAll(12, 'down')
    await advance(550)
    const calls = world.endpoint.calls.length
    await world.begin('new')
    for (const end of underway) await end(DOWN)
    expect(world.endpoint.calls.length).toBe(calls + 1)
    expect(world.events).toEqual([`paused ${DOWN} 150`])
    expect(await world.call('other')).toMatchObject({ isCalled: false })
    await advance(900)
    expect(await world.call('other'), 'it has had its time').toMatchObject({ isCalled: true })
  })
})

describe('a limit', () => {
  test.each([
    ['a success', undefined],
    ['a failure', DOWN],
    ['a 401', REJECTED],
    ['a shorter limit', LIMITED],
  ] as const)('of all is kept to its end, also after %s of a call that was under way', async (_, outcome) => {
    const world = new World(ONCE)
    const underway = [await world.begin('x'), await world.begin('y')]
    for (const org of ['a', 'b']) await world.call(org, LIMITED, 60)
    for (const end of underway) await end(outcome, 10)
    expect((await world.call('new')).error).toMatchObject({ code: LIMITED, retryAfterSeconds: 60 })
    await advance(59_900)
    expect(await world.call('known', undefined, undefined, 'expired')).toMatchObject({ isCalled: false })
    await advance(100)
    const end = await world.begin('new')
    for (const org of ['other', 'a']) expect(await world.call(org)).toMatchObject({ isCalled: false })
    await end()
    expect(await world.call('other')).toMatchObject({ code: 'ok' })
  })

  test('a later end that a call under way is told moves the end', async () => {
    const world = new World(ONCE)
    const end = await world.begin('x')
    for (const org of ['a', 'b']) await world.call(org, LIMITED, 10)
    await end(LIMITED, 20)
    expect((await world.call('new')).error).toMatchObject({ retryAfterSeconds: 20 })
  })

  test('is ended by an operator, and not by a changed secret', async () => {
    const world = new World(ONCE)
    for (const org of ['a', 'b']) await world.call(org, LIMITED, 60)
    world.guard.resume(REJECTED)
    const told = { code: LIMITED, leftMs: 60_000, isOfAll: true, orgs: ['b', 'a'] }
    expect(world.guard.status).toMatchObject(told)
    world.guard.resume()
    expect(world.guard.status).toBeUndefined()
    expect(world.events.at(-1)).toBe('resumed')
    await world.call('a', LIMITED, 60)
    expect(world.guard.pauseOfAll?.code, 'those before do not count').toBeUndefined()
    for (const org of ['b', 'c']) expect(await world.call(org)).toMatchObject({ code: 'ok' })
  })
})

describe('whatever happens in whatever order', () => {
  const step = fc.record({
    org: fc.integer({ min: 0, max: 7 }),
    outcome: fc.constantFrom<Code[]>(undefined, 'org_access_refused', REJECTED, LIMITED, ...FAILURES),
    retryAfterSeconds: fc.constantFrom(undefined, 0, 1, 5, 60),
    lastsMs: fc.constantFrom(0, 30, 600, 3_000),
    pauseMs: fc.constantFrom(0, 1, 100, 250, 1_000, 5_000),
  })
  type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

  /** Plays the steps; `outcomeOf` may replace an outcome. Then all works for four seconds, so that no call is under way. */
  async function play(steps: readonly Step[], outcomeOf: (step: Step) => Code): Promise<World> {
    vi.clearAllTimers()
    const world = new World({ mintRate: 1e6 })
    const isMinting = new Set<number>()
    for (const step of steps) {
      await advance(step.pauseMs)
      if (isMinting.has(step.org)) continue
      isMinting.add(step.org)
      const { lastsMs, retryAfterSeconds } = step
      const code = outcomeOf(step)
      const fail = (_: unknown, reject: (error: Error) => void) =>
        setTimeout(() => reject(new TokenError(code ?? DOWN, 'scripted', { retryAfterSeconds })), lastsMs)
      world.endpoint.behave = () => (code === undefined ? lastsMs : new Promise(fail))
      const done = () => isMinting.delete(step.org)
      world.guard.mint(`org-${step.org}` as OrgId).then(done, done)
      await advance(0)
    }
    world.endpoint.behave = () => 0
    await advance(4_000)
    return world
  }

  const runs = { numRuns: 100 }
  const steps = fc.array(step, { maxLength: 60 })
  const all = Array.from({ length: 9 }, (_, i) => `org-${i}`)
  const succeed = async (world: World, orgs: readonly string[]) => {
    for (const org of orgs) expect((await world.call(org)).code, org).toBe('ok')
  }

  test('one or two failing orgs never pause another', async () => {
    const run = async (list: Step[], code: Code) => {
      for (const outcomeOf of [
        ({ org, outcome }: Step) => (org === 0 ? outcome : undefined),
        ({ org }: Step) => (org < 2 ? code : undefined),
      ]) {
        const world = await play(list, outcomeOf)
        await succeed(world, all.slice(2))
        expect(world.events).toEqual([])
      }
    }
    await fc.assert(fc.asyncProperty(steps, fc.constantFrom(...FAILURES), run), runs)
  })

  test('nothing is stuck: after a recovery, every org succeeds after the longest pause', async () => {
    const run = async (list: Step[]) => {
      const world = await play(list, ({ outcome }) => outcome)
      await advance(60_000)
      await succeed(world, all)
      expect(world.guard.pauseOfAll?.code).toBeUndefined()
    }
    await fc.assert(fc.asyncProperty(steps, run), runs)
  })

  test('after failures alone, every org succeeds within two seconds', async () => {
    const run = async (list: Step[]) => {
      const world = await play(list, ({ outcome }) => outcome && DOWN)
      await advance(2_000)
      await succeed(world, all)
    }
    await fc.assert(fc.asyncProperty(steps, run), runs)
  })
})
