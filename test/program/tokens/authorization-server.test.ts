/** OAuth 2.0: the App proves itself to a real authorization server on another host, and the service takes the tokens of that. */

import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { type AuthorizationServer, type Client, startAuthorizationServer } from '../../support/authorization-server.ts'
import { KeepAliveClient } from '../../support/keep-alive-client.ts'
import { type Service, startService } from '../../support/service.ts'
import { type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'

const SECRET = 'a-plain-secret_of.the~App'
const ODD_SECRET = 'has+plus%20percent:colon'

interface Pair {
  readonly privateKey: KeyObject
  readonly publicKey: KeyObject
}
const rsa = () => generateKeyPairSync('rsa', { modulusLength: 2048 })
const pem = ({ privateKey }: Pair) => String(privateKey.export({ format: 'pem', type: 'pkcs8' }))
const byKeys = (...pairs: Pair[]): Client => ({
  token_endpoint_auth_method: 'private_key_jwt',
  jwks: { keys: pairs.map(({ publicKey }, kid) => ({ ...publicKey.export({ format: 'jwk' }), kid: `${kid}` })) },
})
const bySecret = (method: 'client_secret_basic' | 'client_secret_post', secret = SECRET): Client => ({
  token_endpoint_auth_method: method,
  client_secret: secret,
})

/** A service that accepts the tokens of the server, and says for whom they are. */
function startResource(server: AuthorizationServer, appSecret: string): Promise<Service> {
  return startService({
    appId: server.clientId,
    appSecret,
    acceptsAnyToken: true,
    script: async (request) => {
      const [authorization = ''] = request.values('authorization')
      const org = await server.orgOf(authorization.replace('Bearer ', ''))
      return org === undefined ? { status: 401 } : { content: org }
    },
  })
}

function startFor(server: AuthorizationServer, service: Service, auth: string, more = ''): Promise<ProxyUnderTest> {
  const form = 'form: { grant_type: client_credentials, organization: "{orgId}" }'
  const tokens = `endpoint: "POST ${server.issuer}/token"\n  auth: ${auth}\n  field: access_token\n  ${form}\n${more}`
  return startProxy(service, {}, { 'proxy.yaml': `tokens:\n  ${tokens}` })
}

describe.each(['opaque', 'jwt'] as const)('%s tokens', (format) => {
  const [keys, p256, ed25519] = [
    rsa(),
    generateKeyPairSync('ec', { namedCurve: 'P-256' }),
    generateKeyPairSync('ed25519'),
  ]
  test.concurrent.each<[string, string, Client, string]>([
    ['basic', 'a secret', bySecret('client_secret_basic'), SECRET],
    ['form', 'a secret', bySecret('client_secret_post'), SECRET],
    ['form', 'an odd secret', bySecret('client_secret_post', ODD_SECRET), ODD_SECRET],
    ['assertion', 'RSA', byKeys(keys), pem(keys)],
    ['assertion', 'P-256', byKeys(p256), pem(p256)],
    ['assertion', 'Ed25519', byKeys(ed25519), pem(ed25519)],
  ])('%s with %s: a cold and a warm request of two Orgs', async (auth, _, client, secret) => {
    await using server = await startAuthorizationServer({ client, format })
    await using service = await startResource(server, secret)
    await using proxy = await startFor(server, service, auth)
    using app = new KeepAliveClient(proxy.port)
    for (const org of ['org-1', 'org-2', 'org-1']) {
      expect(await app.get('/v2/x', org)).toMatchObject({ status: 200, content: org })
    }
    expect(server.mints).toBe(2)
    expect(proxy.output).not.toContain(secret.split('\n')[1] ?? secret)
  })
})

test('PS256, with the issuer as the audience and a key id', async () => {
  const keys = rsa()
  const client = { ...byKeys(rsa(), keys), token_endpoint_auth_signing_alg: 'PS256' }
  await using server = await startAuthorizationServer({ client })
  await using service = await startResource(server, pem(keys))
  const assertion = `  assertion: { audience: "${server.issuer}", keyId: "1", algorithm: PS256 }\n`
  await using proxy = await startFor(server, service, 'assertion', assertion)
  using app = new KeepAliveClient(proxy.port)
  expect(await app.get('/v2/x', 'org-1')).toMatchObject({ status: 200, content: 'org-1' })
})

describe('a refusal', () => {
  const detailOf = (content: string) => JSON.parse(content) as { readonly code: string; readonly detail: string }

  test.concurrent('a client that has expired: the log has the words of the server, and the App has not', async () => {
    const client = { ...bySecret('client_secret_basic'), client_secret_expires_at: 1 }
    await using server = await startAuthorizationServer({ client })
    await using service = await startResource(server, SECRET)
    await using proxy = await startFor(server, service, 'basic')
    using app = new KeepAliveClient(proxy.port)
    const { status, content } = await app.get('/v2/x', 'org-1')
    expect([status, detailOf(content).code]).toEqual([502, 'app_credentials_rejected'])
    expect(content).not.toContain('It says')
    const [line] = proxy.logs.filter(({ msg }) => msg === 'mint failed')
    expect(line).toMatchObject({ orgId: 'org-1', url: `${server.issuer}/token` })
    expect(line?.['detail']).toContain('It says: invalid_client')
  })

  test.concurrent('a secret that the server changes when it decodes Basic as a form', async () => {
    await using server = await startAuthorizationServer({ client: bySecret('client_secret_basic', ODD_SECRET) })
    await using service = await startResource(server, ODD_SECRET)
    await using proxy = await startFor(server, service, 'basic')
    using app = new KeepAliveClient(proxy.port)
    expect((await app.get('/v2/x', 'org-1')).status).toBe(502)
    expect(proxy.logs.find(({ msg }) => msg === 'mint failed')?.['detail']).toContain('tokens.auth: form')
  })
})
