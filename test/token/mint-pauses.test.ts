/** One org's trouble is its own: a test for each sentence of that promise, and random schedules for all of them. */

import { describe, expect, test } from 'vitest'
import { TokenError, type TokenErrorCode } from '../../src/errors.ts'
import type { OrgId } from '../../src/http/org-id.ts'
import { type MintPass, MintPauses } from '../../src/token/mint-pauses.ts'
import { ManualClock } from '../support/clock.ts'
import { fc } from '../support/properties.ts'

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
const FAILURES = [DOWN, 'token_response_invalid', 'token_endpoint_timeout'] as const
type Outcome = TokenErrorCode | undefined
/** A probe that has no outcome after this time makes way for the next. */
const PROBE_MS = 1_000

class World {
  readonly clock = new ManualClock(1_000)
  readonly events: string[] = []
  readonly pauses = new MintPauses({
    now: this.clock.now,
    random: () => 1,
    observer: {
      mintsPaused: (code, pauseMs) => this.events.push(`${code} ${pauseMs}`),
      mintsResumed: () => this.events.push('resumed'),
    },
  })

  begin(org: string, probeMs = PROBE_MS): MintPass {
    return this.pauses.admit(org as OrgId, probeMs)
  }

  end(pass: MintPass, code?: TokenErrorCode, retryAfterSeconds?: number): void {
    this.pauses.ended(pass, code && new TokenError(code, 'scripted', { retryAfterSeconds }))
  }

  /** One call from admission to outcome. Returns the refusal if there was no call. */
  call(org: string, code?: TokenErrorCode, retryAfterSeconds?: number): TokenError | undefined {
    return refusalBy(() => this.end(this.begin(org), code, retryAfterSeconds))
  }

  /** Undefined if a call for the org is allowed. Makes none. */
  refusalOf(org: string): TokenError | undefined {
    return refusalBy(() => this.begin(org, 0))
  }

  /** Orgs that had no trouble fail until all are paused. */
  goDown(prefix = 'down'): void {
    for (let i = 0; i < 12; i += 1) this.call(`${prefix}-${i}`, DOWN)
  }
}

function refusalBy(run: () => unknown): TokenError | undefined {
  try {
    run()
  } catch (error) {
    if (error instanceof TokenError) return error
    throw error
  }
}

describe('an org whose trouble is its own', () => {
  test.each([
    [REJECTED, [1_000, 2_000, 4_000, 4_000]],
    [LIMITED, [1_000, 2_000, 4_000, 4_000]],
    [DOWN, [150, 300, 600, 800, 800]],
  ] as const)('%s: pauses that org, longer each time, and no other', (code, lengths) => {
    const world = new World()
    for (const lengthMs of lengths) {
      world.call('sick', code)
      world.clock.advance(lengthMs - 1)
      expect(world.refusalOf('sick')).toMatchObject({ code })
      expect(world.refusalOf('other')).toBeUndefined()
      world.clock.advance(1)
    }
    expect(world.call('sick')).toBeUndefined()
    expect(world.events).toEqual([])
    world.call('sick', code)
    world.clock.advance(lengths[0])
    expect(world.refusalOf('sick'), 'a success starts the pauses anew').toBeUndefined()
  })

  test('forty that fail always, and one that is healthy: they do not pause it again', () => {
    const world = new World()
    const sick = Array.from({ length: 40 }, (_, i) => `sick-${i}`)
    for (let i = 0; i < 4; i += 1) {
      for (const org of sick.slice(i * 10, i * 10 + 10)) world.call(org, DOWN)
      world.clock.advance(1)
      world.call('healthy')
    }
    for (let round = 0; round < 100; round += 1) {
      world.clock.advance(5_000)
      for (const org of sick) world.call(org, DOWN)
      expect(world.call('healthy'), `in round ${round}`).toBeUndefined()
    }
    expect(world.events).toEqual([])
  })

  test('a call that hung while others succeeded, or was broken off, says nothing about the endpoint', () => {
    const world = new World()
    const hanging = Array.from({ length: 20 }, (_, i) => world.begin(`hangs-${i}`))
    const broken = Array.from({ length: 20 }, (_, i) => world.begin(`broken-${i}`))
    world.clock.advance(1)
    world.call('healthy')
    for (const pass of hanging) world.end(pass, 'token_endpoint_timeout')
    for (const pass of broken) world.pauses.ended(pass, new TokenError('token_endpoint_timeout', 'scripted'), true)
    expect(world.events).toEqual([])
    expect(world.refusalOf('broken-1')).toBeDefined()
  })

  test('its trouble is forgotten five minutes after its pause, and told until then, or until another succeeds', () => {
    const world = new World()
    world.call('sick', DOWN)
    world.clock.advance(250_000)
    expect(world.pauses.status).toEqual({ code: DOWN, leftMs: 0, hint: 'scripted', isOfAll: false, orgs: ['sick'] })
    expect(world.begin('sick').probes).toHaveLength(1)
    world.clock.advance(60_000)
    expect(world.pauses.status).toBeUndefined()
    expect(world.begin('sick').probes).toEqual([])
    world.call('other', DOWN)
    world.clock.advance(1_000)
    world.call('healthy')
    expect(world.pauses.status).toBeUndefined()
  })
})

describe('all orgs are paused', () => {
  test.each([REJECTED, LIMITED] as const)('by the %s of a second org, if none succeeds in between', (code) => {
    for (const isPaused of [true, false]) {
      const world = new World()
      world.call('a', code)
      if (!isPaused) world.call('healthy')
      world.call('b', code)
      expect([world.pauses.code, world.refusalOf('new')?.code]).toEqual(Array(2).fill(isPaused ? code : undefined))
      world.pauses.resume(REJECTED) // the secret has changed
      const refused = ['a', 'b', 'new'].filter((org) => world.refusalOf(org) !== undefined)
      expect(refused).toHaveLength(code === REJECTED ? 0 : 2 + Number(isPaused))
    }
  })

  test.each(FAILURES)('by the failures of three orgs in a row: %s', (code) => {
    const world = new World()
    for (let i = 0; i < 60; i += 1) {
      world.call(`org-${i % 2}`, code)
      world.clock.advance(800)
    }
    expect(world.pauses.code, 'two orgs').toBeUndefined()
    world.call('third', code)
    expect(world.pauses.code).toBe(DOWN)
    expect(world.events).toEqual([`${DOWN} 150`])
  })

  test('not by an endpoint that fails every other time', () => {
    const world = new World()
    for (let i = 0; i < 1_000; i += 1) world.call(`org-${i % 50}`, i % 2 === 0 ? DOWN : undefined)
    expect(world.events).toEqual([])
  })

  test.each([undefined, 'org_access_refused', REJECTED] as const)(
    'while it is down, until it answers: %s',
    (outcome) => {
      const world = new World()
      world.goDown()
      world.clock.advance(150)
      world.call('down-1', outcome)
      expect(world.pauses.code).toBeUndefined()
      expect(world.events).toEqual([`${DOWN} 150`, 'resumed'])
    },
  )

  test('again after a recovery, also if most orgs were not heard of in between', () => {
    for (const waitMs of [0, 11_000]) {
      const world = new World()
      world.goDown()
      world.clock.advance(1_000)
      world.call('down-0')
      expect(world.pauses.code).toBeUndefined()
      world.clock.advance(waitMs)
      world.goDown(waitMs === 0 ? 'others' : 'down')
      expect(world.pauses.code).toBe(DOWN)
    }
  })
})

describe('the probe of a pause of all', () => {
  test('is one call at its end; its failure starts a longer pause', () => {
    const world = new World()
    world.goDown()
    world.clock.advance(150)
    for (const lengthMs of [300, 600, 800, 800]) {
      const probe = world.begin('down-0')
      expect(probe.probes).toHaveLength(2)
      expect(world.refusalOf('down-1')).toBeDefined()
      world.pauses.ended(probe, new TokenError('token_endpoint_timeout', 'scripted'), lengthMs === 600)
      world.clock.advance(lengthMs - 1)
      expect(world.refusalOf('down-0')).toBeDefined()
      world.clock.advance(1)
    }
  })

  test('an org that has not failed has a turn of its own: those that fail and ask often do not keep it out', () => {
    const world = new World()
    world.goDown()
    for (let i = 0; i < 50; i += 1) {
      world.clock.advance(100)
      world.call(`down-${i % 3}`, DOWN)
    }
    expect(world.call('healthy')).toBeUndefined()
    expect(world.pauses.code).toBeUndefined()
  })

  test('failures of calls that were under way neither lengthen the pause nor end the probe', () => {
    const world = new World()
    const underway = ['x', 'y', 'z'].map((org) => world.begin(org))
    world.goDown()
    world.clock.advance(150)
    world.begin('down-0')
    for (const pass of underway) world.end(pass, DOWN)
    expect(world.refusalOf('down-1')).toBeDefined()
    world.clock.advance(PROBE_MS)
    expect(world.refusalOf('down-1'), 'it has had its time').toBeUndefined()
  })
})

describe('a limit', () => {
  test.each([
    ['a success', undefined],
    ['a failure', DOWN],
    ['a 401', REJECTED],
    ['a shorter limit', LIMITED],
  ] as const)('of all is kept to its end, also after %s of a call that was under way', (_, outcome) => {
    const world = new World()
    const underway = [world.begin('x'), world.begin('y')]
    for (const org of ['a', 'b']) world.call(org, LIMITED, 60)
    for (const pass of underway) world.end(pass, outcome, 10)
    expect(world.refusalOf('new')).toMatchObject({ code: LIMITED, retryAfterSeconds: 60 })
    world.clock.advance(60_000)
    const probe = world.begin('new')
    for (const org of ['other', 'a']) expect(world.refusalOf(org)).toBeDefined()
    world.end(probe)
    expect(world.refusalOf('other')).toBeUndefined()
  })

  test('a later end that a call under way is told moves the end', () => {
    const world = new World()
    const underway = world.begin('x')
    for (const org of ['a', 'b']) world.call(org, LIMITED, 10)
    world.end(underway, LIMITED, 20)
    expect(world.refusalOf('new')).toMatchObject({ retryAfterSeconds: 20 })
  })

  test('is ended by an operator, and not by a changed secret', () => {
    const world = new World()
    for (const org of ['a', 'b']) world.call(org, LIMITED, 60)
    world.pauses.resume(REJECTED)
    expect(world.refusalOf('a')).toBeDefined()
    const told = { code: LIMITED, leftMs: 60_000, hint: 'scripted', isOfAll: true, orgs: ['b', 'a'] }
    expect(world.pauses.status).toEqual(told)
    world.pauses.resume()
    for (const org of ['a', 'b', 'c']) expect(world.refusalOf(org)).toBeUndefined()
    expect(world.pauses.status).toBeUndefined()
    expect(world.events.at(-1)).toBe('resumed')
  })
})

test('the trouble of ten thousand orgs is remembered; the least recent is forgotten first', () => {
  const world = new World()
  for (let i = 0; i <= 10_000; i += 1) {
    world.call(`org-${i}`, LIMITED, 60)
    world.call('healthy')
  }
  expect(world.refusalOf('org-0')).toBeUndefined()
  expect(world.refusalOf('org-1')).toBeDefined()
})

describe('whatever happens in whatever order', () => {
  const step = fc.record({
    org: fc.integer({ min: 0, max: 7 }),
    outcome: fc.constantFrom<Outcome[]>(undefined, 'org_access_refused', REJECTED, LIMITED, ...FAILURES),
    retryAfterSeconds: fc.constantFrom(undefined, 0, 1, 5, 60),
    /** The call ends this many steps later. */
    lasts: fc.integer({ min: 0, max: 6 }),
    pauseMs: fc.constantFrom(0, 1, 100, 250, 1_000, 5_000),
    isAbandoned: fc.boolean(),
  })
  type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

  /** Plays the steps. `outcomeOf` may replace the outcome of a call. Ends when no call is under way. */
  function play(world: World, steps: readonly Step[], outcomeOf: (step: Step) => Outcome): void {
    const underway: { pass: MintPass; step: Step; endsAt: number }[] = []
    const end = (index: number) => {
      for (const each of [...underway]) {
        if (each.endsAt > index) continue
        underway.splice(underway.indexOf(each), 1)
        const { pass, step } = each
        if (!step.isAbandoned) world.end(pass, outcomeOf(step), step.retryAfterSeconds)
      }
    }
    steps.forEach((step, index) => {
      end(index)
      world.clock.advance(step.pauseMs)
      const org = `org-${step.org}`
      if (underway.some(({ pass }) => pass.org === org) || world.refusalOf(org) !== undefined) return
      underway.push({ pass: world.begin(org), step, endsAt: index + step.lasts })
      const isInTime = ({ admittedAt }: MintPass) => world.clock.now() - admittedAt < PROBE_MS
      const probes = underway.flatMap(({ pass }) => (isInTime(pass) ? pass.probes : []))
      expect(new Set(probes).size, 'one probe of each pause').toBe(probes.length)
    })
    end(Number.POSITIVE_INFINITY)
  }

  const runs = { numRuns: 500 }
  const steps = fc.array(step, { maxLength: 80 })
  const all = Array.from({ length: 9 }, (_, i) => `org-${i}`)

  test('one or two failing orgs never pause another', () => {
    fc.assert(
      fc.property(steps, fc.constantFrom(...FAILURES), (list, code) => {
        for (const outcomeOf of [
          ({ org, outcome }: Step) => (org === 0 ? outcome : undefined),
          ({ org }: Step) => (org < 2 ? code : undefined),
        ]) {
          const world = new World()
          play(world, list, outcomeOf)
          for (const org of all.slice(2)) expect(world.refusalOf(org)).toBeUndefined()
          expect(world.events).toEqual([])
        }
      }),
      runs,
    )
  })

  test('nothing is stuck: after a recovery, every org succeeds after the longest pause', () => {
    fc.assert(
      fc.property(steps, (list) => {
        const world = new World()
        play(world, list, ({ outcome }) => outcome)
        world.clock.advance(60_000)
        for (const org of all) expect(world.call(org)).toBeUndefined()
        expect(world.pauses.code).toBeUndefined()
      }),
      runs,
    )
  })

  test('after failures alone, every org succeeds within two seconds', () => {
    fc.assert(
      fc.property(steps, (list) => {
        const world = new World()
        play(world, list, ({ outcome }) => outcome && DOWN)
        world.clock.advance(2_000)
        for (const org of all) expect(world.call(org)).toBeUndefined()
      }),
      runs,
    )
  })
})
