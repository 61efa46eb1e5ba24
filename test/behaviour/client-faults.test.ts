/** Clients that leave, stop half-way or are slow: their requests end, and other clients notice nothing. */

import { once } from 'node:events'
import { beforeEach, describe, expect, test } from 'vitest'
import { get, HOST, head } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { startFaultTable } from '../support/fault-table.ts'
import { writes } from '../support/origin-connection.ts'
import { scaled } from '../support/pace.ts'
import { problemOf, RawClient, request } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

const table = await startFaultTable({ 'listen.idleTimeout': '300ms', 'listen.headersTimeout': '300ms' })
/** Gets a token, and opens a connection to the service. */
beforeEach(() => table.expectAlive())

const { origin } = table.service
const post = (target: string, ...lines: string[]) => get(target, 'acme', ...lines).replace('GET', 'POST')

describe('a client that leaves', () => {
  test.each(['fin', 'reset'] as const)('inside the head (%s): nothing reaches the origin', async (end) => {
    const before = table.service.requests.length
    await using client = await RawClient.sending(
      table.proxy.port,
      'POST /v2/x HTTP/1.1\r\nHost: localhost\r\nX-Org-Id: acme\r\nContent-Le',
    )
    if (end === 'fin') client.socket.end()
    else client.reset()
    await table.expectAlive()
    expect(table.service.requests.length).toBe(before + 1)
  })

  test('while it waits for the origin: the exchange there ends at once', async () => {
    const target = table.target(() => new Promise(() => {}))
    const client = await RawClient.connect(table.proxy.port)
    client.send(get(target, 'acme'))
    await origin.waitFor(() => table.requestsFor(target).length === 1)
    const [seen] = table.requestsFor(target)
    const leftAt = performance.now()
    client.reset()
    await origin.waitFor(() => seen?.connection.peerEnd !== undefined, 'the end at the origin')
    expect(performance.now() - leftAt).toBeLessThan(scaled(100))
    expect((await table.proxy.logOf(target)).code).toBe('client_closed')
  })

  test.each([
    ['a length', 'Content-Length: 100', 'half'],
    ['chunks', 'Transfer-Encoding: chunked', '4\r\nhalf\r\n'],
  ])('inside its content (%s): the origin never sees complete content', async (_, line, content) => {
    for (const end of ['fin', 'reset'] as const) {
      const target = table.target(async (seen) => {
        await seen.ended
        return { content: 'too late' }
      })
      await using client = await RawClient.sending(table.proxy.port, post(target, line) + content)
      await origin.waitFor(() => table.requestsFor(target)[0]?.contentBytes === 4)
      if (end === 'fin') client.endSending()
      else client.reset()
      await origin.waitFor(() => table.requestsFor(target)[0]?.state === 'aborted', `an aborted content after ${end}`)
      expect(table.requestsFor(target)).toHaveLength(1)
    }
  })

  test('inside its response: the connection to the origin ends', async () => {
    const target = table.target(writes('HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\npart'))
    const client = await RawClient.connect(table.proxy.port)
    client.send(get(target, 'acme'))
    await client.untilBytes('part')
    const leftAt = performance.now()
    client.reset()
    const [seen] = table.requestsFor(target)
    await origin.waitFor(() => seen?.connection.peerEnd !== undefined, 'the end at the origin')
    expect(performance.now() - leftAt).toBeLessThan(scaled(100))
  })

  test('right after its POST: the origin sees the POST at most once', async () => {
    const target = table.target(() => ({ content: 'done' }))
    for (let i = 0; i < 10; i++) {
      const before = table.requestsFor(target).length
      const client = await RawClient.connect(table.proxy.port)
      client.send(`${post(target, 'Content-Length: 2')}hi`)
      client.reset()
      await table.expectAlive()
      expect(table.requestsFor(target).length - before).toBeLessThanOrEqual(1)
    }
  })
})

describe('a client that stops', () => {
  test('inside the head: 408', async () => {
    await using client = await RawClient.sending(table.proxy.port, 'GET /v2/x HTTP/1.1\r\nHost: loc')
    const response = await client.response()
    expect(response.status).toBe(408)
    expect(problemOf(response).code).toBe('request_timeout')
    await client.untilClosed()
  })

  test('before its first byte: the connection closes without an answer', async () => {
    const { proxy } = await startBoth({}, { 'listen.headersTimeout': '200ms' })
    await using client = await RawClient.connect(proxy.port)
    expect((await client.untilClosed()).bytes.toString()).toBe('')
    await request(proxy.port, get('/v2/later', 'acme'))
    await proxy.logOf('/v2/later')
    expect(proxy.logs.filter(({ msg }) => msg === 'request').map(({ path }) => path)).toEqual(['/v2/later'])
  })

  test('sends the head byte by byte, so it is never silent: the time limit for the head holds', async () => {
    await using client = await RawClient.connect(table.proxy.port)
    const drip = setInterval(() => client.send('x'), 20)
    client.send('GET /v2/x HTTP/1.1\r\nX-Long: ')
    try {
      expect((await client.response()).status).toBe(408)
    } finally {
      clearInterval(drip)
    }
  })

  test('inside the content: 408, and the origin sees no complete content', async () => {
    const target = table.target(async (seen) => {
      await seen.ended
      return { content: 'too late' }
    })
    await using client = await RawClient.sending(
      table.proxy.port,
      `${post(target, 'Content-Length: 100')}${'x'.repeat(50)}`,
    )
    const response = await client.response('POST')
    expect(response.status).toBe(408)
    expect(problemOf(response).code).toBe('request_timeout')
    await client.untilClosed()
    await origin.waitFor(() => table.requestsFor(target)[0]?.state === 'aborted')
  })

  test('inside the content of a refused request: closed', async () => {
    await using client = await RawClient.sending(
      table.proxy.port,
      `${head('POST /v2/x HTTP/1.1', HOST, 'Content-Length: 100')}half`,
    )
    expect((await client.response('POST')).status).toBe(400)
    await client.untilClosed()
  })

  test('without reading its response: broken off', async () => {
    const target = table.target(async (_, connection) => {
      connection.write('HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n')
      const piece = Buffer.alloc(1024 * 1024)
      for (let i = 0; i < 64 && connection.peerEnd === undefined; i++) {
        if (!connection.socket.write(piece)) await connection.drained()
      }
      return undefined
    })
    await using client = await RawClient.connect(table.proxy.port)
    client.socket.pause()
    client.send(get(target, 'acme'))
    await origin.waitFor(() => table.requestsFor(target)[0]?.connection.peerEnd !== undefined, 'the end at the origin')
    const [seen] = table.requestsFor(target)
    // Socket buffers on the way take some of it. The proxy itself must not take the rest.
    expect(seen?.connection.socket.bytesWritten).toBeLessThan(32 * 1024 * 1024)
  })
})

// The system reports free buffer space in steps of about a megabyte, so a client has to read that much within the limit.
test('a client that reads slowly does not count as stopped', async () => {
  const total = 64 * 1024 * 1024
  const gulp = 8 * 1024 * 1024
  const { proxy } = await startBoth(
    { script: () => ({ content: Buffer.alloc(total) }) },
    { 'listen.idleTimeout': '4s' },
  )
  const { socket } = await RawClient.connect(proxy.port)
  socket.once('end', () => socket.end())
  let received = 0
  socket.on('data', (chunk: Buffer) => {
    received += chunk.length
  })
  socket.write(get('/v2/x', 'acme', 'Connection: close'))
  for (let taken = gulp; taken <= 5 * gulp; taken += gulp) {
    await eventually(() => received >= taken, 'megabytes')
    socket.pause()
    await new Promise((resolve) => setTimeout(resolve, 1_000)) // five pauses: longer together than the limit for one
    socket.resume()
  }
  await once(socket, 'close')
  expect(received).toBeGreaterThan(total)
  expect(await proxy.logOf('/v2/x')).toMatchObject({ status: 200, bytesOut: total })
})

test('slow content goes through as long as it moves', async () => {
  const target = table.target(async (seen) => {
    await seen.ended
    return { content: seen.content }
  })
  await using client = await RawClient.sending(table.proxy.port, post(target, 'Content-Length: 8'))
  for (const letter of 'patience') {
    await new Promise((resolve) => setTimeout(resolve, 100)) // eight pauses: much longer together than the limit for one
    client.send(letter)
  }
  const response = await client.response('POST')
  expect(response.status).toBe(200)
  expect(response.content.toString()).toBe('patience')
})
