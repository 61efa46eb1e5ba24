/** One org's trouble is its own: a test for each sentence of that promise, and random schedules for all of them. */

import { describe, expect, test } from 'vitest'
import { TokenError, type TokenErrorCode } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { isProbe, type MintPass, MintPauses, mayHang } from '../../src/token/mint-pauses.ts'
import { MintNotSent } from '../../src/token/token-source.ts'
import { ManualClock } from '../support/clock.ts'
import { fc } from '../support/properties.ts'

const [A, B, C, D, E] = ['a', 'b', 'c', 'd', 'e'] as OrgId[] as [OrgId, OrgId, OrgId, OrgId, OrgId]
const FAILURES = ['token_endpoint_unavailable', 'token_response_invalid', 'token_endpoint_timeout'] as const
const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'

class World {
  readonly clock = new ManualClock(1_000)
  readonly events: string[] = []
  readonly limits: number[] = []
  readonly pauses = new MintPauses({
    now: this.clock.now,
    random: () => 1,
    windowMs: 10_000,
    observer: {
      mintsPaused: (code, pauseMs) => this.events.push(`${code} ${pauseMs}`),
      mintsResumed: () => this.events.push('resumed'),
    },
    onLimited: (untilMs) => this.limits.push(untilMs),
  })

  /** The pass, or the code with which the org is refused. */
  admit(org: OrgId): MintPass | TokenErrorCode {
    try {
      return this.pauses.admit(org)
    } catch (error) {
      if (error instanceof MintNotSent) return error.code
      throw error
    }
  }

  pass(org: OrgId): MintPass {
    return this.pauses.admit(org)
  }

  settle(pass: MintPass, code?: TokenErrorCode, retryAfterSeconds?: number): void {
    this.pauses.settle(pass, code && new TokenError(code, 'scripted', { retryAfterSeconds }))
  }

  /** One call from admission to outcome. Returns the refusal if there was no call. */
  call(org: OrgId, code?: TokenErrorCode, retryAfterSeconds?: number): TokenErrorCode | undefined {
    const pass = this.admit(org)
    if (typeof pass === 'string') return pass
    this.settle(pass, code, retryAfterSeconds)
    return undefined
  }

  /** Undefined if a call for the org is allowed. Takes no pass. */
  refusalOf(org: OrgId): MintNotSent | undefined {
    try {
      this.pauses.abandon(this.pauses.admit(org))
      return undefined
    } catch (error) {
      return error as MintNotSent
    }
  }
}

describe('an org whose trouble is its own', () => {
  test('is named as the one whose credentials were rejected, until a mint succeeds or they change', () => {
    const world = new World()
    expect(world.pauses.rejectedOrg).toBeUndefined()
    world.call(A, REJECTED)
    expect([world.pauses.rejectedOrg, world.pauses.areCredentialsRejected]).toEqual([A, false])
    world.call(B)
    expect(world.pauses.rejectedOrg).toBeUndefined()
    world.clock.advance(61_000)
    world.call(A, REJECTED)
    world.pauses.credentialsChanged()
    expect(world.pauses.rejectedOrg).toBeUndefined()
  })

  test.each([REJECTED, LIMITED] as const)('%s at its first call pauses that org alone, however often', (code) => {
    const world = new World()
    for (let i = 0; i < 20; i += 1) {
      expect(world.call(A, code)).toBeUndefined()
      expect(world.refusalOf(A)?.code).toBe(code)
      expect(world.refusalOf(B)).toBeUndefined()
      world.clock.advance(61_000)
    }
    expect(world.pauses.areCredentialsRejected).toBe(false)
    expect(world.events).toEqual([])
  })

  test.each(FAILURES)('%s five times in a row pauses that org alone', (code) => {
    const world = new World()
    for (let i = 0; i < 4; i += 1) expect(world.call(A, code)).toBeUndefined()
    expect(world.refusalOf(A)).toBeUndefined()
    world.call(A, code)
    expect(world.refusalOf(A)?.code).toBe(DOWN)
    expect(world.refusalOf(B)).toBeUndefined()
  })

  test('a success of the org starts its count anew', () => {
    const world = new World()
    for (let i = 0; i < 4; i += 1) world.call(A, DOWN)
    world.call(A)
    for (let i = 0; i < 4; i += 1) world.call(A, DOWN)
    expect(world.refusalOf(A)).toBeUndefined()
  })

  test.each(FAILURES)('two orgs that meet %s, however often, pause nobody else', (code) => {
    const world = new World()
    for (let i = 0; i < 50; i += 1) {
      world.call(A, code)
      world.call(B, code)
      world.clock.advance(500)
      expect(world.refusalOf(C)).toBeUndefined()
    }
  })

  test('its pauses grow while it fails, and end with its first success', () => {
    const world = new World()
    const pauses: number[] = []
    for (let i = 0; i < 10; i += 1) {
      world.call(A, REJECTED)
      const startedAt = world.clock.now()
      while (world.refusalOf(A) !== undefined) world.clock.advance(250)
      pauses.push(world.clock.now() - startedAt)
    }
    expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000, 60_000])
    world.call(A)
    world.call(A, REJECTED)
    world.clock.advance(1_000)
    expect(world.refusalOf(A)).toBeUndefined()
  })

  test('does not keep a pause of all orgs from starting when it goes quiet', () => {
    const world = new World()
    for (let i = 0; i < 5; i += 1) world.call(A, DOWN)
    for (const org of [B, C, D]) for (let i = 0; i < 2; i += 1) world.call(org, DOWN)
    expect(world.refusalOf(E)?.code).toBe(DOWN)
  })

  test('has one call at a time at the end of its pause', () => {
    const world = new World()
    for (let i = 0; i < 5; i += 1) world.call(A, DOWN)
    world.clock.advance(250)
    const probe = world.pass(A)
    expect(isProbe(probe)).toBe(true)
    expect(world.admit(A)).toBe(DOWN)
    world.pauses.abandon(probe)
    expect(world.refusalOf(A)).toBeUndefined()
  })
})

describe('all orgs are paused', () => {
  test.each([REJECTED, LIMITED] as const)('by %s of a second org, while none succeeds', (code) => {
    const world = new World()
    world.call(A, code)
    world.call(B, code)
    expect(world.refusalOf(C)?.code).toBe(code)
    expect(world.pauses.areCredentialsRejected).toBe(code === REJECTED)
    expect(world.events).toEqual([`${code} 1000`])
  })

  test('and this is reported once, whatever the outcome of calls under way', () => {
    const world = new World()
    const late = [C, D].map((org) => world.pass(org))
    world.call(A, REJECTED)
    world.call(B, REJECTED)
    for (const pass of late) world.settle(pass, REJECTED)
    expect(world.events).toEqual([`${REJECTED} 1000`])
  })

  test.each<[string, TokenErrorCode | undefined]>([
    ['a token', undefined],
    ['a refusal of an org', 'org_access_refused'],
  ])('not if there is %s in between', (_, success) => {
    for (const code of [REJECTED, LIMITED] as const) {
      const world = new World()
      world.call(A, code)
      world.call(B, success)
      world.call(C, code)
      expect(world.refusalOf(D)).toBeUndefined()
      world.call(E, code)
      expect(world.refusalOf(D)?.code).toBe(code)
    }
  })

  test.each(FAILURES)('by %s of most orgs', (code) => {
    const world = new World()
    for (const org of [A, B, C]) world.call(org, code)
    expect(world.refusalOf(D)).toBeUndefined()
    world.call(A, code)
    expect(world.refusalOf(D)).toBeUndefined()
    world.call(B, code)
    expect(world.refusalOf(D)?.code).toBe(DOWN)
  })

  test('not by three orgs that fail once each', () => {
    const world = new World()
    for (const org of [A, B, C]) world.call(org, DOWN)
    expect(world.refusalOf(D)).toBeUndefined()
  })

  test('not if half of the recent orgs succeed', () => {
    const world = new World()
    for (let i = 0; i < 40; i += 1) world.call(`well-${i}` as OrgId)
    for (let i = 0; i < 40; i += 1) world.call(`sick-${i}` as OrgId, 'token_endpoint_timeout')
    expect(world.refusalOf(A)).toBeUndefined()
    world.call('sick-40' as OrgId, 'token_endpoint_timeout')
    expect(world.refusalOf(A)?.code).toBe(DOWN)
  })

  test('and old outcomes do not count', () => {
    const world = new World()
    for (let i = 0; i < 40; i += 1) world.call(`well-${i}` as OrgId)
    world.clock.advance(10_001)
    for (const org of [A, B, C, A, B]) world.call(org, DOWN)
    expect(world.refusalOf(D)?.code).toBe(DOWN)
  })

  test('orgs that fail on their own cause that once, and not again', () => {
    const world = new World()
    const sick = Array.from({ length: 40 }, (_, i) => `sick-${i}` as OrgId)
    for (const pass of sick.map((org) => world.pass(org))) world.settle(pass, 'token_endpoint_timeout')
    expect(world.refusalOf(A)?.code).toBe(DOWN)
    world.clock.advance(250)
    expect(world.call(A)).toBeUndefined()
    for (let i = 0; i < 100; i += 1) {
      for (const org of sick) world.call(org, 'token_endpoint_timeout')
      expect(world.refusalOf(`new-${i}` as OrgId)).toBeUndefined()
      world.clock.advance(500)
    }
  })
})

describe('the probe', () => {
  function down(): World {
    const world = new World()
    for (const org of [A, B, C, A, B]) world.call(org, DOWN)
    return world
  }

  test('is one call, made when the pause is over; the others are refused meanwhile', () => {
    const world = down()
    world.clock.advance(249)
    expect(world.admit(D)).toBe(DOWN)
    world.clock.advance(1)
    const probe = world.pass(D)
    expect(isProbe(probe)).toBe(true)
    expect(world.admit(E)).toBe(DOWN)
    world.settle(probe)
    expect(world.refusalOf(E)).toBeUndefined()
    expect(world.events).toEqual([`${DOWN} 250`, 'resumed'])
  })

  test('is at first reserved for orgs that have not failed', () => {
    const world = down()
    expect(world.admit(D)).toBe(DOWN)
    world.clock.advance(250 + 83)
    expect(world.admit(A)).toBe(DOWN)
    expect(world.call(D)).toBeUndefined()
    expect(world.events).toEqual([`${DOWN} 250`, 'resumed'])
  })

  test('is for any org after that time', () => {
    const world = down()
    expect(world.admit(D)).toBe(DOWN)
    world.clock.advance(250 + 84)
    expect(isProbe(world.pass(A))).toBe(true)
  })

  test('is for any org at once after a limit, because the endpoint has set its end', () => {
    const world = new World()
    for (const org of [A, B]) world.call(org, LIMITED, 2)
    expect(world.admit(D)).toBe(LIMITED)
    world.clock.advance(2_000)
    expect(world.call(A)).toBeUndefined()
  })

  test('that fails starts the next pause, up to a second and a half', () => {
    const world = down()
    const pauses: number[] = []
    for (let i = 0; i < 6; i += 1) {
      const startedAt = world.clock.now()
      while (world.refusalOf(`org-${i}` as OrgId) !== undefined) world.clock.advance(50)
      pauses.push(world.clock.now() - startedAt)
      world.call(`org-${i}` as OrgId, DOWN)
    }
    expect(pauses).toEqual([250, 500, 1_000, 1_500, 1_500, 1_500])
  })

  test('that is abandoned lets another org probe', () => {
    const world = down()
    world.clock.advance(250)
    world.pauses.abandon(world.pass(D))
    expect(world.call(E)).toBeUndefined()
    expect(world.refusalOf(D)).toBeUndefined()
  })

  test('failures of calls that were under way neither lengthen the pause nor end the probe', () => {
    const world = new World()
    const late = [D, E].map((org) => world.pass(org))
    for (const org of [A, B, C, A, B]) world.call(org, DOWN)
    for (const pass of late) world.settle(pass, DOWN)
    world.clock.advance(250)
    const probe = world.pass('f' as OrgId)
    expect(world.admit('g' as OrgId)).toBe(DOWN)
    world.settle(probe)
    expect(world.refusalOf('g' as OrgId)).toBeUndefined()
  })

  test('knows whether the failures before it were hangs', () => {
    for (const [code, hangs] of [
      ['token_endpoint_timeout', true],
      [DOWN, false],
    ] as const) {
      const world = new World()
      for (const org of [A, B, C, A, B]) world.call(org, code)
      world.clock.advance(250)
      expect(mayHang(world.pass(D))).toBe(hangs)
    }
  })

  test.each([REJECTED, LIMITED] as const)('that is answered with %s ends the outage', (code) => {
    const world = down()
    world.clock.advance(250)
    expect(world.call(D, code)).toBeUndefined()
    expect(world.refusalOf(E)).toBeUndefined()
  })
})

describe('Retry-After', () => {
  function limited(seconds: number): World {
    const world = new World()
    world.call(A, LIMITED, seconds)
    world.call(B, LIMITED, seconds)
    return world
  }

  test('applies to all, and is passed on to the second', () => {
    const world = limited(17)
    expect(world.limits).toEqual([18_000])
    for (let second = 17; second > 0; second -= 1) {
      expect(world.refusalOf(C)?.retryAfterSeconds).toBe(second)
      world.clock.advance(1_000)
    }
    expect(world.call(C)).toBeUndefined()
    expect(world.refusalOf(D)).toBeUndefined()
  })

  test('of one org applies to that org, whatever the others do', () => {
    const world = new World()
    world.call(A, LIMITED, 3_600)
    world.call(B)
    world.clock.advance(3_599_000)
    expect(world.refusalOf(A)?.retryAfterSeconds).toBe(1)
    world.clock.advance(1_000)
    expect(world.refusalOf(A)).toBeUndefined()
  })

  test('of one org is forgotten with the success of its probe: the next pause is a first one', () => {
    const world = new World()
    world.call(A, LIMITED)
    world.clock.advance(1_000)
    world.call(A)
    world.call(A, LIMITED)
    world.clock.advance(1_000)
    expect(world.refusalOf(A)).toBeUndefined()
  })

  test.each<[string, TokenErrorCode | undefined]>([
    ['succeeds', undefined],
    ['fails', DOWN],
    ['is told 401', REJECTED],
    ['is told a shorter time', LIMITED],
  ])('is not forgotten when a call that was under way %s', (_, code) => {
    const world = new World()
    const late = world.pass(C)
    world.call(A, LIMITED, 30)
    world.call(B, LIMITED, 30)
    world.settle(late, code, 1)
    world.clock.advance(29_999)
    expect(world.admit(D)).toBe(LIMITED)
    world.clock.advance(1)
    expect(world.refusalOf(D)).toBeUndefined()
  })

  test.each<[string, TokenErrorCode | undefined]>([
    ['success', undefined],
    ['failure', DOWN],
  ])('that comes during a probe outlives its %s', (_, code) => {
    const world = new World()
    const late = world.pass(E)
    world.call(A, LIMITED, 2)
    world.call(B, LIMITED, 2)
    world.clock.advance(2_000)
    const probe = world.pass(C)
    world.settle(late, LIMITED, 60)
    world.settle(probe, code)
    world.clock.advance(59_000)
    expect(world.admit(D)).toBe(LIMITED)
    world.clock.advance(1_000)
    expect(world.refusalOf(D)).toBeUndefined()
  })

  test('without a time: growing pauses, up to thirty seconds', () => {
    const world = limited(0)
    const pauses: number[] = []
    for (let i = 0; i < 7; i += 1) {
      const startedAt = world.clock.now()
      while (world.refusalOf(`org-${i}` as OrgId) !== undefined) world.clock.advance(500)
      pauses.push(world.clock.now() - startedAt)
      world.call(`org-${i}` as OrgId, LIMITED)
    }
    expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000])
  })

  test('of another proxy applies here', () => {
    const world = new World()
    world.pauses.pauseUntil(9_000)
    world.pauses.pauseUntil(5_000)
    expect(world.refusalOf(A)).toMatchObject({ code: LIMITED, retryAfterSeconds: 8 })
    expect(world.pauses.limitedUntil(A)).toBe(9_000)
    world.clock.advance(8_000)
    expect(world.refusalOf(A)).toBeUndefined()
    expect(world.limits).toEqual([])
  })
})

describe('a changed secret', () => {
  test('ends the pauses for the old one, of all orgs and of each', () => {
    const world = new World()
    for (const org of [A, B, C]) world.call(org, REJECTED)
    world.pauses.credentialsChanged()
    for (const org of [A, B, C, D]) expect(world.refusalOf(org)).toBeUndefined()
    expect(world.pauses.areCredentialsRejected).toBe(false)
    world.call(B, REJECTED)
    expect(world.refusalOf(D), 'the first to meet it with the new secret').toBeUndefined()
  })

  test('ends no limit', () => {
    const world = new World()
    world.call(A, REJECTED)
    world.call(B, REJECTED)
    world.clock.advance(1_000)
    world.call(C, LIMITED, 30)
    world.pauses.credentialsChanged()
    expect(world.refusalOf(C)?.code).toBe(LIMITED)
    expect(world.refusalOf(D)).toBeUndefined()
  })
})

describe('the count of failures in a row', () => {
  test.each([REJECTED, LIMITED] as const)('starts anew with %s, and so does a hang', (code) => {
    const world = new World()
    for (let i = 0; i < 4; i += 1) world.call(A, 'token_endpoint_timeout')
    expect(world.pauses.hangs(A)).toBe(true)
    world.call(A, code)
    expect(world.pauses.hangs(A)).toBe(false)
    world.clock.advance(1_000)
    for (let i = 0; i < 4; i += 1) expect(world.call(A, DOWN)).toBeUndefined()
    expect(world.refusalOf(A)).toBeUndefined()
    world.call(A, DOWN)
    expect(world.refusalOf(A)?.code).toBe(DOWN)
  })
})

describe('whether most orgs fail is judged by', () => {
  test('all orgs with an outcome, also those that got a 401 or 429', () => {
    const world = new World()
    world.call(A)
    world.call(B, REJECTED)
    world.call(C, LIMITED)
    for (const org of ['x', 'y', 'z', 'x', 'y', 'z'] as OrgId[]) world.call(org, DOWN)
    expect(world.refusalOf(D)).toBeUndefined()
    world.call('w' as OrgId, DOWN)
    expect(world.refusalOf(D)?.code).toBe(DOWN)
  })

  test('the last 256 orgs', () => {
    const world = new World()
    for (let i = 0; i < 1_000; i += 1) world.call(`well-${i}` as OrgId)
    for (let i = 0; i < 128; i += 1) world.call(`sick-${i}` as OrgId, DOWN)
    expect(world.refusalOf(A)).toBeUndefined()
    world.call('sick-128' as OrgId, DOWN)
    expect(world.refusalOf(A)?.code).toBe(DOWN)
  })

  test('the org that ended an outage, and those after it', () => {
    const world = new World()
    for (let i = 0; i < 4; i += 1) world.call(`well-${i}` as OrgId)
    const late = ['x', 'y', 'z', 'v', 'w'].map((org) => world.pass(org as OrgId))
    for (const pass of late) world.settle(pass, DOWN)
    expect(world.refusalOf(A)?.code).toBe(DOWN)
    world.clock.advance(250)
    world.call(A)
    for (const org of [B, C, D] as OrgId[]) for (let i = 0; i < 2; i += 1) world.call(org, DOWN)
    expect(world.refusalOf(E)?.code, 'three of four fail').toBe(DOWN)
  })
})

test('the trouble of ten thousand orgs is remembered; the least recent is forgotten first', () => {
  const world = new World()
  const gaveWay = (i: number) => world.pauses.gaveWay(world.pass(`org-${i}` as OrgId))
  const hangs = (i: number) => world.pauses.hangs(`org-${i}` as OrgId)
  for (let i = 0; i < 10_000; i += 1) gaveWay(i)
  gaveWay(0)
  gaveWay(10_000)
  expect([hangs(0), hangs(1), hangs(2), hangs(10_000)]).toEqual([true, false, true, true])
})

test('the refusals of a pause name the cause of the failure that began it', () => {
  const world = new World()
  const hint = 'The host name of the token endpoint cannot be resolved (ENOTFOUND).'
  for (let i = 0; i < 5; i += 1) world.pauses.settle(world.pass(A), new TokenError(DOWN, 'scripted', { hint }))
  expect(world.refusalOf(A)?.hint).toBe(hint)
})

test('an org that is paused for two reasons gets the one that lasts longer', () => {
  const world = new World()
  world.call(A, LIMITED, 30)
  world.call(B, REJECTED)
  world.call(C, REJECTED)
  expect(world.refusalOf(A)).toMatchObject({ code: LIMITED, retryAfterSeconds: 30 })
  expect(world.refusalOf(D)?.code).toBe(REJECTED)
  world.pauses.pauseUntil(world.clock.now() + 60_000)
  expect(world.refusalOf(A)).toMatchObject({ code: LIMITED, retryAfterSeconds: 60 })
  expect(world.refusalOf(D)).toMatchObject({ code: LIMITED, retryAfterSeconds: 60 })
})

test('a limit of one org outlives a success of the same org that was under way', () => {
  const world = new World()
  const [early, late] = [world.pass(A), world.pass(A)]
  world.settle(early, LIMITED, 30)
  world.settle(late)
  expect(world.refusalOf(A)?.code).toBe(LIMITED)
})

test('a call under way with a later Retry-After moves the end, and does not double the pause', () => {
  const world = new World()
  const late = world.pass(C)
  world.call(A, LIMITED)
  world.call(B, LIMITED)
  world.settle(late, LIMITED, 5)
  world.clock.advance(5_000)
  world.call(D, LIMITED)
  world.clock.advance(1_999)
  expect(world.refusalOf(E)?.code).toBe(LIMITED)
  world.clock.advance(1)
  expect(world.refusalOf(E)).toBeUndefined()
})

test('a limit that another proxy extends goes on growing', () => {
  const world = new World()
  world.call(A, LIMITED)
  world.call(B, LIMITED)
  world.clock.advance(1_000)
  world.call(A, LIMITED)
  world.pauses.pauseUntil(world.clock.now() + 3_000)
  world.clock.advance(3_000)
  world.call(C, LIMITED)
  world.clock.advance(3_999)
  expect(world.refusalOf(D)?.code).toBe(LIMITED)
  world.clock.advance(1)
  expect(world.refusalOf(D)).toBeUndefined()
})

test('a pass that waited in the queue is refused if another pause has begun, and not for the pause that it probes', () => {
  const world = new World()
  const waiting = world.pass(C)
  world.call(A, REJECTED)
  world.pauses.confirm(waiting)
  world.call(B, REJECTED)
  expect(() => world.pauses.confirm(waiting)).toThrow(MintNotSent)
  world.pauses.abandon(waiting)
  world.clock.advance(1_000)
  const probe = world.pass(D)
  world.pauses.confirm(probe)
})

test('an org whose lent place ended counts as hanging until it gets an answer, and not as failed', () => {
  const world = new World()
  for (let i = 0; i < 10; i += 1) world.pauses.gaveWay(world.pass(A))
  expect(world.pauses.hangs(A)).toBe(true)
  expect(world.refusalOf(A)).toBeUndefined()
  world.call(A)
  expect(world.pauses.hangs(A)).toBe(false)
})

describe('whatever happens in whatever order', () => {
  const outcomes = [undefined, 'org_access_refused', REJECTED, LIMITED, ...FAILURES] as const
  const step = fc.record({
    org: fc.integer({ min: 0, max: 7 }),
    outcome: fc.constantFrom<(TokenErrorCode | undefined)[]>(...outcomes),
    retryAfterSeconds: fc.constantFrom(undefined, 0, 1, 5, 60),
    /** The call ends this many steps later. */
    lasts: fc.integer({ min: 0, max: 6 }),
    pauseMs: fc.constantFrom(0, 1, 100, 250, 1_000, 5_000),
    isAbandoned: fc.boolean(),
  })
  type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

  /** Plays the steps. `outcomeOf` may replace the outcome for an org. Ends when no call is under way. */
  function play(world: World, steps: readonly Step[], outcomeOf: (step: Step) => TokenErrorCode | undefined): void {
    const underway: { pass: MintPass; step: Step; endsAt: number }[] = []
    const end = (index: number) => {
      for (const each of [...underway]) {
        if (each.endsAt > index) continue
        underway.splice(underway.indexOf(each), 1)
        const { pass, step } = each
        if (step.isAbandoned && step.lasts === 0) world.pauses.abandon(pass)
        else world.settle(pass, outcomeOf(step), step.retryAfterSeconds)
      }
    }
    steps.forEach((step, index) => {
      end(index)
      world.clock.advance(step.pauseMs)
      const org = `org-${step.org}` as OrgId
      if (underway.some(({ pass }) => pass.org === org)) return
      const pass = world.admit(org)
      if (typeof pass !== 'string') underway.push({ pass, step, endsAt: index + step.lasts })
      // One probe of all orgs at a time: never two calls under way that name the same pause.
      const probes = underway.flatMap((each) => each.pass.probes)
      expect(new Set(probes).size).toBe(probes.length)
    })
    end(Number.POSITIVE_INFINITY)
  }

  const options = { numRuns: 500 }

  test('one failing org never pauses another', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const world = new World()
        play(world, steps, ({ org, outcome }) => (org === 0 ? outcome : undefined))
        for (let i = 1; i < 9; i += 1) expect(world.refusalOf(`org-${i}` as OrgId)).toBeUndefined()
        expect(world.events).toEqual([])
      }),
      options,
    )
  })

  test('two orgs that fail never pause another', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), fc.constantFrom(...FAILURES), (steps, code) => {
        const world = new World()
        play(world, steps, ({ org }) => (org < 2 ? code : undefined))
        for (let i = 2; i < 9; i += 1) expect(world.refusalOf(`org-${i}` as OrgId)).toBeUndefined()
        expect(world.events).toEqual([])
      }),
      options,
    )
  })

  test('a limit of all orgs is kept to its end', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const world = new World()
        play(world, steps, ({ outcome }) => outcome)
        const until = Math.max(0, ...world.limits)
        if (until > world.clock.now()) expect(world.refusalOf('new' as OrgId)).toBeDefined()
      }),
      options,
    )
  })

  test('nothing is stuck: after a recovery, every org succeeds after the longest pause', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
        const world = new World()
        play(world, steps, ({ outcome }) => outcome)
        world.clock.advance(60_000)
        for (let i = 0; i < 9; i += 1) expect(world.call(`org-${i}` as OrgId)).toBeUndefined()
        expect(world.pauses.areCredentialsRejected).toBe(false)
      }),
      options,
    )
  })

  test('after failures alone, every org succeeds within two seconds', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), fc.constantFrom(...FAILURES), (steps, code) => {
        const world = new World()
        play(world, steps, ({ outcome }) => (outcome === undefined ? undefined : code))
        world.clock.advance(2_000)
        for (let i = 0; i < 9; i += 1) expect(world.call(`org-${i}` as OrgId)).toBeUndefined()
      }),
      options,
    )
  })
})
