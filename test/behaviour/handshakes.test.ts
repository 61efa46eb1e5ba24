/** WebSocket handshakes: their fields, and the service's answer. An answer other than 101 is relayed like any response. */

import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { startProxyProcess } from '../support/proxy-process.ts'
import { fieldOf, problemOf, RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const MIB = 1024 * 1024
const handshake = (target: string, org = 'acme') => get(target, org, ...HANDSHAKE)

/** Ascending numbers, so bytes in a wrong place are noticed. */
const LARGE = Buffer.from(Uint32Array.from({ length: (8 * MIB) / 4 }, (_, i) => i).buffer)
const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

test.each([
  ['with a length', false],
  ['in chunks', true],
])('a large answer %s arrives completely, and ends its request', async (_, isChunked) => {
  await using service = await startService({ script: () => ({ status: 403, content: LARGE, isChunked }) })
  await using proxy = await startProxy(service)
  const answer = await request(proxy.port, handshake('/v2/large'))
  expect(answer).toMatchObject({ status: 403, isComplete: true })
  expect(digest(answer.content)).toBe(digest(LARGE))
  expect(await proxy.logOf('/v2/large')).toMatchObject({ status: 403, bytesOut: LARGE.length })
})

test('a large answer without a length ends with its connection, and is broken if the connection was reset', async () => {
  await using service = await startService({
    script: ({ target }, connection) => {
      connection.socket.write('HTTP/1.1 200 OK\r\n\r\nbegun', () => {
        if (target === '/v2/ends') connection.end()
        else connection.reset()
      })
      return undefined
    },
  })
  await using proxy = await startProxy(service)
  expect(await request(proxy.port, handshake('/v2/ends'))).toMatchObject({ isComplete: true })
  expect(await request(proxy.port, handshake('/v2/breaks')).catch(() => ({ isComplete: false }))).toMatchObject({
    isComplete: false,
  })
})

test('a client that does not read its answer makes the service wait', async () => {
  const total = 64 * MIB
  let sent = 0
  await using service = await startService({
    script: async (_, connection) => {
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: ${total}\r\n\r\n`)
      for (; sent < total; sent += MIB) if (!connection.socket.write(Buffer.alloc(MIB))) await connection.drained()
      return undefined
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port, { deadlineMs: 20_000 })
  client.socket.pause()
  client.send(handshake('/v2/unread'))
  let before = -1
  let since = performance.now()
  await eventually(() => {
    if (sent !== before) since = performance.now()
    before = sent
    return (sent > 0 && performance.now() - since > 300) || undefined
  }, 'a service that is held up')
  expect(sent).toBeLessThan(total / 2)
  client.socket.resume()
  expect((await client.response()).content.length).toBe(total)
})

describe('the time limits hold', () => {
  const settings = { 'origin.responseTimeout': '400ms', 'origin.idleTimeout': '400ms' }

  test.each([
    ['behind its head', ''],
    ['inside its content', 'begun'],
  ])('origin.idleTimeout ends an answer that stalls %s', async (_, begun) => {
    const script: OriginScript = (__, connection) => {
      connection.write(`HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n${begun}`)
      return undefined
    }
    await using service = await startService({ script })
    await using proxy = await startProxy(service, { ...settings, 'origin.responseTimeout': '60s' })
    expect(await request(proxy.port, handshake('/v2/stalls'))).toMatchObject({ status: 200, isComplete: false })
    const logged = { status: 200, code: 'http_response_timeout', bytesOut: begun.length }
    expect(await proxy.logOf('/v2/stalls')).toMatchObject(logged)
  })

  test('origin.responseTimeout ends the wait of a handshake for a connection', async () => {
    await using service = await startService({
      script: (_, connection) => {
        connection.write('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun')
        return undefined
      },
    })
    const limits = { ...settings, 'origin.idleTimeout': '60s', 'origin.connections': '1' }
    await using proxy = await startProxy(service, limits)
    await using first = await RawClient.sending(proxy.port, get('/v2/first', 'acme'))
    await first.untilBytes('begun')
    const answer = await request(proxy.port, handshake('/v2/second'))
    expect([answer.status, problemOf(answer).code]).toEqual([503, 'overloaded'])
  })

  test('origin.responseTimeout ends a handshake that gets no answer', async () => {
    await using service = await startService({ script: () => undefined })
    await using proxy = await startProxy(service, { ...settings, 'origin.idleTimeout': '60s' })
    const answer = await request(proxy.port, handshake('/v2/silent'))
    expect([answer.status, problemOf(answer).code]).toEqual([504, 'http_response_timeout'])
    await service.origin.waitFor(() => service.requests[0]?.connection.peerEnd !== undefined, 'the end at the origin')
  })

  test('origin.idleTimeout and origin.responseTimeout do not end a tunnel', async () => {
    const script: OriginScript = (_, connection) => {
      connection.tunnel()
      connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
      return undefined
    }
    await using service = await startService({ script })
    await using proxy = await startProxy(service, settings)
    await using client = await RawClient.sending(proxy.port, handshake('/v2/tunnel'))
    expect((await client.response()).status).toBe(101)
    // A request with the same limits meets them first.
    const silent = await startService({ script: () => undefined })
    await using other = await startProxy(silent, { 'origin.responseTimeout': '1200ms' })
    expect((await request(other.port, get('/v2/x', 'acme'))).status).toBe(504)
    await silent[Symbol.asyncDispose]()
    service.requests[0]?.connection.write('still there')
    await client.untilBytes('still there')
  })
})

test('listen.idleTimeout does not end a tunnel whose client reads nothing for a while', async () => {
  await using service = await startService({
    script: (_, connection) => {
      connection.tunnel()
      connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
      return undefined
    },
  })
  await using proxy = await startProxy(service, { 'listen.idleTimeout': '300ms' })
  await using client = await RawClient.sending(proxy.port, handshake('/v2/tunnel'), { deadlineMs: 20_000 })
  expect((await client.response()).status).toBe(101)
  client.socket.pause()
  service.requests[0]?.connection.socket.write(LARGE)
  // A response with the same limit is broken off first.
  const large = await startService({ script: () => ({ content: Buffer.concat([LARGE, LARGE, LARGE]) }) })
  await using other = await startProxy(large, { 'listen.idleTimeout': '1s' })
  await using slow = await RawClient.connect(other.port)
  slow.socket.pause()
  slow.send(get('/v2/large', 'acme'))
  expect(await other.logOf('/v2/large')).toMatchObject({ code: 'request_timeout' })
  await large[Symbol.asyncDispose]()
  client.socket.resume()
  expect(digest(await client.bytes(LARGE.length))).toBe(digest(LARGE))
})

describe('origin.connections', () => {
  test('bounds handshakes; a 101 frees the place, and so does any other answer', async () => {
    let most = 0
    const waiting: (() => void)[] = []
    await using service = await startService({
      script: async ({ target }, connection) => {
        if (target === '/v2/plain') return { status: 404 }
        if (target === '/v2/open') {
          connection.tunnel()
          connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
          return undefined
        }
        const busy = new Promise<void>((resolve) => waiting.push(resolve))
        most = Math.max(most, waiting.length)
        await busy
        return { status: 404 }
      },
    })
    await using proxy = await startProxy(service, { 'origin.connections': '2' })
    for (const target of ['/v2/plain', '/v2/plain', '/v2/plain']) {
      expect((await request(proxy.port, handshake(target))).status).toBe(404)
    }
    const tunnels = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const client = await RawClient.connect(proxy.port)
        client.send(handshake('/v2/open'))
        expect((await client.response()).status).toBe(101)
        return client
      }),
    )
    const held = Array.from({ length: 6 }, () => request(proxy.port, handshake('/v2/held')))
    for (let answered = 0; answered < held.length; answered++) {
      await eventually(() => waiting.length > 0 || undefined, 'a handshake at the service')
      waiting.shift()?.()
    }
    for (const { status } of await Promise.all(held)) expect(status).toBe(404)
    expect(most).toBeLessThanOrEqual(2)
    for (const client of tunnels) await client[Symbol.asyncDispose]()
  })
})

test('handshakes answered by event streams, whose clients leave, hold no slot', async () => {
  const HANDSHAKES = 200
  await using service = await startService({
    script: ({ target }, connection) => {
      if (target !== '/v2/events') return { content: 'good' }
      connection.write('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n')
      const event = `data: ${'x'.repeat(8_000)}\n\n`
      const next = () => {
        if (connection.isClosed) return
        connection.write(`${event.length.toString(16)}\r\n${event}\r\n`)
        setTimeout(next, 200).unref()
      }
      next()
      return undefined
    },
  })
  await using proxy = await startProxyProcess(service, {
    settings: { 'listen.maxInFlight': `${HANDSHAKES}`, 'origin.connections': `${2 * HANDSHAKES}` },
  })
  const clients = await Promise.all(
    Array.from({ length: HANDSHAKES }, async () => {
      const client = await RawClient.connect(proxy.port, { deadlineMs: 30_000 })
      client.send(handshake('/v2/events'))
      await client.untilBytes('data: ')
      return client
    }),
  )
  expect(await proxy.metric('oap_requests_in_flight')).toBe(HANDSHAKES)
  expect(await proxy.metric('oap_origin_connections{state="tunnel"}')).toBe(0)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status, 'no slot is left').toBe(503)
  for (const [i, client] of clients.entries()) {
    if (i % 2 === 0) client.reset()
    else client.socket.destroy()
  }
  await eventually(
    async () => (await proxy.metric('oap_requests_in_flight')) === 0 || undefined,
    'every slot given back',
    20_000,
  )
  await service.origin.waitFor(
    () => service.requests.every(({ connection }) => connection.peerEnd !== undefined),
    'the ends at the service',
    20_000,
  )
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
})

test('a client that leaves before the answer ends its handshake at once', async () => {
  await using service = await startService({ script: () => undefined })
  await using proxy = await startProxy(service)
  for (const [i, leave] of (['reset', 'close'] as const).entries()) {
    await using client = await RawClient.sending(proxy.port, handshake(`/v2/${leave}`))
    await service.origin.waitFor(() => service.requests.length === i + 1, 'the handshake')
    if (leave === 'reset') client.reset()
    else client.socket.destroy()
    expect(await proxy.logOf(`/v2/${leave}`)).toMatchObject({ status: 499, code: 'client_closed' })
    await service.origin.waitFor(() => service.requests[i]?.connection.peerEnd !== undefined, 'the end at the service')
  }
})

test('a client that sends bytes after a handshake without a tunnel, and leaves, ends its request', async () => {
  await using service = await startService({
    script: (_, connection) => {
      connection.write('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun')
      return undefined
    },
  })
  await using proxy = await startProxy(service)
  await using client = await RawClient.sending(proxy.port, `${handshake('/v2/left')}for the tunnel`)
  await client.untilBytes('begun')
  client.send('x'.repeat(200_000))
  client.endSending()
  expect(await proxy.logOf('/v2/left')).toMatchObject({ status: 200, code: 'client_closed' })
  await service.origin.waitFor(() => service.requests[0]?.connection.peerEnd !== undefined, 'the end at the service')
})

test('bytes above 0x7f in the fields of a 101 pass as they are, both ways', async () => {
  await using service = await startService({
    script: (seen, connection) => {
      connection.tunnel()
      connection.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Back: ${seen.values('x-out')}\r\nX-Back: \xff\r\n\r\n`,
      )
      return undefined
    },
  })
  await using proxy = await startProxy(service)
  const text = 'caf\xe9 \x80\xff'
  await using client = await RawClient.sending(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE, `X-Out: ${text}`))
  expect((await client.response()).status).toBe(101)
  expect(service.requests[0]?.values('x-out')).toEqual([text])
  expect(client.received.toString('latin1')).toContain(`X-Back: ${text}\r\n`)
  expect(client.received.toString('latin1')).toContain('X-Back: \xff\r\n')
})

test('a 426 says which protocol it requires (RFC 9110 §15.5.22)', async () => {
  await using service = await startService({
    script: ({ target }) => ({
      status: target === '/v2/other' ? 200 : 426,
      fields: ['Upgrade', 'websocket', 'Connection', 'Upgrade', 'Sec-WebSocket-Version', '13'],
      content: 'no',
    }),
  })
  await using proxy = await startProxy(service)
  for (const raw of [get('/v2/required', 'acme'), handshake('/v2/required')]) {
    const answer = await request(proxy.port, raw)
    expect([answer.status, fieldOf(answer, 'upgrade')]).toEqual([426, 'websocket'])
    expect(answer.fields.join().toLowerCase()).toContain('connection,upgrade')
  }
  expect(fieldOf(await request(proxy.port, get('/v2/other', 'acme')), 'upgrade')).toBeUndefined()
})

test('a field that occurs twice reaches the origin twice, however it is spelled', async () => {
  await using service = await startService({ script: () => ({ status: 403 }) })
  await using proxy = await startProxy(service)
  await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE, 'X-Test: 1', 'x-test: 2', 'X-Test: 3'))
  expect(service.requests[0]?.values('x-test')).toEqual(['1', '2', '3'])
})

test('an answer that is no HTTP is the origin’s fault', async () => {
  await using service = await startService({
    script: (_, connection) => {
      connection.write('garbage\r\n\r\n')
      return undefined
    },
  })
  await using proxy = await startProxy(service)
  const answer = await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))
  expect(answer.status).toBe(502)
  expect(problemOf(answer).code).toBe('http_protocol_error')
})

const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length

test.each(['ends its side', 'leaves', 'stays'] as const)(
  'a handshake that gets another answer than 101 leaves no connection open: its client %s',
  async (then) => {
    await using service = await startService({
      script: () => ({ status: 404, content: 'no such thing', closes: true }),
      mint: (mint) => ({ ...mint.issue(), closes: true }), // closes the connection of each mint
    })
    await using proxy = await startProxy(service)
    const before = sockets()
    await using client = await RawClient.sending(proxy.port, get('/v2/socket', 'acme', ...HANDSHAKE))
    expect((await client.response()).status).toBe(404)
    if (then === 'ends its side') client.socket.end()
    if (then === 'leaves') client.socket.destroy()
    await eventually(() => sockets() <= before + (then === 'stays' ? 1 : 0) || undefined, 'no socket')
  },
)
