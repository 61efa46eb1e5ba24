/** Requests of `appRoutes`: they carry Basic, need no org, and are repeated only with the other secret of the App. */

import { writeFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { randomSecret } from '../../support/canaries.ts'
import { get, head } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { problemOf, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { startBoth, startProxy } from '../../support/start-proxy.ts'

const link = head('POST /v2/links HTTP/1.1', 'Host: 127.0.0.1', 'Content-Length: 0', 'Authorization: Bearer mine')

test('carry Basic credentials, whatever the client sent', async () => {
  const { service, proxy } = await startBoth({ acceptsAnyToken: true }, { appRoutes: 'POST /v2/links' })
  expect((await request(proxy.port, link)).status).toBe(200)
  expect(service.requests[0]?.values('authorization')).toEqual([`Basic ${service.tokens.apiKey}`])
  expect(service.tokens.mints).toEqual([])
  // Requests of other routes get none.
  expect((await request(proxy.port, head('GET /v2/links HTTP/1.1', 'Host: 127.0.0.1'))).status).toBe(400)
  expect((await request(proxy.port, get('/v2/links', 'acme'))).status).toBe(200)
  expect(service.requests.slice(1).map((received) => service.orgOf(received))).toEqual(['acme'])
})

test('for GET are there for HEAD, too; a method override is refused on the path of one', async () => {
  const { service, proxy } = await startBoth({ acceptsAnyToken: true }, { appRoutes: 'GET /v2/links' })
  const send = (method: string, path: string, ...lines: string[]) =>
    request(proxy.port, head(`${method} ${path} HTTP/1.1`, 'Host: 127.0.0.1', ...lines))
  expect((await send('HEAD', '/v2/links')).status).toBe(200)
  expect(service.requests[0]?.values('authorization')).toEqual([`Basic ${service.tokens.apiKey}`])
  const override = 'X-HTTP-Method-Override: GET'
  const refused = await send('POST', '/v2/links', 'X-Org-Id: acme', override, 'Content-Length: 0')
  expect([refused.status, problemOf(refused).code]).toEqual([403, 'route_refused'])
  expect((await send('POST', '/v2/others', 'X-Org-Id: acme', override, 'Content-Length: 0')).status).toBe(200)
})

test('are not repeated after a rejection, with one secret', async () => {
  await using service = await startService({ acceptsAnyToken: true, script: () => ({ status: 401 }) })
  await using proxy = await startProxy(service, { appRoutes: 'POST /v2/links' })
  expect((await request(proxy.port, link)).status).toBe(401)
  expect(service.requests).toHaveLength(1)
})

test('a 401 to one says nothing about the token endpoint', async () => {
  await using service = await startService({ acceptsAnyToken: true, script: () => ({ status: 401 }) })
  await using proxy = await startProxy(service, { appRoutes: 'POST /v2/links', 'admin.address': 'localhost:0' })
  expect((await request(proxy.port, link)).status).toBe(401)
  const { warnings, isReady } = JSON.parse((await proxy.askAdmin('/status')).content)
  expect([warnings, isReady]).toEqual([[], true])
})

test('are repeated with the secret before, if the service does not take the new one yet; then it is kept', async () => {
  let old = ''
  await using service = await startService({
    acceptsAnyToken: true,
    script: (received) => (received.values('authorization')[0] === old ? {} : { status: 401 }),
  })
  old = `Basic ${service.tokens.apiKey}`
  await using proxy = await startProxy(service, { appRoutes: 'POST /v2/links' })
  expect((await request(proxy.port, link)).status).toBe(200)
  await writeFile(proxy.secretFile, randomSecret())
  await eventually(() => proxy.output.includes('new secret loaded') || undefined, 'the new secret', 10_000)
  for (let i = 0; i < 2; i++) expect((await request(proxy.port, link)).status).toBe(200)
  const seen = service.requests.map((received) => received.values('authorization')[0] === old)
  expect(seen, 'which requests had the secret before').toEqual([true, false, true, true])
  old = 'neither'
  expect((await request(proxy.port, link)).status).toBe(401)
  expect(service.requests.slice(seen.length), 'one request with each').toHaveLength(2)
})
