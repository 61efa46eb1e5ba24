/** The content of a refusal by the token endpoint does not change the meaning of its status. */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { fieldOf, problemOf, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const page = Buffer.alloc(70_000, 'x')

test.each([
  [401, 502, 'app_credentials_rejected'],
  [403, 403, 'org_access_refused'],
  [429, 503, 'token_endpoint_rate_limited'],
  [503, 503, 'token_endpoint_unavailable'],
])('%i with a page of 70 kB: %i %s', async (mintStatus, status, code) => {
  await using service = await startService({
    mint: () => ({ status: mintStatus, fields: mintStatus === 429 ? ['Retry-After', '7'] : [], content: page }),
  })
  await using proxy = await startProxy(service, { 'tokens.mintTimeout': '2s' })
  const answer = await request(proxy.port, get('/v2/x', 'acme'))
  expect(answer.status).toBe(status)
  expect(problemOf(answer).code).toBe(code)
  if (mintStatus === 429) expect(fieldOf(answer, 'retry-after')).toBe('7')
})

test('a refusal without its content is still a refusal', async () => {
  await using service = await startService({
    mint: ({ request: received }) => {
      received.connection.write('HTTP/1.1 403 Forbidden\r\nContent-Length: 10\r\n\r\nno')
      return undefined
    },
  })
  await using proxy = await startProxy(service)
  const answer = await request(proxy.port, get('/v2/x', 'acme'))
  expect(problemOf(answer)).toMatchObject({ code: 'org_access_refused', tokenEndpointStatus: 403 })
  expect(service.tokens.mints).toHaveLength(1)
})
