import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { TokenError, type TokenErrorCode, type TokenErrorOptions } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { MintGuard, type MintGuardOptions } from '../../src/token/mint-guard.ts'
import { AccessToken, type MintOptions, OverBudget, type TokenSource } from '../../src/token/token-source.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: 0 })
})
afterEach(() => {
  vi.useRealTimers()
})

const now = () => Date.now()
const DOWN = 'token_endpoint_unavailable'
const CALL_TIMEOUT_MS = 30_000

/** A token endpoint that follows `behave`, and records every call. */
class Endpoint implements TokenSource {
  readonly calls: { readonly org: string; readonly at: number }[] = []
  underway = 0
  brokenOff = 0
  /** Returns the time of the answer, or throws the failure. */
  behave: (org: string) => number = () => 0
  /** Undefined: calls do not fail by themselves. */
  failsAfterMs: number | undefined

  async mint(org: OrgId, { signal }: MintOptions = {}): Promise<AccessToken> {
    this.calls.push({ org, at: now() })
    if (this.failsAfterMs !== undefined) {
      await new Promise((resolve) => setTimeout(resolve, this.failsAfterMs))
      throw new TokenError(DOWN, 'scripted')
    }
    const answerMs = this.behave(org)
    if (answerMs > 0) await this.#take(answerMs, signal)
    return new AccessToken(`token-${this.calls.length}`, now())
  }

  async #take(answerMs: number, signal?: AbortSignal): Promise<void> {
    this.underway += 1
    const hasAnswer = await new Promise<boolean>((resolve) => {
      setTimeout(() => resolve(answerMs <= CALL_TIMEOUT_MS), Math.min(answerMs, CALL_TIMEOUT_MS))
      signal?.addEventListener('abort', () => resolve(false))
    })
    this.underway -= 1
    if (signal?.aborted === true) this.brokenOff += 1
    if (!hasAnswer) throw new TokenError('token_endpoint_timeout', 'scripted')
  }
}

const failing = (code: TokenErrorCode, options?: TokenErrorOptions) => (): never => {
  throw new TokenError(code, 'scripted', options)
}
const hanging = () => Number.POSITIVE_INFINITY

interface Outcome {
  code?: TokenErrorCode | 'ok'
  error?: TokenError
  tookMs?: number
}

class World {
  readonly endpoint = new Endpoint()
  readonly events: string[] = []
  readonly guard: MintGuard

  constructor(options: Partial<MintGuardOptions> = {}) {
    this.guard = new MintGuard(
      {
        mintTimeoutMs: 5_000,
        mintConcurrency: 32,
        mintRate: 1_000,
        now,
        random: () => 1,
        observer: {
          mintsPaused: (code) => this.events.push(`paused ${code}`),
          mintsResumed: () => this.events.push('resumed'),
        },
        ...options,
      },
      this.endpoint,
    )
  }

  /** The outcome is filled in when the mint settles. */
  mint(org = 'acme', options: MintOptions = { requester: {} }): Outcome {
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

  // The requests that wait would get a timeout in place of the cause.
  test('is not tried again if the next call could end after the time for a mint', async () => {
    const world = new World({ mintTimeoutMs: 1_000 })
    const { endpoint } = world
    endpoint.failsAfterMs = 400
    const outcome = world.mint()
    await advance(2_000)
    expect(endpoint.calls.map(({ at }) => at)).toEqual([0, 551])
    expect(outcome).toMatchObject({ code: DOWN, tookMs: 951 })
  })
})

test('a call that has its answer is not broken off: the rest is read, and its connection kept', async () => {
  const world = new World()
  const mint = vi.spyOn(world.endpoint, 'mint')
  await world.guard.mint('acme' as OrgId)
  expect(mint.mock.calls[0]?.[1]?.signal?.aborted).toBe(false)
})

test('a probe that gets no turn leaves its place to the next', async () => {
  const world = new World({ mintRate: 1 })
  world.endpoint.behave = (org) => (org === 'sick' && now() < 13_000 ? failing(DOWN)() : 7_000)
  world.mint('slow')
  await advance(7_000)
  world.mint('sick')
  await advance(6_000)
  world.mintAll(6, 'org')
  const probe = world.mint('sick')
  await advance(6_000)
  const next = world.mint('sick')
  await advance(7_000)
  expect([probe.error?.constructor, next.code]).toEqual([OverBudget, 'ok'])
})

describe('the endpoint is down', () => {
  test('no calls but single probes, the rest fail at once; ten minutes later it is back within 5 s', async () => {
    const world = new World()
    world.endpoint.behave = failing(DOWN)
    world.mintAll(5, 'first')
    await advance(5_000)
    expect(world.events).toContain(`paused ${DOWN}`)
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

  test('it becomes slow, as if it hung: the oldest call goes on and shows that it works, the others are broken off', async () => {
    const world = await warmWorld()
    world.endpoint.behave = () => 7_000
    const outcomes = world.mintAll(20, 'org')
    await advance(5_200)
    expect(world.events).toEqual([`paused ${DOWN}`])
    expect([codes(outcomes.slice(0, 1)), codes(outcomes.slice(1))]).toEqual([[undefined], [DOWN]])
    await advance(1_820)
    expect(outcomes[0]?.code).toBe('ok')
    expect(world.events).toEqual([`paused ${DOWN}`, 'resumed'])
    const next = world.mint('another')
    await advance(7_000)
    expect(next, 'now it is known to be slow').toMatchObject({ code: 'ok', tookMs: 7_000 })
  })

  test('it hangs and comes back: a probe that hangs does not put off the recovery', async () => {
    const world = await warmWorld()
    world.endpoint.behave = hanging
    const [oldest = {}] = world.mintAll(10, 'org')
    await advance(20_000)
    world.mint('a')
    await advance(1_010)
    world.endpoint.behave = () => 30
    const backAt = now()
    for (let outcome: Outcome = {}; outcome.code !== 'ok'; await advance(50)) {
      outcome = world.mint('b')
      await advance(50)
    }
    expect(now() - backAt).toBeLessThan(5_000)
    await advance(2_000)
    expect(oldest, 'a call from before the recovery is not waited for').toMatchObject({ code: 'ok' })
  })

  test.each([1, 2])('it hangs for %i orgs alone and comes back: these do not wait for their calls', async (count) => {
    const world = await warmWorld()
    world.endpoint.behave = hanging
    const outcomes = world.mintAll(count, 'org')
    await advance(12_000)
    expect(world.endpoint.underway, 'one call beside each').toBeLessThanOrEqual(2 * count)
    world.endpoint.behave = () => 30
    await advance(5_000)
    expect(codes(outcomes)).toEqual(['ok'])
    expect(world.endpoint.underway).toBe(0)
    const calls = world.endpoint.calls.length
    await advance(60_000)
    expect(world.endpoint.calls).toHaveLength(calls)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('it hangs for an org and then refuses it: the refusal is passed on', async () => {
    const world = await warmWorld()
    world.endpoint.behave = hanging
    const outcome = world.mint('org')
    await advance(12_000)
    world.endpoint.behave = failing('org_access_refused')
    await advance(5_000)
    expect(outcome.code).toBe('org_access_refused')
    expect(world.endpoint.underway).toBe(0)
  })

  test('a call beside one that hangs ends with it', async () => {
    const world = await warmWorld()
    world.endpoint.behave = () => (world.endpoint.calls.length === 2 ? 8_500 : hanging())
    const outcome = world.mint('org')
    await advance(8_500)
    expect([outcome.code, world.endpoint.calls.length]).toEqual(['ok', 3])
    expect(world.endpoint.underway).toBe(0)
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
    world.guard.pauses.resume()
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

  test('that becomes slow: the calls in a quarter of the places show it', async () => {
    const world = new World()
    for (const _ of Array.from({ length: 40 })) {
      world.mint('warm')
      await advance(10)
    }
    world.endpoint.behave = () => 3_000
    world.mintAll(60, 'first')
    await advance(20_000)
    const { brokenOff } = world.endpoint
    const outcomes = world.mintAll(32, 'second')
    await advance(5_000)
    expect(codes(outcomes)).toEqual(['ok'])
    expect(world.endpoint.brokenOff).toBe(brokenOff)
    expect(world.events).not.toContain(`paused ${DOWN}`)
  })

  test.each([0, 10, 28_000])(
    'forty orgs hang: healthy orgs are served in time (one org was answered before in %d ms)',
    async (answerMs) => {
      const world = new World()
      world.endpoint.behave = (org) => (org === 'first' ? answerMs : 0)
      if (answerMs > 0) world.mint('first')
      await advance(5)
      if (answerMs > 0) world.mint('second')
      await advance(answerMs)
      world.endpoint.behave = (org) => (org.startsWith('hangs') ? hanging() : 30)
      // Each asks again when its mint has ended: the cache makes one at a time.
      const sick = Array.from({ length: 40 }, (_, i) => ({ org: `hangs-${i}`, requester: {} }))
      const outcomes = sick.map(({ org, requester }) => world.mint(org, { requester }))
      for (let i = 0; i < 100; i += 1) {
        const healthy = world.mint(`healthy-${i}`)
        await advance(5_000)
        expect(healthy).toMatchObject({ code: 'ok' })
        if (i > 0) expect(healthy.tookMs).toBeLessThan(3_000)
        sick.forEach(({ org, requester }, j) => {
          if (outcomes[j]?.code !== undefined) outcomes[j] = world.mint(org, { requester })
        })
      }
      expect(world.events.filter((event) => event.startsWith('paused'))).toEqual([])
    },
  )
})
