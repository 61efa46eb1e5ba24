/** A request that is refused before its content is read: the answer arrives, and the content is never read as a request. */

import { expect, test } from 'vitest'
import { get, HOST, head } from '../support/case-table.ts'
import { problemOf, RawClient } from '../support/raw-client.ts'
import { startBoth } from '../support/start-proxy.ts'

test.each([
  ['no Org', [], 'org_id_missing'],
  ['a page', ['Origin: https://evil.example', 'X-Org-Id: acme'], 'browser_refused'],
])('%s, with 10 MB of content', async (_, lines, code) => {
  const { service, proxy } = await startBoth()
  await using client = await RawClient.connect(proxy.port)
  const inside = get('/v2/smuggled', 'acme')
  const content = inside.repeat(Math.ceil(10_000_000 / inside.length))
  client.send(head('POST /v2/x HTTP/1.1', HOST, `Content-Length: ${content.length}`, ...lines))
  client.send(content)
  const response = await client.response('POST')
  expect(problemOf(response).code).toBe(code)
  expect(response.isComplete).toBe(true)
  expect((await client.untilClosed()).bytes.length).toBe(0)
  expect(service.origin.connections).toEqual([])
})

test('1 MiB and a byte, Expect, and a refusal: one answer', async () => {
  const { proxy } = await startBoth()
  await using client = await RawClient.connect(proxy.port)
  const length = 1024 * 1024 + 1
  client.send(head('POST /v2/x HTTP/1.1', HOST, `Content-Length: ${length}`, 'Expect: 100-continue'))
  client.send('x'.repeat(length))
  const response = await client.response('POST')
  expect(response.status).toBe(400)
  expect(response.informational).toEqual([])
  expect((await client.untilClosed()).bytes.length).toBe(0)
})
