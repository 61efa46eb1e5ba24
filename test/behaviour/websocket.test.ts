/** WebSockets through the proxy: opened with the token of the Org, then bytes both ways until one side ends. */

import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { get } from '../support/case-table.ts'
import { CA_FILE, certificate } from '../support/certificates.ts'
import { eventually } from '../support/changes.ts'
import { startFaultProxy } from '../support/fault-proxy.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { writes } from '../support/origin-connection.ts'
import { problemOf, RawClient, request, tlsPorts } from '../support/raw-client.ts'
import { Random } from '../support/seed.ts'
import { startService } from '../support/service.ts'
import { startBoth, startProxy } from '../support/start-proxy.ts'
import { echoServer } from '../support/websocket-echo.ts'

const echo = echoServer()
const service = await startService({
  script: (seen, connection) => (seen.target === '/v2/alive' ? { content: 'alive' } : echo.script(seen, connection)),
})
const proxy = await startProxy(service)
afterAll(async () => {
  await proxy[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
})
beforeEach(() => {
  echo.sockets.length = 0
})

/** Over TLS, if the proxies of these tests listen under TLS. */
function openSocket(port: number, target: string, org = 'acme', protocols: string[] = []): WebSocket {
  const scheme = tlsPorts.has(port) ? 'wss' : 'ws'
  const options = { headers: { 'X-Org-Id': org }, rejectUnauthorized: false }
  return new WebSocket(`${scheme}://localhost:${port}${target}`, protocols, options)
}

async function open(org = 'acme', protocols: string[] = []): Promise<WebSocket> {
  const socket = openSocket(proxy.port, '/v2/ws?a=b', org, protocols)
  await once(socket, 'open')
  socket.on('error', () => {}) // from here on, the test itself causes the end
  return socket
}

async function expectAlive(): Promise<void> {
  const response = await request(proxy.port, get('/v2/alive', 'acme'))
  expect(response.status).toBe(200)
}

test('the handshake reaches the origin with the token of its Org, and with its path and query unchanged', async () => {
  const socket = await open('org-of-sockets')
  const seen = service.requests.at(-1)
  expect(seen?.target).toBe('/v2/ws?a=b')
  expect(seen && service.orgOf(seen)).toBe('org-of-sockets')
  expect(seen?.values('x-org-id')).toEqual([])
  expect(seen?.values('connection').join()).toMatch(/^upgrade$/i)
  socket.terminate()
})

describe('messages come back unchanged', () => {
  const MESSAGES: readonly (readonly [string, Buffer | string])[] = [
    ['text', 'hello ☃'],
    ['empty', ''],
    ['binary', randomBytes(1000)],
    ['of 64 KiB and a byte', randomBytes(64 * 1024 + 1)],
    ['of 8 MiB', randomBytes(8 * 1024 * 1024)],
  ]
  test.each(MESSAGES)('%s', async (_, message) => {
    const socket = await open()
    socket.send(message)
    const [data, isBinary] = await once(socket, 'message')
    expect(isBinary).toBe(typeof message !== 'string')
    expect(Buffer.compare(data, Buffer.from(message as string))).toBe(0)
    socket.terminate()
  })

  test('a thousand messages, in order', async () => {
    const socket = await open()
    const got: string[] = []
    socket.on('message', (data) => got.push(data.toString()))
    for (let i = 0; i < 1000; i++) socket.send(`${i}`)
    await eventually(() => got.length === 1000, 'all messages')
    expect(got).toEqual(Array.from({ length: 1000 }, (_, i) => `${i}`))
    socket.terminate()
  })

  test('bytes that arrive together with the handshake are not lost', async () => {
    await using client = await RawClient.connect(proxy.port)
    const frame = Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]) // "hi", masked with zeros
    client.send(Buffer.concat([Buffer.from(get('/v2/ws', 'acme', ...HANDSHAKE)), frame]))
    expect((await client.response()).status).toBe(101)
    expect(await client.bytes(4)).toEqual(Buffer.from([0x81, 0x02, 0x68, 0x69]))
  })
})

describe('the end', () => {
  test.each([1000, 4001])('a close with code %i reaches the other side, from either side', async (code) => {
    const socket = await open()
    socket.close(code, 'reason')
    const [closedWith] = await once(socket, 'close')
    expect(closedWith).toBe(code)

    const other = await open()
    echo.sockets.at(-1)?.close(code, 'reason')
    const [closedByServer] = await once(other, 'close')
    expect(closedByServer).toBe(code)
  })

  test("a client that resets ends the origin's side", async () => {
    await using client = await RawClient.sending(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))
    expect((await client.response()).status).toBe(101)
    client.reset()
    await service.origin.waitFor(
      () => service.requests.at(-1)?.connection.peerEnd !== undefined,
      'the end at the origin',
    )
    await expectAlive()
  })

  test('a client that resets ends both halves of the connection to the origin, however long the origin keeps its half', async () => {
    await using other = await startService({
      script: (_, connection) => {
        connection.tunnel()
        connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
        return undefined
      },
    })
    await using own = await startProxy(other)
    await using client = await RawClient.sending(own.port, get('/v2/ws', 'acme', ...HANDSHAKE))
    expect((await client.response()).status).toBe(101)
    client.reset()
    const connection = other.requests[0]?.connection
    await other.origin.waitFor(() => connection?.peerEnd !== undefined, 'the end at the origin')
    await eventually(() => {
      connection?.write('x')
      return connection?.isClosed || undefined
    }, 'both halves closed')
  })

  test("an origin that resets ends the client's side", async () => {
    await using client = await RawClient.sending(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))
    expect((await client.response()).status).toBe(101)
    service.requests.at(-1)?.connection.reset()
    await client.untilClosed()
    client.socket.on('error', () => {})
    await eventually(() => {
      if (!client.socket.destroyed) client.send('x')
      return client.socket.destroyed || undefined
    }, 'both halves closed')
    await expectAlive()
  })

  test('half-close: bytes that are still on the way arrive', async () => {
    await using client = await RawClient.sending(proxy.port, get('/v2/raw', 'acme', ...HANDSHAKE))
    expect((await client.response()).status).toBe(101)
    const connection = service.requests.at(-1)?.connection
    client.send(Buffer.from([0x89, 0x80, 0, 0, 0, 0])) // a ping
    client.endSending()
    expect(await client.bytes(2)).toEqual(Buffer.from([0x8a, 0x00])) // its pong
    await service.origin.waitFor(() => connection?.peerEnd === 'fin', 'the FIN at the origin')
  })

  test('half-close by the service: bytes that the client still sends arrive', async () => {
    await using other = await startService({
      script: (_, connection) => {
        connection.tunnel()
        connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nlast')
        connection.end()
        return undefined
      },
    })
    await using own = await startProxy(other)
    await using client = await RawClient.sending(own.port, get('/v2/ws', 'acme', ...HANDSHAKE))
    expect((await client.response()).status).toBe(101)
    expect((await client.untilClosed()).bytes.toString()).toBe('last')
    client.send('still sent')
    const connection = other.requests[0]?.connection
    await other.origin.waitFor(() => connection?.received.includes('still sent') === true, 'what the client sent')
    client.endSending()
    await other.origin.waitFor(() => connection?.peerEnd === 'fin', 'the FIN at the origin')
  })

  test('closing the proxy closes the tunnels', async () => {
    await using own = await startProxy(service)
    const sockets = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const socket = openSocket(own.port, '/v2/ws')
        socket.on('error', () => {})
        await once(socket, 'open')
        return socket
      }),
    )
    const ends = sockets.map((socket) => once(socket, 'close'))
    await own.app.close()
    await Promise.all(ends)
  })
})

test.each([
  [
    'a 101 for another protocol',
    '101 Switching Protocols',
    'Upgrade: h2c\r\nConnection: Upgrade\r\n',
    'http_upgrade_failed',
  ],
  ['a 101 without a protocol', '101 Switching Protocols', 'Connection: keep-alive\r\n', 'http_upgrade_failed'],
  ['a status that HTTP does not have', '700 Beyond', 'Content-Length: 0\r\n', 'http_protocol_error'],
])('an unusable answer to a handshake is a 502: %s', async (_, status, fields, code) => {
  await using other = await startService({
    script: writes(`HTTP/1.1 ${status}\r\n${fields}\r\n`),
  })
  await using own = await startProxy(other)
  const response = await request(own.port, get('/v2/ws', 'acme', ...HANDSHAKE))
  expect([response.status, problemOf(response).code]).toEqual([502, code])
  expect(await own.logOf('/v2/ws')).toMatchObject({ status: 502, code })
  await eventually(() => other.requests[0]?.connection.isClosed, 'the end of the connection to the service')
})

test('an origin that resets during the handshake', async () => {
  await using other = await startService({
    script: (_, connection) => {
      connection.reset()
      return undefined
    },
  })
  await using own = await startProxy(other)
  const response = await request(own.port, get('/v2/ws', 'acme', ...HANDSHAKE))
  expect(response.status).toBe(502)
})

describe('a connection that fails before anything was sent', () => {
  /** Has a token. From then on, the service resets this many of the connections that are opened. */
  async function upgradeAfter(resets: number) {
    const other = echoServer()
    await using service = await startService({ tls: certificate('localhost'), script: other.script })
    await using way = await startFaultProxy(service.origin.port, new Random(1))
    await using proxy = await startProxy(service, {
      baseUrl: `https://localhost:${way.port}`,
      'origin.caFile': CA_FILE,
    })
    expect((await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))).status).toBe(101)
    const before = way.connections
    const reset = { fault: { direction: 'up', afterBytes: 0, kind: 'reset' } } as const
    way.schedule = (index) => (index < before + resets ? reset : {})
    await using client = await RawClient.connect(proxy.port)
    const frame = Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]) // "hi", masked with zeros
    client.send(Buffer.concat([Buffer.from(get('/v2/again', 'acme', ...HANDSHAKE)), frame]))
    const { status } = await client.response()
    client.send(Buffer.from([0x89, 0x80, 0, 0, 0, 0])) // a ping, to be answered after the echo
    const echoed = status === 101 ? [...(await client.bytes(6))] : []
    const requests = service.requests.filter(({ target }) => target === '/v2/again').length
    return { status, echoed, requests, connections: way.connections - before }
  }

  test('costs one more try, and bytes sent with the handshake arrive once', async () => {
    const seen = await upgradeAfter(1)
    expect(seen).toEqual({ status: 101, echoed: [0x81, 0x02, 0x68, 0x69, 0x8a, 0x00], requests: 1, connections: 2 })
  })

  test('a second failure is not tried again', async () => {
    expect(await upgradeAfter(5)).toMatchObject({ status: 502, requests: 0, connections: 2 })
  })
})

test('a 401 to the handshake retires the token: the next attempt has a new one', async () => {
  await using other = await startService({ script: echo.script })
  await using own = await startProxy(other, { 'tokens.rejectedCooldown': '50ms' })
  const attempt = () => request(own.port, get('/v2/ws', 'acme', ...HANDSHAKE))
  expect((await attempt()).status).toBe(101)
  other.tokens.revoke('acme')
  expect((await attempt()).status).toBe(401)
  expect((await attempt()).status).toBe(101)
  expect(other.tokens.mintsOf('acme')).toHaveLength(2)
})

test('when a token ends, the sockets that were opened with it stay open', async () => {
  const other = echoServer()
  const { service, proxy } = await startBoth({ script: other.script }, { 'tokens.lifetime': '1s' })
  const open = async () => {
    const socket = openSocket(proxy.port, '/v2/ws')
    await once(socket, 'open')
    return socket
  }
  const socket = await open()
  service.tokens.revoke('acme')
  // The token is past its estimated life and has a successor, which a later handshake caused.
  await eventually(async () => {
    const later = await open().catch(() => undefined)
    later?.terminate()
    return service.tokens.mintsOf('acme').length > 1 || undefined
  }, 'a new token')
  socket.send('still here')
  const [data] = await once(socket, 'message')
  expect(data.toString()).toBe('still here')
  expect(service.requests[0]?.connection.isClosed).toBe(false)
  socket.terminate()
})

test('client and origin agree on subprotocols and extensions', async () => {
  const socket = await open('acme', ['chat.v1', 'chat.v2'])
  expect(socket.protocol).toBe('chat.v1')
  expect(socket.extensions).toContain('permessage-deflate')
  socket.terminate()
})

test('an open WebSocket is a request that has ended: logged with 101, not in flight, and under no time limit of requests', async () => {
  const other = echoServer()
  const { proxy } = await startBoth(
    { script: other.script },
    {
      'listen.maxInFlight': '1',
      'listen.idleTimeout': '200ms',
      'listen.keepAliveTimeout': '200ms',
      'origin.responseTimeout': '200ms',
      'origin.idleTimeout': '200ms',
    },
  )
  const socket = openSocket(proxy.port, '/v2/ws')
  await once(socket, 'open')
  expect(await proxy.logOf('/v2/ws')).toMatchObject({ status: 101, bytesOut: 0 })
  expect((await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))).status).toBe(101) // only one may be in flight
  await setTimeout(600) // silent for longer than every limit
  socket.send('still here')
  const [data] = await once(socket, 'message')
  expect(data.toString()).toBe('still here')
  socket.terminate()
})
