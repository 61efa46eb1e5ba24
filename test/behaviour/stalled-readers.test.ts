/**
 * A client that reads nothing for a while, and the time limits around it. On a unix socket, the system keeps little for the
 * client, and always the same. So some of the sizes below fill it, and leave a rest in the proxy.
 */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { scaled, scaledSetting } from '../support/pace.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { type ProxySettings, startProxy } from '../support/start-proxy.ts'

const SIZES = Array.from({ length: 24 }, (_, i) => (128 + 16 * i) * 1024)

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'oap-'))
})
afterAll(() => rm(folder, { recursive: true }))

/** `/v2/content/300` gets a content of 300 octets. `/v2/part/300` gets as many of a content that never ends. */
async function startContents(settings: ProxySettings) {
  const service = await startService({
    script: (seen, connection) => {
      const size = Number(seen.target.split('/')[3])
      if (!seen.target.startsWith('/v2/part/')) return { content: Buffer.alloc(size) }
      connection.write('HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n')
      connection.write(Buffer.alloc(size))
      return undefined
    },
  })
  return {
    service,
    proxy: await startProxy(service, { 'listen.address': `unix:${join(folder, 'socket')}`, ...settings }),
  }
}

/** One client for each size. None of them reads. */
async function askForAll(kind: 'content' | 'part') {
  return Promise.all(
    SIZES.map(async (size) => {
      const path = `/v2/${kind}/${size}`
      const client = await RawClient.connect(join(folder, 'socket'), { deadlineMs: scaled(10_000) })
      client.socket.pause()
      client.send(get(path, 'acme'))
      return { path, size, client }
    }),
  )
}

test('a client that does not take the end of its response is cut off, also when the service has sent it all', async () => {
  const { service, proxy } = await startContents({
    'listen.idleTimeout': scaledSetting(300),
    'shutdown.timeout': scaledSetting(5_000),
  })
  await using _service = service
  await using _proxy = proxy
  const asked = await askForAll('content')
  for (const { path } of asked) await proxy.logOf(path)
  expect(await proxy.app.drain(), 'connections that were open to the last').toBe(0)
  const whole: string[] = []
  for (const { path, size, client } of asked) {
    client.socket.resume()
    const { bytes } = await client.untilClosed()
    if ((await proxy.logOf(path)).code === undefined && bytes.length < size) whole.push(path)
  }
  expect(whole.length, 'responses that the proxy had as a whole, and the client had not').toBeGreaterThan(0)
})

test('origin.idleTimeout begins again for a client that has caught up', async () => {
  const { service, proxy } = await startContents({ 'origin.idleTimeout': scaledSetting(300) })
  await using _service = service
  await using _proxy = proxy
  const asked = await askForAll('part')
  await service.origin.waitFor(() => service.requests.length === SIZES.length, 'all requests')
  // The proxy reads what the service has sent before it answers a later request.
  for (let i = 0; i < 3; i++) await request(join(folder, 'socket'), get('/v2/content/1', 'acme'))
  for (const { client } of asked) client.socket.resume()
  for (const { path, client } of asked) {
    expect((await client.response()).isComplete, path).toBe(false)
    expect(await proxy.logOf(path)).toMatchObject({ code: 'http_response_timeout' })
  }
})
