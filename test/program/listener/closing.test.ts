/** Connections that end, while their client goes on sending or has left. */

import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, onTestFinished, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { fieldOf, RawClient, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startBoth, startProxy } from '../../support/start-proxy.ts'

const withSocket = (path: string) => `callers: [{name: billing, socket: ${path}, orgs: [acme]}]\n`
const BILLING = withSocket('$FOLDER/billing.sock')

test('a half-sent head on a socket that a reload removed: the connection is closed, even if its client goes on sending', async () => {
  await using service = await startService()
  const settings = { 'listen.headersTimeout': '100ms', 'listen.keepAliveTimeout': '200ms' }
  await using proxy = await startProxy(service, settings, { 'proxy.yaml': BILLING })
  const client = connect({ path: proxy.at('billing.sock'), allowHalfOpen: true })
  client.on('error', () => undefined)
  onTestFinished(() => void client.destroy())
  const closed = new Promise((resolve) => client.once('close', resolve))
  // On a busy machine the end may come before the reload.
  const ended = new Promise((resolve) => client.once('end', resolve))
  client.write(get('/v2/x', 'acme'))
  expect(String(await once(client, 'data'))).toContain('HTTP/1.1 200')
  client.write('GET /v2/next HTTP/1.1\r\n')
  // The proxy has read these bytes once it has answered a later request of another connection.
  expect((await request(proxy.at('billing.sock'), get('/v2/x', 'acme'))).status).toBe(200)
  await writeFile(proxy.at('proxy.yaml'), withSocket(proxy.at('other.sock')))
  await proxy.app.reload()
  client.resume()
  await ended
  // For a while, the proxy reads these bytes and drops them.
  const sending = setInterval(() => client.write('G'), 20)
  onTestFinished(() => clearInterval(sending))
  await closed
})

/** On a unix socket: its buffers in the system are small. Some of these sizes have left the service, but not the proxy. */
const SIZES = Array.from({ length: 40 }, (_, i) => (200 + 4 * i) * 1024)

/** A proxy, and clients that have sent a request, read nothing, and whose responses the service has begun to send. */
async function slowReaders({ timeout = '60s', isStopping = false } = {}) {
  const script: OriginScript = ({ target }) => ({ content: Buffer.alloc(Number(target.slice(4)), 'x') })
  const { service, proxy } = await startBoth({ script }, { 'shutdown.timeout': timeout }, { 'proxy.yaml': BILLING })
  if (isStopping) proxy.app.setNotReady()
  const socket = proxy.at('billing.sock')
  const readers = SIZES.map(async (size) => {
    const client = await RawClient.connect(socket)
    client.socket.pause()
    client.send(get(`/v2/${size}`, 'acme'))
    return { size, path: `/v2/${size}`, client }
  })
  await service.origin.waitFor(() => service.requests.length === SIZES.length)
  await hasRead(socket)
  return { service, proxy, socket, readers: await Promise.all(readers) }
}

/** The proxy has read and written what it can once it has answered a later request. */
async function hasRead(socket: string): Promise<void> {
  for (let i = 0; i < 5; i++) await request(socket, get('/v2/0', 'acme'))
}

describe('a response counts as ended when the client has been sent all of it', () => {
  test.each(['a stop', 'a reload that removes its socket'])('%s truncates nothing', async (what) => {
    const { proxy, readers } = await slowReaders()
    let stopped: Promise<unknown> = Promise.resolve()
    if (what === 'a stop') stopped = proxy.app.drain()
    else {
      await writeFile(proxy.at('proxy.yaml'), withSocket(proxy.at('other.sock')))
      await proxy.app.reload()
    }
    await new Promise((resolve) => setTimeout(resolve, 50))
    for (const { size, path, client } of readers) {
      client.socket.resume()
      const response = await client.response()
      expect([response.isComplete, response.content.length]).toEqual([true, size])
      expect(await proxy.logOf(path)).toMatchObject({ status: 200, bytesOut: size })
      client.endSending()
    }
    await stopped
  })

  test('at the deadline, the log says of each whether it was delivered', async () => {
    const { proxy, readers } = await slowReaders({ timeout: '100ms' })
    expect(await proxy.app.drain()).toBeGreaterThan(0)
    for (const { size, path, client } of readers) {
      client.socket.resume()
      const response = await client.response()
      const { code, bytesOut } = await proxy.logOf(path)
      expect([response.isComplete, code]).toEqual(
        response.content.length === size ? [true, undefined] : [false, 'draining'],
      )
      expect(bytesOut).toBeLessThanOrEqual(response.content.length)
    }
  })
})

describe('behind a response that its client has not read yet', () => {
  test('a request with an offer that is ignored is answered, even if the proxy stops meanwhile', async () => {
    const { proxy, socket, readers } = await slowReaders()
    for (const { client } of readers) client.send(get('/v2/1', 'acme', 'Connection: Upgrade', 'Upgrade: h2c'))
    await hasRead(socket)
    const drained = proxy.app.drain()
    const next: string[] = []
    for (const { client, size } of readers) {
      client.socket.resume()
      const response = await client.response()
      expect(response.content).toHaveLength(size)
      next.push((await client.untilClosed()).bytes.subarray(0, 'HTTP/1.1 503'.length).toString())
      client.endSending()
    }
    // No answer: the response was still under way. 200: it had been read.
    expect([...new Set(next)].sort()).toEqual(['', 'HTTP/1.1 200', 'HTTP/1.1 503'])
    await drained
  })

  test('an empty line is no request that a stop waits for', async () => {
    const { proxy, socket, readers } = await slowReaders()
    for (const { client } of readers) client.send('\r\n')
    await hasRead(socket)
    const drained = proxy.app.drain()
    for (const { client, size } of readers) {
      client.socket.resume()
      expect((await client.response()).content).toHaveLength(size)
      await client.untilClosed()
      client.endSending()
    }
    expect(await drained).toBe(0)
  })

  test('no request goes on if that response closes the connection', async () => {
    const { service, socket, readers } = await slowReaders({ isStopping: true })
    for (const { client } of readers) client.send(get('/v2/1', 'acme'))
    await hasRead(socket)
    for (const { client, size } of readers) {
      client.socket.resume()
      expect((await client.response()).content).toHaveLength(size)
      expect((await client.untilClosed()).bytes).toHaveLength(0)
    }
    expect(service.requests.filter(({ target }) => target === '/v2/1')).toEqual([])
  })
})

test('from the announcement of a stop on, each response closes its connection', async () => {
  const gate = new Gate()
  const { service, proxy } = await startBoth({
    script: async ({ target }) => {
      if (target === '/v2/held') await gate.pass()
      return { content: target }
    },
  })
  await using inFlight = await RawClient.sending(proxy.port, get('/v2/held', 'acme'))
  await using kept = await RawClient.sending(proxy.port, get('/v2/1', 'acme'))
  expect(fieldOf(await kept.response(), 'connection')).toBe('keep-alive')
  await service.origin.waitFor(() => service.requests.length === 2)
  proxy.app.setNotReady()
  gate.open()
  kept.send(get('/v2/2', 'acme'))
  const refused = await request(proxy.port, 'GET /v2/3 HTTP/1.1\r\nHost: localhost\r\n\r\n')
  const responses = [
    await inFlight.response(),
    await kept.response(),
    await request(proxy.port, get('/v2/4', 'acme')),
    refused,
  ]
  expect(responses.map((each) => fieldOf(each, 'connection'))).toEqual(['close', 'close', 'close', 'close'])
  expect(responses.map(({ status }) => status)).toEqual([200, 200, 200, 400])
})

test.each([0, 1, 2, 3, 4, 5])(
  'a stop that is announced after %i turns: a response that keeps its connection is not the last',
  async (turns) => {
    const gate = new Gate()
    const { proxy } = await startBoth({ script: () => gate.pass().then(() => ({ content: 'x' })) })
    await using client = await RawClient.sending(proxy.port, get('/v2/x', 'acme'))
    await gate.untilWaiting(1)
    gate.open()
    for (let i = 0; i < turns; i++) await nextTurn()
    proxy.app.setNotReady()
    const isKept = fieldOf(await client.response(), 'connection') === 'keep-alive'
    client.send(get('/v2/x', 'acme'))
    expect((await client.untilClosed()).bytes.toString().startsWith('HTTP/1.1 200')).toBe(isKept)
  },
)

test('an empty line on an idle connection is no request that a stop waits for', async () => {
  const { proxy } = await startBoth({}, { 'shutdown.timeout': '60s', 'listen.headersTimeout': '60s' })
  await using client = await RawClient.sending(proxy.port, get('/v2/x', 'acme'))
  expect((await client.response()).status).toBe(200)
  client.send('\r\n')
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200) // so the proxy has read it
  const drained = proxy.app.drain()
  expect((await client.untilClosed()).bytes.toString()).toBe('')
  client.endSending()
  expect(await drained).toBe(0)
})

test('a client that has just connected when the proxy stops is about to send a request, which is answered', async () => {
  const { proxy } = await startBoth()
  await using client = await RawClient.connect(proxy.port)
  const drained = proxy.app.drain()
  await expect(RawClient.connect(proxy.port)).rejects.toThrow()
  client.send(get('/v2/x', 'acme'))
  const response = await client.response()
  expect([response.status, fieldOf(response, 'connection')]).toEqual([200, 'close'])
  client.endSending()
  expect(await drained).toBe(0)
})

test('a request that has arrived when the proxy stops, but was not read yet, is answered', async () => {
  const { proxy } = await startBoth()
  const clients = await Promise.all(Array.from({ length: 20 }, () => RawClient.connect(proxy.port)))
  for (const client of clients) {
    client.send(get('/v2/x', 'acme'))
    expect((await client.response()).status).toBe(200)
  }
  for (const client of clients) client.send(get('/v2/y', 'acme'))
  const drained = proxy.app.drain()
  for (const client of clients) {
    expect((await client.response()).status).toBe(200)
    await client[Symbol.asyncDispose]()
  }
  await drained
})
