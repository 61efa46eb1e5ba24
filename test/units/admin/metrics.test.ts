/** Counters, histograms and their text. That the real program counts right is in `known-traffic.test.ts`. */

import { expect, test } from 'vitest'
import { Histogram, renderFamilies } from '../../../src/admin/counts.ts'
import { Metrics } from '../../../src/admin/metrics.ts'
import { PROBLEMS, TokenError, type TokenErrorCode } from '../../../src/errors.ts'
import type { RequestRecord } from '../../../src/gateway/request-record.ts'
import type { OrgId } from '../../../src/org-id.ts'
import { parseExposition } from './exposed.ts'
import { NO_GAUGES, record } from './records.ts'

async function measured(records: Partial<RequestRecord>[], metrics = new Metrics()) {
  for (const given of records) metrics.requestEnded(record(given))
  const text = await renderFamilies(metrics.families(NO_GAUGES, '0'))
  const { values } = parseExposition(text)
  return { totals: metrics.totals(), value: (name: string) => values.get(name), names: [...values.keys()], text }
}

test('requests are counted by method and status; methods that clients invent share one label', async () => {
  const invented = Array.from({ length: 100 }, (_, i) => ({ method: `INVENTED-${i}` }))
  const { value, names, totals } = await measured([
    {},
    {},
    { status: 404 },
    { method: 'POST', status: 502 },
    ...invented,
  ])
  expect(value('oap_requests_total{method="GET",status="200"}')).toBe(2)
  expect(value('oap_requests_total{method="GET",status="404"}')).toBe(1)
  expect(value('oap_requests_total{method="POST",status="502"}')).toBe(1)
  expect(value('oap_requests_total{method="OTHER",status="200"}')).toBe(100)
  expect(names.filter((name) => name.startsWith('oap_requests_total'))).toHaveLength(4)
  expect(totals.requests).toBe(104)
})

test('the time of the service, and the overhead: the rest of a request, but not of a WebSocket', async () => {
  const { value } = await measured([
    { startedAt: 0, carriedAt: 2, respondedAt: 102, endedAt: 103 },
    { startedAt: 0, carriedAt: 4, respondedAt: undefined, endedAt: 504 }, // never answered
    { startedAt: 0, carriedAt: undefined, respondedAt: undefined, endedAt: 8 }, // refused
    { startedAt: 0, carriedAt: 0, respondedAt: 0, endedAt: 1_000, status: 101 },
  ])
  expect(value('oap_service_response_seconds_sum')).toBeCloseTo(0.1, 9)
  expect(value('oap_service_response_seconds_count')).toBe(2)
  expect(value('oap_overhead_seconds_sum')).toBeCloseTo(0.003 + 0.004 + 0.008, 9)
  expect(value('oap_overhead_seconds_bucket{le="0.005"}')).toBe(2)
  expect(value('oap_request_duration_seconds_sum')).toBeCloseTo(0.103 + 0.504 + 0.008 + 1, 9)
  expect(value('oap_request_duration_seconds_count')).toBe(4)
})

test.each([
  [{ status: 400, code: 'org_id_missing' }, 'app'],
  [{ status: 403, code: 'org_access_refused' }, 'app'],
  [{ status: 508, code: 'proxy_loop_detected' }, 'proxy'],
  [{ status: 503, code: 'overloaded', reason: 'org share' }, 'proxy'],
  [{ status: 502, code: 'app_credentials_rejected' }, 'proxy'],
  [{ status: 502, code: 'dns_error' }, 'service'],
  [{ status: 504, code: 'token_endpoint_timeout' }, 'service'],
  [{ status: 503 }, 'service'],
  [{ status: 401 }, 'service'],
  [{ status: 404 }, undefined],
  [{ status: 499, code: 'client_closed' }, undefined],
] as const)('%j is an error of: %s', async (given, kind) => {
  const { totals, value } = await measured([given])
  expect(totals.errors).toEqual({ proxy: 0, service: 0, app: 0, ...(kind === undefined ? {} : { [kind]: 1 }) })
  // Every code exists from the start, so that its first increase is seen.
  const code = 'code' in given ? given.code : undefined
  for (const each of Object.keys(PROBLEMS))
    expect(value(`oap_refused_total{code="${each}"}`)).toBe(each === code ? 1 : 0)
  expect(value('oap_overloaded_total{limit="org share"}')).toBe('reason' in given ? 1 : 0)
  expect(value('oap_overloaded_total{limit="listen.maxInFlight"}')).toBe(0)
})

test('lookups, repeats and mints are counted by outcome, without the Org', async () => {
  const metrics = new Metrics()
  const mint = { org: 'canary-org' as OrgId, url: 'http://localhost/' }
  metrics.mintSettled({ method: 'POST', ...mint, reason: 'cold', durationMs: 30, error: undefined })
  const failed = (code: TokenErrorCode) => new TokenError(code, 'scripted')
  metrics.mintSettled({
    method: 'POST',
    ...mint,
    reason: 'refresh',
    durationMs: 5_000,
    error: failed('token_endpoint_timeout'),
  })
  metrics.mintSettled({ method: 'POST', ...mint, reason: 'cold', durationMs: 0, error: failed('org_access_refused') })
  for (const outcome of ['accepted', 'accepted', 'passed'] as const) metrics.requests.replays.add(outcome)
  const lookups = [{ token: 'miss' }, { token: 'hit' }, { token: 'hit' }, { token: 'none' }] as const
  const { value, totals, text } = await measured([...lookups], metrics)
  expect(value('oap_mints_total{reason="cold",outcome="ok"}')).toBe(1)
  expect(value('oap_mints_total{reason="refresh",outcome="token_endpoint_timeout"}')).toBe(1)
  expect(value('oap_mints_total{reason="refresh",outcome="ok"}')).toBe(0)
  expect(value('oap_mint_duration_seconds_sum')).toBeCloseTo(5.03, 9)
  expect(value('oap_replays_total{outcome="accepted"}')).toBe(2)
  expect(value('oap_replays_total{outcome="failed"}')).toBe(0)
  expect(value('oap_token_lookups_total{result="replayed"}')).toBe(0)
  expect(totals).toMatchObject({ mints: 3, refusedMints: 1, failedMints: 1 })
  expect(text).not.toContain('canary-org')
})

test('requests of a caller are counted by class of status, from 2xx to 5xx', async () => {
  const { value, names } = await measured([
    { caller: 'billing' },
    { caller: 'billing', status: 101 }, // a WebSocket was opened
    { caller: 'billing', status: 304 },
    { caller: 'billing', status: 499, code: 'client_closed' },
    { caller: 'billing', status: 503 },
    { caller: 'billing', status: 0, code: 'draining' }, // broken off by a stop
    { status: 403, code: 'caller_refused', reason: 'unknown key' },
  ])
  const classes = names.filter((name) => name.startsWith('oap_caller_requests_total'))
  expect(classes.map((name) => [/status="(...)"/.exec(name)?.[1], value(name)])).toEqual([
    ['2xx', 2],
    ['3xx', 1],
    ['4xx', 1],
    ['5xx', 2],
  ])
  expect(value('oap_callers_refused_total{reason="unknown key"}')).toBe(1)
})

test('quotes, backslashes and line ends in a label cannot forge another sample', async () => {
  const values = [{ labels: { state: '"} 1\nforged 2\\' }, value: Number.POSITIVE_INFINITY }]
  const text = await renderFamilies([{ name: 'x', type: 'gauge', help: 'a\\b\nc', values }])
  expect(text).toBe('# HELP x a\\\\b\\nc\n# TYPE x gauge\nx{state="\\"} 1\\nforged 2\\\\"} +Inf\n')
})

const BOUNDS = [1, 10, 100]

function histogramOf(...durationsMs: number[]) {
  const histogram = new Histogram('h', 'H.', BOUNDS)
  for (const durationMs of durationsMs) histogram.record(durationMs)
  return histogram
}

function quantile(durationsMs: number[], share: number, maxMs = 1_000): number | undefined {
  const histogram = histogramOf(...durationsMs)
  return histogram.quantileMs(share, histogram.counts(), maxMs)
}

test('a duration counts in the first bucket whose bound it does not exceed; the text is cumulative and in seconds', async () => {
  const histogram = histogramOf(-3, Number.NaN, 1, 1.01, 10, 100, 100.01)
  expect(histogram.counts()).toEqual([3, 2, 1, 1])
  const text = await renderFamilies([histogram.family()])
  expect(text.split('\n').slice(2, -1)).toEqual([
    'h_bucket{le="0.001"} 3',
    'h_bucket{le="0.01"} 5',
    'h_bucket{le="0.1"} 6',
    'h_bucket{le="+Inf"} 7',
    expect.stringMatching(/^h_sum 0\.2120\d*$/),
    'h_count 7',
  ])
})

test('a quantile is interpolated within its bucket, and never above the slowest', () => {
  expect(quantile([5, 5, 5, 5], 0.5)).toBe(5.5)
  expect(quantile([0.5, 50], 0.5)).toBe(1)
  expect(quantile([0.5, 5, 50], 0.5)).toBe(5.5)
  expect(quantile([0.5, 5, 6, 50, 60], 0.9)).toBeCloseTo(77.5, 9)
  expect(quantile([5, 5, 5, 5], 0.99, 5)).toBe(5)
  expect(quantile([5_000, 6_000], 0.5, 6_000)).toBe(6_000)
  expect(quantile([], 0.5)).toBeUndefined()
})
