/** `origin.proxyFromEnv`: the program as a process behind a proxy that its environment names. */

import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { CA_FILE, certificate } from '../../support/certificates.ts'
import { type ConnectProxy, startConnectProxy } from '../../support/connect-proxy.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { type ProxyProcess, startProxyProcess } from '../../support/proxy-process.ts'
import { problemOf, RawClient, request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { echoServer } from '../../support/websocket-echo.ts'

const PASSWORD = 'canary:@/%'
const CREDENTIALS = `user:${PASSWORD}`

let service: Service
let onTheWay: ConnectProxy
beforeEach(() => {
  onTheWay.requests.length = 0
  onTheWay.behaviour = 'open'
})
beforeAll(async () => {
  service = await startService(echoServer({ content: 'from the origin', closes: true }))
  onTheWay = await startConnectProxy()
})
afterAll(async () => {
  await onTheWay[Symbol.asyncDispose]()
  await service[Symbol.asyncDispose]()
})

function start(variables: Readonly<Record<string, string>>, before = service): Promise<ProxyProcess> {
  const env = { OAP_ORIGIN_PROXY_FROM_ENV: 'true', OAP_LOG_LEVEL: 'trace', ...variables }
  return startProxyProcess(before, { env })
}

async function expectSilence({ spawned }: ProxyProcess): Promise<void> {
  await spawned.waitForLine(/"msg":"request".*"code":"connection_refused"/)
  for (const form of [PASSWORD, encodeURIComponent(PASSWORD), Buffer.from(CREDENTIALS).toString('base64')]) {
    expect(spawned.output).not.toContain(form)
  }
}

test('mints and requests go through it, with its password; a refusal is a 502, and the log does not contain the password', async () => {
  await using proxy = await start({ http_proxy: onTheWay.url(`user:${encodeURIComponent(PASSWORD)}@`) })
  for (let i = 0; i < 2; i++) {
    const response = await request(proxy.port, get('/v2/x', 'acme'))
    expect(response.content.toString()).toBe('from the origin')
  }
  const connect = { line: `CONNECT 127.0.0.1:${service.origin.port} HTTP/1.1`, credentials: CREDENTIALS }
  expect(onTheWay.requests).toEqual([connect, connect, connect])

  onTheWay.behaviour = 'refuse with 407'
  const refused = await request(proxy.port, get('/v2/x', 'acme'))
  expect(refused.status).toBe(502)
  const said = `The proxy on the way, ${new URL(onTheWay.url()).host}, answered 407`
  expect(problemOf(refused)).toMatchObject({ code: 'connection_refused', detail: expect.stringContaining(said) })
  onTheWay.behaviour = 'open'
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  await proxy.spawned.waitForLine(new RegExp(`"msg":"request".*${said}`))
  await expectSilence(proxy)
})

test('a mint that it refuses names it in the answer, the log and the status', async () => {
  onTheWay.behaviour = 'refuse with 403'
  await using proxy = await start({ http_proxy: onTheWay.url() })
  const said = `The proxy on the way, ${new URL(onTheWay.url()).host}, answered 403`
  const problem = problemOf(await request(proxy.port, get('/v2/x', 'acme')))
  expect(problem['detail']).toContain(said)
  await proxy.spawned.waitForLine(new RegExp(`${said}.*"msg":"mint failed"`))
  expect(await (await fetch(`http://127.0.0.1:${proxy.adminPort}/status`)).text()).toContain(said)
})

test('origin.caFile applies to mints and requests in the tunnel', async () => {
  await using secure = await startService({ tls: certificate('localhost') })
  await using proxy = await start({ https_proxy: onTheWay.url(), OAP_ORIGIN_CA_FILE: CA_FILE }, secure)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  const connect = { line: `CONNECT localhost:${secure.origin.port} HTTP/1.1`, credentials: undefined }
  expect(onTheWay.requests, 'one for the mint, one for the request').toEqual([connect, connect])
})

test('WebSockets go through it, too, and both ways', async () => {
  await using proxy = await start({ http_proxy: onTheWay.url(`user:${encodeURIComponent(PASSWORD)}@`) })
  await using client = await RawClient.connect(proxy.port)
  const frame = Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]) // "hi", masked with zeros
  client.send(Buffer.concat([Buffer.from(get('/v2/ws', 'acme', ...HANDSHAKE)), frame]))
  expect((await client.response()).status).toBe(101)
  expect(await client.bytes(4)).toEqual(Buffer.from([0x81, 0x02, 0x68, 0x69]))
  const connect = { line: `CONNECT 127.0.0.1:${service.origin.port} HTTP/1.1`, credentials: CREDENTIALS }
  expect(onTheWay.requests, 'one for the mint, one for the handshake').toEqual([connect, connect])
  expect(service.requests.at(-1)?.target, 'in origin form').toBe('/v2/ws')

  onTheWay.behaviour = 'refuse with 407'
  const refused = await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))
  expect([refused.status, problemOf(refused).code]).toEqual([502, 'connection_refused'])
  onTheWay.behaviour = 'open'
  await expectSilence(proxy)
})

test('neither mints nor requests go through it to a host of NO_PROXY', async () => {
  await using proxy = await start({ HTTP_PROXY: onTheWay.url(), NO_PROXY: 'other.example,127.0.0.1' })
  const response = await request(proxy.port, get('/v2/x', 'acme'))
  expect(response.content.toString()).toBe('from the origin')
  expect(onTheWay.requests).toEqual([])
})
