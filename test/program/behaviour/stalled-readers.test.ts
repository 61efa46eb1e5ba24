/**
 * Clients that read nothing for a while: the time limits for them, and their next requests. Over a unix socket, because its
 * buffers in the system are small and always have the same size: some of the lengths below fill these buffers and leave a
 * rest in the proxy.
 */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { startFaultTable } from '../../support/fault-table.ts'
import { scaled, scaledSetting } from '../../support/pace.ts'
import { outcomeOf, RawClient, request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'

const UNIX = { 'proxy.yaml': 'callers: [{name: one, socket: $FOLDER/socket, orgs: [acme]}]' }

/** Smaller than the 64 KiB that the proxy holds for a client before it stops reading from the service. */
const PIECE = Buffer.alloc(24 * 1024)
const COUNTS = Array.from({ length: 20 }, (_, i) => i + 1)

/**
 * A client for each of `COUNTS`, which asks for `/v2/COUNT` and reads nothing. The service sends as many pieces to it, one by
 * one: the proxy has read each of them before the next one goes out. `lengthOf` says what the response declares.
 */
async function sendPieces(proxy: ProxyUnderTest, service: Service, lengthOf: (count: number) => number) {
  const socket = proxy.at('socket')
  const clients = await Promise.all(
    COUNTS.map(async (count) => {
      const client = await RawClient.connect(socket, { deadlineMs: scaled(10_000) })
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
    expect((await request(socket, get('/v2/alive', 'acme'))).status).toBe(200)
  }
  return clients
}

const table = await startFaultTable({}, UNIX)

const startPieces = () => startService({ script: ({ target }) => (target === '/v2/alive' ? {} : undefined) })

test('a client that does not read the end of its response is cut off, also after the service has sent all of it', async () => {
  await using service = await startPieces()
  await using proxy = await startProxy(service, { 'listen.idleTimeout': scaledSetting(500) }, UNIX)
  const clients = await sendPieces(proxy, service, (count) => count * PIECE.length)
  const lines = await Promise.all(clients.map(({ path }) => proxy.logOf(path)))
  const cutOff = lines.filter(({ code }) => code === 'request_timeout')
  expect(cutOff.length).toBeGreaterThan(0)
  expect(new Set(cutOff.map(({ reason }) => reason))).toEqual(new Set(['response_not_read']))
  for (const { path, bytesOut } of cutOff) expect(bytesOut).toBeLessThan(Number(path?.slice(4)) * PIECE.length)
  for (const { client } of clients) await client[Symbol.asyncDispose]()
})

test('what a client that leaves has not been sent does not count as sent', async () => {
  await using service = await startPieces()
  await using patient = await startProxy(service, {}, UNIX)
  const clients = await sendPieces(patient, service, () => 1_000_000_000)
  for (const { client } of clients) client.socket.destroy()
  await using sameService = await startPieces()
  await using proxy = await startProxy(sameService, { 'listen.idleTimeout': scaledSetting(500) }, UNIX)
  const cutOff = await sendPieces(proxy, sameService, () => 1_000_000_000)
  for (const { path, client } of cutOff.slice(-5)) {
    const { bytesOut: counted } = await patient.logOf(path)
    await proxy.logOf(path)
    client.socket.resume()
    expect(counted, path).toBeLessThanOrEqual((await client.response()).content.length)
  }
  for (const { client } of cutOff) await client[Symbol.asyncDispose]()
})

test('the next request of a client that has not read the last answer: it gets that one complete, then the next, or the end', async () => {
  const hasEnded = (path: string) => table.proxy.logs.some((line) => line.msg === 'request' && line.path === path)
  const askTwice = async (sizeBytes: number, isBroken = false) => {
    const first = table.target(() => ({ content: Buffer.alloc(sizeBytes, 'x') }))
    const second = table.target(() => ({ content: 'the second' }))
    await using client = await RawClient.connect(table.proxy.at('socket'))
    client.socket.pause()
    client.send(get(first, 'acme'))
    // Some of these sizes have left the origin completely, but not the proxy.
    const end = await eventually(() => hasEnded(first), 'the end', 300).catch(() => false)
    client.send(isBroken ? `${get(second, 'acme', 'Transfer-Encoding: chunked')}no size\r\n` : get(second, 'acme'))
    const isServed = () => table.requestsFor(second).length > 0
    if (end) await eventually(isServed, 'the second', 300).catch(() => undefined)
    client.socket.resume()
    expect((await client.response()).content, `${sizeBytes}`).toHaveLength(sizeBytes)
    const next = await client.response().catch((error: Error) => error.name)
    const answer = typeof next === 'string' ? next : outcomeOf(next)
    expect([isBroken ? 'request_invalid' : 200, 'StreamEnded'], `behind ${sizeBytes}`).toContain(answer)
  }
  await askTwice(1)
  await Promise.all(Array.from({ length: 60 }, (_, i) => askTwice((64 + 8 * i) * 1024, i % 2 === 1)))
})
