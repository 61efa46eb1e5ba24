/** Answers to content that nobody has read: the client gets the answer, and the content is never read as a request. */

import { describe, expect, test } from 'vitest'
import { get, HOST, head } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import type { OriginScript } from '../../support/origin-connection.ts'
import { problemOf, RawClient, type RawResponse } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startBoth, startProxy } from '../../support/start-proxy.ts'

const UPLOADS = 3

async function upload(port: number, bytes: number, org = 'acme'): Promise<RawResponse> {
  const lines = get('/v2/upload', org, `Content-Length: ${bytes}`).replace('GET', 'PUT')
  await using client = await RawClient.sending(port, lines)
  client.send(Buffer.alloc(bytes, 'x'))
  return await client.response('PUT')
}

/** Like nginx and HAProxy: answers once it has `bytes` of the content, and closes with the rest unread, so that the kernel resets. */
function answerEarly(status: number, bytes: number): OriginScript {
  return async (received, connection) => {
    await eventually(() => received.contentBytes >= bytes || undefined, 'the first content')
    connection.socket.pause()
    connection.socket.write(`HTTP/1.1 ${status} Early\r\nContent-Length: 5\r\n\r\nearly`, () => {
      connection.socket.destroy()
    })
  }
}

describe.each([100_000, 2_000_000])('of a service that then resets, to %i octets', (bytes) => {
  test('an early 401 leads to a new token, and the next upload succeeds', async () => {
    const unauthorized = answerEarly(401, 0)
    await using service = await startService({
      acceptsAnyToken: true,
      script: (received, connection) =>
        service.orgOf(received) === undefined ? unauthorized(received, connection) : { content: 'taken' },
    })
    await using proxy = await startProxy(service)
    for (let i = 0; i < UPLOADS; i++) {
      const org = `org-${i}`
      expect((await upload(proxy.port, bytes, org)).status).toBe(200)
      service.tokens.revoke(org)
      expect((await upload(proxy.port, bytes, org)).status).toBe(401)
      expect((await upload(proxy.port, bytes, org)).status).toBe(200)
      expect(service.tokens.mintsOf(org)).toHaveLength(2)
    }
  })
})

/**
 * gunicorn answers without reading the content, says that the connection stays open, and closes it 2 ms later. Content that the
 * kernel took whole looks like content that was read. The next upload on such a connection would be lost.
 */
test.each([
  ['a refusal of much content', 413, 100_000, 2],
  ['a rejection of much content', 401, 100_000, 2],
  ['a redirect of much content', 307, 100_000, 2],
  ['a refusal of little content', 413, 1_000, 1],
  ['a success', 200, 100_000, 1],
])('after %s, the next upload has the right connection', async (_, status, bytes, connections) => {
  await using service = await startService({ acceptsAnyToken: true, script: () => ({ status, content: 'kept alive' }) })
  await using proxy = await startProxy(service, { 'replay.maxBody': '0B' })
  for (let i = 0; i < 2; i++) expect((await upload(proxy.port, bytes)).status).toBe(status)
  expect(new Set(service.requests.map(({ connection }) => connection)).size).toBe(connections)
})

test.each([
  ['no Org, 10 MB', 10_000_000, [], 'org_id_missing'],
  ['a page, 10 MB', 10_000_000, ['Origin: https://evil.example', 'X-Org-Id: acme'], 'browser_refused'],
  ['an expectation, 1 MiB and a byte', 1024 * 1024 + 1, ['Expect: 100-continue'], 'org_id_missing'],
])('of the proxy, which refuses: %s', async (_, length, lines, code) => {
  const { service, proxy } = await startBoth()
  const inside = get('/v2/smuggled', 'acme')
  const raw = head('POST /v2/x HTTP/1.1', HOST, `Content-Length: ${length}`, ...lines)
  await using client = await RawClient.sending(proxy.port, raw)
  client.send(inside.repeat(Math.ceil(length / inside.length)).slice(0, length))
  const response = await client.response('POST')
  expect(problemOf(response).code).toBe(code)
  expect([response.isComplete, response.informational]).toEqual([true, []])
  expect((await client.untilClosed()).bytes.length).toBe(0)
  expect(service.origin.connections).toEqual([])
})
