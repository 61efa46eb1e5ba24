import { expect, test } from 'vitest'
import { RecentErrors } from '../../src/admin/recent-errors.ts'
import { PROBLEMS } from '../../src/http/problem.ts'
import { record } from './records.ts'

test('an error is listed with its remedy and its last requests', () => {
  const errors = new RecentErrors()
  errors.requestEnded(record({ status: 403, code: 'org_access_refused', endedAt: 5_000, token: 'none' }))
  expect(errors.reports(7_500)).toEqual([
    {
      code: 'org_access_refused',
      kind: 'app',
      title: PROBLEMS.org_access_refused.title,
      detail: PROBLEMS.org_access_refused.detail,
      count: 1,
      lastAgoMs: 2_500,
      orgs: [{ org: 'acme', count: 1 }],
      orgCount: 1,
      examples: [
        { requestId: 'request-1', orgId: 'acme', method: 'GET', path: '/v2/members', status: 403, agoMs: 2_500 },
      ],
    },
  ])
})

test('the cause of the last request stands before the remedy', () => {
  const errors = new RecentErrors()
  for (const detail of ['Another cause.', 'The certificate has expired.']) {
    errors.requestEnded(record({ status: 502, code: 'tls_certificate_error', detail }))
  }
  const [report] = errors.reports(0)
  expect(report?.detail).toBe(`The certificate has expired. ${PROBLEMS.tls_certificate_error.detail}`)
})

test('a flood of one code does not hide the others, and keeps its last three requests', () => {
  const errors = new RecentErrors()
  errors.requestEnded(record({ status: 502, code: 'dns_error', endedAt: 1 }))
  for (let i = 0; i < 10_000; i++) {
    errors.requestEnded(record({ requestId: `r${i}`, status: 400, code: 'org_id_missing', endedAt: 10 + i }))
  }
  const reports = errors.reports(20_000)
  expect(reports.map(({ code, count }) => [code, count])).toEqual([
    ['org_id_missing', 10_000],
    ['dns_error', 1],
  ])
  expect(reports[0]?.examples.map(({ requestId }) => requestId)).toEqual(['r9999', 'r9998', 'r9997'])
})

test('a 5xx and a 401 of the service have entries of their own; clients that left have none', () => {
  const errors = new RecentErrors()
  errors.requestEnded(record({ status: 503 }))
  errors.requestEnded(record({ status: 404 }))
  for (let i = 0; i < 9; i++) errors.requestEnded(record({ status: 401, endedAt: 2_000 }))
  errors.requestEnded(record({ status: 499, code: 'client_closed' }))
  expect(errors.reports(0).map(({ code, kind, count }) => [code, kind, count])).toEqual([
    ['service_unauthorized', 'service', 9],
    ['service_error', 'service', 1],
  ])
})

test('a flood of Orgs stays within its bounds: the latest five are shown, and at most a hundred are kept', () => {
  const errors = new RecentErrors()
  for (let i = 0; i < 1_000; i++) {
    errors.requestEnded(record({ status: 403, code: 'org_access_refused', orgId: `org-${i % 300}` }))
  }
  const [report] = errors.reports(0)
  expect(report?.orgs.map(({ org }) => org)).toEqual(['org-99', 'org-98', 'org-97', 'org-96', 'org-95'])
  expect([report?.count, report?.orgCount]).toEqual([1_000, 100])
})

test('only the beginning of a long path is kept', () => {
  const errors = new RecentErrors()
  errors.requestEnded(record({ status: 431, code: 'request_head_too_large', path: `/${'x'.repeat(10_000)}` }))
  expect(errors.reports(0)[0]?.examples[0]?.path).toHaveLength(200)
})
