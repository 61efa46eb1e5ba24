import { expect, test } from 'vitest'
import { renderFamilies } from '../../src/admin/counts.ts'
import { RequestMetrics } from '../../src/admin/request-metrics.ts'
import { PROBLEMS } from '../../src/http/problem.ts'
import type { RequestRecord } from '../../src/http/request-record.ts'
import { parseExposition } from './exposed.ts'
import { record } from './records.ts'

async function measured(...records: Partial<RequestRecord>[]) {
  const metrics = new RequestMetrics()
  for (const given of records) metrics.requestEnded(record(given))
  const { values } = parseExposition(await renderFamilies(metrics.families()))
  return { totals: metrics.totals(), value: (name: string) => values.get(name), names: [...values.keys()] }
}

test('requests are counted by method and status', async () => {
  const { value, totals } = await measured({}, {}, { status: 404 }, { method: 'POST', status: 502, code: 'dns_error' })
  expect(value('oap_requests_total{method="GET",status="200"}')).toBe(2)
  expect(value('oap_requests_total{method="GET",status="404"}')).toBe(1)
  expect(value('oap_requests_total{method="POST",status="502"}')).toBe(1)
  expect(totals.requests).toBe(4)
})

test('methods that clients invent share one label', async () => {
  const invented = Array.from({ length: 100 }, (_, i) => ({ method: `INVENTED-${i}` }))
  const { value, names } = await measured(...invented, { method: '' }, { method: 'PROPFIND' })
  expect(value('oap_requests_total{method="OTHER",status="200"}')).toBe(102)
  expect(names.filter((name) => name.startsWith('oap_requests_total'))).toHaveLength(1)
})

test('the overhead is the time of a request without the wait for the service', async () => {
  const { value } = await measured(
    { startedAt: 0, dispatchedAt: 2, respondedAt: 102, endedAt: 103 },
    { startedAt: 0, dispatchedAt: 4, respondedAt: undefined, endedAt: 504 }, // never answered
    { startedAt: 0, dispatchedAt: undefined, respondedAt: undefined, endedAt: 8 }, // refused
  )
  expect(value('oap_overhead_seconds_sum')).toBeCloseTo(0.003 + 0.004 + 0.008, 9)
  expect(value('oap_overhead_seconds_bucket{le="0.005"}')).toBe(2)
  expect(value('oap_request_duration_seconds_sum')).toBeCloseTo(0.103 + 0.504 + 0.008, 9)
  expect(value('oap_request_duration_seconds_count')).toBe(3)
})

test('the time of a WebSocket is not overhead', async () => {
  const { value } = await measured({ status: 101, startedAt: 0, dispatchedAt: 1, respondedAt: 3, endedAt: 3_600_000 })
  expect(value('oap_overhead_seconds_count')).toBe(0)
  expect(value('oap_requests_total{method="GET",status="101"}')).toBe(1)
})

test.each([
  [{ status: 400, code: 'org_id_missing' }, 'app'],
  [{ status: 403, code: 'org_access_refused' }, 'app'],
  [{ status: 508, code: 'proxy_loop_detected' }, 'app'],
  [{ status: 503, code: 'overloaded' }, 'proxy'],
  [{ status: 502, code: 'app_credentials_rejected' }, 'proxy'],
  [{ status: 502, code: 'dns_error' }, 'service'],
  [{ status: 504, code: 'token_endpoint_timeout' }, 'service'],
  [{ status: 503 }, 'service'],
  [{ status: 401 }, 'service'],
  [{ status: 404 }, undefined],
  [{ status: 499, code: 'client_closed' }, undefined],
] as const)('%j is an error of: %s', async (given, kind) => {
  const { totals, value } = await measured(given)
  expect(totals.errors).toEqual({ proxy: 0, service: 0, app: 0, ...(kind === undefined ? {} : { [kind]: 1 }) })
  const isRefused = 'code' in given && given.code !== 'client_closed'
  if (isRefused) expect(value(`oap_refused_total{code="${given.code}"}`)).toBe(1)
})

test('every code exists from the start, so that its first increase is seen', async () => {
  const { value } = await measured()
  for (const code of Object.keys(PROBLEMS)) expect(value(`oap_refused_total{code="${code}"}`)).toBe(0)
})

test('what was refused for a limit is counted by that limit', async () => {
  const { value } = await measured({ status: 503, code: 'overloaded', reason: 'org share' })
  expect(value('oap_overloaded_total{limit="org share"}')).toBe(1)
  expect(value('oap_overloaded_total{limit="listen.maxInFlight"}')).toBe(0)
})

test('lookups are counted by the source of the token, if one was needed', async () => {
  const { value, totals } = await measured({ token: 'miss' }, { token: 'hit' }, { token: 'hit' }, { token: 'none' })
  expect(value('oap_token_lookups_total{result="hit"}')).toBe(2)
  expect(value('oap_token_lookups_total{result="miss"}')).toBe(1)
  expect(value('oap_token_lookups_total{result="replayed"}')).toBe(0)
  expect(Object.values(totals.lookups).reduce((sum, count) => sum + count)).toBe(3)
})

test('the outcomes of rejected tokens are counted', async () => {
  const metrics = new RequestMetrics()
  for (const outcome of ['accepted', 'accepted', 'passed'] as const) metrics.repeatSettled(outcome)
  const { values } = parseExposition(await renderFamilies(metrics.families()))
  expect(values.get('oap_replays_total{outcome="accepted"}')).toBe(2)
  expect(values.get('oap_replays_total{outcome="passed"}')).toBe(1)
  expect(values.get('oap_replays_total{outcome="failed"}')).toBe(0)
})

test('requests of a caller are counted by class of status, from 2xx to 5xx', async () => {
  const { value, names } = await measured(
    { caller: 'billing' },
    { caller: 'billing', status: 101 }, // a WebSocket was opened
    { caller: 'billing', status: 304 },
    { caller: 'billing', status: 499, code: 'client_closed' },
    { caller: 'billing', status: 503 },
    { caller: 'billing', status: 0, code: 'draining' }, // broken off by a stop
  )
  const classes = names.filter((name) => name.startsWith('oap_caller_requests_total'))
  expect(classes.map((name) => [/status="(...)"/.exec(name)?.[1], value(name)])).toEqual([
    ['2xx', 2],
    ['3xx', 1],
    ['4xx', 1],
    ['5xx', 2],
  ])
})
