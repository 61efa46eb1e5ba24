import { expect, test } from 'vitest'
import { History, SAMPLE_INTERVAL_MS } from '../../../src/admin/history.ts'
import { Metrics } from '../../../src/admin/metrics.ts'
import { record } from './records.ts'

function started() {
  const metrics = new Metrics()
  const end = (given: Parameters<typeof record>[0], times = 1) => {
    for (let i = 0; i < times; i++) metrics.requestEnded(record(given))
  }
  return { history: new History(metrics, 0), end }
}

test('a sample has the rates since the one before', () => {
  const { history, end } = started()
  end({}, 10)
  history.sample(2_000)
  end({}, 9)
  end({ status: 503 })
  end({ status: 400, code: 'org_id_missing', token: 'none' }) // the app's error
  history.sample(6_000)
  expect(history.series()).toMatchObject({
    requestsPerSecond: [5, 2.75],
    errorsPerSecond: [0, 0.25],
  })
})

test('latencies are those of the interval, and missing if no request ended', () => {
  const { history, end } = started()
  end({ startedAt: 0, endedAt: 300 }, 100)
  history.sample(2_000)
  history.sample(4_000)
  end({ startedAt: 0, endedAt: 3 }, 100)
  history.sample(6_000)
  // Interpolated within their buckets, but never above the slowest request.
  expect(history.series()).toMatchObject({ p50Ms: [300, null, 3], p99Ms: [300, null, 3] })
})

test('no more than five minutes are kept', () => {
  const { history, end } = started()
  for (let i = 1; i <= 1_000; i++) {
    end({}, i)
    history.sample(i * SAMPLE_INTERVAL_MS)
  }
  const { requestsPerSecond } = history.series()
  expect(requestsPerSecond.length * SAMPLE_INTERVAL_MS).toBe(5 * 60_000)
  expect(requestsPerSecond.at(-1)).toBe(500)
})

test('the totals of the last five minutes count requests up to now', () => {
  const { history, end } = started()
  end({}, 7)
  for (let i = 1; i <= 150; i++) history.sample(i * SAMPLE_INTERVAL_MS)
  end({ startedAt: 0, endedAt: 3 }, 3)
  end({ status: 502, code: 'dns_error', startedAt: 0, endedAt: 3 })
  const errors = { proxy: 0, service: 1, app: 0 }
  expect(history.recent(300_500)).toMatchObject({ spanMs: 300_500, requests: 11, errors })
  history.sample(302_000) // the sample with the first seven is dropped
  expect(history.recent(302_500)).toMatchObject({ spanMs: 300_500, requests: 4, errors, p50Ms: 3 })
})
