import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { TokenError } from '../../../src/errors.ts'
import { MintQueue } from '../../../src/token/mint-queue.ts'
import { fc } from '../../support/properties.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: 0, toFake: ['setTimeout', 'clearTimeout', 'Date', 'performance'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const now = () => Date.now()
const advance = (ms: number) => vi.advanceTimersByTimeAsync(ms)

interface Seen {
  enteredAt?: number
  leave?: () => void
  error?: unknown
}

function queueOf(mintConcurrency: number, mintRate: number, mintTimeoutMs = 60_000): MintQueue {
  return new MintQueue({ mintConcurrency, mintRate, mintTimeoutMs })
}

/** Enters the queue, and records the time of admission or the refusal. */
function watch(queue: MintQueue, isKnown: boolean, requester?: object, isTroubled = false): Seen {
  const seen: Seen = {}
  queue.enter(isKnown, requester, isTroubled).then(
    () => Object.assign(seen, { enteredAt: now(), leave: () => queue.leave() }),
    (error: unknown) => Object.assign(seen, { error }),
  )
  return seen
}

const [KNOWN, COLD] = [true, false]
const many = (count: number, enter: (i: number) => Seen) => Array.from({ length: count }, (_, i) => enter(i))
const refusedOf = (list: readonly Seen[]) => list.filter(({ error }) => error !== undefined)

function startsOf(list: { enteredAt?: number }[]): number[] {
  return list.flatMap(({ enteredAt }) => (enteredAt === undefined ? [] : [enteredAt])).toSorted((a, b) => a - b)
}

function mostInOneSecond(starts: number[]): number {
  return Math.max(0, ...starts.map((start) => starts.filter((at) => at >= start && at < start + 1_000).length))
}

test.each([
  [20, 70, 3_700],
  [4, 9, 2_100],
  [0.5, 3, 4_300],
])('never more than %d in any second', async (rate, calls, lastAt) => {
  const queue = queueOf(1_000, rate)
  await advance(1_000)
  const list = many(calls, () => watch(queue, KNOWN))
  await advance(10_000)
  const starts = startsOf(list)
  expect(starts).toHaveLength(calls)
  expect(mostInOneSecond(starts)).toBeLessThanOrEqual(Math.max(1, rate))
  expect(starts.at(-1)).toBeLessThanOrEqual(1_000 + lastAt)
  expect(vi.getTimerCount()).toBe(0)
})

test('a mint that could not be served in time is refused at once, with Retry-After', async () => {
  const queue = queueOf(1_000, 10, 3_950)
  const list = many(100, () => watch(queue, KNOWN))
  await advance(0)
  const refused = refusedOf(list)
  expect(refused).toHaveLength(66)
  for (const { error } of refused) {
    expect(error).toBeInstanceOf(TokenError)
    expect(error).toMatchObject({ code: 'token_endpoint_unavailable', retryAfterSeconds: 5 })
  }
  await advance(4_000)
  expect(startsOf(list)).toHaveLength(100 - refused.length)
  const cold = many(40, () => watch(queue, COLD))
  const known = many(20, () => watch(queue, KNOWN))
  await advance(0)
  expect(refusedOf(known), 'of four turns, three are theirs').toEqual([])
  expect(refusedOf(cold)).toHaveLength(26)
  const last = many(20, () => watch(queue, KNOWN))
  await advance(0)
  expect(refusedOf(cold), 'one is for new orgs').toHaveLength(31)
  expect(refusedOf([...known, ...last])).toHaveLength(15)
})

test('a mint that has waited for nearly all its time is refused', async () => {
  const queue = queueOf(1, 100, 1_000)
  const first = watch(queue, KNOWN)
  const waiting = watch(queue, KNOWN) // the rate would admit it
  await advance(899)
  expect(waiting).toEqual({})
  await advance(1)
  expect(waiting.error).toMatchObject({ code: 'token_endpoint_unavailable' })
  first.leave?.()
  await advance(1_000)
  expect(waiting.enteredAt).toBeUndefined()
})

test('orgs that had a token before go before new orgs, but for one turn in four; those in trouble go later', async () => {
  const queue = queueOf(1, 1_000)
  const first = watch(queue, KNOWN)
  const failing = watch(queue, KNOWN, {}, true)
  const all = [...many(2, () => watch(queue, COLD)), ...many(5, () => watch(queue, KNOWN))]
  for (const next of [first, all[2], all[3], all[0], all[4], all[5], all[6], all[1], failing]) {
    await advance(1)
    expect(next?.leave).toBeDefined()
    next?.leave?.()
  }
})

test('places are missing for the orgs without trouble that wait for one', () => {
  const queue = queueOf(1, 1_000)
  const missing = [false, true, false, false].map((isTroubled) => {
    watch(queue, COLD, {}, isTroubled)
    return queue.missingPlaces
  })
  expect(missing).toEqual([0, 0, 1, 2])
})

describe('mints are shared between requesters', () => {
  test('a caller that asks again and again for known orgs holds up no other', async () => {
    const queue = queueOf(100, 10)
    const [rejected, b, c] = [{}, {}, {}]
    const flood = many(40, () => watch(queue, KNOWN, rejected))
    const others = [watch(queue, KNOWN, b), watch(queue, COLD, c)]
    const failing = watch(queue, KNOWN, {}, true)
    await advance(500)
    expect(startsOf(flood).length).toBeGreaterThan(3)
    expect(startsOf(others)).toHaveLength(2)
    await advance(1_000)
    expect(failing.enteredAt, 'an org whose last call failed').toBeDefined()
  })

  test('in a full queue, a newcomer replaces the last', async () => {
    const queue = queueOf(1_000, 100, 5_000)
    const [flooding, fresh] = [{}, {}]
    const flood = many(1_000, () => watch(queue, COLD, flooding))
    await advance(0)
    const refused = refusedOf(flood).length
    const timers = vi.getTimerCount()
    const newcomer = watch(queue, COLD, fresh)
    await advance(0)
    expect(refusedOf(flood)).toHaveLength(refused + 1)
    expect(vi.getTimerCount(), 'one timer for each that waits').toBe(timers)
    await advance(20)
    expect(newcomer.enteredAt).toBeDefined()
  })

  test.each([
    [6_000, 'count: the other goes first', [false, true]],
    [30_000, 'no longer count', [true, false]],
  ])('requests of %d ms ago %s', async (pauseMs, _, expected) => {
    const queue = queueOf(1, 100)
    const [busy, first, second] = [{}, {}, {}]
    for (let i = 0; i < 50; i += 1) {
      const seen = watch(queue, COLD, busy)
      await advance(20)
      seen.leave?.()
    }
    await advance(pauseMs)
    const seen = [first, busy, second].map((requester) => watch(queue, COLD, requester))
    await advance(0)
    seen[0]?.leave?.()
    await advance(20)
    const next = seen.slice(1).map(({ enteredAt }) => enteredAt !== undefined)
    expect(next, 'those who asked alike go in order of arrival').toEqual(expected)
  })
})

test('with any arrivals, neither bound is exceeded, and no place is lost', async () => {
  const requesters = [{}, {}, {}, undefined]
  const arrival = fc.record({
    isKnown: fc.boolean(),
    requester: fc.constantFrom(...requesters),
    pauseMs: fc.integer({ min: 0, max: 400 }),
    durationMs: fc.integer({ min: 0, max: 800 }),
  })
  type Arrival = typeof arrival extends fc.Arbitrary<infer T> ? T : never
  const run = async (arrivals: Arrival[], places: number, rate: number, patienceMs: number) => {
    vi.setSystemTime(0)
    const queue = queueOf(places, rate, patienceMs)
    const starts: number[] = []
    let [underway, most] = [0, 0]
    for (const { isKnown, requester, pauseMs, durationMs } of arrivals) {
      await advance(pauseMs)
      queue.enter(isKnown, requester).then(
        () => {
          starts.push(now())
          underway += 1
          most = Math.max(most, underway)
          setTimeout(() => {
            underway -= 1
            queue.leave()
          }, durationMs)
        },
        () => undefined,
      )
    }
    await advance(60_000)
    expect(most).toBeLessThanOrEqual(places)
    expect(mostInOneSecond(starts)).toBeLessThanOrEqual(rate)
    expect([underway, vi.getTimerCount()]).toEqual([0, 0])
    const last = watch(queue, COLD)
    await advance(0)
    expect(last.enteredAt).toBe(now())
  }
  const [places, rate] = [fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 20 })]
  const patienceMs = fc.integer({ min: 10, max: 5_000 })
  await fc.assert(fc.asyncProperty(fc.array(arrival, { maxLength: 60 }), places, rate, patienceMs, run), {
    numRuns: 40,
  })
})
