/** Connections to the origin through a proxy, over real sockets, and when no proxy is used. */

import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import { createSecureContext } from 'node:tls'
import { inspect } from 'node:util'
import { describe, expect, test, vi } from 'vitest'
import { ConnectionPool } from '../../../src/origin/connection-pool.ts'
import { outboundProxyFor } from '../../../src/origin/outbound-proxy.ts'
import { Secret } from '../../../src/secret.ts'
import { CA_FILE, type CertificateName, certificate } from '../../support/certificates.ts'
import { type Behaviour, type ConnectProxy, startConnectProxy } from '../../support/connect-proxy.ts'
import { listening } from '../../support/listening.ts'
import { startOrigin } from '../../support/origin.ts'
import { FRESH, OriginPool, startOriginPool } from '../../support/origin-pool.ts'

const PASSWORD = 'canary:@/%'
const ENCODED = encodeURIComponent(PASSWORD)
const CREDENTIALS = `user:${PASSWORD}`

const variables = (http?: string, https?: string, noProxy?: string) => ({
  httpProxy: http === undefined ? undefined : new Secret(http),
  httpsProxy: https === undefined ? undefined : new Secret(https),
  noProxy,
})

interface Behind {
  /** The certificate of the origin, if it speaks TLS. */
  readonly presents?: CertificateName
  readonly userInfo?: string
  /** The default is more than a busy machine needs. */
  readonly connectTimeoutMs?: number
}

/** For a connection that is never opened. */
const SHORT_MS = 1_000

const tunnelThrough = (baseUrl: URL, proxies: ReturnType<typeof variables> | undefined) =>
  outboundProxyFor(baseUrl, proxies, SHORT_MS)

async function startBehind(proxy: ConnectProxy, behind: Behind = {}) {
  const { presents, userInfo = `user:${ENCODED}@`, connectTimeoutMs = 10_000 } = behind
  const server = await startOrigin(undefined, presents === undefined ? {} : { tls: certificate(presents) })
  const baseUrl = new URL(server.url)
  const origin = new ConnectionPool({
    baseUrl,
    connections: 2,
    connectTimeoutMs,
    keepAliveTimeoutMs: 4_000,
    outboundProxy: outboundProxyFor(baseUrl, variables(proxy.url(userInfo)), connectTimeoutMs),
    secureContext: presents === undefined ? undefined : createSecureContext({ ca: readFileSync(CA_FILE, 'utf8') }),
  })
  return new OriginPool(origin, server)
}

const isQuiet = ({ openSockets }: ConnectProxy) => openSockets === 0

describe('an origin behind a proxy', () => {
  test.each<[string, Behind]>([
    ['http', {}],
    ['https', { presents: 'localhost' }],
  ])('%s: one tunnel for many requests, and complete content both ways', async (_, behind) => {
    await using proxy = await startConnectProxy()
    await using pool = await startBehind(proxy, behind)
    pool.server.script = async (seen) => {
      await seen.ended
      return { content: seen.content }
    }
    const content = Buffer.alloc(300_000, 'abcdefg')
    for (const target of ['/1', '/2', '/3']) {
      const { attempt, content: echoed } = await pool.send(target, { method: 'PUT', content }).ended()
      expect(echoed.equals(content)).toBe(true)
      expect(attempt.isReused).toBe(target !== '/1')
    }
    const authority = new URL(pool.server.url).host
    expect(proxy.requests).toEqual([{ line: `CONNECT ${authority} HTTP/1.1`, credentials: CREDENTIALS }])
    // The proxy on the way gets no field of the requests, which are inside the tunnel.
    expect(pool.server.requests[0]?.values('proxy-authorization')).toEqual([])
    pool.pool.close()
    await proxy.waitFor(isQuiet, 'the end of the tunnel')
  })

  test('a slow reader slows down the tunnel', async () => {
    await using proxy = await startConnectProxy()
    await using pool = await startBehind(proxy)
    pool.server.script = () => ({ content: Buffer.alloc(16 * 1024 * 1024) })
    const slow = pool.send('/slow')
    slow.use = 'pause'
    await slow.waitFor(({ content }) => content.length > 0, 'the first content')
    const { length } = slow.content
    await pool.send('/meanwhile', FRESH).ended()
    expect(slow.content).toHaveLength(length)
    slow.use = 'consumed'
    slow.attempt.resume()
    expect((await slow.ended()).content).toHaveLength(16 * 1024 * 1024)
  })

  test('a certificate is verified inside the tunnel, too', async () => {
    await using proxy = await startConnectProxy()
    await using pool = await startBehind(proxy, { presents: 'other-host' })
    const error = await pool.send('/').failed()
    expect(error).toMatchObject({ code: 'tls_certificate_error' })
    await proxy.waitFor(isQuiet, 'the end of the tunnel')
  })

  test.each([
    ['', undefined],
    ['user@', 'user:'],
    ['us%65r:p%C3%A9@', 'user:p\u00e9'],
    // Not an escape, but no reason to fail every request.
    ['user:100%@', 'user:100%'],
  ])('credentials as in %j', async (userInfo, credentials) => {
    await using proxy = await startConnectProxy()
    await using pool = await startBehind(proxy, { userInfo })
    await pool.send('/').ended()
    expect(proxy.requests.map((request) => request.credentials)).toEqual([credentials])
  })
})

// RFC 9110 §9.3.6: any 2xx opens it, and has no content. §15.2: interim answers may come before it.
test.each([
  'HTTP/1.1 201 Created\r\n\r\n',
  'HTTP/1.0 200 OK\r\n\r\n',
  'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n',
  'HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n',
])('%j opens the tunnel', async (answer) => {
  await using proxy = await startConnectProxy()
  await using pool = await startBehind(proxy)
  proxy.answer = answer
  pool.server.script = () => ({ content: 'from the service' })
  expect((await pool.send('/').ended()).content.toString()).toBe('from the service')
})

/** The attack: whoever is behind the proxy sends an answer before the request, and the first request gets it. */
test.each(['http', 'https'])(
  '%s: bytes behind the answer to CONNECT are no response, and nothing is sent',
  async (scheme) => {
    await using proxy = await startConnectProxy()
    await using pool = await startBehind(proxy, scheme === 'https' ? { presents: 'localhost' } : {})
    proxy.answer += 'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfalse'
    const recorder = pool.send('/')
    const hint = expect.stringContaining('does not answer CONNECT as HTTP demands (bytes behind it)')
    expect(await recorder.failed()).toMatchObject({ code: 'http_protocol_error', hint })
    expect(recorder.attempt.isSent).toBe(false)
    await proxy.waitFor(isQuiet, 'the end of the connection to the proxy')
  },
)

test('what is no HTTP opens no tunnel', async () => {
  await using proxy = await startConnectProxy()
  await using pool = await startBehind(proxy)
  proxy.answer = 'SSH-2.0-OpenSSH\r\n'
  const hint = expect.stringContaining('does not answer CONNECT as HTTP demands')
  expect(await pool.send('/').failed()).toMatchObject({ code: 'http_protocol_error', hint })
})

describe('a proxy that opens no tunnel', () => {
  test.each<[Behaviour, string, string]>([
    ['refuse with 407', 'connection_refused', 'PROXY, answered 407 to CONNECT: check the user'],
    ['refuse with 403', 'connection_refused', 'PROXY, answered 403 to CONNECT.'],
    ['refuse with 502', 'connection_refused', 'PROXY, answered 502 to CONNECT.'],
    ['reset', 'connection_terminated', 'PROXY, cannot be reached (ECONNRESET)'],
    ['end', 'connection_terminated', 'PROXY, cannot be reached (closed before an answer)'],
    ['hang', 'connection_timeout', 'through the proxy on the way, PROXY, took longer than origin.connectTimeout'],
  ])('%s: %s, nothing is sent, the error has no password, nothing stays open', async (behaviour, code, hint) => {
    await using proxy = await startConnectProxy()
    await using pool = await startBehind(proxy, behaviour === 'hang' ? { connectTimeoutMs: SHORT_MS } : {})
    proxy.behaviour = behaviour
    const recorder = pool.send('/')
    const error = await recorder.failed()
    const said = hint.replace('PROXY', new URL(proxy.url()).host)
    expect(error).toMatchObject({ code, hint: expect.stringContaining(said) })
    expect(recorder.told).toEqual(['failed'])
    expect(recorder.attempt.isSent).toBe(false)
    expect(pool.server.connections).toEqual([])
    const shown = inspect(error, { depth: 20, showHidden: true }) + String(error.stack)
    for (const form of [PASSWORD, ENCODED, Buffer.from(CREDENTIALS).toString('base64')])
      expect(shown).not.toContain(form)
    await proxy.waitFor(isQuiet, 'the end of the connection to the proxy', 2_000)
    expect(pool.pool.stats).toEqual({ connected: 0, free: 0, pending: 0 })
  })

  test('a proxy that cannot be reached', async () => {
    const proxy = await startConnectProxy()
    await using pool = await startBehind(proxy)
    await proxy[Symbol.asyncDispose]()
    expect(await pool.send('/').failed()).toMatchObject({
      code: 'connection_refused',
      hint: expect.stringMatching(/proxy on the way, 127\.0\.0\.1:\d+, cannot be reached \(ECONNREFUSED\)/),
    })
  })

  test('a proxy whose name does not resolve', async () => {
    const baseUrl = new URL('http://api.example')
    const tunnel = tunnelThrough(baseUrl, variables('http://nowhere.invalid:3128'))
    await using pool = await startOriginPool(undefined, { baseUrl, outboundProxy: tunnel })
    expect(await pool.send('/').failed()).toMatchObject({
      code: 'dns_error',
      hint: expect.stringContaining('nowhere.invalid:3128, does not resolve'),
    })
  })

  // Whoever stands there would get the password.
  test('a proxy with a false certificate, and NODE_TLS_REJECT_UNAUTHORIZED=0', async () => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    await using proxy = await listening(createServer(certificate('self-signed')))
    const baseUrl = new URL('http://api.example')
    const tunnel = tunnelThrough(baseUrl, variables(`https://user:${ENCODED}@localhost:${proxy.port}`))
    await using pool = await startOriginPool(undefined, { baseUrl, outboundProxy: tunnel })
    expect(await pool.send('/').failed()).toMatchObject({ code: 'tls_certificate_error' })
    vi.unstubAllEnvs()
  })

  test('an attempt that is aborted meanwhile leaves nothing open', async () => {
    await using proxy = await startConnectProxy()
    await using pool = await startBehind(proxy)
    proxy.behaviour = 'hang'
    const recorder = pool.send('/')
    await proxy.waitFor(({ requests }) => requests.length === 1, 'the CONNECT')
    recorder.attempt.abort(new Error('given up'))
    expect(recorder.told).toEqual(['failed'])
    await proxy.waitFor(isQuiet, 'the end of the connection to the proxy', 2_000)
  })

  test('a TLS handshake that never ends in the tunnel leaves nothing open', async () => {
    await using proxy = await startConnectProxy()
    await using pool = await startBehind(proxy, { presents: 'localhost', connectTimeoutMs: SHORT_MS })
    proxy.behaviour = 'late'
    const recorder = pool.send('/')
    await proxy.waitFor(({ requests }) => requests.length === 1, 'the CONNECT')
    proxy.release()
    expect(await recorder.failed()).toMatchObject({ code: 'connection_timeout' })
    await proxy.waitFor(isQuiet, 'the end of the connection to the proxy', 2_000)
  })
})

describe('which proxy', () => {
  const PROXY = 'http://proxy.example:3128'
  const isProxied = (url: string, noProxy?: string) =>
    tunnelThrough(new URL(url), variables(PROXY, PROXY, noProxy)) !== undefined

  test('HTTP_PROXY serves https too, HTTPS_PROXY not http', () => {
    const http = new URL('http://api.example')
    const https = new URL('https://api.example')
    expect(tunnelThrough(http, variables(PROXY))).toBeDefined()
    expect(tunnelThrough(https, variables(PROXY))).toBeDefined()
    expect(tunnelThrough(https, variables(undefined, PROXY))).toBeDefined()
    expect(tunnelThrough(http, variables(undefined, PROXY))).toBeUndefined()
    expect(tunnelThrough(https, variables())).toBeUndefined()
    expect(tunnelThrough(https, undefined)).toBeUndefined()
  })

  test.each([
    ['https://api.example', 'api.example'],
    ['https://api.example', 'API.EXAMPLE'],
    ['https://a.api.example', 'api.example'],
    ['https://a.api.example', '.api.example'],
    ['https://api.example', '.api.example'],
    ['https://a.api.example', '*.api.example'],
    ['https://api.example', 'other.example, api.example'],
    ['https://api.example', 'other.example api.example'],
    ['https://api.example', ' ,,api.example,'],
    ['https://api.example', 'api.example:443'],
    ['http://api.example', 'api.example:80'],
    ['https://api.example:8443', 'api.example:8443'],
    ['https://api.example:8443', 'api.example'],
    ['http://127.0.0.1:8080', '127.0.0.1'],
    ['http://[::1]:8080', '[::1]'],
    ['http://[::1]:8080', 'localhost,127.0.0.1,::1'],
    ['http://[::1]:8080', '[::1]:8080'],
    ['https://api.example', '*'],
    ['https://api.example', 'other.example,*'],
    ['http://127.0.0.1', 'other.example,127.0.0.0/8'],
    ['http://10.1.2.3', '10.1.2.3/32'],
    ['http://[fd00::1]', 'fd00::/8'],
  ])('%s is reached directly with NO_PROXY=%s', (url, noProxy) => {
    expect(isProxied(url, noProxy)).toBe(false)
  })

  test.each([
    ['https://api.example', undefined],
    ['https://api.example', ''],
    ['https://api.example', ' , '],
    ['https://api.example', 'pi.example'],
    ['https://badapi.example', 'api.example'],
    ['https://api.example.evil', 'api.example'],
    ['https://api.example', 'a.api.example'],
    ['https://api.example', 'api.example:80'],
    ['https://api.example:8443', 'api.example:443'],
    ['http://127.0.0.1', '10.0.0.0/8'],
    ['http://[::1]', '0.0.0.0/0'],
    ['http://10.1.2.3', '10.0.0.0/64'],
    ['https://api.example', '0.0.0.0/0,10.*'],
  ])('%s goes through it with NO_PROXY=%s', (url, noProxy) => {
    expect(isProxied(url, noProxy)).toBe(true)
  })
})
