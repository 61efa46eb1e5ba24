/** Calls of the token endpoint: what becomes of the connection and of content that says nothing. */

import { expect, test } from 'vitest'
import { call } from '../../../src/origin/call.ts'
import { eventually } from '../../support/changes.ts'
import { writes } from '../../support/origin-connection.ts'
import { startOriginPool } from '../../support/origin-pool.ts'

const REQUEST = { method: 'POST', target: '/access', fields: ['host', 'origin.example'] }

test('the content of a refusal is read away, so that its connection serves the next call', async () => {
  await using pool = await startOriginPool(() => ({ status: 403, content: 'x'.repeat(10_000) }))
  for (let i = 0; i < 3; i++) {
    expect((await call(pool.origin, REQUEST, 5_000)).status).toBe(403)
    await eventually(() => pool.origin.stats.free === 1 || undefined, 'a free connection', 2_000)
  }
  expect(pool.server.connections).toHaveLength(1)
})

test('a refusal whose content never ends loses its connection soon', async () => {
  await using pool = await startOriginPool(
    writes('HTTP/1.1 429 Too Many Requests\r\nContent-Length: 10\r\nKeep-Alive: timeout=600\r\n\r\nhalf'),
  )
  expect((await call(pool.origin, REQUEST, 60_000)).status).toBe(429)
  await pool.left(pool.connectionOf('/access'), 5_000)
})
