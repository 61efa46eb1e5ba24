/** `origin.connections`: no org gets all of them, and a request that gets none is told why. For the pool see `origin/`. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { problemOf, RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

test.each([
  ['8', 6, [], 'three quarters'],
  ['1', 1, [], 'origin.connections'],
  ['1', 1, HANDSHAKE, 'origin.connections'],
])('of %s connections, %i event streams of one org take its share: %j', async (connections, share, lines, limit) => {
  await using service = await startService({
    script: ({ target }, connection) => {
      if (target !== '/v2/events') return { content: target }
      connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n')
    },
  })
  const settings = { 'origin.connections': connections, 'origin.responseTimeout': '500ms' }
  await using proxy = await startProxy(service, settings)
  const clients: RawClient[] = []
  for (let i = 0; i < share; i++) {
    const client = await RawClient.sending(proxy.port, get('/v2/events', 'greedy'))
    await client.untilBytes('begun')
    clients.push(client)
  }
  const others = connections === '1' ? [] : ['a', 'b', 'c', 'd']
  const answers = await Promise.all(others.map((org) => request(proxy.port, get('/v2/x', org))))
  for (const { status, content } of answers) expect([status, content.toString()]).toEqual([200, '/v2/x'])
  const refused = await request(proxy.port, get('/v2/more', 'greedy', ...lines))
  expect(refused.status).toBe(503)
  expect(problemOf(refused)).toMatchObject({ code: 'overloaded', detail: expect.stringContaining(limit) })
  expect(await proxy.logOf('/v2/more')).toMatchObject({ code: 'overloaded', bytesOut: refused.content.length })
  expect(clients.filter(({ end }) => end !== undefined)).toEqual([])
  for (const client of clients) await client[Symbol.asyncDispose]()
})
