/**
 * The attack: a stranger makes OpenSSL work. It works through records without a turn of the event loop, so that one connection
 * keeps all others waiting: with KeyUpdates of TLS 1.3, with a record for each byte, or, where certificates are asked for, with
 * a chain of 99 certificates that are slow to verify. A certificate with thousands of names takes 2 MiB of memory.
 */

import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { get } from '../support/case-table.ts'
import { longChain } from '../support/certificate-chain.ts'
import { CA_FILE, certificateFiles } from '../support/certificates.ts'
import { eventually } from '../support/changes.ts'
import { scaledSetting } from '../support/pace.ts'
import { type ProxyProcess, startProxyProcess } from '../support/proxy-process.ts'
import { RawClient } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { RecordWriter } from '../support/tls-records.ts'
import { echoServer } from '../support/websocket-echo.ts'

const { certificate, key } = certificateFiles('localhost')
const settings = {
  'listen.tls.certFile': certificate,
  'listen.tls.keyFile': key,
  'listen.headersTimeout': scaledSetting(2_000),
}

let service: Service
let proxy: ProxyProcess
const start = async (more = {}) => {
  service = await startService(echoServer({}))
  proxy = await startProxyProcess(service, { settings: { ...settings, ...more } })
}
const stop = async () => {
  await proxy[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
}

async function open(options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connect({ port: proxy.port, host: '127.0.0.1', rejectUnauthorized: false, ...options })
  socket.on('error', () => undefined)
  await new Promise((resolve) => socket.once('secureConnect', resolve).once('close', resolve))
  return socket
}

async function answerOn(socket: TLSSocket): Promise<string> {
  socket.write(get('/v2/x', 'acme'))
  const bytes = await new Promise((resolve) =>
    socket.closed ? resolve('closed') : socket.once('data', resolve).once('close', resolve),
  )
  return String(bytes).slice(0, 12)
}

async function closed(socket: TLSSocket | RecordWriter['socket']): Promise<void> {
  socket.on('error', () => undefined).resume()
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve))
}

describe('a connection that sends much more than content needs is ended, and others are served', () => {
  beforeAll(() => start())
  afterAll(stop)

  test.each<[string, (writer: RecordWriter) => Buffer]>([
    ['KeyUpdates', (writer) => Buffer.concat(Array.from({ length: 8_000 }, () => writer.keyUpdate()))],
    ['a record for each byte', (writer) => writer.bytewise('x'.repeat(8_000))],
  ])('%s', async (_, flood) => {
    const writer = await RecordWriter.connect(proxy.port)
    const head = get('/v2/x', 'acme', 'Content-Length: 1000000').replace('GET', 'POST')
    writer.socket.write(Buffer.concat([writer.bytewise(head), flood(writer)]))
    const other = await open()
    expect(await answerOn(other)).toBe('HTTP/1.1 200')
    await closed(writer.socket)
    expect(await answerOn(other)).toBe('HTTP/1.1 200')
    other.destroy()
  })
})

test('of more handshakes than an eighth of the connections, one that is older than a second ends for each new one', async () => {
  await start({ 'listen.maxConnections': '256' })
  const begin = (count: number) => Promise.all(Array.from({ length: count }, () => RawClient.plain(proxy.port)))
  const halves = await begin(60)
  const areOpen = () => halves.filter(({ end }) => end === undefined).length
  await sleep(1_100)
  expect(areOpen()).toBe(60)
  halves.push(...(await begin(10)))
  await eventually(() => areOpen() === 60 || undefined, 'the ends of ten')
  const other = await open()
  expect(await answerOn(other)).toBe('HTTP/1.1 200')
  for (const half of halves) await half[Symbol.asyncDispose]()
  other.destroy()
  await stop()
})

describe('a connection with small or slow records stays open', () => {
  beforeAll(() => start())
  afterAll(stop)

  test('1,500 messages of a WebSocket, each in a record of its own', async () => {
    const fields = { headers: { 'X-Org-Id': 'acme' }, rejectUnauthorized: false }
    const socket = new WebSocket(`wss://localhost:${proxy.port}/v2/ws`, fields)
    await once(socket, 'open')
    let received = 0
    socket.on('message', () => received++)
    for (let i = 0; i < 1_500; i++) {
      socket.send('12345')
      if (i % 20 === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    await eventually(() => received === 1_500 || socket.readyState !== WebSocket.OPEN || undefined, 'all messages')
    expect([received, socket.readyState]).toEqual([1_500, WebSocket.OPEN])
    socket.terminate()
  })

  test('large records that arrive in pieces', async () => {
    const socket = await open()
    const length = 8 * 16 * 1024
    socket.write(get('/v2/x', 'acme', `Content-Length: ${length}`).replace('GET', 'POST'))
    for (let i = 0; i < 8; i++) {
      socket.write(Buffer.alloc(16 * 1024))
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
    const [bytes] = await once(socket, 'data')
    expect(String(bytes)).toContain('HTTP/1.1 200')
    socket.destroy()
  })
})

describe('a client certificate that is expensive', () => {
  beforeAll(() => start({ 'listen.tls.clientCaFile': CA_FILE }))
  afterAll(stop)

  test.each([
    ['99 of them, each signed with P-521', longChain(99)],
    ['60 KB of names', longChain(1, { namesBytes: 60_000 })],
  ])('%s: ended, and others are served', async (_, { cert, key }) => {
    const before = await open()
    expect(await answerOn(before)).toBe('HTTP/1.1 200')
    const opened = await Promise.all(Array.from({ length: 5 }, () => open({ cert, key })))
    const other = await open()
    expect(await answerOn(other)).toBe('HTTP/1.1 200')
    expect(await answerOn(before)).toBe('HTTP/1.1 200')
    for (const attacker of opened) await closed(attacker)
    for (const socket of [before, other]) socket.destroy()
  })
})
