/**
 * The attack: `HTTP_PROXY` in the environment, set for another program or by somebody else, sends the App secret and all
 * tokens through a machine that the operator did not choose.
 */

import { once } from 'node:events'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { get } from '../support/case-table.ts'
import { CA_FILE } from '../support/certificates.ts'
import { makeFolder } from '../support/folder.ts'
import { type Origin, startOrigin } from '../support/origin.ts'
import { request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { environmentFor, spawnProxy } from '../support/spawn-proxy.ts'
import { echoServer } from '../support/websocket-echo.ts'
import { CLAIMS, makeIssuer } from '../units/callers/issuer.ts'
import { KeySetServer } from '../units/callers/key-set-server.ts'

let service: Service
/** What the environment names as a proxy. */
let interceptor: Origin
beforeAll(async () => {
  service = await startService(echoServer({ content: 'direct' }))
  interceptor = await startOrigin()
})
afterAll(async () => {
  await service[Symbol.asyncDispose]()
  await interceptor[Symbol.asyncDispose]()
})

test('proxies of the environment are used only with origin.proxyFromEnv', async () => {
  await using env = await environmentFor(service)
  const names = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'http_proxy', 'https_proxy', 'all_proxy']
  const proxies = Object.fromEntries(names.map((name) => [name, interceptor.url]))
  await using proxy = spawnProxy({ env: { ...env, ...proxies, NODE_USE_ENV_PROXY: '1', NO_PROXY: '' } })
  const { port } = await proxy.ready()
  expect((await request(port, get('/v2/x', 'acme'))).content.toString()).toBe('direct')
  const socket = new WebSocket(`ws://127.0.0.1:${port}/v2/ws`, {
    headers: { 'X-Org-Id': 'acme' },
    handshakeTimeout: 3000,
  })
  await once(socket, 'open')
  socket.terminate()
  expect(interceptor.connections).toEqual([])
})

test('the key set of a caller is fetched without them', async () => {
  await using server = await KeySetServer.start((await makeIssuer()).jwks)
  await using env = await environmentFor(service)
  const jwt = { issuer: CLAIMS.iss, audience: CLAIMS.aud, subject: CLAIMS.sub, jwks: server.url, jwksCaFile: CA_FILE }
  await using folder = await makeFolder()
  const file = await folder.write('config.json', JSON.stringify({ callers: [{ name: 'batch', jwt, orgs: ['*'] }] }))
  const proxies = { HTTPS_PROXY: interceptor.url, https_proxy: interceptor.url, NODE_USE_ENV_PROXY: '1', NO_PROXY: '' }
  await using _proxy = spawnProxy({ args: ['--config', file], env: { ...env, ...proxies } })
  await server.changes.until(() => server.requests > 0, 'a fetch of the key set')
  expect(interceptor.connections).toEqual([])
})
