/** Content that arrived together with its head is available in one piece, so that it is forwarded in one write. */

import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { ClientContent } from '../../src/gateway/client-content.ts'
import { head } from '../support/case-table.ts'
import { RawClient } from '../support/raw-client.ts'

const MAX_KEPT_BYTES = 64 * 1024

test.each([1, 1_024, 8_000])('%i octets, request after request on one connection', async (length) => {
  const seen: unknown[] = []
  const server = createServer((message: IncomingMessage, response: ServerResponse) => {
    const content = new ClientContent(message, { length, maxKeptBytes: MAX_KEPT_BYTES })
    process.nextTick(() => {
      seen.push([content.whole()?.toString(), content.isComplete, content.receivedBytes])
      response.end()
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const text = 'x'.repeat(length)
  {
    await using client = await RawClient.connect((server.address() as AddressInfo).port)
    for (let i = 0; i < 3; i++) {
      client.send(head('POST /v2/x HTTP/1.1', 'Host: 127.0.0.1', `Content-Length: ${length}`) + text)
      expect((await client.response('POST')).status).toBe(200)
    }
  }
  server.close()
  await once(server, 'close')
  expect(seen).toEqual(Array.from({ length: 3 }, () => [text, true, length]))
})
