/**
 * The attack: an `Expect` that one parser reads as `100-continue` and the other does not. One waits for content that the
 * other reads as the next request. And one client library lost a connection for ever when it refused the field.
 */

import { describe, expect, test } from 'vitest'
import { HOST, head, ORG, type Seen, sentFor, startTable } from '../support/case-table.ts'
import { RawClient } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

const table = await startTable()

const POST = 'POST /v2/x HTTP/1.1'

describe('anything but 100-continue is refused, without a 100', () => {
  const VALUES = ['x 100-continue', '100-continue, x', 'x', '200-ok', '"100-continue"', '100-continue;q=1', '100']
  const TWICE = '100-continue\r\nExpect: x'
  const upload = (value: string) => `${head(POST, HOST, ORG, 'Content-Length: 2', `Expect: ${value}`)}hi`
  const also = ({ response }: Seen) => expect(response.informational).toEqual([])
  table.refuses(sentFor([...VALUES, TWICE], upload), 417, 'expectation_failed', { also })
})

test.each(['Content-Length: 2', 'Transfer-Encoding: chunked'])(
  '100-continue is answered here and not forwarded: %s',
  (framing) =>
    table.run({
      send: `${head(POST, HOST, ORG, framing, 'Expect: 100-Continue')}${framing.includes('chunked') ? '2\r\nhi\r\n0\r\n\r\n' : 'hi'}`,
      content: 'hi',
      also: ({ requests, response }) => {
        expect(requests[0]?.values('expect')).toEqual([])
        expect(response.informational).toEqual([]) // the content is here
      },
    }),
)

test('a client that sends its content only after the 100 gets the 100, and its response', async () => {
  const { service, proxy } = await startBoth()
  await using client = await RawClient.sending(
    proxy.port,
    head(POST, HOST, 'X-Org-Id: acme', 'Content-Length: 2', 'Expect: 100-continue'),
  )
  expect((await client.nextHead('POST')).status).toBe(100)
  client.send('hi')
  const response = await client.response('POST')
  expect([response.status, response.informational]).toEqual([200, []])
  expect(service.requests.map(({ content }) => content.toString())).toEqual(['hi'])
})

test('the 100 goes out 100 ms after the head: a service that answers at once saves the client the content', async () => {
  const heads: number[] = []
  const { proxy } = await startBoth({
    acceptsAnyToken: true,
    script: (seen) => {
      heads.push(performance.now())
      return { status: seen.target === '/v2/refused' ? 413 : 200, isEarly: seen.target === '/v2/refused' }
    },
  })
  const post = (target: string) =>
    head(`POST ${target} HTTP/1.1`, HOST, 'X-Org-Id: acme', 'Content-Length: 2', 'Expect: 100-continue')
  await using refused = await RawClient.sending(proxy.port, post('/v2/refused'))
  const response = await refused.response('POST')
  expect([response.status, response.informational]).toEqual([413, []])
  heads.length = 0
  await using client = await RawClient.sending(proxy.port, post('/v2/x'))
  expect((await client.nextHead('POST')).status).toBe(100)
  expect(performance.now() - (heads[0] ?? Number.NaN)).toBeGreaterThan(50)
  client.send('hi')
  expect((await client.response('POST')).status).toBe(200)
})

test('content of any size that waits for its 100 is not lost to a rejected token', async () => {
  const content = 'x'.repeat(100_000)
  const { service, proxy } = await startBoth({
    acceptsAnyToken: true,
    script: (seen) => (service.orgOf(seen) === undefined ? { status: 401, isEarly: true } : { content: 'taken' }),
  })
  const send = (target: string) =>
    RawClient.sending(
      proxy.port,
      head(`PUT ${target} HTTP/1.1`, HOST, 'X-Org-Id: acme', 'Content-Length: 100000', 'Expect: 100-continue'),
    )
  await using first = await send('/v2/first')
  expect((await first.nextHead('PUT')).status).toBe(100)
  first.send(content)
  expect((await first.response('PUT')).status).toBe(200)
  service.tokens.revoke('acme')
  await using second = await send('/v2/second')
  expect((await second.nextHead('PUT')).status).toBe(100)
  second.send(content)
  expect((await second.response('PUT')).status).toBe(200)
  expect(service.requests.at(-1)?.content.toString()).toBe(content)
})

test('nor does one whose content came with its head, although its token is here at once', async () => {
  const { proxy } = await startBoth()
  await using client = await RawClient.sending(proxy.port, head('GET /v2/x HTTP/1.1', HOST, 'X-Org-Id: acme'))
  await client.response('GET')
  client.send(`${head(POST, HOST, 'X-Org-Id: acme', 'Content-Length: 2', 'Expect: 100-continue')}hi`)
  const { status, informational } = await client.response('POST')
  expect([status, informational]).toEqual([200, []])
})

test.each([
  ['GET without content', head('GET /v2/x HTTP/1.1', HOST, ORG, 'Expect: 100-continue')],
  ['POST of no length', head(POST, HOST, ORG, 'Content-Length: 0', 'Expect: 100-continue')],
])('there is no 100 for a %s', (_, send) =>
  table.run({ send, also: ({ response }) => expect(response.informational).toEqual([]) }),
)

test('a refused request gets no 100 first', () =>
  table.run({
    send: head(POST, HOST, 'Content-Length: 2', 'Expect: 100-continue'),
    status: 400,
    code: 'org_id_missing',
    closes: true,
    also: ({ response }) => expect(response.informational).toEqual([]),
  }))
