/** The origin closes a kept connection just as it is used again: the request is repeated if, and only if, that is safe. */

import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { startFaultTable } from '../support/fault-table.ts'
import { problemOf, request } from '../support/raw-client.ts'

const table = await startFaultTable({ 'origin.connections': '1' })

/** Answers the first request of a connection. The second one ends the connection without a byte. */
async function raced(method: string, end: 'fin' | 'reset', content = '') {
  await table.expectAlive() // leaves an idle connection, which is used again
  const target = table.target((_, connection) => {
    if (connection.requests.length === 1) return { content: 'fresh' }
    if (end === 'fin') connection.end()
    else connection.reset()
    return undefined
  })
  const lines = content === '' ? [] : [`Content-Length: ${content.length}`]
  const response = await request(table.proxy.port, get(target, 'acme', ...lines).replace('GET', method) + content)
  const seen = table.requestsFor(target)
  expect(seen[0]?.connection.requests.length, 'the race took place').toBeGreaterThan(1)
  return { response, attempts: seen.length }
}

describe.each(['fin', 'reset'] as const)('closed by %s', (end) => {
  test.each(['GET', 'HEAD', 'OPTIONS', 'PUT', 'DELETE'])(
    '%s is repeated once, on a fresh connection',
    async (method) => {
      const { response, attempts } = await raced(method, end)
      expect(response.status).toBe(200)
      expect(attempts).toBe(2)
    },
  )

  test.each(['POST', 'PATCH', 'PURGE', 'LINK'])('%s is not repeated', async (method) => {
    const { response, attempts } = await raced(method, end)
    expect(response.status).toBe(502)
    expect(problemOf(response).code).toBe('connection_terminated')
    expect(attempts).toBe(1)
  })

  test.each(['POST', 'PUT', 'DELETE'])('a %s with content is not repeated', async (method) => {
    const { response, attempts } = await raced(method, end, 'content')
    expect(response.status).toBe(502)
    expect(attempts).toBe(1)
  })
})

test('a repeat that fails is not repeated again', async () => {
  await table.expectAlive()
  const target = table.target((_, connection) => {
    connection.end()
    return undefined
  })
  expect((await request(table.proxy.port, get(target, 'acme'))).status).toBe(502)
  expect(table.requestsFor(target)).toHaveLength(2)
})
