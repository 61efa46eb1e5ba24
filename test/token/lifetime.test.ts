import { describe, expect, test } from 'vitest'
import { LifetimeEstimator, type LifetimeOptions } from '../../src/token/lifetime.ts'
import { fc } from '../support/properties.ts'

const SECOND = 1_000
const BOUNDS = { minLifetimeMs: 10 * SECOND, maxLifetimeMs: 3_600 * SECOND }

function estimator(options: Partial<LifetimeOptions> = {}): LifetimeEstimator {
  return new LifetimeEstimator({ lifetimeMs: 300 * SECOND, ...BOUNDS, learns: true, ...options })
}

function death(org: string, aliveMs: number, deadMs: number, mintedAt = 0) {
  return { org, aliveMs, deadMs, mintedAt }
}

describe('the estimate falls', () => {
  test('at the death of a token of the only org', () => {
    const lifetime = estimator()
    expect(lifetime.died(death('a', 19_900, 20_100), 1, 20_100)).toBe(true)
    expect(lifetime.estimateMs).toBe(19_900)
  })

  test('not for one token that dies below the least lifetime, which was a revocation, unless it happens again', () => {
    const lifetime = estimator()
    expect(lifetime.died(death('a', 10, 20), 1, 20)).toBe(false)
    expect(lifetime.estimateMs).toBe(300 * SECOND)
    expect(lifetime.died(death('a', 10, 20, 1_000), 1, 1_020)).toBe(true)
  })

  test('not for one org of many, however often its tokens die', () => {
    const lifetime = estimator()
    for (let at = 5_000; at < 500_000; at += 5_000) {
      expect(lifetime.died(death('a', 4_900, 5_000, at - 5_000), 100, at)).toBe(false)
    }
    expect(lifetime.estimateMs).toBe(300 * SECOND)
  })

  test('for two orgs, if hardly any other used tokens lately', () => {
    const lifetime = estimator()
    expect(lifetime.died(death('a', 19_000, 20_000), 100, 20_000)).toBe(false)
    expect(lifetime.died(death('b', 19_500, 20_100), 100, 20_100)).toBe(true)
    expect(lifetime.estimateMs).toBe(19_500)
  })

  test('not for two orgs, if many others kept their tokens to the end', () => {
    const lifetime = estimator()
    for (let i = 0; i < 40; i += 1) lifetime.survived(290_000 + i)
    expect(lifetime.died(death('a', 19_000, 20_000), 100, 291_000)).toBe(false)
    expect(lifetime.died(death('b', 19_000, 20_000), 100, 292_000)).toBe(false)
    expect(lifetime.estimateMs).toBe(300 * SECOND)
  })

  test('for sixteen orgs, however many there are', () => {
    const lifetime = estimator()
    for (let i = 0; i < 5_000; i += 1) lifetime.survived(290_000)
    const believed = Array.from({ length: 16 }, (_, i) =>
      lifetime.died(death(`org-${i}`, 149_000, 150_000), 5_000, 291_000),
    )
    expect(believed.indexOf(true)).toBe(15)
    expect(lifetime.estimateMs).toBe(149_000)
  })

  test('for two orgs whose tokens had nearly reached the estimate', () => {
    const lifetime = estimator()
    for (let i = 0; i < 5_000; i += 1) lifetime.survived(290_000)
    lifetime.died(death('a', 279_000, 280_000), 5_000, 291_000)
    expect(lifetime.died(death('b', 278_000, 280_000), 5_000, 292_000)).toBe(true)
    expect(lifetime.estimateMs).toBe(279_000)
  })

  test('an early revocation among the deaths does not count', () => {
    const lifetime = estimator()
    lifetime.died(death('revoked', 900, 1_000), 3, 1_000)
    lifetime.died(death('a', 19_000, 20_000), 3, 20_000)
    expect(lifetime.estimateMs).toBe(19_000)
  })

  test('to the middle of two ages that are far apart, and closer with each death', () => {
    const lifetime = estimator()
    lifetime.died(death('a', 0, 200_000), 1, 200_000)
    expect(lifetime.estimateMs).toBe(100_000)
    lifetime.died(death('a', 40_000, 100_000), 1, 300_000)
    expect(lifetime.estimateMs).toBe(70_000)
  })

  test('deaths of long ago do not count', () => {
    const lifetime = estimator()
    lifetime.died(death('a', 19_000, 20_000), 3, 20_000)
    expect(lifetime.died(death('b', 19_000, 20_000), 3, 20_000 + 9 * 300_000)).toBe(false)
  })
})

describe('the estimate rises', () => {
  /** The first two tokens end as the settings say, so the next one begins a trial. */
  function beforeFirstTrial() {
    const lifetime = estimator()
    expect(lifetime.elects({}, 0)).toBe(false)
    expect(lifetime.elects({}, 0)).toBe(false)
    return lifetime
  }

  test('to the age at which a token on trial is accepted', () => {
    const lifetime = beforeFirstTrial()
    const token = {}
    expect(lifetime.elects(token, 270_000)).toBe(true)
    lifetime.trialAccepted(310_000, 0, 310_000)
    expect(lifetime.estimateMs).toBe(310_000)
    lifetime.trialAccepted(305_000, 0, 311_000)
    expect(lifetime.estimateMs).toBe(310_000)
  })

  test('a trial ends at the greatest lifetime: no token is used for longer', () => {
    const lifetime = beforeFirstTrial()
    const token = {}
    expect(lifetime.elects(token, 270_000)).toBe(true)
    lifetime.trialAccepted(3_599 * SECOND, 0, 3_599 * SECOND)
    expect(lifetime.isOnTrial(token)).toBe(true)
    lifetime.trialAccepted(3_601 * SECOND, 0, 3_601 * SECOND)
    expect([lifetime.isOnTrial(token), lifetime.estimateMs]).toEqual([false, 3_600 * SECOND])
  })

  test('one trial at a time; a trial without a result ends after a while', () => {
    const lifetime = beforeFirstTrial()
    expect(lifetime.elects({}, 270_000)).toBe(true)
    expect(lifetime.elects({}, 280_000)).toBe(false)
    const next = {}
    expect(lifetime.elects(next, 280_000 + 151_000)).toBe(true)
    expect(lifetime.isOnTrial(next)).toBe(true)
  })

  test('trials that find nothing new come ever more rarely', () => {
    const lifetime = estimator()
    const elected: number[] = []
    for (let end = 0; end < 200; end += 1) {
      const token = {}
      if (!lifetime.elects(token, end * 300_000)) continue
      elected.push(end)
      lifetime.trialDied()
    }
    const gaps = elected.slice(1).map((end, i) => end - (elected[i] ?? 0))
    expect(gaps).toEqual(gaps.toSorted((a, b) => a - b))
    expect(gaps[0]).toBeLessThanOrEqual(5)
    expect(gaps.at(-1)).toBe(48)
  })

  test('after a fall, the next trial begins soon', () => {
    const lifetime = estimator()
    for (let end = 0; end < 200; end += 1) if (lifetime.elects({}, end * 300_000)) lifetime.trialDied()
    lifetime.died(death('a', 149_000, 150_000), 1, 60_000_000)
    const electedAt = [1, 2, 3].find((end) => lifetime.elects({}, 60_000_000 + end * 150_000))
    expect(electedAt).toBe(2)
  })

  test('tokens minted before the learned death do not count', () => {
    const lifetime = beforeFirstTrial()
    const old = {}
    expect(lifetime.elects(old, 270_000)).toBe(true)
    lifetime.died(death('a', 149_000, 150_000, 200_000), 1, 350_000)
    expect(lifetime.isOnTrial(old)).toBe(false)
    lifetime.accepted(290_000, 100_000)
    expect(lifetime.estimateMs).toBe(149_000)
  })

  test('no trial if nothing is left to learn', () => {
    const lifetime = estimator({ lifetimeMs: BOUNDS.maxLifetimeMs })
    expect(lifetime.elects({}, 3_600_000)).toBe(false)
  })
})

describe('learning switched off', () => {
  test('the estimate is the configured lifetime', () => {
    const lifetime = estimator({ learns: false })
    expect(lifetime.died(death('a', 1_000, 2_000), 1, 2_000)).toBe(true)
    lifetime.accepted(400_000, 0)
    expect(lifetime.elects({}, 300_000)).toBe(false)
    expect(lifetime.estimateMs).toBe(300 * SECOND)
  })
})

test('only larger changes are reported', () => {
  const told: number[] = []
  const lifetime = estimator({ onChange: (estimateMs) => told.push(estimateMs) })
  for (let ageMs = 301_000; ageMs <= 500_000; ageMs += 1_000) lifetime.accepted(ageMs, 0)
  expect(told).toEqual([330_000, 363_000, 400_000, 440_000, 484_000])
})

describe('what another proxy has learned', () => {
  test('is used within the bounds, and not reported again', () => {
    const told: number[] = []
    const lifetime = estimator({ onChange: (estimateMs) => told.push(estimateMs) })
    lifetime.adopt(60 * SECOND)
    expect(lifetime.estimateMs).toBe(60 * SECOND)
    lifetime.adopt(SECOND)
    expect(lifetime.estimateMs).toBe(10 * SECOND)
    lifetime.adopt(9_999 * SECOND)
    expect(lifetime.estimateMs).toBe(3_600 * SECOND)
    lifetime.adopt(Number.NaN)
    expect(lifetime.estimateMs).toBe(3_600 * SECOND)
    expect(told).toEqual([])
  })

  test('is the start for further learning', () => {
    const lifetime = estimator()
    lifetime.adopt(60 * SECOND)
    expect(lifetime.died(death('a', 19_900, 20_100), 1, 20_100)).toBe(true)
    expect(lifetime.estimateMs).toBe(19_900)
  })

  test('is ignored if learning is switched off', () => {
    const lifetime = estimator({ learns: false })
    lifetime.adopt(60 * SECOND)
    expect(lifetime.estimateMs).toBe(300 * SECOND)
  })
})

describe('whatever happens', () => {
  const age = fc.integer({ min: 0, max: 8_000_000 })
  const event = fc.oneof(
    fc.record({ kind: fc.constant('died' as const), org: fc.constantFrom('a', 'b', 'c', 'd'), one: age, other: age }),
    fc.record({ kind: fc.constant('accepted' as const), ageMs: age }),
    fc.record({ kind: fc.constant('survived' as const) }),
    fc.record({ kind: fc.constant('end' as const) }),
    fc.record({ kind: fc.constant('trialAccepted' as const), ageMs: age }),
    fc.record({ kind: fc.constant('trialDied' as const) }),
  )
  const timeline = fc.array(fc.record({ event, pauseMs: fc.integer({ min: 0, max: 1_000_000 }) }), { maxLength: 60 })

  test('the estimate stays in its bounds, below a death that counts, and not below an accepted age', () => {
    fc.assert(
      fc.property(timeline, fc.integer({ min: 1, max: 4 }), (steps, orgs) => {
        const lifetime = estimator()
        let at = 0
        for (const { event: step, pauseMs } of steps) {
          at += pauseMs
          const beforeMs = lifetime.estimateMs
          if (step.kind === 'died') {
            const [aliveMs, deadMs] = [Math.min(step.one, step.other), Math.max(step.one, step.other) + 1]
            const isBelieved = lifetime.died(death(step.org, aliveMs, deadMs, at - deadMs), orgs, at)
            if (!isBelieved) expect(lifetime.estimateMs).toBe(beforeMs)
            if (isBelieved && orgs === 1) {
              expect(lifetime.estimateMs).toBeLessThan(Math.max(deadMs, BOUNDS.minLifetimeMs + 1))
              expect(lifetime.estimateMs).toBeGreaterThanOrEqual(Math.min(aliveMs, BOUNDS.maxLifetimeMs))
            }
          } else if (step.kind === 'accepted') {
            lifetime.accepted(step.ageMs, at)
            expect(lifetime.estimateMs).toBeGreaterThanOrEqual(Math.min(step.ageMs, BOUNDS.maxLifetimeMs))
          } else if (step.kind === 'trialAccepted') lifetime.trialAccepted(step.ageMs, at, at)
          else if (step.kind === 'trialDied') lifetime.trialDied()
          else if (step.kind === 'end') lifetime.elects({}, at)
          else lifetime.survived(at)
          expect(lifetime.estimateMs).toBeGreaterThanOrEqual(BOUNDS.minLifetimeMs)
          expect(lifetime.estimateMs).toBeLessThanOrEqual(BOUNDS.maxLifetimeMs)
          if (step.kind !== 'died') expect(lifetime.estimateMs).toBeGreaterThanOrEqual(beforeMs)
        }
      }),
    )
  })

  test('the deaths of one org among several change nothing', () => {
    const deaths = fc.array(fc.tuple(age, age, fc.integer({ min: 0, max: 1_000_000 })), { maxLength: 60 })
    fc.assert(
      fc.property(deaths, fc.integer({ min: 2, max: 10_000 }), (list, orgs) => {
        const lifetime = estimator()
        let at = 0
        for (const [one, other, pauseMs] of list) {
          at += pauseMs
          lifetime.died(death('a', Math.min(one, other), Math.max(one, other) + 1), orgs, at)
        }
        expect(lifetime.estimateMs).toBe(300 * SECOND)
      }),
    )
  })

  test('one org alone finds any lifetime within the bounds, by halves at worst', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: BOUNDS.minLifetimeMs + 1_000, max: BOUNDS.maxLifetimeMs }),
        fc.integer({ min: 100, max: 60_000 }),
        (hiddenMs, gapMs) => {
          const lifetime = estimator({ lifetimeMs: BOUNDS.maxLifetimeMs })
          let at = 0
          let deaths = 0
          for (let token = 0; token < 40; token += 1) {
            // Used every `gapMs`, until the estimate or the service ends it.
            const lastUse = Math.ceil(lifetime.estimateMs / gapMs) - 1
            const firstDead = Math.ceil(hiddenMs / gapMs)
            at += Math.min(lastUse, firstDead) * gapMs + 1
            if (firstDead > lastUse) continue
            deaths += 1
            lifetime.died(death('a', (firstDead - 1) * gapMs, firstDead * gapMs, at), 1, at)
          }
          const firstDeadMs = Math.ceil(hiddenMs / gapMs) * gapMs
          expect(lifetime.estimateMs).toBeLessThanOrEqual(Math.max(firstDeadMs, BOUNDS.minLifetimeMs))
          expect(lifetime.estimateMs).toBeGreaterThanOrEqual(Math.min(hiddenMs, firstDeadMs - gapMs) * 0.9)
          expect(deaths).toBeLessThanOrEqual(12)
        },
      ),
    )
  })
})
