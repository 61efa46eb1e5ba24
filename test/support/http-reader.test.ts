/** The reader of the tests repairs nothing: without it, a proxy that forwards doubtful messages would pass. */

import { expect, test } from 'vitest'
import { startOrigin } from './origin.ts'
import { RawClient, request } from './raw-client.ts'

const get = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'

test('a wait that is in vain ends, and says what came', async () => {
  await using origin = await startOrigin((_, connection) => {
    connection.write('HTTP/1.1 200 OK\r\nContent-')
  })
  await using client = await RawClient.connect(origin.port, { deadlineMs: 50 })
  client.send(get)
  await expect(client.response()).rejects.toThrow('so far: "Content-"')
})

test.each([
  ['a bare line feed', 'GET / HTTP/1.1\nHost: x\r\n\r\n'],
  ['both framings', 'POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
  ['two lengths', 'POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx'],
  ['a length with a sign', 'POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\nx'],
  ['another coding', 'POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n'],
  ['a folded field', 'GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n'],
  ['white space before the colon', 'GET / HTTP/1.1\r\nA : b\r\n\r\n'],
  ['a chunk extension', 'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n0\r\n\r\n'],
  ['a chunk without its end', 'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhiXX0\r\n\r\n'],
  ['another version', 'GET / HTTP/1.0\r\n\r\n'],
])('calls it malformed: %s', async (_, raw) => {
  await using origin = await startOrigin()
  expect((await request(origin.port, raw)).status).toBe(400)
  expect(origin.malformed).toHaveLength(1)
})
