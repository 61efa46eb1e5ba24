/** The call of the token endpoint has the same few bytes, whatever the client sent. */

import { readFileSync } from 'node:fs'
import type { TLSSocket } from 'node:tls'
import { describe, expect, test } from 'vitest'
import { readVersion } from '../../../src/version.ts'
import { HOST, head } from '../../support/case-table.ts'
import { CA_FILE, certificate, certificateFiles } from '../../support/certificates.ts'
import { startOrigin } from '../../support/origin.ts'
import type { OriginConnection } from '../../support/origin-connection.ts'
import { RawClient } from '../../support/raw-client.ts'
import { resolving } from '../../support/resolving.ts'
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

const tls = { ...certificate('localhost'), requestCert: true, rejectUnauthorized: false, ca: readFileSync(CA_FILE) }
const isShown = ({ socket }: OriginConnection) =>
  Object.keys((socket as TLSSocket).getPeerCertificate() ?? {}).length > 0

test.each(['localhost', 'LOCALHOST', 'localhost.'])(
  'a whole URL on the host of baseUrl, written %s, is the service, which sees the client certificate',
  async (host) => {
    resolving('localhost.', '127.0.0.1')
    await using service = await startService({ tls, acceptsAnyToken: true })
    const { certificate: certFile, key } = certificateFiles('localhost')
    await using proxy = await startProxy(service, {
      'origin.caFile': CA_FILE,
      'origin.certFile': certFile,
      'origin.keyFile': key,
      'tokens.endpoint': `POST https://${host}:${service.origin.port}/v2/orgs/{orgId}/access`,
    })
    await using client = await RawClient.connect(proxy.port)
    client.send(head('GET /v2/x HTTP/1.1', HOST, 'X-Org-Id: acme'))
    expect((await client.response()).status).toBe(200)
    expect(service.origin.connections.map(isShown)).toEqual([true, true])
  },
)

describe('a token endpoint on another host', () => {
  test('has connections of its own, and is shown no client certificate', async () => {
    await using endpoint = await startOrigin(undefined, { tls })
    await using service = await startService({ tls, acceptsAnyToken: true })
    endpoint.script = () => ({ content: '{"orgAccessToken":"t"}' })
    const { certificate: certFile, key } = certificateFiles('localhost')
    await using proxy = await startProxy(service, {
      'origin.caFile': CA_FILE,
      'origin.certFile': certFile,
      'origin.keyFile': key,
      'tokens.endpoint': `POST ${endpoint.url}/orgs/{orgId}/token`,
    })
    await using client = await RawClient.connect(proxy.port)
    client.send(head('GET /v2/x HTTP/1.1', HOST, 'X-Org-Id: acme'))
    expect((await client.response()).status).toBe(200)
    expect(endpoint.requests.map(({ target }) => target)).toEqual(['/orgs/acme/token'])
    expect(service.requests.map(({ target }) => target)).toEqual(['/v2/x'])
    expect([...endpoint.connections, ...service.origin.connections].map(isShown)).toEqual([false, true])
  })

  test.each([
    ['https://no-such-host.invalid', 'The host name of tokens.endpoint does not resolve'],
    ['http://127.0.0.1:1', 'The call of the token endpoint failed (ECONNREFUSED).'],
  ])('%s: the problem names it', async (place, problem) => {
    await using service = await startService()
    await using proxy = await startProxy(service, { 'tokens.endpoint': `POST ${place}/orgs/{orgId}/token` })
    await using client = await RawClient.connect(proxy.port)
    client.send(head('GET /v2/x HTTP/1.1', HOST, 'X-Org-Id: acme'))
    const response = await client.response()
    expect(response.status).toBe(503)
    expect(JSON.parse(response.content.toString()).detail).toContain(`POST ${place}/orgs/{orgId}/token: ${problem}`)
  })
})
