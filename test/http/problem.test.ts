import { expect, test } from 'vitest'
import type { ErrorCode } from '../../src/errors.ts'
import { PROBLEMS, renderProblem } from '../../src/http/problem.ts'

const codes = Object.keys(PROBLEMS) as ErrorCode[]

test.each(codes)('%s has a status and a remedy, and is named in Proxy-Status', (code) => {
  const problem = renderProblem({ code }, 'req-1')
  const content = JSON.parse(problem.content)
  expect(content).toMatchObject({ status: problem.status, code, requestId: 'req-1' })
  expect(content.detail.length).toBeGreaterThan(20)
  const fields = new Map(
    problem.fields.flatMap((field, i) => (i % 2 === 0 ? [[field, problem.fields[i + 1]]] : [])) as [string, string][],
  )
  expect(fields.get('content-type')).toBe('application/problem+json')
  expect(fields.get('proxy-status')).toMatch(/^org-access-proxy; error=[a-z_]+; details="[a-z_]+"$/)
  expect(fields.get('content-length')).toBe(String(Buffer.byteLength(problem.content)))
})

test('no failure of our own is a 401', () => {
  expect(codes.filter((code) => PROBLEMS[code].status === 401)).toEqual([])
})

test('every 503 has Retry-After', () => {
  for (const code of codes.filter((each) => PROBLEMS[each].status === 503)) {
    expect(renderProblem({ code }, 'r').fields).toContain('retry-after')
  }
  const limited = renderProblem({ code: 'token_endpoint_rate_limited', retryAfterSeconds: 17 }, 'r').fields
  expect(limited[limited.indexOf('retry-after') + 1]).toBe('17')
})
