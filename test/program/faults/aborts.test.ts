/** When one side goes away, the other side is told at once. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import type { OriginRequest } from '../../support/origin-connection.ts'
import { RawClient } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'
import { expectWholePool } from '../../support/whole-pool.ts'

/** One of each kind; the proxy's own time limits are far longer than the deadline of this test. */
const ABORTS = 3
const PLACES = 8

const HELD = 'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun'

function heldService(): Promise<Service> {
  return startService({
    script: (seen, connection) => {
      if (seen.target.startsWith('/v2/begun')) connection.write(HELD)
    },
  })
}

async function requestFor(service: Service, target: string): Promise<OriginRequest> {
  const find = () => service.requests.find((seen) => seen.target === target)
  await service.origin.waitFor(() => find() !== undefined, target)
  return find() as OriginRequest
}

test.each([
  ['while it waits for the response', 'silent', [], ''],
  ['while it waits for the answer to its handshake', 'silent', HANDSHAKE, ''],
  ['inside its content', 'silent', ['Content-Length: 100'], 'half'],
  ['inside its chunks', 'silent', ['Transfer-Encoding: chunked'], '4\r\nhalf\r\n'],
  ['inside the response', 'begun', [], ''],
  ['inside the answer to its handshake', 'begun', HANDSHAKE, ''],
])('a client leaves %s', async (_, kind, lines, content) => {
  await using service = await heldService()
  const settings = { 'origin.connections': `${PLACES}`, 'listen.maxInFlight': `${2 * PLACES}` }
  await using proxy = await startProxy(service, settings)
  for (let i = 0; i < ABORTS; i++) {
    const target = `/v2/${kind}/${i}`
    const head = get(target, 'acme', ...lines).replace('GET', content === '' ? 'GET' : 'POST')
    await using client = await RawClient.sending(proxy.port, head + content)
    const { connection } = await requestFor(service, target)
    if (kind === 'begun') await client.untilBytes('begun')
    if (i % 3 === 0) client.reset()
    else if (i % 3 === 1) client.socket.destroy()
    else client.endSending()
    await service.origin.waitFor(() => connection.peerEnd !== undefined, `the end of ${target}`)
  }
  expect(service.requests.every(({ state }) => state !== 'complete' || content === '')).toBe(true)
  await expectWholePool(proxy.port, service, PLACES)
})

test('a client that resets while its upload is not read is noticed within ten seconds', {
  timeout: 60_000,
}, async () => {
  const count = 4
  await using service = await startService({
    script: (seen, connection) => {
      if (seen.method === 'POST') connection.socket.pause()
    },
  })
  await using proxy = await startProxy(service, {
    'origin.connections': `${2 * count}`,
    'admin.address': 'localhost:0',
  })
  const piece = Buffer.alloc(1024 * 1024, 'x')
  const head = get('/v2/upload', 'acme', `Content-Length: ${1024 * piece.length}`).replace('GET', 'POST')
  const clients = await Promise.all(Array.from({ length: count }, () => RawClient.sending(proxy.port, head)))
  for (const { socket } of clients) {
    const push = () => {
      while (!socket.destroyed && socket.write(piece)) {}
    }
    push()
    socket.on('drain', push)
  }
  let before = -1
  const sent = () => clients.reduce((sum, { socket }) => sum + socket.bytesWritten - socket.writableLength, 0)
  for (; before !== sent(); await new Promise((resolve) => setTimeout(resolve, 500))) before = sent()
  const areAllThere = async () => (await proxy.metric('oap_requests_in_flight')) === count || undefined
  await eventually(areAllThere, 'all requests')
  for (const client of clients) client.reset()
  const isOver = async () => (await proxy.metric('oap_requests_in_flight')) === 0 || undefined
  await eventually(isOver, 'the ends of all requests', 10_000)
  const codes = proxy.logs.filter(({ msg }) => msg === 'request').map(({ code }) => code)
  expect(codes).toEqual(Array(count).fill('client_closed'))
})
