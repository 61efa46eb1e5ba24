/** The answer to a client if no token can be had: one status, one code, and nothing of the reply of the token endpoint. */

import { createServer, type Socket } from 'node:net'
import { gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { CA_FILE, type CertificateName, certificate } from '../../support/certificates.ts'
import { listening } from '../../support/listening.ts'
import type { Reply } from '../../support/origin-connection.ts'
import { scaledSetting } from '../../support/pace.ts'
import { fieldOf, problemOf, type RawResponse, request } from '../../support/raw-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { type ProxySettings, startProxy } from '../../support/start-proxy.ts'

const json = ['Content-Type', 'application/json']
const invalid = 'token_response_invalid'
/** Long enough for the slowest machine, and short enough that passing failures are not retried for five seconds. */
const SETTINGS = { 'tokens.mintTimeout': scaledSetting(2_000) } as const
/** More than is read of an answer. */
const PAGE = 'CANARY'.repeat(12_000)
const BOMB = gzipSync(`{"orgAccessToken":"CANARY"}${' '.repeat(1_000_000)}`)

const STATUS: Readonly<Record<string, number>> = {
  org_access_refused: 403,
  app_credentials_rejected: 502,
  token_response_invalid: 502,
  token_endpoint_unavailable: 503,
  token_endpoint_rate_limited: 503,
  token_endpoint_timeout: 504,
}
const PROXY_ERROR: Readonly<Record<string, string>> = {
  org_access_refused: 'http_request_denied',
  app_credentials_rejected: 'proxy_configuration_error',
  token_response_invalid: 'http_protocol_error',
  token_endpoint_unavailable: 'destination_unavailable',
  token_endpoint_rate_limited: 'destination_unavailable',
  token_endpoint_timeout: 'http_response_timeout',
}

/** The first answer for a cold org with this token endpoint. Nothing may have reached the origin. */
async function answerBefore(service: Service, settings: ProxySettings = {}): Promise<RawResponse> {
  await using proxy = await startProxy(service, settings)
  const response = await request(proxy.port, get('/v2/x', 'acme'))
  expect(service.requests, 'what reached the origin').toEqual([])
  expect(proxy.output, 'what the token endpoint said is not for the log').not.toContain('CANARY')
  return response
}

function expectProblem(response: RawResponse, code: string): void {
  const status = STATUS[code]
  const problem = problemOf(response)
  expect(problem).toMatchObject({ code, status })
  expect(problem).toHaveProperty('requestId', fieldOf(response, 'x-request-id'))
  expect(response.status).toBe(status)
  expect(fieldOf(response, 'content-type')).toBe('application/problem+json')
  expect(fieldOf(response, 'proxy-status')).toBe(`org-access-proxy; error=${PROXY_ERROR[code]}; details="${code}"`)
  expect(fieldOf(response, 'retry-after') !== undefined, 'Retry-After').toBe(status === 503)
  expect(response.content.toString()).not.toContain('CANARY')
}

const says = (content: string | Uint8Array, more: Reply = {}): Reply => ({ fields: json, content, ...more })

describe.concurrent('the answer of the token endpoint is', () => {
  test.each<[string, Reply, string]>([
    ['401', { status: 401, content: PAGE }, 'app_credentials_rejected'],
    ['403', { status: 403, content: PAGE }, 'org_access_refused'],
    ['a redirect', { status: 302, fields: ['Location', 'https://CANARY@other.example/CANARY'] }, invalid],
    ['429', { status: 429, content: PAGE }, 'token_endpoint_rate_limited'],
    ['500', { status: 500, content: PAGE }, 'token_endpoint_unavailable'],
    ['a page for people', { fields: ['Content-Type', 'text/html'], content: '<html>CANARY</html>' }, invalid],
    ['over 64 KiB', says(`{"orgAccessToken":"CANARY"}${' '.repeat(65_536)}`), invalid],
    ['over 64 KiB before it was compressed', says(BOMB, { fields: ['Content-Encoding', 'gzip'] }), invalid],
  ])('%s', async (_, reply, code) => {
    await using service = await startService({ mint: () => reply })
    const response = await answerBefore(service, SETTINGS)
    expectProblem(response, code)
    const { status } = reply
    if (code === 'org_access_refused') expect(problemOf(response)).toHaveProperty('tokenEndpointStatus', status)
    const isRetried = code === invalid || code === 'token_endpoint_unavailable'
    if (!isRetried) expect(service.tokens.mints).toHaveLength(1)
  })
})

describe.concurrent('no answer: the client and the log get the cause:', () => {
  async function expectCause(
    cause: string | RegExp,
    service: Service,
    settings: ProxySettings = {},
    code = 'token_endpoint_unavailable',
  ): Promise<void> {
    await using proxy = await startProxy(service, { ...SETTINGS, ...settings })
    const response = await request(proxy.port, get('/v2/x', 'acme'))
    expectProblem(response, code)
    const line = proxy.logs.find(({ msg }) => msg === 'mint failed')
    expect(line).toHaveProperty('url', `${settings.baseUrl ?? service.baseUrl}/v2/orgs/acme/access`)
    for (const told of [problemOf(response), line]) expect(JSON.stringify(told)).toMatch(cause)
  }

  test('refused', async () => {
    await using service = await startService()
    // A port that a server has left may be taken by the server of another test. Nobody listens on port 1.
    await expectCause('The call of the token endpoint failed (ECONNREFUSED).', service, {
      baseUrl: 'http://127.0.0.1:1',
    })
  })

  test('no such name', async () => {
    await using service = await startService()
    const cause = /The host name of baseUrl does not resolve \((ENOTFOUND|EAI_AGAIN)\)\./
    await expectCause(cause, service, { baseUrl: 'https://no-such-host.invalid' })
  })

  test.each<[CertificateName, string]>([
    ['expired', 'it, or that of its CA, has expired, or the clock of this machine is wrong (CERT_HAS_EXPIRED).'],
    ['other-host', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['self-signed', 'DEPTH_ZERO_SELF_SIGNED_CERT'],
  ])('the certificate is %s', async (name, cause) => {
    await using service = await startService({ tls: certificate(name) })
    await expectCause(cause, service, { 'origin.caFile': CA_FILE })
    expect(service.tokens.mints).toEqual([])
  })

  test.each([
    ['with an end', (socket: Socket) => socket.end()],
    ['with a reset', (socket: Socket) => socket.once('data', () => socket.resetAndDestroy())],
  ])('the port ends the TLS handshake %s', async (_, onConnection) => {
    await using service = await startService()
    await using server = await listening(createServer(onConnection))
    const baseUrl = `https://127.0.0.1:${server.port}`
    await expectCause('TLS with the service failed: the connection was ended during the handshake', service, {
      baseUrl,
    })
  })

  test('the port says nothing in the TLS handshake: what took too long is TCP and TLS, not an answer', async () => {
    await using service = await startService()
    await using server = await listening(createServer())
    const settings = { baseUrl: `https://127.0.0.1:${server.port}`, 'tokens.mintTimeout': '500ms' }
    await expectCause('TCP and TLS took longer than the whole call may.', service, settings, 'token_endpoint_timeout')
  })

  test('reset', async () => {
    await using service = await startService({
      mint: ({ request: received }) => {
        received.connection.reset()
        return undefined
      },
    })
    await expectCause(/The call of the token endpoint failed \((?:ECONNRESET|closed by the origin)\)\./, service)
  })
})
