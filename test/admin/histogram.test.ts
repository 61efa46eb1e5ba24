import { expect, test } from 'vitest'
import { Histogram } from '../../src/admin/counts.ts'
import { fc } from '../support/properties.ts'

const BOUNDS = [1, 10, 100]

function of(...durationsMs: number[]) {
  const histogram = new Histogram({ name: 'h', help: 'H.' }, BOUNDS)
  for (const durationMs of durationsMs) histogram.record(durationMs)
  return histogram.snapshot()
}

test('a duration counts in the first bucket whose bound it does not exceed', () => {
  expect(of(0, 1, 1.01, 10, 100, 100.01, 1e9).counts).toEqual([2, 2, 1, 2])
})

test('a negative duration, or one that is not a number, counts as zero', () => {
  const snapshot = of(-3, Number.NaN, 5)
  expect(snapshot.count).toBe(3)
  expect(snapshot.sumMs).toBe(5)
})

test('a snapshot does not change while counting goes on', () => {
  const histogram = new Histogram({ name: 'h', help: 'H.' }, BOUNDS)
  histogram.record(5)
  const before = histogram.snapshot()
  histogram.record(50)
  expect(before.count).toBe(1)
  const between = histogram.snapshot().since(before)
  expect(between.counts).toEqual([0, 0, 1, 0])
  expect(between.sumMs).toBe(50)
})

test('a quantile is interpolated within its bucket', () => {
  expect(of(5, 5, 5, 5).quantileMs(0.5, 1_000)).toBe(5.5)
  expect(of(0.5, 50).quantileMs(0.5, 1_000)).toBe(1)
})

test('a quantile is never above the slowest', () => {
  expect(of(5, 5, 5, 5).quantileMs(0.99, 5)).toBe(5)
  expect(of(0.5, 50).quantileMs(1, 50)).toBe(50)
})

test('without durations there is no quantile; beyond the last bound, it is the slowest', () => {
  expect(of().quantileMs(0.5, 0)).toBeUndefined()
  expect(of(5_000, 6_000).quantileMs(0.5, 6_000)).toBe(6_000)
})

test('a quantile is off by at most the width of its bucket', () => {
  const durations = fc.array(fc.double({ min: 0, max: 100, noNaN: true }), { minLength: 1, maxLength: 200 })
  const share = fc.double({ min: 0.01, max: 1, noNaN: true })
  const property = fc.property(durations, share, (durationsMs, wanted) => {
    const sorted = durationsMs.toSorted((a, b) => a - b)
    const truth = sorted[Math.ceil(wanted * sorted.length) - 1] ?? 0
    const upper = BOUNDS.find((bound) => truth <= bound) ?? 100
    const lower = BOUNDS[BOUNDS.indexOf(upper) - 1] ?? 0
    const estimate = of(...durationsMs).quantileMs(wanted, sorted.at(-1) ?? 0) ?? Number.NaN
    expect(estimate).toBeGreaterThanOrEqual(Math.min(lower, sorted.at(-1) ?? 0))
    expect(estimate).toBeLessThanOrEqual(Math.min(upper, sorted.at(-1) ?? 0))
  })
  fc.assert(property, { numRuns: 300 })
})
