import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { problemOf, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

test('a field that occurs twice reaches the origin twice, however it is spelled', async () => {
  await using service = await startService({ script: () => ({ status: 403 }) })
  await using proxy = await startProxy(service)
  await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE, 'X-Test: 1', 'x-test: 2', 'X-Test: 3'))
  expect(service.requests[0]?.values('x-test')).toEqual(['1', '2', '3'])
})

test('an answer that is no HTTP is the origin’s fault', async () => {
  await using service = await startService({
    script: (_, connection) => {
      connection.write('garbage\r\n\r\n')
      return undefined
    },
  })
  await using proxy = await startProxy(service)
  const answer = await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))
  expect(answer.status).toBe(502)
  expect(problemOf(answer).code).toBe('http_protocol_error')
})
