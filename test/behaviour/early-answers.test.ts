/**
 * Services that answer an upload before they have read it, and then reset the connection. The client gets the answer, and
 * an early 401 retires the token.
 */

import { describe, expect, test } from 'vitest'
import { head } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import type { OriginScript } from '../support/origin-connection.ts'
import { RawClient, type RawResponse } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

const SIZES = [100_000, 2_000_000]
const UPLOADS = 10

async function upload(port: number, target: string, bytes: number, org = 'acme'): Promise<RawResponse> {
  await using client = await RawClient.sending(
    port,
    head(`PUT ${target} HTTP/1.1`, 'Host: 127.0.0.1', `X-Org-Id: ${org}`, `Content-Length: ${bytes}`),
  )
  client.send(Buffer.alloc(bytes, 'x'))
  return await client.response('PUT')
}

/** Answers once it has `bytes` of the content, and closes with the rest unread. */
function answerEarly(status: number, bytes: number): OriginScript {
  return async (received, connection) => {
    await eventually(() => received.contentBytes >= bytes || undefined, 'the first content')
    connection.socket.pause()
    connection.socket.write(`HTTP/1.1 ${status} Early\r\nContent-Length: 5\r\n\r\nearly`, () => {
      connection.socket.destroy()
    })
    return undefined
  }
}

describe.each(SIZES)('%i octets', (bytes) => {
  test.each([
    ['before any content', 0],
    ['after 32 KiB', 32 * 1024],
  ])('an answer %s is not lost', async (_, first) => {
    const { service, proxy } = await startBoth({ script: answerEarly(413, first) })
    for (let i = 0; i < UPLOADS; i++) {
      const response = await upload(proxy.port, '/v2/upload', bytes)
      expect([response.status, response.content.toString()]).toEqual([413, 'early'])
    }
    expect(service.requests).toHaveLength(UPLOADS)
  })

  test('an early 401 leads to a new token, and the next upload succeeds', async () => {
    const unauthorized = answerEarly(401, 0)
    const script: OriginScript = (received, connection) =>
      service.orgOf(received) === undefined ? unauthorized(received, connection) : { content: 'taken' }
    // Tokens that end at once would teach the proxy to replace the next ones before their first rejection.
    const { service, proxy } = await startBoth({ acceptsAnyToken: true, script }, { 'tokens.learn': 'false' })
    for (let i = 0; i < UPLOADS; i++) {
      const org = `org-${i}`
      expect((await upload(proxy.port, '/v2/upload', bytes, org)).status).toBe(200)
      service.tokens.revoke(org)
      expect((await upload(proxy.port, '/v2/upload', bytes, org)).status).toBe(401)
      expect((await upload(proxy.port, '/v2/upload', bytes, org)).status).toBe(200)
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
  const { service, proxy } = await startBoth(
    { acceptsAnyToken: true, script: () => ({ status, content: 'kept alive' }) },
    { 'replay.maxBody': '0B' },
  )
  for (let i = 0; i < 2; i++) expect((await upload(proxy.port, '/v2/upload', bytes)).status).toBe(status)
  expect(new Set(service.requests.map(({ connection }) => connection)).size).toBe(connections)
})
