/** Connections that the proxy ends: a client that keeps its side open cannot keep the connection. */

import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { request } from '../support/raw-client.ts'
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
  await once(client.resume(), 'end')
  // For a while, the proxy reads these bytes and drops them.
  const sending = setInterval(() => client.write('G'), 20)
  onTestFinished(() => clearInterval(sending))
  await closed
})
