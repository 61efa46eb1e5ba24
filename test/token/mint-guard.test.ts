import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { TokenError, type TokenErrorCode, type TokenErrorOptions } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { MintGuard, type MintGuardOptions } from '../../src/token/mint-guard.ts'
import {
  AccessToken,
  MintGoesOn,
  MintNotSent,
  type MintOptions,
  type TokenSource,
} from '../../src/token/token-source.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: 0, toFake: ['setTimeout', 'clearTimeout', 'Date'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const now = () => Date.now()
const ACME = 'acme' as OrgId

/** A token endpoint that follows `behave`, and records every call. */
class Endpoint implements TokenSource {
  readonly calls: { readonly org: OrgId; readonly at: number; readonly options: MintOptions }[] = []
  behave: (org: OrgId) => Promise<void> | void = () => {}

  async mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    this.calls.push({ org, at: now(), options })
    await this.behave(org)
    return new AccessToken(`token-${this.calls.length}`, now())
  }

  get calledAt(): number[] {
    return this.calls.map((call) => call.at)
  }
}

function failing(code: TokenErrorCode, options?: TokenErrorOptions): () => never {
  return () => {
    throw new TokenError(code, 'scripted', options)
  }
}

/** Does not answer before the deadline of the call. */
function hanging(endpoint: Endpoint): () => Promise<never> {
  return () => {
    const { deadlineAt = Number.NaN } = endpoint.calls.at(-1)?.options ?? {}
    return new Promise((_, reject) => {
      setTimeout(() => reject(new TokenError('token_endpoint_timeout', 'scripted')), deadlineAt - now())
    })
  }
}

/** Answers after this time, unless the deadline of the call comes first. */
function answeringAfter(endpoint: Endpoint, ms: number): () => Promise<void> {
  return async () => {
    const restMs = (endpoint.calls.at(-1)?.options.deadlineAt ?? Number.NaN) - now()
    await new Promise((resolve) => setTimeout(resolve, Math.min(ms, restMs)))
    if (restMs < ms) failing('token_endpoint_timeout')()
  }
}

interface Outcome {
  code: TokenErrorCode | 'ok' | undefined
  error?: TokenError
  tookMs?: number
}

/** The outcome is set when the mint settles. */
function mint(guard: MintGuard, org = ACME, options?: MintOptions): Outcome {
  const startedAt = now()
  const outcome: Outcome = { code: undefined }
  guard.mint(org, options).then(
    () => Object.assign(outcome, { code: 'ok', tookMs: now() - startedAt }),
    (error: TokenError) => Object.assign(outcome, { code: error.code, error, tookMs: now() - startedAt }),
  )
  return outcome
}

function setUp(options: Partial<MintGuardOptions> = {}) {
  const endpoint = new Endpoint()
  const events: string[] = []
  const guard = new MintGuard(
    {
      mintTimeoutMs: 5_000,
      mintConcurrency: 32,
      mintRate: 100,
      now,
      random: () => 1,
      observer: {
        mintRefused: (org, reason, error) => events.push(`refused ${org} ${reason} ${error.code}`),
        mintsPaused: (code) => events.push(`paused ${code}`),
        mintsResumed: () => events.push('resumed'),
      },
      ...options,
    },
    endpoint,
  )
  return { endpoint, guard, events }
}

/** Lets the endpoint fail until the guard stops calling it. */
async function openCircuit(guard: MintGuard, endpoint: Endpoint): Promise<void> {
  endpoint.behave = failing('token_endpoint_unavailable')
  for (const org of ['v', 'w', 'x', 'y', 'z'] as OrgId[]) mint(guard, org)
  await vi.advanceTimersByTimeAsync(220)
}

describe('T-TK-12 retries', () => {
  test('a passing failure is tried again, with growing pauses', async () => {
    const { endpoint, guard } = setUp()
    let failures = 3
    endpoint.behave = () => {
      if (failures-- > 0) failing('token_endpoint_unavailable')()
    }
    const outcome = mint(guard)
    await vi.advanceTimersByTimeAsync(5_000)
    expect(outcome.code).toBe('ok')
    expect(endpoint.calledAt).toEqual([0, 200, 600, 1_400])
  })

  test('not without end', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = failing('token_endpoint_unavailable')
    const outcome = mint(guard)
    await vi.advanceTimersByTimeAsync(5_000)
    expect(outcome.code).toBe('token_endpoint_unavailable')
    expect(endpoint.calls).toHaveLength(4)
  })

  test('not beyond the time for the whole mint', async () => {
    const { endpoint, guard } = setUp({ mintTimeoutMs: 500 })
    endpoint.behave = failing('token_endpoint_unavailable')
    const outcome = mint(guard)
    await vi.advanceTimersByTimeAsync(500)
    expect(outcome).toMatchObject({ code: 'token_endpoint_unavailable', tookMs: 200 })
    expect(endpoint.calledAt).toEqual([0, 200])
  })

  test('each call gets the deadline of the whole mint', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = failing('token_endpoint_unavailable')
    await vi.advanceTimersByTimeAsync(1_000)
    mint(guard)
    await vi.advanceTimersByTimeAsync(1_000)
    expect(new Set(endpoint.calls.map((call) => call.options.deadlineAt))).toEqual(new Set([6_000]))
  })

  test.each([
    'org_access_refused',
    'token_response_invalid',
    'token_endpoint_rate_limited',
    'app_credentials_rejected',
    'token_endpoint_timeout',
  ] as const)('%s is not tried again', async (code) => {
    const { endpoint, guard } = setUp()
    endpoint.behave = failing(code)
    const outcome = mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(outcome.code).toBe(code)
    expect(endpoint.calls).toHaveLength(1)
  })

  test('T-TK-07 an endpoint that hangs costs no more than the time for the whole mint', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = hanging(endpoint)
    const outcomes = Array.from({ length: 5 }, (_, i) => mint(guard, `org-${i}` as OrgId))
    await vi.advanceTimersByTimeAsync(5_000)
    for (const outcome of outcomes) expect(outcome).toMatchObject({ code: 'token_endpoint_timeout', tookMs: 5_000 })
  })
})

describe('failing fast', () => {
  test('after failures in a row, the endpoint is not called, and mints fail at once', async () => {
    const { endpoint, guard, events } = setUp()
    await openCircuit(guard, endpoint)
    const calls = endpoint.calls.length
    const outcomes = Array.from({ length: 1_000 }, (_, i) => mint(guard, `org-${i}` as OrgId))
    await vi.advanceTimersByTimeAsync(0)
    for (const outcome of outcomes) {
      expect(outcome).toMatchObject({ code: 'token_endpoint_unavailable', tookMs: 0 })
      expect(outcome.error?.retryAfterSeconds).toBe(1)
    }
    expect(endpoint.calls).toHaveLength(calls)
    expect(events).toContain('paused token_endpoint_unavailable')
    expect(events.filter((event) => event.startsWith('refused org-'))).toHaveLength(1_000)
  })

  test('T-TK-31 ten minutes down: single probes, pauses of at most 2 s, and back within 5 s', async () => {
    const { endpoint, guard, events } = setUp()
    await openCircuit(guard, endpoint)
    const firstProbe = endpoint.calls.length
    for (let i = 0; i < 6_000; i += 1) {
      const outcome = mint(guard, `org-${i % 50}` as OrgId)
      await vi.advanceTimersByTimeAsync(100)
      expect(outcome.code).toBe('token_endpoint_unavailable')
      expect(outcome.tookMs).toBeLessThanOrEqual(100)
    }
    const probes = endpoint.calledAt.slice(firstProbe)
    const pauses = probes.slice(1).map((at, i) => at - (probes[i] ?? 0))
    expect(Math.max(...pauses)).toBeLessThanOrEqual(2_100)
    expect(probes.length).toBeLessThan(480)
    endpoint.behave = () => {}
    const upAt = now()
    const rush = () => Array.from({ length: 20 }, (_, i) => mint(guard, `org-${i}` as OrgId))
    let outcomes = rush()
    while (outcomes.some(({ code }) => code !== 'ok') && now() < upAt + 10_000) {
      await vi.advanceTimersByTimeAsync(100)
      outcomes = rush()
      await vi.advanceTimersByTimeAsync(0)
    }
    expect(now() - upAt).toBeLessThan(5_000)
    expect(events.at(-1)).toBe('resumed')
  })

  test('a probe that hangs delays neither its request nor the recovery', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = hanging(endpoint)
    for (const org of ['v', 'w', 'x', 'y', 'z'] as OrgId[]) mint(guard, org)
    await vi.advanceTimersByTimeAsync(7_000)
    const probing = mint(guard, 'probing' as OrgId)
    const meanwhile = mint(guard, 'other' as OrgId)
    await vi.advanceTimersByTimeAsync(100)
    expect(probing.code).toBe('token_endpoint_unavailable')
    expect(probing.tookMs).toBeLessThanOrEqual(100)
    expect(meanwhile.tookMs).toBe(0)
    endpoint.behave = () => {}
    const upAt = now()
    let outcome = mint(guard)
    while (outcome.code !== 'ok' && now() < upAt + 10_000) {
      await vi.advanceTimersByTimeAsync(50)
      outcome = mint(guard)
      await vi.advanceTimersByTimeAsync(0)
    }
    expect(now() - upAt).toBeLessThan(5_000)
  })

  test('while half of the orgs succeed, no healthy org has to wait', async () => {
    const { endpoint, guard, events } = setUp()
    for (let i = 0; i < 20; i += 1) {
      endpoint.behave = i % 2 === 0 ? () => {} : failing('token_response_invalid')
      mint(guard, `org-${i}` as OrgId)
      await vi.advanceTimersByTimeAsync(10)
    }
    expect(endpoint.calls).toHaveLength(20)
    expect(events).toEqual([])
  })

  test('a probe that is slow serves its request if the failures before it were quick', async () => {
    const { endpoint, guard } = setUp()
    await openCircuit(guard, endpoint)
    endpoint.behave = () => new Promise((resolve) => setTimeout(resolve, 700))
    await vi.advanceTimersByTimeAsync(2_000)
    const probing = mint(guard, 'probing' as OrgId)
    await vi.advanceTimersByTimeAsync(700)
    expect(probing).toMatchObject({ code: 'ok', tookMs: 700 })
  })

  test('after calls that hung, a quick probe serves its request, and leaves no timer', async () => {
    const { endpoint, guard } = setUp({ mintTimeoutMs: 1_000 })
    endpoint.behave = hanging(endpoint)
    for (let i = 0; i < 8; i += 1) mint(guard, `org-${i}` as OrgId)
    await vi.advanceTimersByTimeAsync(2_000)
    endpoint.behave = () => {}
    const probing = mint(guard, 'probing' as OrgId)
    await vi.advanceTimersByTimeAsync(0)
    expect(probing).toMatchObject({ code: 'ok', tookMs: 0 })
    expect(vi.getTimerCount()).toBe(0)
  })

  test('after calls that hung, a slow probe delivers its token late', async () => {
    const { endpoint, guard, events } = setUp({ mintTimeoutMs: 1_000 })
    endpoint.behave = hanging(endpoint)
    for (let i = 0; i < 8; i += 1) mint(guard, `org-${i}` as OrgId)
    await vi.advanceTimersByTimeAsync(2_000)
    expect(events).toContain('paused token_endpoint_unavailable')
    endpoint.behave = () => new Promise((resolve) => setTimeout(resolve, 300))
    const probing = mint(guard, 'probing' as OrgId)
    await vi.advanceTimersByTimeAsync(100)
    expect(probing.code).toBe('token_endpoint_unavailable')
    expect(probing.error).toBeInstanceOf(MintGoesOn)
    const { token } = probing.error as MintGoesOn
    await vi.advanceTimersByTimeAsync(300)
    expect((await token).reveal()).toMatch(/^Bearer token-/)
    expect(events.at(-1)).toBe('resumed')
  })

  test('refusals of orgs are answers, not failures', async () => {
    const { endpoint, guard, events } = setUp()
    endpoint.behave = failing('org_access_refused', { tokenEndpointStatus: 404 })
    for (let i = 0; i < 50; i += 1) mint(guard, `org-${i}` as OrgId)
    await vi.advanceTimersByTimeAsync(1_000)
    expect(endpoint.calls).toHaveLength(50)
    expect(events).toEqual([])
  })

  test('T-TK-30 if only one org fails, only that org is paused', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = (org) => {
      if (org === ACME) failing('token_endpoint_unavailable')()
    }
    for (let i = 0; i < 5; i += 1) {
      mint(guard)
      await vi.advanceTimersByTimeAsync(200)
    }
    const calls = endpoint.calls.length
    const ofAcme = mint(guard)
    const ofGlobex = mint(guard, 'globex' as OrgId)
    await vi.advanceTimersByTimeAsync(0)
    expect(ofAcme).toMatchObject({ code: 'token_endpoint_unavailable', tookMs: 0 })
    expect(ofGlobex).toMatchObject({ code: 'ok', tookMs: 0 })
    expect(endpoint.calls).toHaveLength(calls + 1)
  })
})

describe('T-TK-11 a Retry-After', () => {
  test('is respected to the second, and passed on', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = failing('token_endpoint_rate_limited', { retryAfterSeconds: 17 })
    const first = mint(guard)
    mint(guard, 'globex' as OrgId)
    await vi.advanceTimersByTimeAsync(0)
    expect(first.error?.retryAfterSeconds).toBe(17)
    endpoint.behave = () => {}
    for (let second = 0; second < 17; second += 1) {
      const outcome = mint(guard, `org-${second}` as OrgId)
      await vi.advanceTimersByTimeAsync(0)
      expect(outcome).toMatchObject({ code: 'token_endpoint_rate_limited', tookMs: 0 })
      expect(outcome.error?.retryAfterSeconds).toBe(17 - second)
      await vi.advanceTimersByTimeAsync(1_000)
    }
    expect(endpoint.calls).toHaveLength(2)
    const after = mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(after.code).toBe('ok')
    expect(endpoint.calledAt).toEqual([0, 0, 17_000])
  })

  test('is missing: growing pauses', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = failing('token_endpoint_rate_limited')
    for (let i = 0; i < 1_000; i += 1) {
      mint(guard)
      await vi.advanceTimersByTimeAsync(100)
    }
    const pauses = endpoint.calledAt.slice(1).map((at, i) => at - (endpoint.calledAt[i] ?? 0))
    expect(pauses.slice(0, 5)).toEqual([1_000, 2_000, 4_000, 8_000, 16_000])
    expect(Math.max(...pauses)).toBe(30_000)
  })

  test('also refuses mints that wait in the queue, before their turn', async () => {
    const { endpoint, guard } = setUp({ mintConcurrency: 1, mintRate: 4 })
    endpoint.behave = () =>
      new Promise((_, reject) => {
        setTimeout(() => reject(new TokenError('token_endpoint_rate_limited', 'x', { retryAfterSeconds: 9 })), 50)
      })
    const outcomes = Array.from({ length: 10 }, (_, i) => mint(guard, `org-${i}` as OrgId))
    await vi.advanceTimersByTimeAsync(100)
    for (const outcome of outcomes) expect(outcome.code).toBe('token_endpoint_rate_limited')
    expect(endpoint.calls).toHaveLength(2)
  })

  test('is not ended by a success that was under way, or by new credentials', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = (org) =>
      org !== 'globex'
        ? failing('token_endpoint_rate_limited', { retryAfterSeconds: 30 })()
        : new Promise((resolve) => setTimeout(resolve, 100))
    const underway = mint(guard, 'globex' as OrgId)
    mint(guard)
    mint(guard, 'hooli' as OrgId)
    await vi.advanceTimersByTimeAsync(200)
    expect(underway.code).toBe('ok')
    guard.pauses.credentialsChanged()
    mint(guard, 'initech' as OrgId)
    await vi.advanceTimersByTimeAsync(0)
    expect(endpoint.calls).toHaveLength(3)
    expect(guard.pauses.limitedUntil('initech' as OrgId)).toBe(30_000)
  })
})

describe('T-TK-09 rejected credentials', () => {
  test('stop all mints for a growing pause', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = failing('app_credentials_rejected')
    for (let i = 0; i < 3_000; i += 1) {
      const outcome = mint(guard, `org-${i}` as OrgId)
      await vi.advanceTimersByTimeAsync(100)
      expect(outcome.code).toBe('app_credentials_rejected')
    }
    const pauses = endpoint.calledAt.slice(1).map((at, i) => at - (endpoint.calledAt[i] ?? 0))
    expect(pauses.slice(0, 7)).toEqual([100, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000])
    expect(Math.max(...pauses)).toBe(60_000)
  })

  test('stop mints until they change', async () => {
    const { endpoint, guard, events } = setUp()
    endpoint.behave = failing('app_credentials_rejected')
    mint(guard)
    mint(guard, 'globex' as OrgId)
    await vi.advanceTimersByTimeAsync(10)
    expect(guard.pauses.areCredentialsRejected).toBe(true)
    endpoint.behave = () => {}
    guard.pauses.credentialsChanged()
    expect(guard.pauses.areCredentialsRejected).toBe(false)
    const outcome = mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(outcome.code).toBe('ok')
    expect(events).toEqual(['paused app_credentials_rejected', 'resumed'])
  })

  test('fail no mint, if new ones are found meanwhile', async () => {
    let isNew = false
    const recoveries: number[] = []
    const { endpoint, guard, events } = setUp({
      recoverCredentials: (calledAt) => {
        recoveries.push(calledAt)
        return new Promise((resolve) => {
          setTimeout(() => {
            isNew = true
            resolve(true)
          }, 300)
        })
      },
    })
    endpoint.behave = () => {
      if (!isNew) failing('app_credentials_rejected')()
    }
    const outcomes = Array.from({ length: 20 }, (_, i) => mint(guard, `org-${i}` as OrgId))
    await vi.advanceTimersByTimeAsync(100)
    outcomes.push(mint(guard, 'later' as OrgId))
    await vi.advanceTimersByTimeAsync(500)
    for (const outcome of outcomes) expect(outcome.code).toBe('ok')
    expect(recoveries).toEqual([0])
    expect(endpoint.calls).toHaveLength(2 * 21)
    expect(events).toEqual([])
  })

  test('each rejection looks for new ones again, after the last search', async () => {
    const recoveries: number[] = []
    const { endpoint, guard } = setUp({
      recoverCredentials: (calledAt) => Promise.resolve(recoveries.push(calledAt) < 0),
    })
    endpoint.behave = failing('app_credentials_rejected')
    mint(guard)
    await vi.advanceTimersByTimeAsync(1_000)
    mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(recoveries).toEqual([0, 1_000])
  })

  test('a search that takes too long fails the mint in time', async () => {
    const { endpoint, guard } = setUp({ recoverCredentials: () => new Promise(() => {}) })
    await vi.advanceTimersByTimeAsync(1_000)
    endpoint.behave = failing('app_credentials_rejected')
    const outcomes = [mint(guard), mint(guard, 'globex' as OrgId)]
    await vi.advanceTimersByTimeAsync(5_000)
    for (const outcome of outcomes) expect(outcome).toMatchObject({ code: 'app_credentials_rejected', tookMs: 5_000 })
  })

  test('a 401 during an outage ends the outage, but not the probes', async () => {
    const { endpoint, guard } = setUp({ recoverCredentials: () => Promise.resolve(false) })
    await openCircuit(guard, endpoint)
    endpoint.behave = failing('app_credentials_rejected')
    await vi.advanceTimersByTimeAsync(1_000)
    mint(guard)
    await vi.advanceTimersByTimeAsync(10)
    endpoint.behave = () => {}
    await vi.advanceTimersByTimeAsync(1_000)
    const outcome = mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(outcome.code).toBe('ok')
  })
})

describe('a probe', () => {
  test('has two seconds, so that a hanging probe does not delay the next', async () => {
    const { endpoint, guard } = setUp()
    await openCircuit(guard, endpoint)
    await vi.advanceTimersByTimeAsync(2_000)
    endpoint.behave = () => {}
    mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    const probe = endpoint.calls.at(-1)
    expect((probe?.options.deadlineAt ?? 0) - (probe?.at ?? 0)).toBe(2_000)
  })

  test('has two seconds in a lent place, too', async () => {
    const { endpoint, guard } = setUp({ mintConcurrency: 4 })
    endpoint.behave = (org) => (org === ACME ? failing('token_endpoint_unavailable')() : hanging(endpoint)())
    for (let i = 0; i < 2; i += 1) {
      mint(guard)
      await vi.advanceTimersByTimeAsync(4_000)
    }
    for (let i = 0; i < 3; i += 1) mint(guard, `hanging-${i}` as OrgId, { reason: 'refresh' })
    mint(guard, ACME, { reason: 'refresh' })
    await vi.advanceTimersByTimeAsync(0)
    const { org, at, options } = endpoint.calls.at(-1) ?? {}
    expect([org, (options?.deadlineAt ?? 0) - (at ?? 0)]).toEqual([ACME, 2_000])
  })

  test('has more time if the endpoint was slow when it was well: it would never be seen to recover', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = answeringAfter(endpoint, 2_500)
    mint(guard)
    await vi.advanceTimersByTimeAsync(2_500)
    await openCircuit(guard, endpoint)
    await vi.advanceTimersByTimeAsync(2_000)
    endpoint.behave = answeringAfter(endpoint, 2_500)
    const outcome = mint(guard)
    await vi.advanceTimersByTimeAsync(2_500)
    expect(outcome.code).toBe('ok')
  })

  test('does not wait for its turn if its org hangs: others would be refused meanwhile', async () => {
    const { endpoint, guard } = setUp({ mintConcurrency: 4 })
    endpoint.behave = hanging(endpoint)
    for (const org of ['hanging-1', 'hanging-2'] as OrgId[]) mint(guard, org)
    await vi.advanceTimersByTimeAsync(5_000)
    mint(guard, 'hanging-1' as OrgId) // takes the one place for orgs that hang
    await vi.advanceTimersByTimeAsync(0)
    await openCircuit(guard, endpoint)
    await vi.advanceTimersByTimeAsync(1_000)
    endpoint.behave = () => {}
    const waiting = mint(guard, 'hanging-2' as OrgId)
    await vi.advanceTimersByTimeAsync(1)
    expect(waiting.code).toBe('token_endpoint_unavailable')
    const healthy = mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(healthy.code).toBe('ok')
  })

  test('that is rejected while the secret changes is repeated', async () => {
    const { endpoint, guard } = setUp({ recoverCredentials: () => Promise.resolve(true) })
    guard.pauses.pauseUntil(1_000)
    await vi.advanceTimersByTimeAsync(1_000)
    endpoint.behave = () => {
      if (endpoint.calls.length === 1) failing('app_credentials_rejected')()
    }
    const outcome = mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(outcome.code).toBe('ok')
    expect(endpoint.calls).toHaveLength(2)
  })
})

describe('a mint that was admitted but not sent', () => {
  test('because a pause began while it waited: it frees its place', async () => {
    const { endpoint, guard } = setUp({ mintConcurrency: 1 })
    endpoint.behave = answeringAfter(endpoint, 100)
    mint(guard)
    const waiting = mint(guard, 'waiting' as OrgId)
    await vi.advanceTimersByTimeAsync(50)
    guard.pauses.pauseUntil(1_000)
    await vi.advanceTimersByTimeAsync(50)
    expect(waiting.error).toBeInstanceOf(MintNotSent)
    expect(waiting.code).toBe('token_endpoint_rate_limited')
    await vi.advanceTimersByTimeAsync(900)
    const after = mint(guard, 'after' as OrgId)
    await vi.advanceTimersByTimeAsync(100)
    expect(after.code).toBe('ok')
    expect(endpoint.calledAt).toEqual([0, 1_000])
  })

  test('because it got no place in time: another mint may be the probe', async () => {
    const { endpoint, guard } = setUp({ mintConcurrency: 1 })
    endpoint.behave = answeringAfter(endpoint, 3_000)
    mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    guard.pauses.pauseUntil(500)
    await vi.advanceTimersByTimeAsync(500)
    const probing = mint(guard, 'probing' as OrgId, { deadlineAt: 1_500 })
    await vi.advanceTimersByTimeAsync(2_500)
    expect(probing.code).toBe('token_endpoint_unavailable')
    const after = mint(guard, 'after' as OrgId)
    await vi.advanceTimersByTimeAsync(3_000)
    expect(after.code).toBe('ok')
  })

  test('because the source did not call: it does not count for the endpoint, and another mint may be the probe', async () => {
    const { endpoint, guard, events } = setUp()
    guard.pauses.pauseUntil(500)
    await vi.advanceTimersByTimeAsync(500)
    endpoint.behave = () => {
      throw new MintNotSent('token_endpoint_unavailable', 'the turn of another proxy')
    }
    for (let i = 0; i < 10; i += 1) {
      mint(guard)
      await vi.advanceTimersByTimeAsync(0)
    }
    expect(endpoint.calls).toHaveLength(10)
    endpoint.behave = () => {}
    const after = mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(after.code).toBe('ok')
    expect(events.filter((event) => event.startsWith('refused'))).toHaveLength(10)
  })
})

describe('several proxies that share a limit', () => {
  test('a limit for all orgs is shared, once for each answer that extends it', async () => {
    const limits: number[] = []
    const { endpoint, guard } = setUp({ onLimited: (untilMs) => limits.push(untilMs) })
    endpoint.behave = failing('token_endpoint_rate_limited', { retryAfterSeconds: 17 })
    mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(limits).toEqual([])
    mint(guard, 'globex' as OrgId)
    await vi.advanceTimersByTimeAsync(0)
    expect(limits).toEqual([17_000])
  })

  test('the limit of another proxy is kept, and not shared again', async () => {
    const limits: number[] = []
    const { endpoint, guard } = setUp({ onLimited: (untilMs) => limits.push(untilMs) })
    guard.pauses.pauseUntil(5_000)
    const early = mint(guard)
    await vi.advanceTimersByTimeAsync(4_999)
    expect(early.error).toBeInstanceOf(MintNotSent)
    expect(early.error).toMatchObject({ code: 'token_endpoint_rate_limited', retryAfterSeconds: 5 })
    await vi.advanceTimersByTimeAsync(1)
    const after = mint(guard)
    await vi.advanceTimersByTimeAsync(0)
    expect(after.code).toBe('ok')
    expect(endpoint.calledAt).toEqual([5_000])
    expect(limits).toEqual([])
  })
})

describe('the deadline of the request', () => {
  test('applies if it comes first', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = hanging(endpoint)
    const outcome = mint(guard, ACME, { deadlineAt: 700 })
    await vi.advanceTimersByTimeAsync(700)
    expect(outcome).toMatchObject({ code: 'token_endpoint_timeout', tookMs: 700 })
  })
})

describe('calls that hang', () => {
  test('forty orgs at once: a healthy org that comes after them is served in time', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = (org) => (org.startsWith('sick') ? hanging(endpoint)() : undefined)
    const sick = new Map<number, Outcome>()
    const healthy: Outcome[] = []
    for (let i = 0; i < 200; i += 1) {
      // Like the cache: one mint per org at a time.
      for (let j = 0; j < 40; j += 1) {
        const last = sick.get(j)
        if (last === undefined || last.code !== undefined) sick.set(j, mint(guard, `sick-${j}` as OrgId))
      }
      healthy.push(mint(guard, `healthy-${i}` as OrgId))
      await vi.advanceTimersByTimeAsync(100)
    }
    await vi.advanceTimersByTimeAsync(5_000)
    expect(healthy.flatMap(({ code, error }, i) => (code === 'ok' ? [] : [`${i}: ${error?.message}`]))).toEqual([])
  })

  test('a call in a lent place frees it after a second, and gets another turn with the rest of its time', async () => {
    const { endpoint, guard, events } = setUp({ mintConcurrency: 8 })
    endpoint.behave = hanging(endpoint)
    const outcomes = Array.from({ length: 6 }, (_, i) => mint(guard, `org-${i}` as OrgId))
    await vi.advanceTimersByTimeAsync(1_000)
    expect(outcomes.map(({ code }) => code)).toEqual(outcomes.map(() => undefined))
    await vi.advanceTimersByTimeAsync(4_000)
    expect(outcomes.at(0)).toMatchObject({ code: 'token_endpoint_timeout', tookMs: 5_000 })
    expect(endpoint.calls).toHaveLength(6)
    expect(events.some((event) => event.startsWith('paused'))).toBe(true)
  })
})

describe('an endpoint that is slow for all orgs', () => {
  const many = (guard: MintGuard, round: string) =>
    Array.from({ length: 24 }, (_, i) => mint(guard, `${round}-${i}` as OrgId))

  test('gets each call once, also in lent places', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = answeringAfter(endpoint, 1_500)
    mint(guard)
    await vi.advanceTimersByTimeAsync(1_500)
    endpoint.behave = answeringAfter(endpoint, 2_999)
    const outcomes = many(guard, 'first')
    await vi.advanceTimersByTimeAsync(2_999)
    for (const outcome of outcomes) expect(outcome).toMatchObject({ code: 'ok', tookMs: 2_999 })
    expect(endpoint.calls).toHaveLength(25)
  })

  test('gets each call once from the start, if tokens.mintTimeout is five times as long', async () => {
    const { endpoint, guard } = setUp({ mintTimeoutMs: 15_000 })
    endpoint.behave = answeringAfter(endpoint, 2_999)
    const outcomes = many(guard, 'first')
    await vi.advanceTimersByTimeAsync(2_999)
    for (const outcome of outcomes) expect(outcome).toMatchObject({ code: 'ok', tookMs: 2_999 })
    expect(endpoint.calls).toHaveLength(24)
  })

  test('and is quick again later: calls that hang then free their lent places early', async () => {
    const { endpoint, guard } = setUp()
    endpoint.behave = answeringAfter(endpoint, 2_000)
    mint(guard)
    await vi.advanceTimersByTimeAsync(2_000)
    endpoint.behave = answeringAfter(endpoint, 10)
    for (let i = 0; i < 24; i += 1) {
      mint(guard, `quick-${i}` as OrgId)
      await vi.advanceTimersByTimeAsync(10)
    }
    const before = endpoint.calls.length
    endpoint.behave = hanging(endpoint)
    many(guard, 'sick')
    await vi.advanceTimersByTimeAsync(999)
    expect(endpoint.calls).toHaveLength(before + 24)
    endpoint.behave = () => {}
    const waiting = mint(guard)
    await vi.advanceTimersByTimeAsync(1)
    expect(waiting.code).toBe('ok')
  })
})

describe('the budget', () => {
  test('T-TK-28 a flood of orgs: no more calls than the rate, the rest refused at once, known orgs served', async () => {
    const { endpoint, guard } = setUp({ mintRate: 50 })
    endpoint.behave = () => new Promise((resolve) => setTimeout(resolve, 20))
    const flood: Outcome[] = []
    const known: Outcome[] = []
    for (let tick = 0; tick < 500; tick += 1) {
      for (let i = 0; i < 20; i += 1) flood.push(mint(guard, `flood-${tick}-${i}` as OrgId))
      if (tick % 25 === 0) known.push(mint(guard, `known-${tick}` as OrgId, { reason: 'refresh' }))
      await vi.advanceTimersByTimeAsync(10)
    }
    const perSecond = endpoint.calledAt.map((at) => endpoint.calledAt.filter((t) => t >= at && t < at + 1_000).length)
    expect(Math.max(...perSecond)).toBeLessThanOrEqual(50)
    await vi.advanceTimersByTimeAsync(5_000)
    for (const outcome of known) expect(outcome.code).toBe('ok')
    const refused = flood.filter(({ code }) => code === 'token_endpoint_unavailable')
    expect(refused.length).toBeGreaterThan(9_000)
    expect(refused.every(({ tookMs }) => tookMs === 0)).toBe(true)
    expect(refused.every(({ error }) => (error?.retryAfterSeconds ?? 0) >= 1)).toBe(true)
    expect(flood.every(({ code }) => code !== undefined)).toBe(true)
  })

  test('at the end, no timer is left', async () => {
    const { endpoint, guard } = setUp({ mintConcurrency: 2, mintRate: 10 })
    endpoint.behave = failing('token_endpoint_unavailable')
    for (let i = 0; i < 100; i += 1) mint(guard, `org-${i}` as OrgId)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(vi.getTimerCount()).toBe(0)
  })
})
