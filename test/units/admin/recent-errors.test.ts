import { expect, test } from 'vitest'
import { RecentErrors } from '../../../src/admin/recent-errors.ts'
import { type ErrorCode, PROBLEMS } from '../../../src/errors.ts'
import type { RequestRecord } from '../../../src/gateway/request-record.ts'
import { record } from './records.ts'

function reported(records: Partial<RequestRecord>[], now = 0) {
  const errors = new RecentErrors()
  for (const given of records) errors.requestEnded(record(given))
  return errors.reports(now)
}

const times = (n: number, given: (i: number) => Partial<RequestRecord>) => Array.from({ length: n }, (_, i) => given(i))

test('an error has its kind, its remedy and the last request', () => {
  const example = { requestId: 'request-1', orgId: 'acme', method: 'GET', path: '/v2/members', status: 403 }
  expect(reported([{ status: 403, code: 'org_access_refused', endedAt: 5_000, token: 'none' }], 7_500)).toEqual([
    {
      code: 'org_access_refused',
      kind: 'app',
      title: 'Org access refused',
      detail: PROBLEMS.org_access_refused.detail,
      count: 1,
      lastAgoMs: 2_500,
      examples: [{ ...example, agoMs: 2_500 }],
    },
  ])
})

test('the cause of the last request stands before the remedy', () => {
  const causes = ['Another cause.', 'The certificate has expired.']
  const [report] = reported(causes.map((detail) => ({ status: 502, code: 'tls_certificate_error', detail })))
  expect(report?.detail).toBe(`The certificate has expired. ${PROBLEMS.tls_certificate_error.detail}`)
})

test('a flood of one code hides no other, keeps its last three requests, and the beginning of their paths', () => {
  const path = `/${'x'.repeat(10_000)}`
  const reports = reported([
    { status: 502, code: 'dns_error', endedAt: 1 },
    ...times(10_000, (i) => ({ requestId: `r${i}`, status: 400, code: 'org_id_missing', endedAt: 10 + i, path })),
  ])
  expect(reports.map(({ code, count }) => [code, count])).toEqual([
    ['org_id_missing', 10_000],
    ['dns_error', 1],
  ])
  expect(reports[0]?.examples.map(({ requestId }) => requestId)).toEqual(['r9999', 'r9998', 'r9997'])
  expect(reports[0]?.examples[0]?.path).toHaveLength(200)
})

test('a 401 to an upload that was too large to be repeated names its cause', () => {
  const [report] = reported([{ method: 'POST', status: 401, rejection: 'not_kept' }])
  expect(report).toMatchObject({
    code: 'upload_not_repeated',
    detail: expect.stringContaining('replay.maxBody'),
    examples: [{ reason: 'content not kept: see replay.maxBody' }],
  })
})

test('overloaded has words for the operator', () => {
  const [report] = reported([{ status: 503, code: 'overloaded', reason: 'listen.maxInFlight' }])
  expect(report?.detail).toBe(
    'Find out why the service or the token endpoint is slow, or raise the limit that the last request names.',
  )
  expect(report?.examples[0]?.reason).toBe('listen.maxInFlight')
})

test('a client that does not read its response is told to read, not to send', () => {
  const [report] = reported([{ status: 200, code: 'request_timeout', reason: 'response_not_read' }])
  expect(report).toMatchObject({ kind: 'app', detail: expect.stringContaining('Read the response') })
})

test('a client that speaks TLS or HTTP/2 is told so, each by itself', () => {
  const reports = reported(
    ['tls', 'http2', 'bad_method'].map((reason) => ({ status: 400, code: 'request_invalid', reason })),
  )
  const [tls, http2] = ['speaks TLS to a port without', 'speaks HTTP/2 without asking'].map((words) =>
    reports.find(({ detail }) => detail.includes(words)),
  )
  expect([tls?.count, http2?.count, reports.length]).toEqual([1, 1, 3])
})

test('a 5xx, a 401 and a 429 of the service have entries of their own; clients that left have none', () => {
  const reports = reported([
    { status: 503 },
    { status: 404 },
    { status: 429, endedAt: 1_800 },
    ...times(9, () => ({ status: 401, endedAt: 2_000 })),
    { status: 499, code: 'client_closed' },
  ])
  expect(reports.map(({ code, kind, count }) => [code, kind, count])).toEqual([
    ['service_unauthorized', 'service', 9],
    ['service_limited', 'service', 1],
    ['service_error', 'service', 1],
  ])
})

test('no advice for operators is to repeat a request', () => {
  const codes = Object.keys(PROBLEMS) as ErrorCode[]
  const reports = reported(codes.flatMap((code) => [{ code }, { code, isOfMinter: true }]))
  const told = reports.map(({ code, detail }) => `${code}: ${detail}`)
  expect(told.filter((text) => /^(?!connection_|http_).*\b(?:repeat the request|Retry-After)/i.test(text))).toEqual([])
  const [report] = reported([{ code: 'token_endpoint_unavailable', detail: 'Its certificate has expired.' }])
  expect(report?.detail).toBe(
    'Its certificate has expired. Correct the cause that the last request names. The proxy goes on trying.',
  )
})
