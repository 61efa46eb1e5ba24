import { expect, test } from 'vitest'
import { startOrigin } from './origin.ts'
import { fieldOf, RawClient, request } from './raw-client.ts'

const get = 'GET /a?b=%2F HTTP/1.1\r\nHost: x\r\nX-Twice: 1\r\nx-twice: 2\r\n\r\n'
const post = 'POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello'

test('records requests as they came and answers by script', async () => {
  await using origin = await startOrigin(async (seen) => {
    await seen.ended
    return { status: 201, reason: 'Made', content: seen.content }
  })
  const response = await request(origin.port, post)
  expect(response).toMatchObject({ status: 201, reason: 'Made', isComplete: true })
  expect(response.content.toString()).toBe('hello')
  await request(origin.port, get)
  const [first, second] = origin.requests
  expect(first).toMatchObject({ method: 'POST', target: '/p', state: 'complete', contentBytes: 5 })
  expect(second).toMatchObject({ target: '/a?b=%2F', fields: ['Host', 'x', 'X-Twice', '1', 'x-twice', '2'] })
  expect(second?.values('X-TWICE')).toEqual(['1', '2'])
  expect(origin.connections[1]?.received.toString()).toBe(get)
})

test('sees two requests on one connection, so also one that was smuggled', async () => {
  await using origin = await startOrigin()
  await using client = await RawClient.connect(origin.port)
  client.send(post + get)
  await client.response('POST')
  await client.response()
  expect(origin.requests.map((seen) => seen.method)).toEqual(['POST', 'GET'])
  expect(origin.connections).toHaveLength(1)
})

test('reads chunked content and its trailers', async () => {
  await using origin = await startOrigin(() => ({ content: 'ok', isChunked: true }))
  const chunked = 'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n3\r\nyou\r\n0\r\nX-T: 1\r\n\r\n'
  expect((await request(origin.port, chunked)).content.toString()).toBe('ok')
  expect(origin.requests[0]?.content.toString()).toBe('hiyou')
  expect(origin.requests[0]?.trailers).toEqual(['X-T', '1'])
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

test('tells an aborted content from a complete one', async () => {
  await using origin = await startOrigin()
  await using client = await RawClient.connect(origin.port)
  client.send('POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf')
  await origin.waitFor(() => origin.requests[0]?.contentBytes === 4)
  client.reset()
  await origin.waitFor(() => origin.requests[0]?.state === 'aborted')
  expect(origin.requests[0]?.content.toString()).toBe('half')
  expect(origin.connections[0]?.peerEnd).toBe('reset')
})

test('an early reply does not wait for the content', async () => {
  await using origin = await startOrigin(() => ({ status: 413, isEarly: true, closes: true }))
  await using client = await RawClient.connect(origin.port)
  client.send('POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n')
  const response = await client.response('POST')
  expect(response.status).toBe(413)
  expect(fieldOf(response, 'connection')).toBe('close')
})

test.each(['fin', 'reset'] as const)(
  'a script cuts its response with %s, and the client sees it broken',
  async (end) => {
    await using origin = await startOrigin((_, connection) => {
      connection.write('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npartial')
      return undefined
    })
    await using client = await RawClient.connect(origin.port)
    client.send(get)
    await origin.waitFor(() => origin.requests.length === 1)
    const response = client.response()
    await client.untilBytes('partial')
    const [connection] = origin.connections
    if (end === 'fin') connection?.end()
    else connection?.reset()
    expect(await response).toMatchObject({ status: 200, isComplete: false })
  },
)

test('a tunnel leaves HTTP', async () => {
  await using origin = await startOrigin(async (_, connection) => {
    const tunnel = connection.tunnel()
    connection.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n')
    connection.write(await tunnel.exactly(4))
    return undefined
  })
  await using client = await RawClient.connect(origin.port)
  client.send('GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nping')
  expect((await client.response()).status).toBe(101)
  expect((await client.bytes(4)).toString()).toBe('ping')
  expect(origin.malformed).toEqual([])
})

test('an error of the script is not lost', async () => {
  const origin = await startOrigin(() => {
    throw new Error('a mistake in the script')
  })
  await using client = await RawClient.connect(origin.port)
  client.send(get)
  await client.untilClosed()
  await expect(origin[Symbol.asyncDispose]()).rejects.toThrow('the script of the origin failed')
})

test('a stopped origin refuses, and comes back on its port', async () => {
  await using origin = await startOrigin()
  const { port } = origin
  await origin.stop()
  await expect(RawClient.connect(port)).rejects.toThrow('ECONNREFUSED')
  await origin.listen(port)
  expect((await request(port, get)).status).toBe(200)
})
