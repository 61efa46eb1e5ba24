/** The call of the token endpoint has the same few bytes, whatever the client sent. */

import { expect, test } from 'vitest'
import { readVersion } from '../../../src/version.ts'
import { HOST, head } from '../../support/case-table.ts'
import { RawClient } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'

test('the bytes of a mint, beside a request full of fields and content', async () => {
  await using service = await startService({ prefix: '/api/' })
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  const fields = ['Authorization: Bearer mine', 'Cookie: a=1', 'User-Agent: me', 'traceparent: 00-1-2-01', 'Via: 1.1 a']
  client.send(`${head('PUT /v2/x?y=1 HTTP/1.1', HOST, 'X-Org-Id: acme:1@x', ...fields, 'Content-Length: 5')}hello`)
  expect((await client.response('PUT')).status).toBe(200)

  const [mint] = service.tokens.mints
  expect(mint?.request.connection.received.toString('latin1').split('\r\n')).toEqual([
    'POST /api/v2/orgs/acme%3A1%40x/access HTTP/1.1',
    `host: 127.0.0.1:${service.origin.port}`,
    `authorization: Basic ${service.tokens.apiKey}`,
    'accept: application/json',
    'accept-encoding: identity',
    `user-agent: org-access-proxy/${readVersion()}`,
    'connection: keep-alive',
    'content-length: 0',
    '',
    '',
  ])
})

test('mints and requests never share a connection', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  await using client = await RawClient.connect(proxy.port)
  for (const org of ['a', 'b', 'c', 'a']) {
    client.send(head('GET /v2/x HTTP/1.1', HOST, `X-Org-Id: ${org}`))
    expect((await client.response()).status).toBe(200)
  }
  for (const connection of service.origin.connections) {
    const kinds = connection.requests.map((received) => service.orgOfMint(received) !== undefined)
    expect(new Set(kinds).size).toBe(1)
  }
})
