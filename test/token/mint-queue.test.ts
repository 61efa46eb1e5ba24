import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { MintQueue, type MintTurn } from '../../src/token/mint-queue.ts'
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
  turn?: MintTurn
  error?: unknown
}

/** Enters the queue, and records the time of admission or the refusal. */
function watch(
  queue: MintQueue,
  lane: Lane,
  {
    deadlineAt = 60_000,
    requester,
    hangs = false,
  }: { deadlineAt?: number; requester?: Requester; hangs?: boolean } = {},
): Seen {
  const seen: Seen = {}
  queue.enter({ isKnown: lane === 'known', hangs, requester, deadlineAt }).then(
    (turn) => Object.assign(seen, { enteredAt: now(), turn }),
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
  list[0]?.turn?.leave()
  await vi.advanceTimersByTimeAsync(0)
  expect(startsOf(list)).toEqual([0, 0, 5_000])
})

test('a mint that could not be served in time is refused at once, with Retry-After', async () => {
  const queue = new MintQueue({ concurrency: 1_000, ratePerSecond: 10, now })
  const list = Array.from({ length: 100 }, () => watch(queue, 'known', { deadlineAt: 4_000 }))
  await vi.advanceTimersByTimeAsync(0)
  const refused = list.filter(({ error }) => error !== undefined)
  expect(refused.length).toBeGreaterThan(60)
  for (const { error } of refused) {
    expect(error).toBeInstanceOf(OverBudget)
    expect(error).toMatchObject({ code: 'token_endpoint_unavailable', retryAfterSeconds: 3 })
  }
  await vi.advanceTimersByTimeAsync(4_000)
  expect(startsOf(list)).toHaveLength(100 - refused.length)
})

test('the expected wait begins when the rate opens again', async () => {
  const queue = new MintQueue({ concurrency: 10, ratePerSecond: 0.5, now })
  watch(queue, 'known')
  const tooLate = watch(queue, 'known', { deadlineAt: 3_900 })
  const inTime = watch(queue, 'known', { deadlineAt: 4_000 })
  await vi.advanceTimersByTimeAsync(0)
  expect(tooLate.error).toMatchObject({ retryAfterSeconds: 2 })
  expect(inTime).toEqual({})
})

test('a cold mint also expects to wait for the known ones before it', async () => {
  const queue = new MintQueue({ concurrency: 1_000, ratePerSecond: 10, now })
  for (let i = 0; i < 30; i += 1) watch(queue, 'known')
  const cold = watch(queue, 'cold', { deadlineAt: 5_000 })
  await vi.advanceTimersByTimeAsync(0)
  expect(cold.error).toMatchObject({ code: 'token_endpoint_unavailable', retryAfterSeconds: 4 })
})

test('a mint that has waited for most of its time is refused, so that no call starts without time left', async () => {
  const queue = new MintQueue({ concurrency: 1, ratePerSecond: 100, now })
  const first = watch(queue, 'known')
  const waiting = watch(queue, 'known', { deadlineAt: 700 }) // the rate would admit it
  await vi.advanceTimersByTimeAsync(559)
  expect(waiting).toEqual({})
  await vi.advanceTimersByTimeAsync(1)
  expect(waiting.error).toMatchObject({ code: 'token_endpoint_unavailable' })
  first.turn?.leave()
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
    first.turn?.leave()
    await vi.advanceTimersByTimeAsync(0)
    expect(known.enteredAt).toBe(0)
    expect(cold.enteredAt).toBeUndefined()
  })

  test('get a place although a flood has taken all that it may', async () => {
    const queue = new MintQueue({ concurrency: 32, ratePerSecond: 100, now })
    const flood = Array.from({ length: 10_000 }, () => watch(queue, 'cold', { deadlineAt: 5_000 }))
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(flood)).toHaveLength(24)
    const known = Array.from({ length: 8 }, () => watch(queue, 'known'))
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(known)).toHaveLength(8)
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

  test('do not lock out new orgs', async () => {
    const queue = new MintQueue({ concurrency: 2, ratePerSecond: 100, now })
    const cold = watch(queue, 'cold')
    await vi.advanceTimersByTimeAsync(0)
    expect(cold.enteredAt).toBe(0)
  })
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
      queue.enter({ isKnown: false, hangs: false, requester, deadlineAt: now() + 5_000 }).then((turn) => {
        seen.served += 1
        setTimeout(() => {
          turn.leave()
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
      seen.turn?.leave()
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
    expect(waiting.length).toBeLessThan(250)
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
    [6_000, 'counts: the other goes first'],
    [11_000, 'no longer counts'],
  ])('a request of %d ms ago %s', async (pauseMs) => {
    const queue = new MintQueue({ concurrency: 1, ratePerSecond: 100, now })
    for (let i = 0; i < 50; i += 1) {
      const seen = watch(queue, 'cold', { requester: 'busy' })
      await vi.advanceTimersByTimeAsync(20)
      seen.turn?.leave()
    }
    await vi.advanceTimersByTimeAsync(pauseMs)
    const first = watch(queue, 'cold', { requester: 'first' })
    const busy = watch(queue, 'cold', { requester: 'busy' })
    const second = watch(queue, 'cold', { requester: 'second' })
    await vi.advanceTimersByTimeAsync(0)
    first.turn?.leave()
    await vi.advanceTimersByTimeAsync(0)
    expect([busy.enteredAt, second.enteredAt]).toEqual(pauseMs > 10_000 ? [now(), undefined] : [undefined, now()])
  })
})

describe('calls that hang', () => {
  test('get the last quarter of the places only for a short time', async () => {
    const queue = new MintQueue({ concurrency: 32, ratePerSecond: 1_000, now })
    const cold = Array.from({ length: 24 }, () => watch(queue, 'cold'))
    await vi.advanceTimersByTimeAsync(0)
    expect(cold.map((seen) => seen.turn?.isLent)).toEqual(cold.map((_, i) => i >= 18))
  })

  test('get at most a quarter of the places if their orgs hung before', async () => {
    const queue = new MintQueue({ concurrency: 32, ratePerSecond: 1_000, now })
    const hanging = Array.from({ length: 20 }, () => watch(queue, 'cold', { hangs: true }))
    const healthy = watch(queue, 'cold')
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(hanging)).toHaveLength(8)
    expect(healthy.enteredAt).toBe(0)
    hanging[0]?.turn?.leave()
    await vi.advanceTimersByTimeAsync(0)
    expect(startsOf(hanging)).toHaveLength(9)
  })

  test('are never lent a place if there is only one', async () => {
    const queue = new MintQueue({ concurrency: 1, ratePerSecond: 100, now })
    const seen = watch(queue, 'cold')
    await vi.advanceTimersByTimeAsync(0)
    expect(seen.turn?.isLent).toBe(false)
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
    hangs: fc.boolean(),
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
    for (const { lane, hangs, requester, pauseMs, durationMs, patienceMs } of arrivals) {
      await vi.advanceTimersByTimeAsync(pauseMs)
      queue.enter({ isKnown: lane === 'known', hangs, requester, deadlineAt: now() + patienceMs }).then(
        (turn) => {
          starts.push(now())
          underway += 1
          most = Math.max(most, underway)
          setTimeout(() => {
            underway -= 1
            turn.leave()
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
