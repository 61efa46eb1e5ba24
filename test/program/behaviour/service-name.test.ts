/** The name of the service: one of its addresses answers, it ends with a dot, or it is not found. */

import { afterAll, describe, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { CA_FILE, certificate } from '../../support/certificates.ts'
import { eventually } from '../../support/changes.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { request } from '../../support/raw-client.ts'
import { resolving, resolvingAfter, resolvingAs } from '../../support/resolving.ts'
import { startService } from '../../support/service.ts'
import { startProxy } from '../../support/start-proxy.ts'
import { echoServer } from '../../support/websocket-echo.ts'

describe.each(['127.0.0.1', '::1'])('the service answers only on %s', async (host) => {
  const { script } = echoServer({ content: 'hello' })
  const service = await startService({ host, script }).catch(() => undefined) // a machine without IPv6

  afterAll(() => service?.[Symbol.asyncDispose]())

  const literal = host.includes(':') ? `[${host}]` : host
  test.skipIf(service === undefined).each(['localhost', literal])(
    'mints, requests and WebSockets reach it as %s',
    async (name) => {
      if (service === undefined) return
      resolving('localhost', '::1', '127.0.0.1')
      await using proxy = await startProxy(service, { baseUrl: `http://${name}:${service.origin.port}` })
      expect((await request(proxy.port, get('/v2/x', 'acme'))).content.toString()).toBe('hello')
      expect((await request(proxy.port, get('/v2/ws', 'acme', ...HANDSHAKE))).status).toBe(101)
    },
  )
})

// RFC 6066 §3: the name in the handshake has no dot at its end, and nor has that of the certificate.
test('a name with a dot at its end: Host has it, TLS does not', async () => {
  resolving('localhost.', '127.0.0.1')
  await using service = await startService({ tls: certificate('localhost'), script: () => ({ content: 'hello' }) })
  const baseUrl = `https://localhost.:${service.origin.port}`
  await using proxy = await startProxy(service, { baseUrl, 'origin.caFile': CA_FILE })
  expect((await request(proxy.port, get('/v2/x', 'acme'))).content.toString()).toBe('hello')
  const { connections, requests } = service.origin
  expect(requests.map((seen) => seen.values('host'))).toEqual([[new URL(baseUrl).host], [new URL(baseUrl).host]])
  for (const { socket } of connections) expect(socket).toMatchObject({ servername: 'localhost' })
})

test('a name that does not resolve at once: any request is sent again, because nothing of it was', async () => {
  await using service = await startService({ acceptsAnyToken: true, script: () => ({ content: 'hello' }) })
  const baseUrl = `http://service.test:${service.origin.port}`
  await using proxy = await startProxy(service, { baseUrl, 'origin.allowInsecure': 'true', appRoutes: 'POST /v2/*' })
  resolvingAfter(1, 'service.test', '127.0.0.1')
  const post = get('/v2/x', 'acme', 'Content-Length: 2').replace('GET', 'POST')
  expect((await request(proxy.port, `${post}hi`)).status).toBe(200)
  expect(service.requests).toHaveLength(1)
})

describe.each(['failure', 'silence'] as const)('the resolver goes away: %s', (outage) => {
  const CLOSING = () => ({ fields: ['Connection', 'close'], content: 'hello' })

  test('the last good addresses of the service are used, and status tells it as long as it lasts', async () => {
    await using service = await startService({ script: CLOSING })
    const settings = { 'origin.allowInsecure': 'true', 'admin.address': 'localhost:0' }
    await using proxy = await startProxy(service, {
      ...settings,
      baseUrl: `http://service.test:${service.origin.port}`,
    })
    const statuses = async (count: number) =>
      Promise.all(Array.from({ length: count }, async () => (await request(proxy.port, get('/v2/x', 'acme'))).status))
    const warnings = async (): Promise<unknown[]> => JSON.parse((await proxy.askAdmin('/status')).content).warnings
    let isAway = false
    const endSilence = resolvingAs('service.test', () => (isAway ? outage : ['127.0.0.1']))
    expect(await statuses(1)).toEqual([200])
    expect(await warnings()).toEqual([])

    isAway = true
    expect(await statuses(3)).toEqual([200, 200, 200])
    const text = expect.stringMatching(/^The look-up of service\.test .*: its last good addresses are used\./)
    expect(await warnings()).toMatchObject([{ code: 'name_unresolved', text }])

    isAway = false
    endSilence()
    expect(await statuses(1)).toEqual([200])
    await eventually(async () => (await warnings()).length === 0, 'the end of the warning')
  })

  test('a name that was never found: told, too', async () => {
    await using service = await startService()
    const settings = { 'origin.allowInsecure': 'true', 'tokens.mintTimeout': '1s', 'admin.address': 'localhost:0' }
    await using proxy = await startProxy(service, { ...settings, baseUrl: 'http://service.test' })
    resolvingAs('service.test', () => outage)
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBeGreaterThan(500)
    const text = expect.stringContaining('service.test')
    const { warnings } = JSON.parse((await proxy.askAdmin('/status')).content)
    expect(warnings).toContainEqual(expect.objectContaining({ code: 'name_unresolved', text }))
  })
})

test('a name whose look-up hangs is asked for once, however many connections wait for it', async () => {
  await using service = await startService()
  const settings = { 'origin.allowInsecure': 'true', 'tokens.mintTimeout': '1s' }
  await using proxy = await startProxy(service, { ...settings, baseUrl: 'http://service.test' })
  let questions = 0
  resolvingAs('service.test', () => {
    questions++
    return 'silence'
  })
  await Promise.all(['acme', 'globex', 'initech'].map((org) => request(proxy.port, get('/v2/x', org))))
  expect(questions).toBe(1)
})
