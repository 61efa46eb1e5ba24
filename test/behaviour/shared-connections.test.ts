/** `origin.connections`: the proxy never opens more, and no org gets all of them. */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { problemOf, RawClient, request } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

const STREAM = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n'

const streams: OriginScript = ({ target }, connection) => {
  if (target !== '/v2/events') return { content: target }
  connection.write(STREAM)
  return undefined
}

test('event streams of one org do not lock out another org', async () => {
  const PLACES = 8
  const { proxy } = await startBoth(
    { script: streams },
    {
      'origin.connections': `${PLACES}`,
      'origin.responseTimeout': '500ms',
    },
  )
  const clients = await Promise.all(
    Array.from({ length: (PLACES * 3) / 4 }, async () => {
      const client = await RawClient.connect(proxy.port)
      client.send(get('/v2/events', 'greedy'))
      await client.untilBytes('begun')
      return client
    }),
  )
  const answers = await Promise.all(['a', 'b', 'c', 'd'].map((org) => request(proxy.port, get('/v2/x', org))))
  for (const { status, content } of answers) expect([status, content.toString()]).toEqual([200, '/v2/x'])
  const refused = await request(proxy.port, get('/v2/more', 'greedy'))
  expect(problemOf(refused)).toMatchObject({ code: 'overloaded', detail: expect.stringContaining('three quarters') })
  expect(await proxy.logOf('/v2/more')).toMatchObject({ detail: expect.stringContaining('three quarters') })
  expect(clients.filter(({ end }) => end !== undefined)).toEqual([])
  for (const client of clients) await client[Symbol.asyncDispose]()
})

test('a request that gets no connection is told which limit applied', async () => {
  const { proxy } = await startBoth(
    { script: streams },
    { 'origin.connections': '1', 'origin.responseTimeout': '200ms' },
  )
  await using holder = await RawClient.sending(proxy.port, get('/v2/events', 'acme'))
  await holder.untilBytes('begun')
  const refused = await request(proxy.port, get('/v2/x', 'acme'))
  expect(refused.status).toBe(503)
  expect(problemOf(refused)).toMatchObject({
    code: 'overloaded',
    detail: expect.stringContaining('origin.connections'),
  })
  expect(await proxy.logOf('/v2/x')).toMatchObject({ bytesOut: refused.content.length })
})
