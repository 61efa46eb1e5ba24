/**
 * Clients that stop half-way or are slow: their requests end, and other clients notice nothing. For clients that leave see
 * `faults/aborts.test.ts`.
 */

import { once } from 'node:events'
import { setTimeout } from 'node:timers/promises'
import { beforeEach, describe, expect, test } from 'vitest'
import { get, HOST, head } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { startFaultTable } from '../../support/fault-table.ts'
import { problemOf, RawClient } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

const MIB = 1024 * 1024

const table = await startFaultTable({ 'listen.idleTimeout': '300ms', 'listen.headersTimeout': '300ms' })
/** Gets a token, and opens a connection to the service. */
beforeEach(() => table.expectAlive())

const post = (target: string, ...lines: string[]) => get(target, 'acme', ...lines).replace('GET', 'POST')
const echo = () =>
  table.target(async (seen) => {
    await seen.ended
    return { content: seen.content }
  })

describe('a client that stops', () => {
  test('sends the head byte by byte, so it is never silent: the time limit for the head holds', async () => {
    await using client = await RawClient.sending(table.proxy.port, 'GET /v2/x HTTP/1.1\r\nX-Long: ')
    const drip = setInterval(() => client.send('x'), 20)
    try {
      expect((await client.response()).status).toBe(408)
    } finally {
      clearInterval(drip)
    }
  })

  test('before its first byte: the connection closes without an answer or a line in the log', async () => {
    await using own = await startProxy(table.service, { 'listen.headersTimeout': '300ms' })
    await using client = await RawClient.connect(own.port)
    expect((await client.untilClosed()).bytes.toString()).toBe('')
    expect(own.logs.filter(({ msg }) => msg === 'request')).toEqual([])
  })

  test('inside the content: 408, and the origin sees no complete content', async () => {
    const target = echo()
    await using client = await RawClient.sending(table.proxy.port, `${post(target, 'Content-Length: 100')}half`)
    const response = await client.response('POST')
    expect([response.status, problemOf(response).code]).toEqual([408, 'request_timeout'])
    await client.untilClosed()
    await table.service.origin.waitFor(() => table.requestsFor(target)[0]?.state === 'aborted')
  })

  test('inside the content of a refused request: closed', async () => {
    const raw = `${head('POST /v2/x HTTP/1.1', HOST, 'Content-Length: 100')}half`
    await using client = await RawClient.sending(table.proxy.port, raw)
    expect((await client.response('POST')).status).toBe(400)
    await client.untilClosed()
  })
})

// The system reports free buffer space in steps of about a megabyte, so a client has to read that much within the limit.
test('a client that reads slowly does not count as stopped', async () => {
  const total = 64 * MIB
  await using service = await startService({ script: () => ({ content: Buffer.alloc(total) }) })
  await using proxy = await startProxy(service, { 'listen.idleTimeout': '2s' })
  const { socket } = await RawClient.sending(proxy.port, get('/v2/x', 'acme', 'Connection: close'))
  const closed = once(socket, 'close') // on a busy machine before the last pause
  socket.once('end', () => socket.end())
  let received = 0
  socket.on('data', (chunk: Buffer) => {
    received += chunk.length
  })
  for (let gulp = 1; gulp <= 3; gulp++) {
    await eventually(() => received >= gulp * 8 * MIB, 'megabytes')
    socket.pause()
    await setTimeout(800) // three pauses: longer together than the limit for one
    socket.resume()
  }
  await closed
  expect(received).toBeGreaterThan(total)
  expect(await proxy.logOf('/v2/x')).toMatchObject({ status: 200, bytesOut: total })
})

test('a client that is quiet inside its content may be so while the service sends', async () => {
  const target = table.target(async (_, connection) => {
    connection.write('HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n')
    for (const letter of 'patience') {
      await setTimeout(100) // together much longer than the limit for a silence
      connection.write(letter)
    }
  })
  const chunked = `${post(target, 'Transfer-Encoding: chunked')}2\r\nhi\r\n`
  await using client = await RawClient.sending(table.proxy.port, chunked)
  const response = await client.response('POST')
  expect([response.isComplete, response.content.toString()]).toEqual([true, 'patience'])
})

test('a slow upload goes through as long as it moves, however many interim responses come meanwhile', async () => {
  const target = table.target(async (seen, connection) => {
    const telling = setInterval(() => connection.write('HTTP/1.1 104 Upload Resumption Supported\r\n\r\n'), 10)
    await seen.ended
    clearInterval(telling)
    return { content: seen.content }
  })
  await using client = await RawClient.sending(table.proxy.port, post(target, 'Content-Length: 8'))
  for (const letter of 'patience') {
    await setTimeout(100) // eight pauses: much longer together than the limit for one
    client.send(letter)
  }
  const response = await client.response('POST')
  expect([response.status, response.content.toString()]).toEqual([200, 'patience'])
})
