/** What the sandbox answers to a request with a live token; and its end. */

import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { networkInterfaces } from 'node:os'
import { text } from 'node:stream/consumers'
import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { type Sandbox, startSandbox } from '../../../src/sandbox/sandbox.ts'
import { scaled } from '../../support/pace.ts'
import { RawClient, type RawResponse } from '../../support/raw-client.ts'
import { call, mint } from './client.ts'

const UPGRADE = ['Connection: Upgrade', 'Upgrade: websocket']
const HANDSHAKE = [...UPGRADE, 'Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==']

function connect(sandbox: Sandbox): Promise<RawClient> {
  return RawClient.connect(Number(new URL(sandbox.baseUrl).port))
}

/** Sends these lines with a live token, and resolves with the response. */
async function ask(sandbox: Sandbox, head: string, lines: readonly string[], content = ''): Promise<RawResponse> {
  await using client = await connect(sandbox)
  const token = await mint(sandbox, 'acme')
  client.send([head, 'Host: sandbox', `AUTHORIZATION: Bearer ${token}`, ...lines, '', content].join('\r\n'))
  return await client.response()
}

test('the echo shows the request byte for byte and in order, and masks only credentials', async () => {
  await using sandbox = await startSandbox()
  const lines = [
    'X-Twice: 1',
    'accept: */*',
    'x-TWICE: 2',
    'X-Proxy-Key: caller-key',
    'Cookie: a=1',
    'Content-Length: 5',
  ]
  const target = '/v2/example/endpoint?a=%2F&b=+&&=;c'
  const { status, content } = await ask(sandbox, `PATCH ${target} HTTP/1.1`, lines, 'hello')
  expect(status).toBe(200)
  expect(JSON.parse(content.toString())).toEqual({
    org: 'acme',
    method: 'PATCH',
    path: '/v2/example/endpoint',
    query: 'a=%2F&b=+&&=;c',
    fields: [
      'Host: sandbox',
      'AUTHORIZATION: [credentials]',
      ...lines.map((line) => line.replace('caller-key', '[credentials]')),
    ],
    content: { lengthBytes: 5, sha256: createHash('sha256').update('hello').digest('hex') },
  })
})

test('any method is echoed on any path below /v2, after any prefix, with many fields and a large upload', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  const headers = Object.fromEntries(Array.from({ length: 1500 }, (_, index) => [`f${index}`, '']))
  const body = randomBytes(16 << 20)
  const response = await call(sandbox, '/api/v2/members/17', token, { method: 'PROPFIND', headers, body })
  const { fields, ...echo } = (await response.json()) as { fields: string[] }
  const content = { lengthBytes: body.length, sha256: createHash('sha256').update(body).digest('hex') }
  expect(echo).toEqual({ org: 'acme', method: 'PROPFIND', path: '/v2/members/17', query: '', content })
  expect(fields.filter((line) => /^f\d+: $/.test(line))).toHaveLength(1500)
  for (const path of ['/apiv2/x', '/', '/v2x']) expect((await call(sandbox, path, token)).status).toBe(404)
})

test.each([
  ['', 1024, '1024'],
  ['?size=200000', 200_000, '200000'],
  ['?size=200000&chunked=1', 200_000, null],
  ['?size=nonsense', 1024, '1024'],
])('bytes%s are %i bytes of the known pattern', async (query, sizeBytes, length) => {
  await using sandbox = await startSandbox()
  const response = await call(sandbox, `/v2/example/bytes${query}`, await mint(sandbox, 'acme'))
  expect(response.headers.get('content-length')).toBe(length)
  const content = Buffer.from(await response.arrayBuffer())
  expect(content.equals(Buffer.from(Array.from({ length: sizeBytes }, (_, index) => index % 251)))).toBe(true)
})

test('an event stream sends as many events as were asked for', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  const response = await call(sandbox, '/v2/example/events?count=3&intervalMs=20', token)
  expect(response.headers.get('content-type')).toBe('text/event-stream')
  const events = [1, 2, 3].map((number) => `id: ${number}\ndata: {"org":"acme","number":${number}}\n\n`)
  expect(await response.text()).toBe(events.join(''))
})

test('an own handler answers every path except the examples, and what it throws is told', async () => {
  await using sandbox = await startSandbox({
    handler: (request, response, org) => {
      if (request.url === '/v2/fail') throw new Error('no such member')
      response.end(`${org} asked for ${request.url}`)
    },
  })
  const token = await mint(sandbox, 'acme')
  expect(await (await call(sandbox, '/v2/members?page=2', token)).text()).toBe('acme asked for /v2/members?page=2')
  expect(await (await call(sandbox, '/v2/example/endpoint', token)).json()).toMatchObject({ org: 'acme' })
  expect((await call(sandbox, '/v2/members', 'no-token')).status).toBe(401)
  const failed = await call(sandbox, '/v2/fail', token)
  expect([failed.status, await failed.json()]).toEqual([
    500,
    { error: 'sandbox_failed', message: 'Error: no such member' },
  ])
})

test('a WebSocket sends every message back, and does not read from a client that reads nothing', async () => {
  await using sandbox = await startSandbox()
  const headers = { authorization: `Bearer ${await mint(sandbox, 'acme')}` }
  const socket = new WebSocket(`${sandbox.baseUrl.replace('http', 'ws')}/v2/example/socket`, { headers })
  await once(socket, 'open')
  for (const message of ['', 'grüße 🙂', randomBytes(100_000)]) {
    socket.send(message)
    expect(await once(socket, 'message')).toEqual([Buffer.from(message), typeof message !== 'string'])
  }
  const received: number[] = []
  socket.on('message', (content: Buffer) => received.push(content.readUInt32BE(0)))
  socket.pause()
  for (let number = 0; number < 24; number += 1) {
    const content = Buffer.alloc(1 << 20)
    content.writeUInt32BE(number)
    socket.send(content)
  }
  // Only passes time. A busy process may meet the end of its idle connection.
  for (let count = 0; count < 30; count += 1) await mint(sandbox, 'globex').catch(() => undefined)
  expect(socket.bufferedAmount).toBeGreaterThan(1 << 20)
  socket.resume()
  await expect.poll(() => received.length, { timeout: scaled(10_000) }).toBe(24)
  expect(received).toEqual(Array.from({ length: 24 }, (_, number) => number))
  socket.close(1000)
  expect((await once(socket, 'close'))[0]).toBe(1000)
})

test('a bad handshake is refused, faults apply to a good one, and an upgrade elsewhere is ignored', async () => {
  await using sandbox = await startSandbox()
  const socketHead = 'GET /v2/example/socket HTTP/1.1'
  expect((await ask(sandbox, socketHead, [])).status).toBe(426)
  expect((await ask(sandbox, socketHead, UPGRADE)).status).toBe(400)
  sandbox.set({ requestFaults: [{ kind: 'status', status: 503, count: 1 }] })
  expect((await ask(sandbox, socketHead, HANDSHAKE)).status).toBe(503)
  const { status, isComplete, content } = await ask(sandbox, 'GET /v2/example/bytes?size=5000000 HTTP/1.1', HANDSHAKE)
  expect([status, isComplete, content.length]).toEqual([200, true, 5_000_000])
  sandbox.set({ expiredStatus: 403 })
  sandbox.revoke('*')
  expect((await call(sandbox, '/v2/example/socket', 'never-issued')).status).toBe(403)
})

test('close ends idle, waiting and streaming connections at once', async () => {
  const sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  await using idle = await connect(sandbox)
  const events = await call(sandbox, '/v2/example/events?intervalMs=3600000', token)
  sandbox.set({ requestLatencyMs: 3_600_000 })
  const slowEnded = expect(call(sandbox, '/v2/example/endpoint', token)).rejects.toThrow()
  await expect.poll(() => sandbox.stats().totals.requests).toBe(2)

  await sandbox.close()
  await slowEnded
  await expect(text(events.body!)).rejects.toThrow()
  expect((await idle.untilClosed()).bytes.length).toBe(0)
  await expect(fetch(sandbox.baseUrl)).rejects.toThrow()
})

test('it listens on 127.0.0.1 alone, says if its port is taken, and does not print its secret', async () => {
  await using sandbox = await startSandbox({ appSecret: 'a-secret-to-look-for' })
  const { hostname, port } = new URL(sandbox.baseUrl)
  expect(hostname).toBe('127.0.0.1')
  const others = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ address, scopeid }) => address !== '127.0.0.1' && !scopeid)
  for (const { address } of others) await expect(RawClient.connect(Number(port), { host: address })).rejects.toThrow()
  await expect(startSandbox({ port: Number(port) })).rejects.toMatchObject({ code: 'EADDRINUSE' })
  expect(inspect(sandbox, { depth: 10, showHidden: true })).not.toContain('a-secret-to-look-for')
  expect(JSON.stringify(sandbox)).not.toContain('a-secret-to-look-for')
})
