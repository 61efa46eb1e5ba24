/**
 * The time limits for a client that reads nothing for a while. The system has small buffers of a fixed size for a unix
 * socket. So some of the lengths below fill these buffers and leave a rest in the proxy.
 */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { scaled, scaledSetting } from '../support/pace.ts'
import { RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

/** Smaller than the 64 KiB that the proxy holds for a client before it stops reading from the service. */
const PIECE = Buffer.alloc(24 * 1024)
const COUNTS = Array.from({ length: 20 }, (_, i) => i + 1)

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'oap-'))
})
afterAll(() => rm(folder, { recursive: true }))

/**
 * A client for each of `COUNTS`, which asks for `/v2/COUNT` and reads nothing. The service sends as many pieces to it, one by
 * one: the proxy has read each of them before the next one goes out. `lengthOf` says what the response declares.
 */
async function sendPieces(
  path: string,
  service: Awaited<ReturnType<typeof startService>>,
  lengthOf: (count: number) => number,
) {
  const clients = await Promise.all(
    COUNTS.map(async (count) => {
      const client = await RawClient.connect(path, { deadlineMs: scaled(10_000) })
      client.socket.pause()
      client.send(get(`/v2/${count}`, 'acme'))
      return { path: `/v2/${count}`, client }
    }),
  )
  await service.origin.waitFor(() => service.requests.length === COUNTS.length, 'all requests')
  const responses = service.requests.map(({ target, connection }) => ({ count: Number(target.slice(4)), connection }))
  for (const { count, connection } of responses)
    connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${lengthOf(count)}\r\n\r\n`)
  for (const sent of COUNTS) {
    for (const { count, connection } of responses) if (sent <= count) connection.write(PIECE)
    expect((await request(path, get('/v2/alive', 'acme'))).status).toBe(200)
  }
  return clients
}

const startPieces = () => startService({ script: ({ target }) => (target === '/v2/alive' ? {} : undefined) })

test('a client that does not read the end of its response is cut off, also after the service has sent all of it', async () => {
  const path = join(folder, 'whole')
  await using service = await startPieces()
  const settings = { 'listen.address': `unix:${path}`, 'listen.idleTimeout': scaledSetting(500) }
  await using proxy = await startProxy(service, settings)
  const clients = await sendPieces(path, service, (count) => count * PIECE.length)
  const lines = await Promise.all(clients.map(({ path }) => proxy.logOf(path)))
  const cutOff = lines.filter(({ code }) => code === 'request_timeout')
  expect(cutOff.length).toBeGreaterThan(0)
  for (const { path, bytesOut } of cutOff) expect(bytesOut).toBeLessThan(Number(path?.slice(4)) * PIECE.length)
  for (const { client } of clients) await client[Symbol.asyncDispose]()
})

test('origin.idleTimeout starts anew when the client has caught up', async () => {
  const path = join(folder, 'part')
  await using service = await startPieces()
  const settings = { 'listen.address': `unix:${path}`, 'origin.idleTimeout': scaledSetting(500) }
  await using proxy = await startProxy(service, settings)
  const clients = await sendPieces(path, service, () => 1_000_000_000)
  for (const { client } of clients) client.socket.resume()
  for (const { path, client } of clients) {
    expect((await client.response()).isComplete, path).toBe(false)
    expect(await proxy.logOf(path)).toMatchObject({ code: 'http_response_timeout' })
  }
})
