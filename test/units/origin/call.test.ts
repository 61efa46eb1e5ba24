/** Calls of the token endpoint: what becomes of the connection and of content that says nothing. */

import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { call } from '../../../src/origin/call.ts'
import { ConnectionPool } from '../../../src/origin/connection-pool.ts'
import { eventually } from '../../support/changes.ts'
import { makeFolder } from '../../support/folder.ts'
import { writes } from '../../support/origin-connection.ts'
import { startOriginPool } from '../../support/origin-pool.ts'

const REQUEST = { method: 'POST', target: '/access', fields: ['host', 'origin.example'] }

test('the content of a refusal is read away, so that its connection serves the next call', async () => {
  await using pool = await startOriginPool(() => ({ status: 403, content: 'x'.repeat(10_000) }))
  for (let i = 0; i < 3; i++) {
    expect((await call(pool.pool, REQUEST, 5_000)).status).toBe(403)
    await eventually(() => pool.pool.stats.free === 1 || undefined, 'a free connection', 2_000)
  }
  expect(pool.server.connections).toHaveLength(1)
})

test('on a unix socket, too, an answer may end with its connection', async () => {
  await using folder = await makeFolder()
  const socketPath = folder.at('service.sock')
  const server = createServer((socket) => void socket.end('HTTP/1.1 200 OK\r\n\r\nwhole'))
  await once(server.listen(socketPath), 'listening')
  onTestFinished(() => void server.close())
  const origin = new ConnectionPool({
    baseUrl: new URL('http://127.0.0.1'),
    socketPath,
    connections: 1,
    connectTimeoutMs: 5_000,
  })
  onTestFinished(() => origin.close())
  expect((await call(origin, REQUEST, 5_000)).content.toString()).toBe('whole')
})

test('a refusal whose content never ends loses its connection soon', async () => {
  await using pool = await startOriginPool(
    writes('HTTP/1.1 429 Too Many Requests\r\nContent-Length: 10\r\nKeep-Alive: timeout=600\r\n\r\nhalf'),
  )
  expect((await call(pool.pool, REQUEST, 60_000)).status).toBe(429)
  await pool.left(pool.connectionOf('/access'), 5_000)
})
