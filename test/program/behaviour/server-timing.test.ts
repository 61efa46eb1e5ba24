/** `listen.serverTiming`: each response tells the time that it took in the proxy. */

import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get, HOST, head } from '../../support/case-table.ts'
import { HANDSHAKE, WEBSOCKET_ACCEPT } from '../../support/handshake.ts'
import { valuesOf } from '../../support/http-reader.ts'
import { RawClient, type RawResponse, request } from '../../support/raw-client.ts'
import { startBoth } from '../../support/start-proxy.ts'

const OWN = /^oap;dur=(\d+\.\d{3})$/
const timings = ({ fields }: RawResponse) => valuesOf(fields, 'server-timing')

test('without it, the field of the service goes on, and there is no other', async () => {
  const { proxy } = await startBoth({ script: () => ({ fields: ['Server-Timing', 'db;dur=5'] }) })
  expect(timings(await request(proxy.port, get('/v2/x', 'acme')))).toEqual(['db;dur=5'])
  expect(timings(await request(proxy.port, head('GET /v2/x HTTP/1.1', HOST)))).toEqual([])
})

test('it leaves out the wait for the service, but not that for a token', async () => {
  const [mintMs, serviceMs] = [100, 300]
  const { service, proxy } = await startBoth(
    {
      script: async () => {
        await setTimeout(serviceMs)
        return { fields: ['Server-Timing', 'db;dur=5'] }
      },
    },
    { 'listen.serverTiming': 'true' },
  )
  service.tokens.script = async (mint) => {
    await setTimeout(mintMs)
    return mint.issue()
  }
  const [db, own] = timings(await request(proxy.port, get('/v2/cold', 'acme')))
  expect(db).toBe('db;dur=5')
  const tookMs = Number(OWN.exec(own ?? '')?.[1])
  const { durationMs, originMs } = await proxy.logOf('/v2/cold')
  expect(tookMs).toBeGreaterThanOrEqual(mintMs - 1)
  expect(tookMs).toBeLessThanOrEqual(Number(durationMs) - Number(originMs) + 1)
})

test('it leaves out the wait for a rejection, too', async () => {
  const rejectionMs = 1_000
  let requests = 0
  const script = async () => {
    if (++requests > 1) return {}
    await setTimeout(rejectionMs)
    return { status: 401 }
  }
  const { proxy } = await startBoth({ script }, { 'listen.serverTiming': 'true' })
  const response = await request(proxy.port, get('/v2/x', 'acme'))
  expect([response.status, requests]).toEqual([200, 2])
  expect(Number(OWN.exec(timings(response)[0] ?? '')?.[1])).toBeLessThan(rejectionMs)
})

test('answers of the proxy have it, and so has a WebSocket', async () => {
  const { service, proxy } = await startBoth(
    { script: (_, connection) => connection.reset() },
    { 'listen.serverTiming': 'true' },
  )
  const ask = (raw: string) => request(proxy.port, raw)
  const own = [expect.stringMatching(OWN)]
  const refused = await ask(head('GET /v2/x HTTP/1.1', HOST))
  expect([refused.status, timings(refused)]).toEqual([400, own])
  const failed = await ask(get('/v2/x', 'acme'))
  expect([failed.status, timings(failed)]).toEqual([502, own])
  const malformed = await ask('GET\r\n\r\n')
  expect([malformed.status, timings(malformed)]).toEqual([400, own])
  const options = await ask(get('/v2/x', 'acme', 'Max-Forwards: 0').replace('GET', 'OPTIONS'))
  expect([options.status, timings(options)]).toEqual([204, own])
  service.script = (_, connection) => {
    const lines = ['Connection: upgrade', 'Upgrade: websocket', `Sec-WebSocket-Accept: ${WEBSOCKET_ACCEPT}`]
    connection.write(head('HTTP/1.1 101 Switching Protocols', ...lines))
  }
  await using client = await RawClient.sending(proxy.port, get('/v2/socket', 'acme', ...HANDSHAKE))
  const upgraded = await client.nextHead()
  expect([upgraded.status, timings(upgraded)]).toEqual([101, own])
})
