import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type LeaveQueue, MintQueue } from '../../src/token/mint-queue.ts'
import { MintNotSent, OverBudget, type Requester } from '../../src/token/token-source.ts'
import { fc } from '../support/properties.ts'

beforeEach(() => {
  vi.useFakeTimers({ now: 0, toFake: ['setTimeout', 'clearTimeout', 'Date'] })
})
afterEach(() => {
  vi.useRealTimers()
})

const now = () => Date.now()

type Lane = 'known' | 'cold'

interface Seen {
  enteredAt?: number
  leave?: LeaveQueue
  error?: unknown
}

/** Enters the queue, and records the time of admission or the refusal. */
function watch(
  queue: MintQueue,
  lane: Lane,
  {
    deadlineAt = 60_000,
    requester,
    isProbe = false,
  }: { deadlineAt?: number; requester?: Requester; isProbe?: boolean } = {},
): Seen {
  const seen: Seen = {}
  queue.enter({ isKnown: lane === 'known', isProbe, requester, deadlineAt }).then(
    (leave) => Object.assign(seen, { enteredAt: now(), leave }),
    (error: unknown) => Object.assign(seen, { error }),
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
  const queue = new MintQueue({ concurrency: 1_000, ratePerSecond: 20, now })
  const known = Array.from({ length: 70 }, () => watch(queue, 'known'))
  await vi.advanceTimersByTimeAsync(10_000)
  const starts = startsOf(known)
  expect(starts).toHaveLength(70)
  expect(mostInOneSecond(starts)).toBe(20)
  expect(starts.at(-1)).toBe(3_000)
})

test('a rate below one a second', async () => {
  const queue = new MintQueue({ concurrency: 10, ratePerSecond: 0.5, now })
  const list = Array.from({ length: 3 }, () => watch(queue, 'cold'))
  await vi.advanceTimersByTimeAsync(10_000)
  expect(startsOf(list)).toEqual([0, 2_000, 4_000])
})

test('never more at once than there are places; the next goes when one ends', async () => {
  const queue = new MintQueue({ concurrency: 2, ratePerSecond: 1_000, now })
  const list = Array.from({ length: 3 }, () => watch(queue, 'known'))
  await vi.advanceTimersByTimeAsync(5_000)
  expect(startsOf(list)).toEqual([0, 0])
  list[0]?.leave?.()
  await vi.advanceTimersByTimeAsync(0)
  expect(startsOf(list)).toEqual([0, 0, 5_000])
})

test('a mint that could not be served in time is refused at once, with Retry-After', async () => {
  const queue = new MintQueue({ concurrency: 1_000, ratePerSecond: 10, now })
  const list = Array.from({ length: 100 }, () => watch(queue, 'known', { deadlineAt: 4_000 }))
  await vi.advanceTimersByTimeAsync(0)
  const refused = list.filter(({ error }) => error !== undefined)
  expect(refused.length).toBeGreaterThan(50)
  for (const { error } of refused) {
    expect(error).toBeInstanceOf(OverBudget)
    expect(error).toMatchObject({ code: 'token_endpoint_unavailable', retryAfterSeconds: 4 })
  }
  await vi.advanceTimersByTimeAsync(4_000)
  expect(startsOf(list)).toHaveLength(100 - refused.length)
})

test('the expected wait begins when the rate opens again, and counts those who go before', async () => {
  const slow = new MintQueue({ concurrency: 10, ratePerSecond: 0.5, now })
  watch(slow, 'known')
  const tooLate = watch(slow, 'known', { deadlineAt: 2_200 })
  const inTime = watch(slow, 'known', { deadlineAt: 2_300 })
  await vi.advanceTimersByTimeAsync(0)
  expect(tooLate.error).toMatchObject({ retryAfterSeconds: 2 })
  expect(inTime).toEqual({})

  const queue = new MintQueue({ concurrency: 1_000, ratePerSecond: 10, now })
  for (let i = 0; i < 50; i += 1) watch(queue, 'cold')
  const cold = watch(queue, 'cold', { deadlineAt: 5_000 })
  await vi.advanceTimersByTimeAsync(0)
  expect(cold.error).toMatchObject({ code: 'token_endpoint_unavailable', retryAfterSeconds: 5 })
})

test('where calls take long, the places bound the expected wait', async () => {
  const queue = new MintQueue({ concurrency: 2, ratePerSecond: 100, now })
  for (let i = 0; i < 40; i += 1) {
    const seen = watch(queue, 'known')
    await vi.advanceTimersByTimeAsync(3_000)
    seen.leave?.()
  }
  const list = Array.from({ length: 8 }, () => watch(queue, 'known', { deadlineAt: now() + 5_000 }))
  await vi.advanceTimersByTimeAsync(0)
  expect(startsOf(list)).toHaveLength(2)
  expect(list.filter(({ error }) => error !== undefined).length).toBeGreaterThanOrEqual(2)
})

test('a thousand orgs that need a token at 300 requests a second: all are served in time', async () => {
  for (const isKnown of [true, false]) {
    const queue = new MintQueue({ concurrency: 32, ratePerSecond: 100, now })
    const asked = new Set<number>()
    let refused = 0
    let seed = 1
    for (let i = 0; i < 3_000; i += 1) {
      await vi.advanceTimersByTimeAsync(i % 3 === 0 ? 4 : 3)
      seed = (seed * 48_271) % 2_147_483_647
      if (asked.has(seed % 1_000)) continue
      asked.add(seed % 1_000)
      queue.enter({ isKnown, isProbe: false, requester: { i }, deadlineAt: now() + 5_000 }).then(
        (leave) => setTimeout(leave, 30),
        () => (refused += 1),
      )
    }
    await vi.advanceTimersByTimeAsync(10_000)
    expect(refused).toBe(0)
  }
})

test('a mint that has waited for nearly all its time is refused', async () => {
  const queue = new MintQueue({ concurrency: 1, ratePerSecond: 100, now })
  const first = watch(queue, 'known')
  const waiting = watch(queue, 'known', { deadlineAt: 1_000 }) // the rate would admit it
  await vi.advanceTimersByTimeAsync(949)
  expect(waiting).toEqual({})
  await vi.advanceTimersByTimeAsync(1)
  expect(waiting.error).toMatchObject({ code: 'token_endpoint_unavailable' })
  first.leave?.()
  await vi.advanceTimersByTimeAsync(1_000)
  expect(waiting.enteredAt).toBeUndefined()
})

describe('orgs that had a token before', () => {
  test('go before new orgs', async () => {
    const queue = new MintQueue({ concurrency: 1, ratePerSecond: 1_000, now })
    const first = watch(queue, 'known')
    const cold = watch(queue, 'cold')
    const known = watch(queue, 'known')
    await vi.advanceTimersByTimeAsync(0)
    first.leave?.()
    await vi.advanceTimersByTimeAsync(0)
    expect(known.enteredAt).toBe(0)
    expect(cold.enteredAt).toBeUndefined()
  })

  test('get a part of the rate', async () => {
    const queue = new MintQueue({ concurrency: 10_000, ratePerSecond: 100, now })
    const flood = Array.from({ length: 10_000 }, () => watch(queue, 'cold', { deadlineAt: 5_000 }))
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(flood)).toHaveLength(90)
    const known = Array.from({ length: 10 }, () => watch(queue, 'known'))
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(known)).toHaveLength(10)
  })

  test('go as soon as the rate allows, although a cold org has to wait longer', async () => {
    const queue = new MintQueue({ concurrency: 100, ratePerSecond: 10, now })
    watch(queue, 'known')
    await vi.advanceTimersByTimeAsync(500)
    for (let i = 0; i < 9; i += 1) watch(queue, 'cold')
    const cold = watch(queue, 'cold')
    const known = watch(queue, 'known')
    await vi.advanceTimersByTimeAsync(2_000)
    expect([known.enteredAt, cold.enteredAt]).toEqual([1_000, 1_500])
  })

  test('leave one turn in four to new orgs', async () => {
    const queue = new MintQueue({ concurrency: 100, ratePerSecond: 8, now })
    const known = Array.from({ length: 40 }, () => watch(queue, 'known'))
    const cold = Array.from({ length: 4 }, () => watch(queue, 'cold'))
    await vi.advanceTimersByTimeAsync(2_000)
    expect(startsOf(cold)).toHaveLength(4)
    expect(startsOf(known)).toHaveLength(20)
  })

  test('a caller that asks again and again for one of them holds up no other', async () => {
    const queue = new MintQueue({ concurrency: 100, ratePerSecond: 10, now })
    const flood = Array.from({ length: 40 }, () => watch(queue, 'known', { requester: 'rejected' }))
    const [known, cold] = [watch(queue, 'known', { requester: 'b' }), watch(queue, 'cold', { requester: 'c' })]
    await vi.advanceTimersByTimeAsync(1_000)
    expect(startsOf(flood)).toHaveLength(18)
    expect([known.enteredAt, cold.enteredAt]).toEqual([1_000, 1_000])
  })
})

test('a probe goes before all', async () => {
  const queue = new MintQueue({ concurrency: 1, ratePerSecond: 1_000, now })
  const first = watch(queue, 'known')
  watch(queue, 'known')
  const probe = watch(queue, 'cold', { isProbe: true })
  await vi.advanceTimersByTimeAsync(0)
  first.leave?.()
  await vi.advanceTimersByTimeAsync(0)
  expect(probe.enteredAt).toBe(0)
})

test('if known orgs wait for the rate and new ones for theirs, the clock goes on for both', async () => {
  const queue = new MintQueue({ concurrency: 100, ratePerSecond: 10, now })
  const list = Array.from({ length: 12 }, (_, i) => watch(queue, i % 2 === 0 ? 'cold' : 'known'))
  await vi.advanceTimersByTimeAsync(1_000)
  expect(startsOf(list)).toHaveLength(12)
  expect(vi.getTimerCount()).toBe(0)
})

describe('cold mints are shared between the connections', () => {
  /** Connections that ask for another unknown org after each answer, without end. */
  function flood(queue: MintQueue, connections: number): { served: number; stop: () => void } {
    const seen = { served: 0, stop: () => {} }
    let isOver = false
    seen.stop = () => {
      isOver = true
    }
    const ask = (requester: Requester): void => {
      if (isOver) return
      const again = () => setTimeout(() => ask(requester), 250)
      queue.enter({ isKnown: false, isProbe: false, requester, deadlineAt: now() + 5_000 }).then((leave) => {
        seen.served += 1
        setTimeout(() => {
          leave()
          again()
        }, 20)
      }, again)
    }
    for (let i = 0; i < connections; i += 1) ask({ connection: i })
    return seen
  }

  // An attacker, or a faulty client, asks for unknown ids over many connections and takes every turn.
  test.each([1, 150])('a flood over %d connections does not delay a newcomer', async (connections) => {
    const queue = new MintQueue({ concurrency: 32, ratePerSecond: 100, now })
    const attack = flood(queue, connections)
    await vi.advanceTimersByTimeAsync(12_000)
    for (let i = 0; i < 5; i += 1) {
      const askedAt = now()
      const seen = watch(queue, 'cold', { deadlineAt: now() + 5_000, requester: { connection: 'new' } })
      await vi.advanceTimersByTimeAsync(1_500)
      expect(seen.error).toBeUndefined()
      expect((seen.enteredAt ?? Number.NaN) - askedAt).toBeLessThan(1_000)
      seen.leave?.()
    }
    attack.stop()
    expect(attack.served).toBeGreaterThan(connections === 1 ? 50 : 1_000)
    await vi.advanceTimersByTimeAsync(10_000)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('in a full queue, a newcomer replaces the last', async () => {
    const queue = new MintQueue({ concurrency: 1_000, ratePerSecond: 100, now })
    const flood = Array.from({ length: 1_000 }, () => watch(queue, 'cold', { deadlineAt: 5_000, requester: 'flood' }))
    await vi.advanceTimersByTimeAsync(0)
    const refused = flood.filter((seen) => seen.error !== undefined).length
    const timers = vi.getTimerCount()
    const newcomer = watch(queue, 'cold', { deadlineAt: 5_000, requester: 'new' })
    await vi.advanceTimersByTimeAsync(0)
    expect(flood.filter((seen) => seen.error !== undefined)).toHaveLength(refused + 1)
    expect(vi.getTimerCount(), 'one timer for each that waits').toBe(timers)
    await vi.advanceTimersByTimeAsync(1_000)
    expect(newcomer.enteredAt).toBe(1_000)
  })

  test('a newcomer that cannot wait replaces nobody', async () => {
    const queue = new MintQueue({ concurrency: 1_000, ratePerSecond: 100, now })
    const flood = Array.from({ length: 1_000 }, () => watch(queue, 'cold', { deadlineAt: 5_000, requester: 'flood' }))
    await vi.advanceTimersByTimeAsync(0)
    const refused = flood.filter((seen) => seen.error !== undefined).length
    const newcomer = watch(queue, 'cold', { deadlineAt: now(), requester: 'new' })
    await vi.advanceTimersByTimeAsync(0)
    expect(newcomer.error).toBeInstanceOf(OverBudget)
    expect(flood.filter((seen) => seen.error !== undefined)).toHaveLength(refused)
  })

  test('a flood over ever new connections cannot grow the queue', async () => {
    const queue = new MintQueue({ concurrency: 32, ratePerSecond: 100, now })
    const all = Array.from({ length: 10_000 }, () => watch(queue, 'cold', { deadlineAt: 5_000, requester: {} }))
    await vi.advanceTimersByTimeAsync(0)
    const waiting = all.filter((seen) => seen.enteredAt === undefined && seen.error === undefined)
    expect(waiting.length).toBeLessThan(450)
    await vi.advanceTimersByTimeAsync(6_000)
    expect(vi.getTimerCount()).toBe(0)
  })

  test('in order of arrival, if all ask alike', async () => {
    const queue = new MintQueue({ concurrency: 100, ratePerSecond: 10, now })
    const list = ['a', 'b', 'c', 'd'].map((requester) => watch(queue, 'cold', { requester }))
    const more = Array.from({ length: 16 }, (_, i) => watch(queue, 'cold', { requester: `more-${i}` }))
    await vi.advanceTimersByTimeAsync(10_000)
    const starts = [...list, ...more].map((seen) => seen.enteredAt ?? Number.NaN)
    expect(starts).toEqual(starts.toSorted((a, b) => a - b))
  })

  test.each([
    [6_000, 'count: the other goes first'],
    [30_000, 'no longer count'],
  ])('requests of %d ms ago %s', async (pauseMs) => {
    const queue = new MintQueue({ concurrency: 1, ratePerSecond: 100, now })
    for (let i = 0; i < 50; i += 1) {
      const seen = watch(queue, 'cold', { requester: 'busy' })
      await vi.advanceTimersByTimeAsync(20)
      seen.leave?.()
    }
    await vi.advanceTimersByTimeAsync(pauseMs)
    const first = watch(queue, 'cold', { requester: 'first' })
    const busy = watch(queue, 'cold', { requester: 'busy' })
    const second = watch(queue, 'cold', { requester: 'second' })
    await vi.advanceTimersByTimeAsync(0)
    first.leave?.()
    await vi.advanceTimersByTimeAsync(0)
    expect([busy.enteredAt, second.enteredAt]).toEqual(pauseMs > 10_000 ? [now(), undefined] : [undefined, now()])
  })
})

test('nobody waits for a call that will not be sent', async () => {
  const queue = new MintQueue({ concurrency: 1, ratePerSecond: 100, now })
  watch(queue, 'known')
  const waiting = [watch(queue, 'known'), watch(queue, 'cold')]
  const error = new MintNotSent('token_endpoint_unavailable', 'paused')
  queue.refuseAll(error)
  await vi.advanceTimersByTimeAsync(0)
  expect(waiting.map((seen) => seen.error)).toEqual([error, error])
  expect(vi.getTimerCount()).toBe(0)
})

test('with any arrivals, neither bound is exceeded, and no place is lost', async () => {
  const arrival = fc.record({
    lane: fc.constantFrom<Lane>('known', 'cold'),
    isProbe: fc.boolean(),
    requester: fc.constantFrom('a', 'b', 'c', undefined),
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
    const queue = new MintQueue({ concurrency: places, ratePerSecond: rate, now })
    const starts: number[] = []
    let underway = 0
    let most = 0
    for (const { lane, isProbe, requester, pauseMs, durationMs, patienceMs } of arrivals) {
      await vi.advanceTimersByTimeAsync(pauseMs)
      queue.enter({ isKnown: lane === 'known', isProbe, requester, deadlineAt: now() + patienceMs }).then(
        (leave) => {
          starts.push(now())
          underway += 1
          most = Math.max(most, underway)
          setTimeout(() => {
            underway -= 1
            leave()
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
    const last = watch(queue, 'cold')
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
    { numRuns: 40 },
  )
})
