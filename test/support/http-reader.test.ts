/** The reader of the tests repairs nothing: without it, a proxy that forwards doubtful messages would pass. */

import { expect, test } from 'vitest'
import { startOrigin } from './origin.ts'
import { RawClient, type RawResponse, request } from './raw-client.ts'

const get = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n'

async function answerOf(raw: string, method = 'GET'): Promise<RawResponse> {
  await using origin = await startOrigin((_, connection) => {
    connection.write(raw)
    connection.end()
  })
  return await request(origin.port, get.replace('GET', method))
}

test('keeps the interim responses apart from the final one', async () => {
  const raw = 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'
  const response = await answerOf(raw)
  expect(response.status).toBe(200)
  expect(response.informational.map((interim) => interim.status)).toEqual([103])
})

test('reads field lines, chunks and trailers as they came', async () => {
  const raw =
    'HTTP/1.1 200 Fine\r\nSet-Cookie: a\r\nset-cookie: b\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nT: 1\r\n\r\n'
  const response = await answerOf(raw)
  expect(response.fields).toEqual(['Set-Cookie', 'a', 'set-cookie', 'b', 'Transfer-Encoding', 'chunked'])
  expect(response).toMatchObject({ reason: 'Fine', trailers: ['T', '1'], isComplete: true })
})

test.each([
  ['cut in a length', 'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx', false],
  ['cut between chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n', false],
  ['delimited by the close', 'HTTP/1.1 200 OK\r\n\r\nx', true],
])('knows whether a response is whole: %s', async (_, raw, isComplete) => {
  const response = await answerOf(raw)
  expect(response.content.toString()).toBe('x')
  expect(response.isComplete).toBe(isComplete)
})

test('an answer to HEAD has no content whatever it declares', async () => {
  expect(await answerOf('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n', 'HEAD')).toMatchObject({ isComplete: true })
})

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
