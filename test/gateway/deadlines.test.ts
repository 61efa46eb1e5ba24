/** All deadlines share one timer. Without deadlines there is none. */

import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { Deadlines, type Watched } from '../../src/gateway/deadlines.ts'

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] })
})
afterEach(() => {
  vi.useRealTimers()
})

function watchedUntil(deadlineAt: number): Watched & { passed: number } {
  return {
    deadlineAt,
    passed: 0,
    deadlinePassed() {
      this.passed++
      this.deadlineAt = Number.POSITIVE_INFINITY
    },
  }
}

test('a deadline that has passed is reported once, the others are not', () => {
  const deadlines = new Deadlines()
  const passed = watchedUntil(performance.now())
  const later = watchedUntil(performance.now() + 3_600_000)
  for (const each of [passed, later]) deadlines.watch(each, performance.now())
  expect(passed.passed).toBe(0) // the timer reports it
  vi.advanceTimersByTime(5_000)
  expect([passed.passed, later.passed]).toEqual([1, 0])
  deadlines.close()
})

test('the timer ends with the last exchange, and one starts with the next', () => {
  const deadlines = new Deadlines()
  const exchange = watchedUntil(Number.POSITIVE_INFINITY)
  for (let i = 0; i < 3; i++) {
    deadlines.watch(exchange, performance.now())
    expect(vi.getTimerCount()).toBe(1)
    deadlines.unwatch(exchange)
    vi.advanceTimersByTime(100)
    expect(vi.getTimerCount()).toBe(0)
  }
})

test('an exchange that has ended is not reported, in whatever order exchanges end', () => {
  const deadlines = new Deadlines()
  const all = Array.from({ length: 5 }, () => watchedUntil(performance.now()))
  for (const each of all) deadlines.watch(each, performance.now())
  for (const at of [1, 4, 0]) deadlines.unwatch(all[at] as Watched)
  vi.advanceTimersByTime(200)
  expect(all.map(({ passed }) => passed)).toEqual([0, 0, 1, 1, 0])
  deadlines.close()
})
