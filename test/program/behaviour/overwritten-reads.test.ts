/** All clients are read into one buffer: what is still needed of one outlives what others send. */

import { randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { get, HOST, head } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const content = randomBytes(60_000)
const first = 'bytes '.repeat(8_000)
const post = (target: string, length: number) =>
  head(`POST ${target} HTTP/1.1`, HOST, 'X-Org-Id: acme', `Content-Length: ${length}`)

async function overwrite(port: number) {
  const text = 'z'.repeat(64 * 1024)
  const answer = await request(port, post('/v2/other', text.length) + text)
  expect(answer.status).toBe(200)
}

test('content that is repeated with a new token', async () => {
  const gate = new Gate()
  await using service = await startService({
    acceptsAnyToken: true,
    script: async (seen) => {
      await seen.ended
      if (seen.target !== '/v2/kept') return { content: 'ok' }
      if (service.orgOf(seen) !== undefined) return { content: seen.content }
      await gate.pass()
      return { status: 401 }
    },
  })
  await using proxy = await startProxy(service)
  await request(proxy.port, get('/v2/first', 'acme'))
  service.tokens.revoke('acme')
  await using client = await RawClient.sending(
    proxy.port,
    Buffer.concat([Buffer.from(post('/v2/kept', content.length)), content]),
  )
  await gate.untilWaiting(1)
  await overwrite(proxy.port)
  gate.open()
  expect((await client.response('POST')).content.equals(content)).toBe(true)
})

test('bytes behind a handshake, while the service takes its time', async () => {
  const gate = new Gate()
  let tunnel = ''
  await using service = await startService({
    script: async (seen, connection) => {
      await seen.ended
      if (seen.target !== '/v2/socket') return { content: 'ok' }
      await gate.pass()
      connection.write(head('HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade'))
      return await new Promise<undefined>((resolve) => {
        connection.socket.on('data', (bytes: Buffer) => {
          tunnel += bytes.toString()
          if (tunnel.length >= first.length) resolve(undefined)
        })
      })
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.sending(proxy.port, `${get('/v2/socket', 'acme', ...HANDSHAKE)}${first}`)
  await gate.untilWaiting(1)
  await overwrite(proxy.port)
  gate.open()
  await service.origin.waitFor(() => tunnel === first)
  client.reset()
})
