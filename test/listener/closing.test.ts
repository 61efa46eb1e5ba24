/** Connections that end, while their client goes on sending or has left. */

import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { Gate } from '../support/changes.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

test('a half-sent head on a socket that a reload removed: the connection is closed, even if its client goes on sending', async () => {
  await using service = await startService()
  const callers = 'callers: [{name: billing, socket: $FOLDER/billing.sock, orgs: [acme]}]\n'
  const settings = { 'listen.headersTimeout': '100ms', 'listen.keepAliveTimeout': '200ms' }
  await using proxy = await startProxy(service, settings, { 'proxy.yaml': callers })
  const client = connect({ path: proxy.at('billing.sock'), allowHalfOpen: true })
  client.on('error', () => undefined)
  onTestFinished(() => void client.destroy())
  const closed = new Promise((resolve) => client.once('close', resolve))
  // On a busy machine the end may come before the reload.
  const ended = new Promise((resolve) => client.once('end', resolve))
  client.write(get('/v2/x', 'acme'))
  expect(String(await once(client, 'data'))).toContain('HTTP/1.1 200')
  client.write('GET /v2/next HTTP/1.1\r\n')
  // The proxy has read these bytes once it has answered a later request of another connection.
  expect((await request(proxy.at('billing.sock'), get('/v2/x', 'acme'))).status).toBe(200)
  await writeFile(
    proxy.at('proxy.yaml'),
    callers.replace('billing.sock', 'other.sock').replace('$FOLDER', proxy.at('.')),
  )
  await proxy.app.reload()
  client.resume()
  await ended
  // For a while, the proxy reads these bytes and drops them.
  const sending = setInterval(() => client.write('G'), 20)
  onTestFinished(() => clearInterval(sending))
  await closed
})

test('a stopping proxy does not keep bytes that a client sends after its last request', async () => {
  const gate = new Gate()
  await using service = await startService({
    script: async () => {
      await gate.pass()
      return { content: 'late' }
    },
  })
  await using proxy = await startProxy(service, { 'shutdown.timeout': '60s' })
  await using client = await RawClient.sending(proxy.port, get('/v2/x', 'acme'))
  await service.origin.waitFor(() => service.requests.length === 1)
  const drained = proxy.app.drain()
  client.send(get('/v2/next', 'acme'))
  const before = process.memoryUsage().arrayBuffers
  const piece = Buffer.alloc(64 * 1024, 'x')
  for (let i = 0; i < 4_096; i++) if (!client.socket.write(piece)) await once(client.socket, 'drain')
  // 256 MiB were sent. Unused read buffers may remain until V8 collects them.
  expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(160 * 1024 * 1024)
  gate.open()
  expect((await client.response()).content.toString()).toBe('late')
  client.endSending()
  await drained
  expect(service.requests).toHaveLength(1)
})

test('a request that waits behind another is not carried out if its client has left', async () => {
  // More than all buffers hold, so that the response is not finished when the client leaves.
  await using service = await startService({ script: () => ({ content: Buffer.alloc(16 * 1024 * 1024) }) })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  client.socket.pause()
  client.send(get('/v2/first', 'acme') + get('/v2/second', 'acme'))
  await service.origin.waitFor(() => service.requests.length === 1)
  client.reset()
  expect(await proxy.logOf('/v2/first')).toMatchObject({ code: 'client_closed' })
  expect((await request(proxy.port, get('/v2/last', 'acme'))).status).toBe(200)
  expect(service.requests.map(({ target }) => target)).toEqual(['/v2/first', '/v2/last'])
})
