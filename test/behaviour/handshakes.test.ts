/** WebSocket handshakes: their fields, and the service's answer. An answer other than 101 is relayed like any response. */

import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { type OriginScript, writes } from '../support/origin-connection.ts'
import { fieldOf, problemOf, RawClient, request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startBoth, startProxy } from '../support/start-proxy.ts'

const MIB = 1024 * 1024
const handshake = (target: string, org = 'acme') => get(target, org, ...HANDSHAKE)

/** Ascending numbers, so bytes in a wrong place are noticed. */
const LARGE = Buffer.from(Uint32Array.from({ length: (8 * MIB) / 4 }, (_, i) => i).buffer)
const digest = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex')

describe('the time limits hold', () => {
  const settings = { 'origin.responseTimeout': '400ms', 'origin.idleTimeout': '400ms' }

  test('origin.responseTimeout ends a handshake that gets no answer', async () => {
    const { service, proxy } = await startBoth(
      { script: () => undefined },
      { ...settings, 'origin.idleTimeout': '60s' },
    )
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
    const { service, proxy } = await startBoth({ script }, settings)
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
  const { service, proxy } = await startBoth(
    {
      script: (_, connection) => {
        connection.tunnel()
        connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
        return undefined
      },
    },
    { 'listen.idleTimeout': '300ms' },
  )
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
    const { proxy } = await startBoth(
      {
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
      },
      { 'origin.connections': '2' },
    )
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

test('a client that leaves before the answer ends its handshake at once', async () => {
  const { service, proxy } = await startBoth({ script: () => undefined })
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
  const { service, proxy } = await startBoth({
    script: writes('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun'),
  })
  await using client = await RawClient.sending(proxy.port, `${handshake('/v2/left')}for the tunnel`)
  await client.untilBytes('begun')
  client.send('x'.repeat(200_000))
  client.endSending()
  expect(await proxy.logOf('/v2/left')).toMatchObject({ status: 200, code: 'client_closed' })
  await service.origin.waitFor(() => service.requests[0]?.connection.peerEnd !== undefined, 'the end at the service')
})

test('bytes above 0x7f in the fields of a 101 pass as they are, both ways', async () => {
  const { service, proxy } = await startBoth({
    script: (seen, connection) => {
      connection.tunnel()
      connection.write(
        `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Back: ${seen.values('x-out')}\r\nX-Back: \xff\r\n\r\n`,
      )
      return undefined
    },
  })
  const text = 'caf\xe9 \x80\xff'
  await using client = await RawClient.sending(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE, `X-Out: ${text}`))
  expect((await client.response()).status).toBe(101)
  expect(service.requests[0]?.values('x-out')).toEqual([text])
  expect(client.received.toString('latin1')).toContain(`X-Back: ${text}\r\n`)
  expect(client.received.toString('latin1')).toContain('X-Back: \xff\r\n')
})

test('a 426 says which protocol it requires (RFC 9110 §15.5.22)', async () => {
  const { proxy } = await startBoth({
    script: ({ target }) => ({
      status: target === '/v2/other' ? 200 : 426,
      fields: ['Upgrade', 'websocket', 'Connection', 'Upgrade', 'Sec-WebSocket-Version', '13'],
      content: 'no',
    }),
  })
  for (const raw of [get('/v2/required', 'acme'), handshake('/v2/required')]) {
    const answer = await request(proxy.port, raw)
    expect([answer.status, fieldOf(answer, 'upgrade')]).toEqual([426, 'websocket'])
    expect(answer.fields.join().toLowerCase()).toContain('connection,upgrade')
  }
  expect(fieldOf(await request(proxy.port, get('/v2/other', 'acme')), 'upgrade')).toBeUndefined()
})

const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length

test.each(['ends its side', 'leaves', 'stays'] as const)(
  'a handshake that gets another answer than 101 leaves no connection open: its client %s',
  async (then) => {
    const { proxy } = await startBoth({
      script: () => ({ status: 404, content: 'no such thing', closes: true }),
      mint: (mint) => ({ ...mint.issue(), closes: true }), // closes the connection of each mint
    })
    const before = sockets()
    await using client = await RawClient.sending(proxy.port, get('/v2/socket', 'acme', ...HANDSHAKE))
    expect((await client.response()).status).toBe(404)
    if (then === 'ends its side') client.socket.end()
    if (then === 'leaves') client.socket.destroy()
    await eventually(() => sockets() <= before + (then === 'stays' ? 1 : 0) || undefined, 'no socket')
  },
)
