import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { RequestRecord } from '../../../src/gateway/request-record.ts'
import { Tunnel, Tunnels } from '../../../src/gateway/tunnel.ts'
import type { Client } from '../../../src/listener/request-handler.ts'
import { listening } from '../../support/listening.ts'
import { scaled } from '../../support/pace.ts'

/** A side of the tunnel, and its peer, which takes nothing. */
async function openSide() {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true })
  const { port, ...opened } = await listening(server)
  onTestFinished(() => opened[Symbol.asyncDispose]())
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  socket.on('error', () => undefined)
  const [peer] = (await once(server, 'connection')) as [Socket]
  return { socket, carrier: socket, firstBytes: undefined, peer }
}

test('a client ends, and the service does not: ten seconds, also behind bytes that were taken before', async () => {
  const [client, service] = [await openSide(), await openSide()]
  const [wasClosed, startedAt] = [once(service.peer.resume(), 'end'), performance.now()]
  const keeper = { observer: { requestEnded() {}, programFailed() {} }, tunnels: new Tunnels(), idleTimeoutMs: 60_000 }
  new Tunnel(keeper, new RequestRecord('', 'acme', 'GET', '/', 0), {} as Client, client, service)
  client.peer.write('bytes')
  client.peer.end()
  await once(service.socket, 'close')
  await wasClosed
  expect(performance.now() - startedAt).toBeGreaterThan(9_900)
  expect(performance.now() - startedAt).toBeLessThan(scaled(10_900))
})

test('the proxy ends a client that is slow to take what was sent, and the service sends more: a reset', async () => {
  const [client, service] = [await openSide(), await openSide()]
  const observer = { requestEnded() {}, programFailed() {} }
  const wasReset = new Promise<void>((reset) => {
    const connection: Partial<Client> = { isFinishing: true, reset }
    const keeper = { observer, tunnels: new Tunnels(), idleTimeoutMs: 60_000 }
    new Tunnel(keeper, new RequestRecord('', 'acme', 'GET', '/', 0), connection as Client, client, service)
  })
  // Few bytes wait, so that the service is still read.
  while (client.socket.writableLength === 0) client.socket.write(Buffer.alloc(1_000))
  client.socket.destroySoon()
  service.peer.write('more')
  await wasReset
})
