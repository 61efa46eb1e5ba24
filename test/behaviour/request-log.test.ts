/** The log line of a request: its content, its time at the service, and an end that the proxy caused. */

import { setTimeout } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { get, head } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

const HOST = 'Host: localhost'

test('bytesIn and bytesOut count content, however it is framed', async () => {
  const { proxy } = await startBoth({
    script: ({ target }) => ({ content: Buffer.alloc(70_000), isChunked: target === '/v2/chunked' }),
  })
  const counted = head('PUT /v2/counted HTTP/1.1', HOST, 'X-Org-Id: acme', 'Content-Length: 100000')
  await request(proxy.port, counted + 'x'.repeat(100_000))
  expect(await proxy.logOf('/v2/counted')).toMatchObject({ bytesIn: 100_000, bytesOut: 70_000 })
  const chunked = head('PUT /v2/chunked HTTP/1.1', HOST, 'X-Org-Id: acme', 'Transfer-Encoding: chunked')
  await request(proxy.port, `${chunked}5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n`)
  expect(await proxy.logOf('/v2/chunked')).toMatchObject({ bytesIn: 11, bytesOut: 70_000 })
  await request(proxy.port, head('HEAD /v2/head HTTP/1.1', HOST, 'X-Org-Id: acme'))
  expect(await proxy.logOf('/v2/head')).toMatchObject({ bytesIn: 0, bytesOut: 0 })
})

test('bytesOut counts the content of our own answers', async () => {
  const { service, proxy } = await startBoth()
  const refused = await request(proxy.port, head('GET /v2/none HTTP/1.1', HOST))
  expect(refused.status).toBe(400)
  expect(await proxy.logOf('/v2/none')).toMatchObject({ bytesOut: refused.content.length })
  service.tokens.script = () => ({ status: 404 })
  const failed = await request(proxy.port, get('/v2/failed', 'nobody'))
  expect(failed.status).toBe(403)
  expect(await proxy.logOf('/v2/failed')).toMatchObject({ bytesOut: failed.content.length })
  await request(proxy.port, get('/v2/failed-head', 'nobody').replace('GET', 'HEAD'))
  expect(await proxy.logOf('/v2/failed-head')).toMatchObject({ status: 403, bytesOut: 0 })
})

test('originMs is the time until the response head, without the mint before it and the content after it', async () => {
  const MINT_MS = 300
  const HEAD_MS = 200
  const CONTENT_MS = 300
  const { proxy } = await startBoth({
    mint: async (mint) => {
      await setTimeout(MINT_MS)
      return mint.issue()
    },
    script: async (_, connection) => {
      await setTimeout(HEAD_MS)
      connection.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na')
      await setTimeout(CONTENT_MS)
      connection.write('b')
      return undefined
    },
  })
  await request(proxy.port, get('/v2/timed', 'acme'))
  const { originMs, durationMs } = (await proxy.logOf('/v2/timed')) as unknown as Record<string, number>
  expect(originMs).toBeGreaterThanOrEqual(HEAD_MS - 1)
  expect((durationMs ?? 0) - (originMs ?? 0)).toBeGreaterThanOrEqual(MINT_MS + CONTENT_MS - 2)
})

test('a request without an answer from the service has no originMs', async () => {
  const { proxy } = await startBoth()
  await request(proxy.port, head('GET /v2/none HTTP/1.1', HOST))
  expect(await proxy.logOf('/v2/none')).not.toHaveProperty('originMs')
})

test.each([
  ['a request', []],
  ['a handshake', HANDSHAKE],
])('%s that is cut off at the end of a drain is logged as draining', async (_, lines) => {
  const { service, proxy } = await startBoth(
    {
      script: ({ target }, connection) => {
        if (target === '/v2/begun') connection.write('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun')
        return undefined
      },
    },
    { 'shutdown.timeout': '50ms' },
  )
  await using begun = await RawClient.sending(proxy.port, get('/v2/begun', 'acme', ...lines))
  await begun.untilBytes('begun')
  await using silent = await RawClient.sending(proxy.port, get('/v2/silent', 'acme', ...lines))
  await service.origin.waitFor(() => service.requests.length === 2, 'both requests')
  expect(await proxy.app.drain()).toBe(2)
  expect((await silent.untilClosed()).bytes.length, 'the client got nothing').toBe(0)
  expect(await proxy.logOf('/v2/silent')).toMatchObject({ status: 0, code: 'draining', bytesOut: 0 })
  expect(await proxy.logOf('/v2/begun')).toMatchObject({ status: 200, code: 'draining', bytesOut: 5 })
})

test('the line has the trace id of a valid traceparent, of a refused request, too; the field goes on unchanged', async () => {
  const { service, proxy } = await startBoth()
  const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
  const field = (id: string) => `traceparent: 00-${id}-00f067aa0ba902b7-01`
  await request(proxy.port, get('/v2/traced', 'acme', field(traceId)))
  expect(service.origin.requests.at(-1)?.values('traceparent')).toEqual([field(traceId).slice('traceparent: '.length)])
  expect(await proxy.logOf('/v2/traced')).toMatchObject({ traceId })
  await request(proxy.port, head('GET /v2/refused HTTP/1.1', HOST, field(traceId)))
  expect(await proxy.logOf('/v2/refused')).toMatchObject({ traceId, code: 'org_id_missing' })
  for (const [path, id] of [
    ['/v2/zeros', '0'.repeat(32)],
    ['/v2/odd', `${traceId}"}`],
  ] as const) {
    await request(proxy.port, get(path, 'acme', field(id)))
    expect(await proxy.logOf(path)).not.toHaveProperty('traceId')
  }
})

test('the line of a request for which there is no room names the limit', async () => {
  let release: () => void = () => undefined
  const held = new Promise<void>((resolve) => {
    release = resolve
  })
  const { service, proxy } = await startBoth(
    { script: async () => held.then(() => ({ status: 200 })) },
    { 'listen.maxInFlight': '1' },
  )
  const first = request(proxy.port, get('/v2/first', 'acme'))
  await eventually(() => service.requests.length === 1 || undefined, 'the first request at the service')
  expect((await request(proxy.port, get('/v2/second', 'acme'))).status).toBe(503)
  expect(await proxy.logOf('/v2/second')).toMatchObject({ code: 'overloaded', reason: 'listen.maxInFlight' })
  release()
  await first
})
