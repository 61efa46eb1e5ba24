import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { type Sandbox, startSandbox } from '../../src/sandbox/sandbox.ts'
import { fieldOf, RawClient, type RawResponse } from '../support/raw-client.ts'
import { mint } from './client.ts'

const TEXT = 1
const BINARY = 2
const CONTINUATION = 0
const CLOSE = 8
const PING = 9
const PONG = 10

async function openSocket(sandbox: Sandbox, protocols: string[] = []): Promise<WebSocket> {
  const url = `${sandbox.baseUrl.replace('http', 'ws')}/v2/example/socket`
  const socket = new WebSocket(url, protocols, {
    headers: { authorization: `Bearer ${await mint(sandbox, 'acme')}` },
    perMessageDeflate: true, // offered, and not taken up
  })
  await once(socket, 'open')
  return socket
}

/** The next message, with whether it was binary. */
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

/** A client's frame, masked with a key that is not zero. */
function frame(first: number, payload: Buffer | string, length = Buffer.from(payload).length): Buffer {
  const bytes = Buffer.from(payload)
  const key = Buffer.from([0x37, 0xfa, 0x21, 0x3d])
  const masked = Buffer.from(bytes.map((byte, index) => byte ^ (key[index % 4] ?? 0)))
  const head =
    length < 126 ? Buffer.from([first, 0x80 | length]) : Buffer.from([first, 0x80 | 126, length >> 8, length & 255])
  return Buffer.concat([head, key, masked])
}

test('text and binary messages come back as what they were', async () => {
  await using sandbox = await startSandbox()
  const socket = await openSocket(sandbox)
  for (const text of [
    '',
    'hello',
    'grüße 🙂',
    'x'.repeat(125),
    'x'.repeat(126),
    'x'.repeat(65_535),
    'x'.repeat(65_536),
  ]) {
    socket.send(text)
    expect(await message(socket)).toEqual([Buffer.from(text), false])
  }
  const bytes = randomBytes(1000)
  socket.send(bytes)
  expect(await message(socket)).toEqual([bytes, true])
  socket.close(1000)
  expect((await once(socket, 'close'))[0]).toBe(1000)
})

test('a message of 32 MiB', async () => {
  await using sandbox = await startSandbox()
  const socket = await openSocket(sandbox)
  const bytes = randomBytes(32 * 1024 * 1024)
  socket.send(bytes)
  const [content, isBinary] = await message(socket)
  expect(isBinary).toBe(true)
  expect(content.equals(bytes)).toBe(true)
})

test('a client that reads nothing is not read from either; once it reads, nothing is lost or out of order', async () => {
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

test('fragments come back as the same fragments, with a ping answered between them', async () => {
  await using sandbox = await startSandbox()
  await using client = await handshake(sandbox, await mint(sandbox, 'acme'), GOOD_HANDSHAKE)
  const response = await client.response()
  expect(response.status).toBe(101)
  expect(fieldOf(response, 'sec-websocket-accept')).toBe('s3pPLMBiTxaQ9kYGzzhZRbK+xOo=') // RFC 6455 §1.3
  const umlaut = Buffer.from('ü') // cut through its two bytes
  client.send(
    Buffer.concat([
      frame(TEXT, umlaut.subarray(0, 1)),
      frame(0x80 | PING, 'are you there?'),
      frame(CONTINUATION, ''),
      frame(0x80 | PONG, 'unasked'),
      frame(0x80 | CONTINUATION, umlaut.subarray(1)),
    ]),
  )
  expect(await client.bytes(3)).toEqual(Buffer.from([TEXT, 1, 0xc3]))
  expect(await client.bytes(16)).toEqual(Buffer.from([0x80 | PONG, 14, ...Buffer.from('are you there?')]))
  expect(await client.bytes(2)).toEqual(Buffer.from([CONTINUATION, 0]))
  expect(await client.bytes(3)).toEqual(Buffer.from([0x80 | CONTINUATION, 1, 0xbc]))
})

test('frames that come byte by byte, the first ones together with the handshake', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  await using client = await handshake(sandbox, token, GOOD_HANDSHAKE)
  client.send(frame(0x80 | TEXT, 'early'))
  expect((await client.response()).status).toBe(101)
  expect(await client.bytes(7)).toEqual(Buffer.from([0x80 | TEXT, 5, ...Buffer.from('early')]))
  const long = 'y'.repeat(200)
  for (const byte of frame(0x80 | TEXT, long)) client.send(Buffer.from([byte]))
  expect(await client.bytes(204)).toEqual(Buffer.from([0x80 | TEXT, 126, 0, 200, ...Buffer.from(long)]))
})

test.each([
  ['a frame without a mask', Buffer.from([0x80 | TEXT, 1, 0x61]), 1002],
  ['a reserved bit', frame(0xc0 | TEXT, 'a'), 1002],
  ['an unknown opcode', frame(0x80 | 3, 'a'), 1002],
  ['a fragmented ping', frame(PING, 'a'), 1002],
  ['a ping of 126 bytes', frame(0x80 | PING, 'a'.repeat(126)), 1002],
  ['a continuation of nothing', frame(0x80 | CONTINUATION, 'a'), 1002],
  ['half a close code', frame(0x80 | CLOSE, 'a'), 1002],
  ['a close code that nobody may send', frame(0x80 | CLOSE, Buffer.from([0x03, 0xed])), 1002],
  ['text that is not UTF-8', frame(0x80 | TEXT, Buffer.from([0xc3, 0x28])), 1007],
  ['text that ends inside a character', frame(0x80 | TEXT, Buffer.from([0xc3])), 1007],
  ['a frame of 2^63 bytes', Buffer.from([0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]), 1009],
])('%s closes the connection with its code', async (_, bytes, code) => {
  await using sandbox = await startSandbox()
  await using client = await handshake(sandbox, await mint(sandbox, 'acme'), GOOD_HANDSHAKE)
  await client.response()
  client.send(bytes)
  client.send(frame(0x80 | TEXT, 'ignored'))
  const { bytes: last } = await client.untilClosed()
  expect(last).toEqual(Buffer.from([0x80 | CLOSE, 2, code >> 8, code & 255]))
})

test('a message that starts inside another is an error, after the first frame was echoed', async () => {
  await using sandbox = await startSandbox()
  await using client = await handshake(sandbox, await mint(sandbox, 'acme'), GOOD_HANDSHAKE)
  await client.response()
  client.send(Buffer.concat([frame(TEXT, 'a'), frame(0x80 | BINARY, 'b')]))
  expect((await client.untilClosed()).bytes).toEqual(Buffer.from([TEXT, 1, 0x61, 0x80 | CLOSE, 2, 0x03, 0xea]))
})

test.each([
  ['no code', '', [0x80 | CLOSE, 0]],
  ['a code and a reason', Buffer.from([0x0f, 0xa0, 0x62, 0x79, 0x65]), [0x80 | CLOSE, 2, 0x0f, 0xa0]],
])('a close with %s is answered and ends the connection', async (_, payload, expected) => {
  await using sandbox = await startSandbox()
  await using client = await handshake(sandbox, await mint(sandbox, 'acme'), GOOD_HANDSHAKE)
  await client.response()
  client.send(frame(0x80 | CLOSE, payload))
  expect(await client.untilClosed()).toEqual({ bytes: Buffer.from(expected), end: 'fin' })
})

test('a client that only ends its side gets the end back; one that resets harms nobody', async () => {
  await using sandbox = await startSandbox()
  await using polite = await handshake(sandbox, await mint(sandbox, 'acme'), GOOD_HANDSHAKE)
  await polite.response()
  polite.endSending()
  expect(await polite.untilClosed()).toEqual({ bytes: Buffer.alloc(0), end: 'fin' })

  await using rude = await handshake(sandbox, await mint(sandbox, 'acme'), GOOD_HANDSHAKE)
  await rude.response()
  rude.reset()
  const socket = await openSocket(sandbox)
  socket.send('still here')
  expect((await message(socket))[0].toString()).toBe('still here')
})

test('the first protocol that is offered is taken', async () => {
  await using sandbox = await startSandbox()
  expect((await openSocket(sandbox, ['chat.v2', 'chat.v1'])).protocol).toBe('chat.v2')
})

async function refused(lines: string[], token?: string): Promise<RawResponse> {
  await using sandbox = await startSandbox()
  await using client = await handshake(sandbox, token ?? (await mint(sandbox, 'acme')), lines)
  const response = await client.response()
  expect((await client.untilClosed()).bytes.length).toBe(0)
  return response
}

test.each([
  ['another protocol', 426, ['Upgrade: h2c']],
  ['no version', 426, ['Upgrade: websocket', 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==']],
  ['version 8', 426, ['Upgrade: websocket', 'Sec-WebSocket-Version: 8', 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==']],
  ['no key', 400, ['Upgrade: websocket', 'Sec-WebSocket-Version: 13']],
  ['a short key', 400, ['Upgrade: websocket', 'Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: c2hvcnQ=']],
])('a handshake with %s is answered with %i', async (_, status, lines) => {
  expect((await refused(lines)).status).toBe(status)
})

test('a handshake needs a live token', async () => {
  const response = await refused(GOOD_HANDSHAKE, 'never-issued')
  expect(response.status).toBe(401)
  expect(fieldOf(response, 'www-authenticate')).toBe('Bearer error="invalid_token"')
})

test('faults and latency hit handshakes as well', async () => {
  await using sandbox = await startSandbox({
    requestFaults: [{ kind: 'status', status: 503, count: 1 }, { kind: 'reset' }],
  })
  const token = await mint(sandbox, 'acme')
  await using unavailable = await handshake(sandbox, token, GOOD_HANDSHAKE)
  expect((await unavailable.response()).status).toBe(503)
  await using reset = await handshake(sandbox, token, GOOD_HANDSHAKE)
  expect(await reset.untilClosed()).toEqual({ bytes: Buffer.alloc(0), end: 'reset' })
})

test('an upgrade that is asked for elsewhere is not taken up: the answer is the usual one', async () => {
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

test('without an upgrade the path says what it is for', async () => {
  await using sandbox = await startSandbox()
  const response = await fetch(`${sandbox.baseUrl}/v2/example/socket`, {
    headers: { authorization: `Bearer ${await mint(sandbox, 'acme')}` },
  })
  expect(response.status).toBe(426)
  expect(response.headers.get('upgrade')).toBe('websocket')
})
