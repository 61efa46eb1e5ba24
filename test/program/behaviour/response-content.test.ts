/** Rare but correct responses, and responses without content. */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { type Fault, startFaultTable } from '../../support/fault-table.ts'
import { fieldOf, RawClient } from '../../support/raw-client.ts'

const table = await startFaultTable({ 'origin.responseTimeout': '400ms' })

const OK = 'HTTP/1.1 200 OK\r\n'
const LONG_HEAD = Array.from({ length: 20 }, (_, i) => `F${i}: ${'a'.repeat(1000)}\r\n`).join('')

function whole(name: string, writes: string, status: number, content = '', method = 'GET'): Fault {
  return {
    name,
    method,
    writes,
    status,
    also: (response) => expect(response.content.toString()).toBe(content),
  }
}

test.each<Fault>([
  whole(
    'interim responses',
    `${'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'.repeat(3)}HTTP/1.1 102 Processing\r\n\r\n${OK}Content-Length: 2\r\n\r\nok`,
    200,
    'ok',
  ),
  whole('a 100 that nobody asked for', `HTTP/1.1 100 Continue\r\n\r\n${OK}Content-Length: 2\r\n\r\nok`, 200, 'ok'),
  whole('no reason and no space', 'HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok', 200, 'ok'),
  whole('a head of 20 KB', `${OK}${LONG_HEAD}Content-Length: 2\r\n\r\nok`, 200, 'ok'),
  whole('205', 'HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n', 205),
  whole('an empty chunked one', `${OK}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 200),
  whole(
    'chunk extensions and a trailer',
    `${OK}Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX-T: 1\r\n\r\n`,
    200,
    'ok',
  ),
  whole('HEAD with a length', `${OK}Content-Length: 99\r\n\r\n`, 200, '', 'HEAD'),
  whole('HEAD of chunks', `${OK}Transfer-Encoding: chunked\r\n\r\n`, 200, '', 'HEAD'),
])('$name', (row) => table.run(row))

test.each([
  [304, 'a length that tells of a 200', 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 10\r\n\r\n', '10'],
  [304, 'no length', 'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\n\r\n', undefined],
  [204, 'no length', 'HTTP/1.1 204 No Content\r\n\r\n', undefined],
  [204, 'a length, which it must not have', 'HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n', undefined],
])('a %i with %s is complete, and the client connection stays open', async (status, _, raw, length) => {
  await using client = await RawClient.connect(table.proxy.port)
  for (let i = 0; i < 3; i++) {
    const target = table.writing(raw)
    client.send(get(target, 'acme'))
    const response = await client.response()
    expect(response).toMatchObject({ status, isComplete: true })
    expect(fieldOf(response, 'content-length')).toBe(length)
    const line = await table.proxy.logOf(target)
    expect([line.status, line.code]).toEqual([status, undefined])
  }
})
