/** Content that arrived together with its head is available in one piece, so that it is forwarded in one write. */

import { createServer } from 'node:net'
import { expect, test } from 'vitest'
import { ClientContent, RepeatMemory } from '../../../src/gateway/client-content.ts'
import { respondToOptions } from '../../../src/gateway/own-responses.ts'
import { ClientConnection } from '../../../src/listener/client-connection.ts'
import { LastWrites } from '../../../src/listener/client-response.ts'
import type { Client, RequestHandler, RequestInProgress } from '../../../src/listener/request-handler.ts'
import { head } from '../../support/case-table.ts'
import { Gate } from '../../support/changes.ts'
import { listening } from '../../support/listening.ts'
import { RawClient, request } from '../../support/raw-client.ts'

const LIMITS = { headersTimeoutMs: 10_000, keepAliveTimeoutMs: 10_000, idleTimeoutMs: 10_000 }

/** A listener whose requests have a content of `memory`, and are answered with 204 at its end. `begun` gets each content. */
async function receiving(memory: RepeatMemory, begun: (content: ClientContent) => void) {
  const handler: RequestHandler = {
    receive: ({ contentLength }, client) => {
      const content = new ClientContent(client, { contentLength, expectsContinue: false }, memory, 'acme')
      begun(content)
      return inProgress(content, client)
    },
    refuse: () => expect.fail('broken input'),
    drain: () => undefined,
  }
  const owner = {
    options: { ...LIMITS, maxHeadSizeBytes: 16 * 1024 },
    handler,
    isEnding: false,
    lastWrites: new LastWrites(),
    programFailed: (fault: unknown) => expect.fail(String(fault)),
  }
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    new ClientConnection(socket, owner, { isLocal: true, carrier: socket })
  })
  return await listening(server)
}

function inProgress(content: ClientContent, client: Client): RequestInProgress {
  const nothing = () => undefined
  return {
    awaitsProof: false,
    mayBecomeTunnel: false,
    awaitsClient: true,
    start: () => undefined,
    content: (bytes) => content.receive(bytes),
    contentEnded: () => {
      content.ended()
      respondToOptions(client.response, 'request-1')
    },
    clientFailed: nothing,
    abandoned: nothing,
    responseDrained: nothing,
    responseFlushed: nothing,
  }
}

test.each([1, 1_024, 8_000])('%i octets, request after request on one connection', async (length) => {
  const seen: unknown[] = []
  const memory = new RepeatMemory(length)
  const see = (content: ClientContent) => {
    void Promise.resolve().then(() => {
      seen.push([String(content.handOut()), content.isComplete, content.receivedBytes])
      content.dropKept()
    })
  }
  await using served = await receiving(memory, see)
  const text = 'x'.repeat(length)
  await using client = await RawClient.connect(served.port)
  for (let i = 0; i < 3; i++) {
    client.send(head('POST /v2/x HTTP/1.1', 'Host: 127.0.0.1', `Content-Length: ${length}`) + text)
    expect((await client.response('POST')).status).toBe(204)
  }
  expect(seen).toEqual(Array.from({ length: 3 }, () => [text, true, length]))
})

test.each(['Content-Length: 6', 'Transfer-Encoding: chunked'])(
  'content beyond the memory for repeats is forwarded, but not kept: %s',
  async (framing) => {
    const contents: ClientContent[] = []
    const forwarded: string[] = []
    await using served = await receiving(new RepeatMemory(10, 20), (content) => {
      contents.push(content)
      let text = ''
      content.handOut()
      content.streamTo({
        write: (chunk) => {
          text += chunk.toString()
          return true
        },
        end: () => forwarded.push(text),
      })
    })
    const upload = async () => {
      const sent = framing === 'Content-Length: 6' ? 'piece.' : '3\r\npie\r\n3\r\nce.\r\n0\r\n\r\n'
      const { status } = await request(served.port, head('POST / HTTP/1.1', 'Host: x', framing) + sent)
      expect([status, forwarded.pop()]).toEqual([204, 'piece.'])
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

test('a writer that ends while it writes: the rest of the content is read all the same', async () => {
  const gate = new Gate()
  await using served = await receiving(new RepeatMemory(10), (content) => {
    const write = () => {
      content.detach()
      void gate.pass()
      return false
    }
    content.handOut()
    content.streamTo({ write, end: () => undefined })
  })
  const raw = head('POST / HTTP/1.1', 'Host: x', 'Content-Length: 6')
  await using client = await RawClient.sending(served.port, `${raw}pie`)
  await gate.untilWaiting(1)
  gate.open()
  client.send('ce.')
  expect((await client.response('POST')).status).toBe(204)
})

test('memory for repeats: one holder gets half of it at most, and leaves room for each that comes later', () => {
  const memory = new RepeatMemory(1, 100)
  const fill = (holder: string) => {
    let bytes = 0
    while (memory.hold(holder, 1)) bytes += 1
    return bytes
  }
  expect(['a', 'b', 'c'].map(fill)).toEqual([50, 25, 12])
  memory.giveBack('a', 50)
  expect([fill('b'), fill('d')]).toEqual([19, 22])
})

test('a request of the greatest size that may be set is kept', () => {
  const mostBytes = 64 * 1024 * 1024
  expect(new RepeatMemory(mostBytes).hold('one', mostBytes)).toBe(true)
})
