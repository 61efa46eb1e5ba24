/** Content that arrived together with its head is available in one piece, so that it is forwarded in one write. */

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { expect, test } from 'vitest'
import { ClientContent, RepeatMemory } from '../../src/gateway/client-content.ts'
import { head } from '../support/case-table.ts'
import { listening } from '../support/listening.ts'
import { RawClient, request } from '../support/raw-client.ts'

test.each([1, 1_024, 8_000])('%i octets, request after request on one connection', async (length) => {
  const seen: unknown[] = []
  const server = createServer((message: IncomingMessage, response: ServerResponse) => {
    const content = new ClientContent(message, length, new RepeatMemory(length), 'acme')
    process.nextTick(() => {
      seen.push([content.whole()?.toString(), content.isComplete, content.receivedBytes])
      response.end()
    })
  })
  await using served = await listening(server)
  const text = 'x'.repeat(length)
  await using client = await RawClient.connect(served.port)
  for (let i = 0; i < 3; i++) {
    client.send(head('POST /v2/x HTTP/1.1', 'Host: 127.0.0.1', `Content-Length: ${length}`) + text)
    expect((await client.response('POST')).status).toBe(200)
  }
  expect(seen).toEqual(Array.from({ length: 3 }, () => [text, true, length]))
})

test.each(['Content-Length: 6', 'Transfer-Encoding: chunked'])(
  'content beyond the memory for repeats is forwarded, but not kept: %s',
  async (framing) => {
    const memory = new RepeatMemory(10, 20)
    const contents: ClientContent[] = []
    const server = createServer((message: IncomingMessage, response: ServerResponse) => {
      const length = framing === 'Content-Length: 6' ? 6 : undefined
      const content = new ClientContent(message, length, memory, 'acme')
      contents.push(content)
      const pieces: Buffer[] = []
      content.streamTo({
        write: (chunk) => pieces.push(chunk) > 0,
        end: () => response.end(Buffer.concat(pieces)),
      })
    })
    await using served = await listening(server)
    const upload = async () => {
      const sent = framing === 'Content-Length: 6' ? 'piece.' : '3\r\npie\r\n3\r\nce.\r\n0\r\n\r\n'
      const { content } = await request(served.port, head('POST / HTTP/1.1', 'Host: x', framing) + sent)
      expect(content.toString()).toBe('piece.')
    }
    await upload()
    await upload()
    expect(contents.map(({ isRepeatable }) => isRepeatable)).toEqual([true, false])
    contents[0]?.dropKept()
    contents[0]?.dropKept()
    await upload()
    await upload()
    expect(contents.map(({ isRepeatable }) => isRepeatable)).toEqual([false, false, true, false])
  },
)

test('memory for repeats: one holder gets half of it at most, and leaves room for each that comes later', () => {
  const memory = new RepeatMemory(1, 100)
  const fill = (holder: string) => {
    let bytes = 0
    while (memory.take(holder, 1)) bytes += 1
    return bytes
  }
  expect(['a', 'b', 'c'].map(fill)).toEqual([50, 25, 12])
  memory.give('a', 50)
  expect([fill('b'), fill('d')]).toEqual([19, 22])
})
