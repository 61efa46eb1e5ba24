/**
 * The attack: somebody between the proxy and the service presents their own certificate, and gets the App secret with the
 * first mint. Or a debugging session has left an environment variable that switches verification off.
 */

import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import type { TLSSocket } from 'node:tls'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { get } from '../support/case-table.ts'
import { CertificateAuthority } from '../support/certificate-authority.ts'
import { CA_FILE, type CertificateName, certificate, certificateFiles } from '../support/certificates.ts'
import { eventually } from '../support/changes.ts'
import { makeFolder } from '../support/folder.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { startOrigin } from '../support/origin.ts'
import { scaledSetting } from '../support/pace.ts'
import { lacks } from '../support/programs.ts'
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
    const fault = { expired: 'has expired', 'other-host': 'another host', 'self-signed': 'self-signed' }[name]
    const expected = { code: 'tls_certificate_error', detail: expect.stringContaining(fault) }
    expect(problemOf(response)).toMatchObject(expected)
    expect(await proxy.logOf('/v2/y')).toMatchObject(expected)
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

test('a collector with a bad certificate gets no spans, with NODE_TLS_REJECT_UNAUTHORIZED=0', async () => {
  vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
  await using collector = await startOrigin(undefined, { tls: certificate('self-signed') })
  await using service = await startService()
  const traces = { 'traces.endpoint': `${collector.url}/v1/traces`, 'traces.sample': '1' }
  await using proxy = await startProxy(service, { ...traces, 'admin.address': 'localhost:0' })
  expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
  await eventually(async () => (await proxy.metric('oap_spans_dropped_total')) > 0, 'spans that are dropped')
  expect(collector.requests).toEqual([])
})

test.skipIf(lacks('openssl'))(
  'origin.caFile may hold an intermediate without its root, and then trusts no other chain of that root',
  async () => {
    await using folder = await makeFolder()
    const { path } = folder
    const root = new CertificateAuthority(path, 'root')
    const ours = new CertificateAuthority(path, 'ours', root)
    const others = new CertificateAuthority(path, 'others', root)
    await using service = await startService({ tls: ours.issue({ names: 'DNS:localhost' }) })
    await using proxy = await startProxy(service, { 'origin.caFile': '$FOLDER/ca.pem' }, { 'ca.pem': ours.cert })
    expect((await request(proxy.port, get('/v2/x', 'acme'))).status).toBe(200)
    service.origin.present(others.issue({ names: 'DNS:localhost' }))
    expect(problemOf(await request(proxy.port, get('/v2/x', 'acme'))).code).toBe('tls_certificate_error')
  },
)

test('a service that asks for a certificate gets ours, and after a rotation the new one', async () => {
  const shown: string[] = []
  await using service = await startService({
    tls: { ...certificate('localhost'), requestCert: true, rejectUnauthorized: true, ca: readFileSync(CA_FILE) },
    script: (_, { socket }) => {
      shown.push(String((socket as TLSSocket).getPeerCertificate().subject.CN))
      return { closes: true }
    },
  })
  const pair = (name: CertificateName) => ({
    key: certificate(name).key.toString(),
    cert: certificate(name).cert.toString(),
  })
  await using proxy = await startProxy(service, withCa, {
    'proxy.yaml': 'origin: {certFile: client.pem, keyFile: client.key}',
    'client.pem': pair('localhost').cert,
    'client.key': pair('localhost').key,
  })
  expect((await request(proxy.port, get('/v2/1', 'acme'))).status).toBe(200)
  await writeFile(proxy.at('client.key'), 'half a key')
  await proxy.app.reload()
  expect((await request(proxy.port, get('/v2/2', 'acme'))).status).toBe(200)
  await writeFile(proxy.at('client.key'), pair('other-host').key)
  await writeFile(proxy.at('client.pem'), pair('other-host').cert)
  await proxy.app.reload()
  expect((await request(proxy.port, get('/v2/3', 'acme'))).status).toBe(200)
  expect(shown).toEqual(['localhost', 'localhost', 'other.example'])
})

test.each([
  ['with TLS 1.1', { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: 'ALL@SECLEVEL=0' }],
  ['without TLS', undefined],
] as const)('a service %s is not asked', async (_, old) => {
  await using service = await startService(old && { tls: { ...certificate('localhost'), ...old } })
  const baseUrl = service.baseUrl.replace('http:', 'https:')
  await using proxy = await startProxy(service, { ...withCa, ...soon, baseUrl })
  expect((await request(proxy.port, get('/v2/x', 'acme'), { deadlineMs: 10_000 })).status).toBe(503)
  expect(service.origin.requests).toEqual([])
})

// The attack: a service under TLS 1.2 asks for one handshake after the other, all on one connection.
test.each([
  ['is refused', {}, false],
  [
    'is possible where we have a certificate to show',
    {
      'origin.certFile': certificateFiles('localhost').certificate,
      'origin.keyFile': certificateFiles('localhost').key,
    },
    true,
  ],
])('renegotiation %s', async (_, settings, expected) => {
  const renegotiated: boolean[] = []
  const renegotiate = (socket: TLSSocket) =>
    new Promise<boolean>((resolve) => {
      socket.once('error', () => resolve(false)).once('close', () => resolve(false))
      socket.renegotiate({ rejectUnauthorized: false }, (error) => resolve(error === null))
    })
  await using service = await startService({
    tls: { ...certificate('localhost'), maxVersion: 'TLSv1.2' },
    script: async (_, { socket }) => {
      renegotiated.push(await renegotiate(socket as TLSSocket))
      return { content: 'good' }
    },
  })
  await using proxy = await startProxy(service, { ...withCa, ...settings })
  const { status } = await request(proxy.port, get('/v2/x', 'acme'))
  expect([status === 200, ...renegotiated]).toEqual([expected, expected])
})
