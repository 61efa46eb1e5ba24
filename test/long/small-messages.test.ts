/** Under TLS, a record adds up to 29 bytes to a message. Many small ones are no flood. */

import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import { connect } from 'node:tls'
import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { certificateFiles } from '../support/certificates.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import { echoServer } from '../support/websocket-echo.ts'

const SECONDS = 8
const PER_SECOND = 2_000
/** "h", masked with zeros. */
const FRAME = Buffer.from([0x81, 0x81, 0, 0, 0, 0, 0x68])
const TICK_MS = 20

test('a WebSocket may send 2,000 messages of one byte in each second', { timeout: 60_000 }, async () => {
  const { certificate, key } = certificateFiles('localhost')
  await using service = await startService({ script: echoServer().script })
  await using proxy = await startProxy(service, { 'listen.tls.certFile': certificate, 'listen.tls.keyFile': key })
  const client = connect({ port: proxy.port, rejectUnauthorized: false, maxVersion: 'TLSv1.2' }).on('error', () => {})
  await once(client, 'secureConnect')
  client.write(get('/v2/ws', 'acme', ...HANDSHAKE))
  await once(client, 'data')
  client.resume()
  const startedAt = performance.now()
  let sent = 0
  while (performance.now() - startedAt < SECONDS * 1_000 && !client.destroyed) {
    const due = ((performance.now() - startedAt) * PER_SECOND) / 1_000
    // A record each: what is written while a write goes on is joined.
    for (; sent < due && client.writable; sent++) await new Promise((resolve) => client.write(FRAME, resolve))
    await setTimeout(TICK_MS)
  }
  expect(client.destroyed).toBe(false)
  client.destroy()
})
