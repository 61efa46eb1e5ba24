/** WebSockets through the proxy: opened with the token of the Org, then bytes both ways until one side ends. */

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { WebSocket } from 'ws'
import { get } from '../../support/case-table.ts'
import { CA_FILE, certificate } from '../../support/certificates.ts'
import { eventually } from '../../support/changes.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import type { OriginConnection, OriginScript } from '../../support/origin-connection.ts'
import { knowsReset, RawClient, request, tlsPorts, unixPorts } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { type LogLine, startBoth, startBothForFile, startProxy } from '../../support/start-proxy.ts'
import { echoServer } from '../../support/websocket-echo.ts'

const echo = echoServer()
/** Opens a tunnel with nothing behind it. */
const silent: OriginScript = (_, connection) => {
  connection.tunnel()
  connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
}
const { service, proxy } = await startBothForFile({
  script: (seen, connection) => (seen.target.startsWith('/v2/silent') ? silent : echo.script)(seen, connection),
})
beforeEach(() => {
  echo.sockets.length = 0
})

/** As the proxies of these tests listen: under TLS, or on a unix socket. */
async function open({ port = proxy.port, org = 'acme', protocols = [] as string[] } = {}): Promise<WebSocket> {
  const path = unixPorts.get(port)
  const place = path === undefined ? `${tlsPorts.has(port) ? 'wss' : 'ws'}://localhost:${port}` : `ws+unix:${path}:`
  const options = { headers: { Host: 'localhost', 'X-Org-Id': org }, rejectUnauthorized: false }
  const socket = new WebSocket(`${place}/v2/ws?a=b`, protocols, options)
  await once(socket, 'open')
  socket.on('error', () => {}) // from here on, the test itself causes the end
  onTestFinished(() => socket.terminate())
  return socket
}

/** A client behind its 101, and the connection at the service. */
async function openRaw(target: string, port = proxy.port, at = service) {
  const client = await RawClient.sending(port, get(target, 'acme', ...HANDSHAKE))
  onTestFinished(() => client[Symbol.asyncDispose]())
  expect((await client.response()).status).toBe(101)
  return { client, connection: at.requests.at(-1)?.connection as OriginConnection }
}

/** The line about the end of the WebSocket. */
function endOf(path: string, deadlineMs = 5_000, org = 'acme') {
  const isMeant = (line: LogLine) => line.msg === 'websocket ended' && line.path === path && line['orgId'] === org
  return eventually(() => proxy.logs.find(isMeant), `the end of ${path}`, deadlineMs)
}

test('the handshake reaches the origin with the token of its Org, and with its path and query unchanged', async () => {
  await open({ org: 'org-of-sockets' })
  const seen = service.requests.at(-1)
  expect(seen?.target).toBe('/v2/ws?a=b')
  expect(seen && service.orgOf(seen)).toBe('org-of-sockets')
  expect(seen?.values('x-org-id')).toEqual([])
  expect(seen?.values('connection').join()).toMatch(/^upgrade$/i)
})

test('client and origin agree on subprotocols and extensions', async () => {
  const socket = await open({ protocols: ['chat.v1', 'chat.v2'] })
  expect(socket.protocol).toBe('chat.v1')
  expect(socket.extensions).toContain('permessage-deflate')
})

test('messages of every kind and size come back unchanged and in order', async () => {
  const numbers = Array.from({ length: 1_000 }, (_, i) => `${i}`)
  const sizes = [1_000, 64 * 1024 + 1, 8 * 1024 * 1024]
  const messages = ['hello ☃', '', ...sizes.map((size) => randomBytes(size)), ...numbers]
  const socket = await open()
  const got: (Buffer | string)[] = []
  socket.on('message', (data: Buffer, isBinary) => got.push(isBinary ? data : data.toString()))
  for (const message of messages) socket.send(message)
  await eventually(() => got.length === messages.length, 'all messages')
  expect(got.every((message, i) => Buffer.from(message).equals(Buffer.from(messages[i] ?? '')))).toBe(true)
  expect(got.map((message) => typeof message)).toEqual(messages.map((message) => typeof message))
})

test.each([1000, 4001])('a close with code %i reaches the other side, from either side', async (code) => {
  const socket = await open()
  socket.close(code, 'reason')
  expect((await once(socket, 'close'))[0]).toBe(code)
  const other = await open()
  echo.sockets.at(-1)?.close(code, 'reason')
  expect((await once(other, 'close'))[0]).toBe(code)
})

test('half-close: bytes that are still on the way arrive', async () => {
  const { client, connection } = await openRaw('/v2/raw')
  client.send(Buffer.from([0x89, 0x80, 0, 0, 0, 0])) // a ping
  client.endSending()
  expect(await client.bytes(2)).toEqual(Buffer.from([0x8a, 0x00])) // its pong
  await service.origin.waitFor(() => connection.peerEnd === 'fin', 'the FIN at the origin')
})

test('half-close by the service: bytes that the client still sends arrive', async () => {
  const { client, connection } = await openRaw('/v2/silent')
  connection.write('last')
  connection.end()
  expect((await client.untilClosed()).bytes.toString()).toBe('last')
  client.send('still sent')
  await service.origin.waitFor(() => connection.received.includes('still sent'), 'what the client sent')
  client.endSending()
  await service.origin.waitFor(() => connection.peerEnd === 'fin', 'the FIN at the origin')
})

/** Its state and its timer, as Linux has them: 01 is open, 08 has got an end. Undefined behind a reset. */
async function stateOf({
  localPort = 0,
  remotePort = 0,
}: {
  localPort: number | undefined
  remotePort: number | undefined
}) {
  const port = (number: number) => number.toString(16).toUpperCase().padStart(4, '0')
  const row = new RegExp(`:${port(localPort)} \\w+:${port(remotePort)} (\\w\\w) \\S+ (\\w\\w):`)
  const tables = await Promise.all(['tcp', 'tcp6'].map((name) => readFile(`/proc/net/${name}`, 'latin1')))
  const [, state, timer] = row.exec(tables.join('')) ?? []
  return state && `${state} ${timer}`
}

/** Sends until the system takes no more. */
async function fill(socket: Socket): Promise<void> {
  const piece = Buffer.alloc(1024 * 1024, 'x')
  let taken = -1
  for (socket.write(piece); taken !== socket.bytesWritten - socket.writableLength; await setTimeout(300)) {
    taken = socket.bytesWritten - socket.writableLength
    while (socket.writableLength === 0) socket.write(piece)
  }
}

describe.each(['client', 'service'] as const)('a %s that resets', (side) => {
  test.runIf(knowsReset).each([
    ['is read', 'plain'],
    ['is not read, because the other side reads nothing', 'plain'],
    ['is not read, because the other side reads nothing', 'TLS'],
  ])('while it %s, with %s at the service: the other side ends, and the log says so', async (how, scheme) => {
    const isSecure = scheme === 'TLS'
    const { service, proxy } = await startBoth(
      { script: silent, ...(isSecure && { tls: certificate('localhost') }) },
      isSecure ? { 'origin.caFile': CA_FILE } : {},
    )
    const { client, connection } = await openRaw('/v2/silent', proxy.port, service)
    const [leaving, staying] = side === 'client' ? [client, connection] : [connection, client]
    if (how !== 'is read') {
      staying.socket.pause()
      await fill(leaving.socket)
    }
    leaving.reset()
    const told = await eventually(() => proxy.logs.find(({ msg }) => msg === 'websocket ended'), 'the end')
    expect(told).toMatchObject({ endedBy: side, reason: 'broken' })
    staying.socket.on('error', () => undefined).resume()
    await eventually(() => client.end ?? connection.peerEnd, 'the end of the other side')
  })
})

test('a client that ends while the service does not has both sides closed after ten seconds without a byte', async () => {
  const { client, connection } = await openRaw('/v2/silent/left')
  client.socket.end()
  const endedAt = performance.now()
  await setTimeout(1_000)
  connection.write('still here')
  const told = await endOf('/v2/silent/left', 25_000)
  expect(told).toMatchObject({ level: 'info', endedBy: 'client', reason: 'timeout', bytesIn: 0, bytesOut: 10 })
  expect(performance.now() - endedAt).toBeGreaterThan(10_900)
  await eventually(() => connection.peerEnd, 'the end at the service')
  await eventually(() => client.end, 'the end at the client')
})

// Node reads a reset behind bytes as an end, so the system is asked.
test.runIf(knowsReset && process.platform === 'linux').each([
  ['takes nothing within two seconds', '30s'],
  ['takes nothing within shutdown.timeout', '200ms'],
])('a stop, while bytes wait for a client that %s: a reset, so that it misses them', async (_, timeout) => {
  const { service, proxy } = await startBoth({ script: silent }, { 'shutdown.timeout': timeout })
  const { client, connection } = await openRaw('/v2/silent', proxy.port, service)
  client.socket.pause()
  await fill(connection.socket)
  const { localPort, remotePort } = client.socket
  await proxy.app.drain()
  expect(await stateOf({ localPort, remotePort })).toBeUndefined()
})

test.runIf(knowsReset && process.platform === 'linux')(
  'bytes wait for a client whose WebSocket a reload ends, and a new connection needs its place: a reset, so that it misses them',
  async () => {
    const callers = 'callers: [{name: billing, keyFiles: [billing.key], orgs: [acme]}]\n'
    await using service = await startService({ script: silent })
    await using proxy = await startProxy(
      service,
      { 'listen.maxConnections': '1' },
      { 'billing.key': 'billing-key-0123456789', 'other.key': 'another-key-0123456789', 'proxy.yaml': callers },
    )
    const fields = [...HANDSHAKE, 'X-Proxy-Key: billing-key-0123456789']
    await using client = await RawClient.sending(proxy.port, get('/v2/silent', 'acme', ...fields))
    expect((await client.response()).status).toBe(101)
    client.socket.pause()
    const connection = service.requests.at(-1)?.connection as OriginConnection
    await fill(connection.socket)
    await writeFile(proxy.at('proxy.yaml'), callers.replace('billing.key', 'other.key'))
    await proxy.app.reload()
    const { localPort, remotePort } = client.socket
    expect(await stateOf({ localPort, remotePort })).toBeDefined()
    await using _ = await RawClient.plain(proxy.port)
    await proxy.until(() => proxy.logs.some(({ msg }) => msg === 'websocket ended'), 'the end')
    expect(await stateOf({ localPort, remotePort })).toBeUndefined()
  },
)

// `npm run simulate` tries both sides, and every other order.
test('a client that sends much and ends, to a service that takes nothing: both are reset after idleTimeout, and the log says who was stuck', async () => {
  const { service, proxy } = await startBoth({ script: silent }, { 'listen.idleTimeout': '500ms' })
  const { client, connection } = await openRaw('/v2/silent', proxy.port, service)
  const { localPort, remotePort } = connection.socket.pause()
  client.socket.end(Buffer.alloc(24 * 1024 * 1024, 'x')).on('error', () => undefined)
  const told = await eventually(() => proxy.logs.find(({ msg }) => msg === 'websocket ended'), 'the end')
  expect(told).toMatchObject({ endedBy: 'service', reason: 'timeout' })
  // Node reads a reset behind bytes as an end.
  if (knowsReset && process.platform === 'linux') expect(await stateOf({ localPort, remotePort })).toBeUndefined()
})

test('each WebSocket that a stop ends has its line before the stop is over', async () => {
  const { service, proxy } = await startBoth({ script: silent })
  for (let i = 0; i < 20; i++) await openRaw(`/v2/silent/${i}`, proxy.port, service)
  await proxy.app.drain()
  const told = proxy.logs.filter(({ msg }) => msg === 'websocket ended')
  expect(told.map(({ endedBy, reason }) => `${endedBy} ${reason}`)).toEqual(Array(20).fill('proxy closed'))
})

test('the end of a WebSocket has a line of its own', async () => {
  const socket = await open({ org: 'told' })
  socket.send('hello')
  await once(socket, 'message')
  socket.close() // the service ends the connection then (RFC 6455 §7.1.1)
  const told = await endOf('/v2/ws', 5_000, 'told')
  expect(told).toMatchObject({ level: 'info', orgId: 'told', path: '/v2/ws', endedBy: 'service', reason: 'closed' })
  const handshake = proxy.logs.find(({ msg, orgId }) => msg === 'request' && orgId === 'told')
  expect(handshake?.['requestId']).toBe(told['requestId'])
})

describe('a side that sends its last frame, reads no more and closes, while the other goes on sending', () => {
  const LAST = Buffer.from('\x88\x02\x03\xf1', 'latin1')

  /** Writes without a pause until the socket has closed. */
  function stream(socket: Socket): Promise<void> {
    const piece = Buffer.alloc(64 * 1024, 'x')
    const pump = () => {
      while (!socket.destroyed && socket.write(piece)) {}
    }
    socket.on('error', () => undefined)
    socket.on('drain', pump)
    pump()
    return new Promise((resolve) => socket.once('close', () => resolve()))
  }

  /** Leaves unread what has come, so that the kernel resets the connection. */
  async function leave(socket: Socket): Promise<void> {
    socket.pause()
    await setTimeout(20) // the other side fills the buffers
    await new Promise((resolve) => socket.write(LAST, resolve))
    socket.destroy()
  }

  // The loss is a race between our write and our read.
  test.each(['service', 'client'])('the %s: that frame arrives, and the other connection closes', async (side) => {
    for (let i = 0; i < 4; i++) {
      const { client, connection } = await openRaw('/v2/silent')
      const [leaving, staying] = side === 'client' ? [client, connection] : [connection, client]
      const closed = stream(staying.socket)
      await eventually(() => leaving.received.length > 1_000_000 || undefined, 'a megabyte')
      await leave(leaving.socket)
      await closed
      expect(staying.received.subarray(-LAST.length)).toEqual(LAST)
    }
  })
})

// A client that has vanished sends nothing, and a tunnel has no time limit.
test.runIf(process.platform === 'linux')('the system finds out whether the client is still there', async () => {
  await using proxy = await startProxy(service, { 'listen.address': 'localhost:0' })
  const { client } = await openRaw('/v2/silent', proxy.port)
  expect(await stateOf({ localPort: proxy.port, remotePort: client.socket.localPort })).toMatch(/ 02$/) // the timer of TCP keep-alive
})

test('when a token ends, the sockets that were opened with it stay open', async () => {
  await using proxy = await startProxy(service, { 'tokens.lifetime': '1s' })
  const { port } = proxy
  const socket = await open({ port, org: 'ending' })
  service.tokens.revoke('ending')
  // The token is past its estimated life and has a successor, which a later handshake caused.
  await eventually(async () => {
    const later = await open({ port, org: 'ending' }).catch(() => undefined)
    later?.terminate()
    return service.tokens.mintsOf('ending').length > 1 || undefined
  }, 'a new token')
  socket.send('still here')
  expect(String((await once(socket, 'message'))[0])).toBe('still here')
})

test('an open WebSocket is a request that has ended: logged with 101, not in flight, and under no time limit of requests', async () => {
  await using proxy = await startProxy(service, {
    'listen.maxInFlight': '1',
    'listen.idleTimeout': '200ms',
    'listen.keepAliveTimeout': '200ms',
    'origin.responseTimeout': '200ms',
    'origin.idleTimeout': '200ms',
  })
  const { port } = proxy
  const silent = await open({ port })
  const { client: unread, connection } = await openRaw('/v2/silent', port) // only one may be in flight
  expect(await proxy.logOf('/v2/ws')).toMatchObject({ status: 101, bytesOut: 0 })
  const large = randomBytes(16 * 1024 * 1024)
  unread.socket.pause()
  connection.write(large)
  await setTimeout(600) // longer than every limit
  silent.send('still here')
  expect(String((await once(silent, 'message'))[0])).toBe('still here')
  unread.socket.resume()
  expect(large.equals(await unread.bytes(large.length))).toBe(true)
  expect((await request(port, get('/v2/ws', 'acme', ...HANDSHAKE))).status).toBe(101)
})
