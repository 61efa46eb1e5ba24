import fc from 'fast-check'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { MintBudget, type MintLane } from '../../src/token/mint-budget.ts'
import { MintNotSent } from '../../src/token/mint-not-sent.ts'
import { chooseSeed } from '../support/seed.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: 0, toFake: ['setTimeout', 'clearTimeout', 'Date'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const now = () => Date.now()

/** Enters, and notes when it was let in or how it was refused. */
function watch(budget: MintBudget, lane: MintLane, deadlineAt = 60_000) {
  const seen: { enteredAt?: number; error?: unknown } = {}
  budget.enter(lane, deadlineAt).then(
    () => {
      seen.enteredAt = now()
    },
    (error: unknown) => {
      seen.error = error
    },
  )
  return seen
}

function startsOf(list: { enteredAt?: number }[]): number[] {
  return list.flatMap(({ enteredAt }) => (enteredAt === undefined ? [] : [enteredAt])).toSorted((a, b) => a - b)
}

function mostInOneSecond(starts: number[]): number {
  return Math.max(0, ...starts.map((start) => starts.filter((at) => at >= start && at < start + 1_000).length))
}

test('never more than the rate in any second', async () => {
  const budget = new MintBudget({ concurrency: 1_000, ratePerSecond: 20, now })
  const known = Array.from({ length: 70 }, () => watch(budget, 'known'))
  await vi.advanceTimersByTimeAsync(10_000)
  const starts = startsOf(known)
  expect(starts).toHaveLength(70)
  expect(mostInOneSecond(starts)).toBe(20)
  expect(starts.at(-1)).toBe(3_000)
})

test('a rate below one a second', async () => {
  const budget = new MintBudget({ concurrency: 10, ratePerSecond: 0.5, now })
  const list = Array.from({ length: 3 }, () => watch(budget, 'cold'))
  await vi.advanceTimersByTimeAsync(10_000)
  expect(startsOf(list)).toEqual([0, 2_000, 4_000])
})

test('never more at once than there are places; the next goes when one ends', async () => {
  const budget = new MintBudget({ concurrency: 2, ratePerSecond: 1_000, now })
  const list = Array.from({ length: 3 }, () => watch(budget, 'known'))
  await vi.advanceTimersByTimeAsync(5_000)
  expect(startsOf(list)).toEqual([0, 0])
  budget.leave('known')
  await vi.advanceTimersByTimeAsync(0)
  expect(startsOf(list)).toEqual([0, 0, 5_000])
})

test('whoever could not be served in time is refused at once, and told when to come again', async () => {
  const budget = new MintBudget({ concurrency: 1_000, ratePerSecond: 10, now })
  const list = Array.from({ length: 100 }, () => watch(budget, 'known', 4_000))
  await vi.advanceTimersByTimeAsync(0)
  const refused = list.filter(({ error }) => error !== undefined)
  expect(refused.length).toBeGreaterThan(60)
  for (const { error } of refused) {
    expect(error).toBeInstanceOf(MintNotSent)
    expect(error).toMatchObject({ code: 'token_endpoint_unavailable', retryAfterSeconds: 3 })
  }
  await vi.advanceTimersByTimeAsync(4_000)
  expect(startsOf(list)).toHaveLength(100 - refused.length)
})

test('whoever has waited until the deadline is refused then', async () => {
  const budget = new MintBudget({ concurrency: 1, ratePerSecond: 100, now })
  watch(budget, 'known')
  const waiting = watch(budget, 'known', 700) // the rate would let it in
  await vi.advanceTimersByTimeAsync(699)
  expect(waiting).toEqual({})
  await vi.advanceTimersByTimeAsync(1)
  expect(waiting.error).toMatchObject({ code: 'token_endpoint_unavailable' })
  budget.leave('known')
  await vi.advanceTimersByTimeAsync(1_000)
  expect(waiting.enteredAt).toBeUndefined()
})

describe('orgs that had a token before', () => {
  test('go ahead of those that were never seen', async () => {
    const budget = new MintBudget({ concurrency: 1, ratePerSecond: 1_000, now })
    watch(budget, 'known')
    const cold = watch(budget, 'cold')
    const known = watch(budget, 'known')
    budget.leave('known')
    await vi.advanceTimersByTimeAsync(0)
    expect(known.enteredAt).toBe(0)
    expect(cold.enteredAt).toBeUndefined()
  })

  test('find a place though a flood has taken all that it may', async () => {
    const budget = new MintBudget({ concurrency: 32, ratePerSecond: 100, now })
    const flood = Array.from({ length: 10_000 }, () => watch(budget, 'cold', 5_000))
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(flood)).toHaveLength(24)
    const known = Array.from({ length: 8 }, () => watch(budget, 'known'))
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(known)).toHaveLength(8)
  })

  test('find a part of the rate left', async () => {
    const budget = new MintBudget({ concurrency: 10_000, ratePerSecond: 100, now })
    const flood = Array.from({ length: 10_000 }, () => watch(budget, 'cold', 5_000))
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(flood)).toHaveLength(90)
    const known = Array.from({ length: 10 }, () => watch(budget, 'known'))
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(known)).toHaveLength(10)
  })

  test('do not starve the others', async () => {
    const budget = new MintBudget({ concurrency: 2, ratePerSecond: 100, now })
    const cold = watch(budget, 'cold')
    await vi.advanceTimersByTimeAsync(0)
    expect(cold.enteredAt).toBe(0)
  })
})

test('nobody waits for what will not be sent', async () => {
  const budget = new MintBudget({ concurrency: 1, ratePerSecond: 100, now })
  watch(budget, 'known')
  const waiting = [watch(budget, 'known'), watch(budget, 'cold')]
  const error = new MintNotSent('token_endpoint_unavailable', 'paused')
  budget.refuseAll(error)
  await vi.advanceTimersByTimeAsync(0)
  expect(waiting.map((seen) => seen.error)).toEqual([error, error])
  expect(vi.getTimerCount()).toBe(0)
})

test('whatever the arrivals, neither bound is ever passed, and no place is lost', async () => {
  const arrival = fc.record({
    lane: fc.constantFrom<MintLane>('known', 'cold'),
    pauseMs: fc.integer({ min: 0, max: 400 }),
    durationMs: fc.integer({ min: 0, max: 800 }),
    patienceMs: fc.integer({ min: 0, max: 5_000 }),
  })
  const run = async (
    arrivals: (typeof arrival extends fc.Arbitrary<infer T> ? T : never)[],
    places: number,
    rate: number,
  ) => {
    vi.setSystemTime(0)
    const budget = new MintBudget({ concurrency: places, ratePerSecond: rate, now })
    const starts: number[] = []
    let underway = 0
    let most = 0
    for (const { lane, pauseMs, durationMs, patienceMs } of arrivals) {
      await vi.advanceTimersByTimeAsync(pauseMs)
      budget.enter(lane, now() + patienceMs).then(
        () => {
          starts.push(now())
          underway += 1
          most = Math.max(most, underway)
          setTimeout(() => {
            underway -= 1
            budget.leave(lane)
          }, durationMs)
        },
        () => undefined,
      )
    }
    await vi.advanceTimersByTimeAsync(60_000)
    expect(most).toBeLessThanOrEqual(places)
    expect(mostInOneSecond(starts)).toBeLessThanOrEqual(rate)
    expect(underway).toBe(0)
    expect(vi.getTimerCount()).toBe(0)
    const last = watch(budget, 'cold')
    await vi.advanceTimersByTimeAsync(0)
    expect(last.enteredAt).toBe(now())
  }
  await fc.assert(
    fc.asyncProperty(
      fc.array(arrival, { maxLength: 60 }),
      fc.integer({ min: 1, max: 8 }),
      fc.integer({ min: 1, max: 20 }),
      run,
    ),
    { seed: chooseSeed(), numRuns: 40 },
  )
})
