/**
 * The attack: somebody between the proxy and the service presents their own certificate, and gets the App secret with the
 * first mint. Or a debugging session has left an environment variable that switches verification off.
 */

import { afterEach, describe, expect, test, vi } from 'vitest'
import { get } from '../support/case-table.ts'
import { CA_FILE, type CertificateName, certificate } from '../support/certificates.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { scaledSetting } from '../support/pace.ts'
import { problemOf, request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'

const startTlsService = (name: CertificateName): Promise<Service> => startService({ tls: certificate(name) })
const withCa = { 'origin.caFile': CA_FILE }
/** Includes retries, none of which can help here. */
const soon = { 'tokens.mintTimeout': scaledSetting(300) }

afterEach(() => {
  vi.unstubAllEnvs()
})

test('a CA of the configuration is trusted', async () => {
  await using service = await startTlsService('localhost')
  await using proxy = await startProxy(service, withCa)
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
})

describe('the secret is not sent to a server without a good certificate', () => {
  const CASES: readonly (readonly [string, CertificateName, object])[] = [
    ['a CA that nobody trusts', 'localhost', {}],
    ['expired', 'expired', withCa],
    ['of another host', 'other-host', withCa],
    ['self-signed', 'self-signed', withCa],
  ]
  test.each(CASES)('%s, and NODE_TLS_REJECT_UNAUTHORIZED=0', async (_, name, settings) => {
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    await using service = await startTlsService(name)
    await using proxy = await startProxy(service, { ...settings, ...soon })
    const response = await request(proxy.port, get('/v2/x', 'acme'), { deadlineMs: 10_000 })
    expect([response.status, problemOf(response).code]).toEqual([503, 'token_endpoint_unavailable'])
    expect(service.origin.requests).toEqual([])
  })
})

describe('a service that shows a bad certificate later gets no token', () => {
  test.each(['expired', 'other-host', 'self-signed'] as const)('%s', async (name) => {
    await using service = await startTlsService('localhost')
    await using proxy = await startProxy(service, withCa)
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
    service.origin.present(certificate(name))
    const response = await request(proxy.port, get('/v2/y', 'acme'))
    expect(response.status).toBe(502)
    expect(problemOf(response).code).toBe('tls_certificate_error')
    expect(service.requests.map((seen) => seen.target)).toEqual(['/v2/x'])
  })

  test('with a WebSocket handshake, and NODE_TLS_REJECT_UNAUTHORIZED=0', async () => {
    await using service = await startTlsService('localhost')
    await using proxy = await startProxy(service, withCa)
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
    vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
    service.origin.present(certificate('self-signed'))
    const response = await request(proxy.port, get('/v2/y', 'acme', ...HANDSHAKE))
    expect(response.status).toBe(502)
    expect(service.requests.map((seen) => seen.target)).toEqual(['/v2/x'])
  })
})

test('TLS 1.1 is refused', async () => {
  const old = {
    ...certificate('localhost'),
    minVersion: 'TLSv1',
    maxVersion: 'TLSv1.1',
    ciphers: 'ALL@SECLEVEL=0',
  } as const
  await using service = await startService({ tls: old })
  await using proxy = await startProxy(service, { ...withCa, ...soon })
  expect((await request(proxy.port, get('/v2/x', 'acme'), { deadlineMs: 10_000 })).status).toBe(503)
  expect(service.origin.requests).toEqual([])
})

test('a service without TLS', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, { baseUrl: service.baseUrl.replace('http:', 'https:'), ...soon })
  expect((await request(proxy.port, get('/v2/x', 'acme'), { deadlineMs: 10_000 })).status).toBe(503)
  expect(service.origin.requests).toEqual([])
})
