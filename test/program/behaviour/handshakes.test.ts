/**
 * Answers to WebSocket handshakes. Any other than 101 is relayed like the response to a request; here is what only
 * handshakes have. Other files send handshakes beside requests.
 */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { CA_FILE, certificate } from '../../support/certificates.ts'
import { eventually } from '../../support/changes.ts'
import { startFaultTable } from '../../support/fault-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { fieldOf, RawClient, request } from '../../support/raw-client.ts'
import { Relay } from '../../support/relay.ts'
import { startService } from '../../support/service.ts'
import { startBoth, startProxy } from '../../support/start-proxy.ts'
import { echoServer } from '../../support/websocket-echo.ts'

const table = await startFaultTable({ 'tokens.rejectedCooldown': '50ms' })
const { port } = table.proxy
const handshake = (target: string, ...lines: string[]) => get(target, 'acme', ...HANDSHAKE, ...lines)

test('a client that sends bytes after a handshake without a tunnel, and leaves, ends its request', async () => {
  const target = table.writing('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegun')
  await using client = await RawClient.sending(port, `${handshake(target)}for the tunnel`)
  await client.untilBytes('begun')
  client.send('x'.repeat(20_000))
  client.endSending()
  expect(await table.proxy.logOf(target)).toMatchObject({ status: 200, code: 'client_closed' })
  await table.abandoned(target)
})

test('bytes above 0x7f in the fields of a 101 pass as they are, both ways', async () => {
  const target = table.target((seen, connection) => {
    connection.tunnel()
    connection.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nX-Back: ${seen.values('x-out')}\r\nX-Back: \xff\r\n\r\n`,
    )
  })
  const text = 'caf\xe9 \x80\xff'
  await using client = await RawClient.sending(port, handshake(target, `X-Out: ${text}`))
  expect((await client.response()).status).toBe(101)
  expect((await table.arrival(target)).values('x-out')).toEqual([text])
  expect(client.received.toString('latin1')).toContain(`X-Back: ${text}\r\n`)
  expect(client.received.toString('latin1')).toContain('X-Back: \xff\r\n')
})

test.each([
  [426, [], 'websocket'],
  [426, HANDSHAKE, 'websocket'],
  [200, [], undefined],
])('a %i says which protocol it requires only if it is a 426 (RFC 9110 §15.5.22)', async (status, lines, upgrade) => {
  const fields = ['Upgrade', 'websocket', 'Connection', 'Upgrade', 'Sec-WebSocket-Version', '13']
  const answer = await request(
    port,
    get(
      table.target(() => ({ status, fields })),
      'acme',
      ...lines,
    ),
  )
  expect([answer.status, fieldOf(answer, 'upgrade')]).toEqual([status, upgrade])
  if (upgrade !== undefined) expect(answer.fields.join().toLowerCase()).toContain('connection,upgrade')
})

const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length

test.each(['ends its side', 'leaves', 'stays'] as const)(
  'another answer than 101 leaves no connection open: the client %s',
  async (then) => {
    const { proxy } = await startBoth({
      script: () => ({ status: 404, content: 'no such thing', closes: true }),
      mint: (mint) => ({ ...mint.issue(), closes: true }), // closes the connection of each mint
    })
    const before = sockets()
    await using client = await RawClient.sending(proxy.port, handshake('/v2/socket'))
    expect((await client.response()).status).toBe(404)
    if (then === 'ends its side') client.socket.end()
    if (then === 'leaves') client.socket.destroy()
    await eventually(() => sockets() <= before + (then === 'stays' ? 1 : 0) || undefined, 'no socket')
  },
)

test('a 401 is not seen: the handshake is repeated with a new token', async () => {
  await table.expectAlive()
  const before = table.service.tokens.mintsOf('acme').length
  const attempt = async () => (await request(port, handshake(table.target(echoServer().script)))).status
  expect(await attempt()).toBe(101)
  table.service.tokens.revoke('acme')
  expect([await attempt(), await attempt()]).toEqual([101, 101])
  expect(table.service.tokens.mintsOf('acme')).toHaveLength(before + 1)
})

test.each([
  ['costs one more try, and bytes sent with the handshake arrive once', 1, 101, 1],
  ['is not tried a third time', 5, 502, 0],
])('a connection that fails before anything was sent %s', async (_, resets, status, requests) => {
  await using service = await startService({ tls: certificate('localhost'), script: echoServer().script })
  await using way = await Relay.to(service.origin.port)
  const settings = { baseUrl: `https://localhost:${way.port}`, 'origin.caFile': CA_FILE }
  await using proxy = await startProxy(service, settings)
  expect((await request(proxy.port, handshake('/v2/ws'))).status).toBe(101) // has a token now
  const before = way.connections
  way.resets = resets
  await using client = await RawClient.connect(proxy.port)
  const frame = Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]) // "hi", masked with zeros
  client.send(Buffer.concat([Buffer.from(handshake('/v2/again')), frame]))
  expect((await client.response()).status).toBe(status)
  client.send(Buffer.from([0x89, 0x80, 0, 0, 0, 0])) // a ping, to be answered after the echo
  if (status === 101) expect([...(await client.bytes(6))]).toEqual([0x81, 0x02, 0x68, 0x69, 0x8a, 0x00])
  expect(service.requests.filter(({ target }) => target === '/v2/again')).toHaveLength(requests)
  expect(way.connections - before).toBe(2)
})
