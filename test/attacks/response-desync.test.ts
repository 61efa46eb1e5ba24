/**
 * The attack: an origin, or somebody who can write on its connection, sends a response whose end two parsers see in different
 * places. The rest of it becomes the answer to the next request, which may be for another Org (response splitting, response
 * queue poisoning). So a doubtful head is a 502, and its connection is not used again.
 */

import { describe, expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { type Fault, startFaultTable } from '../support/fault-table.ts'
import { RawClient } from '../support/raw-client.ts'

const table = await startFaultTable()

const OK = 'HTTP/1.1 200 OK\r\n'
/** Follows every response, and must never become an answer. */
const POISON = `${OK}Content-Length: 6\r\n\r\npoison`

// `test/units/http1/response-parser.test.ts` has more.
test.each([
  ['a length and chunked', 'Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n'],
  ['two lengths', 'Content-Length: 4\r\nContent-Length: 5\r\n\r\nbody'],
  ['a field split by CR', 'X-Foo: a\rSet-Cookie: evil\r\nContent-Length: 0\r\n\r\n'],
])('framing that can be read in two ways: %s', (_, fields) =>
  table.run({ writes: OK + fields + POISON, status: 502, code: 'http_protocol_error', isReused: false }),
)

describe('content in a response that has none', () => {
  const empty = (name: string, method: string, writes: string, status: number): Fault => ({
    name,
    method,
    writes: `${writes}body${POISON}`,
    status,
    isReused: false,
    also: (response) => expect(response.content.toString()).not.toMatch(/body|poison/),
  })
  test.each<Fault>([
    empty('204', 'GET', 'HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n', 204),
    empty('304', 'GET', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n', 304),
    empty('HEAD', 'HEAD', `${OK}Content-Length: 4\r\n\r\n`, 200),
  ])('$name', (row) => table.run(row))
})

test.each(['Content-Length: 2\r\n\r\nok', 'Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'])(
  'bytes beyond the content belong to no response: %j',
  (response) =>
    table.run({
      writes: OK + response + POISON,
      isReused: false,
      also: ({ content }) => expect(content.toString()).toBe('ok'),
    }),
)

// `test/units/origin/idle-connections.test.ts` has bytes that arrive while the connection is idle.
test('bytes that arrive together with the next request are not its answer', async () => {
  for (let i = 0; i < 20; i++) {
    const target = table.target((_, connection) => {
      connection.write(`${OK}Content-Length: 5\r\n\r\nfirst`)
      setImmediate(() => connection.write(POISON))
    })
    await using client = await RawClient.sending(table.proxy.port, get(target, 'acme'))
    expect((await client.response()).content.toString()).toBe('first')
    client.send(get('/v2/alive', 'other-org'))
    const second = await client.response()
    expect([200, 502]).toContain(second.status)
    expect(second.content.toString()).not.toContain('poison')
  }
})
