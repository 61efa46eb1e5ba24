import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { type Sandbox, startSandbox } from '../../src/sandbox/sandbox.ts'
import { fieldOf, RawClient, type RawResponse } from '../support/raw-client.ts'
import { mint } from './client.ts'

async function openSocket(sandbox: Sandbox): Promise<WebSocket> {
  const url = `${sandbox.baseUrl.replace('http', 'ws')}/v2/example/socket`
  const socket = new WebSocket(url, { headers: { authorization: `Bearer ${await mint(sandbox, 'acme')}` } })
  await once(socket, 'open')
  return socket
}

/** The next message, and whether it was binary. */
async function message(socket: WebSocket): Promise<[Buffer, boolean]> {
  const [content, isBinary] = await once(socket, 'message')
  return [content, isBinary]
}

async function handshake(sandbox: Sandbox, token: string, lines: string[]): Promise<RawClient> {
  const client = await RawClient.connect(Number(new URL(sandbox.baseUrl).port))
  client.send(
    [
      'GET /v2/example/socket HTTP/1.1',
      'Host: sandbox',
      `Authorization: Bearer ${token}`,
      'Connection: Upgrade',
      ...lines,
      '\r\n',
    ].join('\r\n'),
  )
  return client
}

const GOOD_HANDSHAKE = [
  'Upgrade: websocket',
  'Sec-WebSocket-Version: 13',
  'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
]

test('text and binary messages come back as text and binary', async () => {
  await using sandbox = await startSandbox()
  const socket = await openSocket(sandbox)
  for (const text of ['', 'grüße 🙂', 'x'.repeat(65_536)]) {
    socket.send(text)
    expect(await message(socket)).toEqual([Buffer.from(text), false])
  }
  const bytes = randomBytes(1000)
  socket.send(bytes)
  expect(await message(socket)).toEqual([bytes, true])
  socket.close(1000)
  expect((await once(socket, 'close'))[0]).toBe(1000)
})

test('the sandbox stops reading from a client that reads nothing; later, nothing is lost or out of order', async () => {
  await using sandbox = await startSandbox()
  const socket = await openSocket(sandbox)
  const received: number[] = []
  socket.on('message', (content: Buffer) => received.push(content.readUInt32BE(0)))
  socket.pause()
  for (let number = 0; number < 64; number += 1) {
    const content = Buffer.alloc(1024 * 1024)
    content.writeUInt32BE(number)
    socket.send(content)
  }
  for (let count = 0; count < 300; count += 1) await mint(sandbox, 'globex')
  expect(socket.bufferedAmount).toBeGreaterThan(1024 * 1024)

  socket.resume()
  await expect.poll(() => received.length, { timeout: 10_000 }).toBe(64)
  expect(received).toEqual(Array.from({ length: 64 }, (_, number) => number))
})

async function refused(lines: string[], token?: string): Promise<RawResponse> {
  await using sandbox = await startSandbox()
  await using client = await handshake(sandbox, token ?? (await mint(sandbox, 'acme')), lines)
  const response = await client.response()
  expect((await client.untilClosed()).bytes.length).toBe(0)
  return response
}

test.each([
  ['another protocol', ['Upgrade: h2c', ...GOOD_HANDSHAKE.slice(1)]],
  ['no version', ['Upgrade: websocket', 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==']],
  ['no key', ['Upgrade: websocket', 'Sec-WebSocket-Version: 13']],
])('a handshake with %s is answered with 400', async (_, lines) => {
  expect((await refused(lines)).status).toBe(400)
})

test('a handshake needs a live token', async () => {
  const response = await refused(GOOD_HANDSHAKE, 'never-issued')
  expect(response.status).toBe(401)
  expect(fieldOf(response, 'www-authenticate')).toBe('Bearer error="invalid_token"')
})

test('faults and latency apply to handshakes, too', async () => {
  await using sandbox = await startSandbox({
    requestFaults: [{ kind: 'status', status: 503, count: 1 }, { kind: 'reset' }],
  })
  const token = await mint(sandbox, 'acme')
  await using unavailable = await handshake(sandbox, token, GOOD_HANDSHAKE)
  expect((await unavailable.response()).status).toBe(503)
  await using reset = await handshake(sandbox, token, GOOD_HANDSHAKE)
  expect(await reset.untilClosed()).toEqual({ bytes: Buffer.alloc(0), end: 'reset' })
})

test('an upgrade on another path is ignored', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  await using client = await RawClient.connect(Number(new URL(sandbox.baseUrl).port))
  client.send(
    [
      'GET /v2/example/bytes?size=5000000 HTTP/1.1',
      'Host: sandbox',
      `Authorization: Bearer ${token}`,
      'Connection: Upgrade',
      'Upgrade: websocket',
      '\r\n',
    ].join('\r\n'),
  )
  const response = await client.response()
  expect(response).toMatchObject({ status: 200, isComplete: true })
  expect(response.content.length).toBe(5_000_000)
})

test('an upgrade with content is refused, since the content could not be read', async () => {
  const response = await refused(['Upgrade: h2c', 'Content-Length: 5'])
  expect(response.status).toBe(400)
})
