/**
 * `origin.responseTimeout`, `origin.idleTimeout` and `origin.connectTimeout`: each ends its own kind of wait, and nothing
 * else.
 */

import { createServer } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get, head } from '../../support/case-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { listening } from '../../support/listening.ts'
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

test.each([
  ['a request', []],
  ['a handshake', HANDSHAKE],
])('%s to a service that does not finish TLS gets connection_timeout', async (_, lines) => {
  await using service = await startService()
  await using silent = await listening(createServer())
  await using proxy = await startProxy(service, {
    appRoutes: 'GET /v2/*',
    baseUrl: `https://localhost:${silent.port}`,
    'origin.responseTimeout': '200ms',
  })
  const answer = await request(proxy.port, head('GET /v2/x HTTP/1.1', 'Host: localhost', ...lines))
  expect([answer.status, problemOf(answer).code]).toEqual([504, 'connection_timeout'])
})

test('the time that a request waits for a connection does not count for origin.responseTimeout', async () => {
  await using service = await startService({ script: () => setTimeout(1_200, { content: 'good' }) })
  await using proxy = await startProxy(service, { 'origin.connections': '1', 'origin.responseTimeout': '2s' })
  const answers = await Promise.all(
    ['/v2/first', '/v2/second'].map((target) => request(proxy.port, get(target, 'acme'))),
  )
  expect(answers.map(({ status }) => status)).toEqual([200, 200])
})

test('a request that waited for a connection all the time gets overloaded, though a place becomes free in that moment', async () => {
  await using service = await startService({ acceptsAnyToken: true, script: () => new Promise(() => {}) })
  await using proxy = await startProxy(service, {
    appRoutes: 'GET /v2/*',
    'origin.connections': '1',
    'origin.responseTimeout': '200ms',
  })
  const answers = await Promise.all(Array.from({ length: 10 }, () => request(proxy.port, get('/v2/x', 'acme'))))
  const codes = new Set(answers.map((answer) => problemOf(answer).code))
  expect([...codes].toSorted()).toEqual(['http_response_timeout', 'overloaded'])
})

test('a pause of the client inside its content does not count either', async () => {
  await using service = await startService({
    script: async (seen) => {
      await seen.ended
      return { content: seen.content }
    },
  })
  await using proxy = await startProxy(service, { 'origin.responseTimeout': '500ms' })
  await using client = await RawClient.sending(proxy.port, `${post('Content-Length: 10')}hello`)
  await setTimeout(1_500)
  client.send('world')
  expect((await client.response('POST')).content.toString()).toBe('helloworld')
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
