import { expect, test } from 'vitest'
import { type ErrorCode, type Failure, PROBLEMS } from '../../../src/errors.ts'
import { respondWithProblem } from '../../../src/gateway/own-responses.ts'
import { RequestRecord } from '../../../src/gateway/request-record.ts'

const codes = Object.keys(PROBLEMS) as ErrorCode[]

const record = new RequestRecord('req-1', undefined, 'GET', '/', 0)

function answerTo(failure: Failure) {
  const written: string[] = []
  const response = {
    contentBytes: 0,
    date: 'Thu, 01 Jan 1970 00:00:00 GMT',
    connectionLines: '',
    endWith: (text: string) => void written.push(text),
  }
  const status = respondWithProblem(response, record, failure)
  const [head = '', content = ''] = written.join('').split('\r\n\r\n')
  const [, ...lines] = head.split('\r\n')
  return { status, content, fields: new Map(lines.map((line) => line.split(': ', 2) as [string, string])) }
}

test.each(codes)('%s has a status and a remedy, and is named in Proxy-Status', (code) => {
  const problem = answerTo({ code })
  const content = JSON.parse(problem.content)
  expect(content).toMatchObject({ status: problem.status, code, requestId: 'req-1' })
  expect(content.detail.length).toBeGreaterThan(20)
  const { fields } = problem
  expect(fields.get('content-type')).toBe('application/problem+json')
  expect(fields.get('proxy-status')).toMatch(/^org-access-proxy; error=[a-z_]+; details="[a-z_]+"$/)
  expect(fields.get('content-length')).toBe(String(Buffer.byteLength(problem.content)))
})

test('no failure of our own is a 401', () => {
  expect(codes.filter((code) => PROBLEMS[code].status === 401)).toEqual([])
})

test('every 503 has Retry-After', () => {
  const retryAfter = (code: ErrorCode, retryAfterSeconds?: number) =>
    answerTo({ code, retryAfterSeconds }).fields.get('retry-after')
  for (const code of codes.filter((each) => PROBLEMS[each].status === 503)) expect(retryAfter(code)).toBe('1')
  expect(retryAfter('token_endpoint_rate_limited', 17)).toBe('17')
})
