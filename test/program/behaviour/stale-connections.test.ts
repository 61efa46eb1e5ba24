/** The origin closes a kept connection just as it is used again: the request is repeated if, and only if, that is safe. */

import { describe, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { startFaultTable } from '../../support/fault-table.ts'
import { problemOf, request } from '../../support/raw-client.ts'

const table = await startFaultTable({ 'origin.connections': '1' })
const own = await startFaultTable({ 'origin.connections': '1', 'admin.address': 'localhost:0' })

/** Answers the first request of a connection. The second one ends the connection without a byte. */
async function raced(method: string, end: 'fin' | 'reset', content = '', writes = '') {
  await table.expectAlive() // leaves an idle connection, which is used again
  const target = table.target((_, connection) => {
    if (connection.requests.length === 1) return { content: 'fresh' }
    connection.write(writes)
    if (end === 'fin') connection.end()
    else connection.reset()
  })
  const lines = content === '' ? [] : [`Content-Length: ${content.length}`]
  const response = await request(table.proxy.port, get(target, 'acme', ...lines).replace('GET', method) + content)
  const seen = table.requestsFor(target)
  expect(seen[0]?.connection.requests.length, 'the race took place').toBeGreaterThan(1)
  return { response, attempts: seen.length }
}

const BROKEN = [502, 1, 'connection_terminated']

describe.each(['fin', 'reset'] as const)('closed by %s', (end) => {
  test.each([
    ...['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE', 'QUERY', 'PROPFIND', 'REPORT', 'SEARCH'].map(
      (method) => [method, '', [200, 2, undefined]] as const,
    ),
    ...['POST', 'PATCH', 'PURGE', 'LINK', 'LIST', 'FOO-BAR'].map((method) => [method, '', BROKEN] as const),
    ...['POST', 'PUT', 'DELETE', 'QUERY'].map((method) => [method, 'content', BROKEN] as const),
  ])('%s with content "%s": status, attempts and code are %j', async (method, content, expected) => {
    const { response, attempts } = await raced(method, end, content)
    const code = response.status === 200 ? undefined : problemOf(response).code
    expect([response.status, attempts, code]).toEqual(expected)
  })
})

test('the log names the cause, whether the client saw it or not, and both are counted', async () => {
  for (const method of ['GET', 'POST']) {
    await own.expectAlive()
    const target = own.target((_, connection) => {
      if (connection.requests.length === 1) return {}
      connection.end()
    })
    await request(own.proxy.port, get(target, 'acme').replace('GET', method))
    expect((await own.proxy.logOf(target))['reason']).toBe(method === 'GET' ? undefined : 'idle')
  }
  const { totals } = JSON.parse((await own.proxy.askAdmin('/status')).content)
  expect(totals.serviceTroubles).toEqual({ idle: 2, broken: 0, limited: 0, repeated: 0 })
  expect(await own.proxy.metric('oap_service_troubles_total{kind="idle"}')).toBe(2)
  expect((await own.proxy.askAdmin('/')).content).toContain('2 connections closed while idle')
})

test('with an answer that has begun, even a GET is not repeated', async () => {
  const { response, attempts } = await raced('GET', 'fin', '', 'HTTP/1.1 200')
  expect([response.status, attempts, problemOf(response).code]).toEqual([502, 1, 'http_response_incomplete'])
})

test('a repeat that fails is not repeated again', async () => {
  await table.expectAlive()
  const target = table.target((_, connection) => connection.end())
  expect((await request(table.proxy.port, get(target, 'acme'))).status).toBe(502)
  expect(table.requestsFor(target)).toHaveLength(2)
})
