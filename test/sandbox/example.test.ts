import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { request as nodeRequest } from 'node:http'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import { startSandbox } from '../../src/sandbox/sandbox.ts'
import { call, mint } from './client.ts'

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}

test('the echo shows the request byte for byte and in order, and masks only credentials', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  const socket = connect(Number(new URL(sandbox.baseUrl).port), '127.0.0.1')
  socket.end(
    [
      'PATCH /v2/example/endpoint?a=%2F&b=+&&=;c HTTP/1.1',
      'Host: service.example',
      'X-Twice: 1',
      'accept: */*',
      'x-TWICE: 2',
      `AUTHORIZATION: Bearer ${token}`,
      'X-Proxy-Key: caller-key',
      'Cookie: a=1',
      'Content-Length: 5',
      'Connection: close',
      '',
      'hello',
    ].join('\r\n'),
  )
  const answer = await text(socket)
  expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
  expect(answer).not.toContain(token)
  expect(answer).not.toContain('caller-key')
  expect(JSON.parse(answer.slice(answer.indexOf('\r\n\r\n')))).toEqual({
    org: 'acme',
    method: 'PATCH',
    path: '/v2/example/endpoint',
    query: 'a=%2F&b=+&&=;c',
    fields: [
      'Host: service.example',
      'X-Twice: 1',
      'accept: */*',
      'x-TWICE: 2',
      'AUTHORIZATION: [credentials]',
      'X-Proxy-Key: [credentials]',
      'Cookie: a=1',
      'Content-Length: 5',
      'Connection: close',
    ],
    content: { lengthBytes: 5, sha256: sha256('hello') },
  })
})

test.each(['GET', 'PUT', 'DELETE', 'OPTIONS', 'PROPFIND'])('%s is echoed on any path below /v2', async (method) => {
  await using sandbox = await startSandbox()
  const response = await call(sandbox, '/v2/members/17', await mint(sandbox, 'acme'), { method })
  expect(await response.json()).toMatchObject({ org: 'acme', method, path: '/v2/members/17' })
})

test('more fields than Node counts by default are all shown', async () => {
  await using sandbox = await startSandbox()
  const headers = Object.fromEntries(Array.from({ length: 1500 }, (_, index) => [`f${index}`, '']))
  const response = await call(sandbox, '/v2/example/endpoint', await mint(sandbox, 'acme'), { headers })
  const { fields } = (await response.json()) as { fields: string[] }
  expect(fields.filter((line) => /^f\d+: $/.test(line))).toHaveLength(1500)
})

test('an upload is hashed as it arrives', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  const block = Buffer.alloc(1024 * 1024, 7)
  const hash = createHash('sha256')
  const upload = nodeRequest(`${sandbox.baseUrl}/v2/example/endpoint`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
  })
  for (let count = 0; count < 16; count += 1) {
    hash.update(block)
    if (!upload.write(block)) await once(upload, 'drain')
  }
  upload.end()
  const [response] = await once(upload, 'response')
  const { content } = JSON.parse(await text(response))
  expect(content).toEqual({ lengthBytes: 16 * block.length, sha256: hash.digest('hex') })
})

test.each([
  ['', 1024, '1024'],
  ['?size=200000', 200_000, '200000'],
  ['?size=200000&chunked=1', 200_000, null],
  ['?size=nonsense', 1024, '1024'],
])('bytes%s are %i bytes of the known pattern', async (query, sizeBytes, length) => {
  await using sandbox = await startSandbox()
  const response = await call(sandbox, `/v2/example/bytes${query}`, await mint(sandbox, 'acme'))
  expect(response.headers.get('content-length')).toBe(length)
  const content = Buffer.from(await response.arrayBuffer())
  expect(content.equals(Buffer.from(Array.from({ length: sizeBytes }, (_, index) => index % 251)))).toBe(true)
})

test('an event stream sends as many events as were asked for', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  const response = await call(sandbox, '/v2/example/events?count=3&intervalMs=20', token)
  expect(response.headers.get('content-type')).toBe('text/event-stream')
  const events = [1, 2, 3].map((number) => `id: ${number}\ndata: {"org":"acme","number":${number}}\n\n`)
  expect(await response.text()).toBe(events.join(''))
})

test('an own handler answers every path except the examples', async () => {
  await using sandbox = await startSandbox({
    handler: (request, response, org) => {
      response.setHeader('content-type', 'text/plain')
      response.end(`${org} asked for ${request.url}`)
    },
  })
  const token = await mint(sandbox, 'acme')
  expect(await (await call(sandbox, '/v2/members?page=2', token)).text()).toBe('acme asked for /v2/members?page=2')
  expect(await (await call(sandbox, '/v2/example/endpoint', token)).json()).toMatchObject({ org: 'acme' })
  expect((await call(sandbox, '/v2/members', 'no-token')).status).toBe(401)
})

test('a handler that throws causes a 500 with the reason', async () => {
  await using sandbox = await startSandbox({
    handler: () => {
      throw new Error('no such member')
    },
  })
  const response = await call(sandbox, '/v2/members', await mint(sandbox, 'acme'))
  expect(response.status).toBe(500)
  expect(await response.json()).toEqual({ error: 'sandbox_failed', message: 'no such member' })
})

test('a base path precedes all paths of the service', async () => {
  await using sandbox = await startSandbox({ basePath: '/api' })
  expect(sandbox.baseUrl).toMatch(/\/api$/)
  const token = await mint(sandbox, 'acme')
  const response = await call(sandbox, '/v2/example/endpoint', token)
  expect(await response.json()).toMatchObject({ path: '/v2/example/endpoint' })
  const { origin } = new URL(sandbox.baseUrl)
  for (const path of ['/v2/example/endpoint', '/apiv2/example/endpoint', '/', '/v22']) {
    const outside = await fetch(`${origin}${path}`, { headers: { authorization: `Bearer ${token}` } })
    expect(outside.status).toBe(404)
  }
})

test.each(['api', '/api/', '/', '/api//v', '/a?b'])('base path %j is refused', async (basePath) => {
  await expect(startSandbox({ basePath })).rejects.toThrow('basePath must look like /api')
})
