/** Connections without a complete request: which of them get an answer, and which a line in the log. */

import { describe, expect, test } from 'vitest'
import { get, head } from '../../support/case-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { problemOf, RawClient, request } from '../../support/raw-client.ts'
import { startBoth, startBothForFile } from '../../support/start-proxy.ts'

test('a client that resets inside its head causes no line in the log, and frees its place', async () => {
  const { proxy } = await startBoth({}, { 'listen.maxConnections': '2' })
  await using client = await RawClient.sending(proxy.port, 'GET /v2/x HTTP/1.1\r\nHost:')
  expect((await request(proxy.port, get('/v2/first', 'acme'))).status).toBe(200) // so the proxy has read the bytes above
  client.reset()
  await using second = await RawClient.sending(proxy.port, get('/v2/second', 'acme'))
  expect((await second.response()).status).toBe(200)
  await using third = await RawClient.sending(proxy.port, get('/v2/third', 'acme'))
  expect((await third.response()).status).toBe(200)
  await proxy.logOf('/v2/third')
  const paths = proxy.logs.filter(({ msg }) => msg === 'request').map(({ path }) => path)
  expect(paths).toEqual(['/v2/first', '/v2/second', '/v2/third'])
})

test('a client that ends its side inside its head gets 400', async () => {
  const { proxy } = await startBoth()
  await using client = await RawClient.sending(proxy.port, 'GET /v2/x HTTP/1.1\r\nHost:')
  client.endSending()
  const answer = await client.response()
  expect([answer.status, problemOf(answer).code]).toEqual([400, 'request_invalid'])
  expect((await client.untilClosed()).bytes.toString()).toBe('')
})

test('a connection that ends without a byte gets no answer and no line', async () => {
  const { proxy } = await startBoth()
  await using client = await RawClient.connect(proxy.port)
  client.endSending()
  expect((await client.untilClosed()).bytes.toString()).toBe('')
  expect(proxy.logs.filter(({ msg }) => msg === 'request')).toEqual([])
})

describe('bytes after a refused request are read and dropped, so that no reset destroys the answer:', async () => {
  // On a unix socket, the system takes only a small part of it before the proxy reads.
  const { proxy } = await startBothForFile({}, { 'listen.address': 'unix:$FOLDER/socket' })

  test.each([
    ['a refused handshake', head('GET /v2/x HTTP/1.1', 'Host: localhost', ...HANDSHAKE), 'org_id_missing'],
    ['a CONNECT', head('CONNECT service.example:443 HTTP/1.1', 'Host: localhost'), 'method_refused'],
    ['no HTTP', 'garbage\r\n\r\n', 'request_invalid'],
    [
      'content that is too much',
      head('POST / HTTP/1.1', 'Host: localhost', 'Content-Length: 2000000'),
      'org_id_missing',
    ],
  ])('%s', async (_, sent, code) => {
    await using client = await RawClient.sending(proxy.at('socket'), sent)
    expect(problemOf(await client.response()).code).toBe(code)
    client.send('x'.repeat(1_000_000))
    client.endSending()
    const closed = new Promise<boolean>((resolve) => client.socket.once('close', resolve))
    expect((await client.untilClosed()).end).toBe('fin')
    expect(await closed, 'closed by an error').toBe(false)
  })
})
