/** Request content is kept for a repeat, and freed as soon as no repeat can follow. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { startProxyProcess } from '../../support/proxy-process.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

// The attack: the memory for repeats counted what was declared, so that half of what one app may send at once took all of it.
test.each([
  ['declare 64 KiB and send nothing', 0],
  ['send all but the last octet of 64 KiB', 65_535],
])('550 requests that %s leave room for a repeat of another Org', async (_, sentBytes) => {
  await using service = await startService({ script: () => ({ content: 'good' }) })
  await using proxy = await startProxy(service, { 'origin.connections': '1024' })
  const post = (org: string, length: number) =>
    get('/v2/upload', org, `Content-Length: ${length}`).replace('GET', 'POST')
  const token = await request(proxy.port, get('/v2/x', 'other'))
  expect(token.status).toBe(200)
  const half = post('greedy', 65_536) + 'x'.repeat(sentBytes)
  const clients = await Promise.all(Array.from({ length: 550 }, () => RawClient.sending(proxy.port, half)))
  const arrived = () => service.requests.reduce((total, seen) => total + seen.contentBytes, 0)
  await service.origin.waitFor(() => service.requests.length > 550 && arrived() >= 550 * sentBytes, 'the uploads')
  service.tokens.revoke('other')
  expect((await request(proxy.port, `${post('other', 4)}good`)).status).toBe(200)
  for (const client of clients) await client[Symbol.asyncDispose]()
})

const UPLOADS = 200
const CONTENT = 'x'.repeat(60 * 1024)

test('uploads that are answered with endless streams do not stay in memory', async () => {
  await using service = await startService({
    script: async (seen, connection) => {
      if (seen.target !== '/v2/upload') return { content: 'good' }
      await seen.ended
      connection.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n')
    },
  })
  await using proxy = await startProxyProcess(
    service,
    // Collects the whole heap. By itself, V8 waits until such memory has grown by about 64 MiB.
    { settings: { 'origin.connections': `${2 * UPLOADS}` }, nodeArgs: ['--gc-global'] },
  )
  const external = () => proxy.metric('nodejs_external_memory_bytes')
  const upload = async (index: number) => {
    const head = get('/v2/upload', 'acme', `Content-Length: ${CONTENT.length}`).replace('GET', 'POST')
    const client = await RawClient.sending(proxy.port, head, { deadlineMs: 30_000 })
    // Half of the uploads arrive in two pieces, half together with the head, which the proxy keeps in another way.
    if (index % 2 === 0) {
      client.send(CONTENT.slice(0, 1000))
      await service.origin.waitFor(() => service.requests.length > 0, 'a request')
      client.send(CONTENT.slice(1000))
    } else client.send(CONTENT)
    await client.untilBytes('begun')
    return client
  }
  const first = await upload(0)
  const before = await external()
  const clients = await Promise.all(Array.from({ length: UPLOADS }, (_, i) => upload(i)))
  // The read buffer of a connection, 64 KiB, is not content.
  const most = before + UPLOADS * (64 * 1024 + CONTENT.length / 2)
  await eventually(
    async () => {
      for (let i = 0; i < 50; i++) await request(proxy.port, get('/v2/x', 'acme'))
      return (await external()) < most || undefined
    },
    `less than ${most} bytes`,
    20_000,
  )
  expect(await proxy.metric('oap_requests_in_flight')).toBe(UPLOADS + 1)
  for (const client of [first, ...clients]) await client[Symbol.asyncDispose]()
})
