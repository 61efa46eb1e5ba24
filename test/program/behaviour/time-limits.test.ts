/**
 * `origin.responseTimeout`, `origin.idleTimeout` and `origin.connectTimeout`: each ends its own kind of wait, and nothing
 * else.
 */

import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { writes } from '../../support/origin-connection.ts'
import { problemOf, RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const post = (line: string) => get('/v2/x', 'acme', line).replace('GET', 'POST')

test('a response that keeps moving may take longer than origin.idleTimeout', async () => {
  const PIECES = 15
  await using service = await startService({
    script: async (_, connection) => {
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${PIECES}\r\n\r\n`)
      for (let i = 0; i < PIECES; i++) {
        await setTimeout(100)
        connection.write('x')
      }
    },
  })
  await using proxy = await startProxy(service, { 'origin.idleTimeout': '1s' })
  const answer = await request(proxy.port, get('/v2/slow', 'acme'))
  expect(answer).toMatchObject({ status: 200, isComplete: true })
  const { durationMs } = await proxy.logOf('/v2/slow')
  expect(durationMs).toBeGreaterThan(1_000)
})

test('content that is still being sent does not delay the end of an early response that stalls', async () => {
  await using service = await startService({
    script: writes('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun'),
  })
  await using proxy = await startProxy(service, { 'origin.idleTimeout': '500ms', 'origin.responseTimeout': '60s' })
  await using client = await RawClient.sending(proxy.port, post('Content-Length: 1000000'))
  const sending = setInterval(() => client.send('x'.repeat(100)), 50)
  client.socket.on('error', () => {})
  const fields = expect.arrayContaining(['Connection', 'close'])
  expect(await client.response('POST')).toMatchObject({ status: 200, fields, isComplete: false })
  clearInterval(sending)
  expect(await proxy.logOf('/v2/x')).toMatchObject({ code: 'http_response_timeout' })
})

test('a service that takes no content is the one that is silent, not the client', async () => {
  await using service = await startService({ script: (_, connection) => void connection.socket.pause() })
  await using proxy = await startProxy(service, { 'origin.responseTimeout': '500ms', 'listen.idleTimeout': '500ms' })
  await using client = await RawClient.sending(
    proxy.port,
    post(`Content-Length: ${64_000_000}`) + 'x'.repeat(64_000_000),
  )
  client.socket.on('error', () => {})
  expect(problemOf(await client.response('POST')).code).toBe('http_response_timeout')
})
