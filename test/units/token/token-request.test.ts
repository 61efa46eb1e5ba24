/** The token request in all its forms, as a server receives it. */

import { createHash, generateKeyPairSync, type KeyObject, X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { decodeProtectedHeader, jwtVerify } from 'jose'
import { describe, expect, test } from 'vitest'
import type { OrgId } from '../../../src/org-id.ts'
import { Secret } from '../../../src/secret.ts'
import { AppKey, type ProofSettings } from '../../../src/token/app-key.ts'
import { closedPath, endpointText, type TokenRequestSettings, tokenRequest } from '../../../src/token/token-request.ts'

import { certificateFiles } from '../../support/certificates.ts'

const ORG = 'a+b:c@d=~1' as OrgId
const SECRET = 's+%20 :&=ü'
const BASE = new URL('https://api.example.com/prefix')

function settingsOf(endpoint: string, more: Partial<TokenRequestSettings> = {}): TokenRequestSettings {
  const [, place, path = ''] = /^(https:\/\/[^/]+)?(.*)$/.exec(endpoint) ?? []
  return {
    baseUrl: BASE,
    endpoint: { method: 'POST', base: place === undefined ? undefined : new URL(place), path },
    ...more,
  }
}

async function requestOf(settings: TokenRequestSettings, key = new AppKey('app', new Secret(SECRET))) {
  const request = tokenRequest(settings, ORG, await key.prove('https://login.example.com/token'), 'test/1')
  const fields = new Map<string, string>()
  for (let i = 0; i < request.fields.length; i += 2) fields.set(request.fields[i] ?? '', request.fields[i + 1] ?? '')
  return { ...request, fields, text: request.content?.toString() ?? '' }
}

describe('the place of the Org', () => {
  test('a segment of the path, below baseUrl or elsewhere', async () => {
    const segment = encodeURIComponent(ORG)
    expect((await requestOf(settingsOf('/v2/orgs/{orgId}/access'))).target).toBe(`/prefix/v2/orgs/${segment}/access`)
    const elsewhere = await requestOf(settingsOf('https://login.example.com:8443/{orgId}/token?api=1'))
    expect([elsewhere.target, elsewhere.fields.get('host')]).toEqual([
      `/${segment}/token?api=1`,
      'login.example.com:8443',
    ])
    expect(elsewhere.content).toBeUndefined()
  })

  test('a value of the form, or of the JSON object', async () => {
    const form = await requestOf(settingsOf('/v2/oauth/token', { form: { org: 'x {orgId}', scope: '$& a&b' } }))
    expect(Object.fromEntries(new URLSearchParams(form.text))).toEqual({ org: `x ${ORG}`, scope: '$& a&b' })
    expect(form.fields.get('content-type')).toBe('application/x-www-form-urlencoded')
    const json = await requestOf(settingsOf('/v2/oauth/token', { json: { org: '{orgId}', scope: '"\\' } }))
    expect(JSON.parse(json.text)).toEqual({ org: ORG, scope: '"\\' })
    expect(json.fields.get('content-type')).toBe('application/json')
  })
})

describe('the proof of the App', () => {
  const form = { grant_type: 'client_credentials', org: '{orgId}' }

  test('basic: the base64 of id and secret, whatever the secret holds', async () => {
    const { fields } = await requestOf(settingsOf('/v2/orgs/{orgId}/access'))
    const [, pair = ''] = /^Basic ([A-Za-z0-9+/]+=*)$/.exec(fields.get('authorization') ?? '') ?? []
    expect(Buffer.from(pair, 'base64').toString()).toBe(`app:${SECRET}`)
  })

  test('form: beside the other members', async () => {
    const { fields, text } = await requestOf(
      settingsOf('/v2/oauth/token', { form }),
      new AppKey('app', new Secret(SECRET), { auth: 'form' }),
    )
    expect(fields.get('authorization')).toBeUndefined()
    expect(Object.fromEntries(new URLSearchParams(text))).toEqual({
      grant_type: 'client_credentials',
      org: ORG,
      client_id: 'app',
      client_secret: SECRET,
    })
  })

  test('form alone: its two members are the content', async () => {
    const { text } = await requestOf(
      settingsOf('/v2/orgs/{orgId}/access'),
      new AppKey('app', new Secret('s'), { auth: 'form' }),
    )
    expect(text).toBe('client_id=app&client_secret=s')
  })

  const KEYS: readonly (readonly [
    string,
    { readonly privateKey: KeyObject; readonly publicKey: KeyObject },
    'pkcs1' | 'pkcs8' | 'sec1',
  ])[] = [
    ['RS256', generateKeyPairSync('rsa', { modulusLength: 2048 }), 'pkcs1'],
    ['ES256', generateKeyPairSync('ec', { namedCurve: 'P-256' }), 'sec1'],
    ['EdDSA', generateKeyPairSync('ed25519'), 'pkcs8'],
  ]
  test.each(KEYS)('jwt and assertion, signed with %s', async (alg, { privateKey, publicKey }, type) => {
    const secret = new Secret(String(privateKey.export({ format: 'pem', type })))
    const now = Math.floor(Date.now() / 1_000)
    const { fields } = await requestOf(
      settingsOf('/v2/orgs/{orgId}/access'),
      new AppKey('app', secret, { auth: 'jwt' }),
    )
    const jwt = (fields.get('authorization') ?? '').replace('Bearer ', '')
    expect(decodeProtectedHeader(jwt).alg).toBe(alg)
    const { payload } = await jwtVerify(jwt, publicKey)
    expect(payload.iss).toBe('app')
    expect([(payload.iat ?? 0) - now + 60, (payload.exp ?? 0) - now - 540].map((s) => s <= 2 && s >= 0)).toEqual([
      true,
      true,
    ])

    const key = new AppKey('app', secret, { auth: 'assertion' })
    const ids = new Set<unknown>()
    for (let i = 0; i < 2; i++) {
      const { text } = await requestOf(settingsOf('/v2/oauth/token', { form }), key)
      const sent = new URLSearchParams(text)
      expect([sent.get('client_id'), sent.get('org'), sent.get('client_assertion_type')]).toEqual([
        'app',
        ORG,
        'urn:ietf:params:oauth:client-assertion-type:jwt-bearer',
      ])
      const claims = (await jwtVerify(sent.get('client_assertion') ?? '', publicKey)).payload
      expect(claims).toMatchObject({ iss: 'app', sub: 'app', aud: 'https://login.example.com/token' })
      expect([(claims.iat ?? 0) - now + 10, (claims.exp ?? 0) - now - 60].map((s) => s <= 2 && s >= 0)).toEqual([
        true,
        true,
      ])
      ids.add(claims.jti)
    }
    expect(ids.size).toBe(2)
  })
})

describe('a JWT as the settings say', () => {
  const form = { org: '{orgId}' }
  const { certificate, key } = certificateFiles('localhost')
  const pem = readFileSync(certificate, 'utf8')
  const secret = new Secret(readFileSync(key, 'utf8') + pem)
  const assertion = { audience: 'https://login.example.com', keyId: 'key-1' }
  const sent = async (tokens: ProofSettings) => {
    const { fields, text } = await requestOf(settingsOf('/v2/oauth/token', { form }), new AppKey('app', secret, tokens))
    return (
      fields.get('authorization')?.replace('Bearer ', '') ?? new URLSearchParams(text).get('client_assertion') ?? ''
    )
  }

  test.each(['jwt', 'assertion'] as const)(
    '%s: its audience, key id, and the thumbprint of the certificate',
    async (auth) => {
      const jwt = await sent({ auth, assertion })
      const { raw, publicKey } = new X509Certificate(pem)
      const thumbprint = createHash('sha256').update(raw).digest('base64url')
      expect(decodeProtectedHeader(jwt)).toEqual({ alg: 'ES256', typ: 'JWT', kid: 'key-1', 'x5t#S256': thumbprint })
      const { payload } = await jwtVerify(jwt, publicKey, { issuer: 'app', audience: assertion.audience })
      expect(payload.aud).toBe(assertion.audience)
    },
  )

  test('PS256 with an RSA key, and no more claims than were asked for', async () => {
    const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 })
    const own = new Secret(String(privateKey.export({ format: 'pem', type: 'pkcs8' })))
    const appKey = new AppKey('app', own, { auth: 'jwt', assertion: { algorithm: 'PS256' } })
    const { fields } = await requestOf(settingsOf('/v2/orgs/{orgId}/access'), appKey)
    const jwt = fields.get('authorization')?.replace('Bearer ', '') ?? ''
    expect(decodeProtectedHeader(jwt)).toEqual({ alg: 'PS256', typ: 'JWT' })
    expect(Object.keys((await jwtVerify(jwt, publicKey)).payload)).toEqual(['iss', 'iat', 'exp'])
  })

  test('one that somebody else has signed goes as it is', async () => {
    const given = new AppKey('app', new Secret('aaa.bbb.ccc'), { auth: 'assertion' })
    const { text } = await requestOf(settingsOf('/v2/oauth/token', { form }), given)
    expect(new URLSearchParams(text).get('client_assertion')).toBe('aaa.bbb.ccc')
  })
})

test('what people read, and what is closed to apps', () => {
  const text = (endpoint: string) => endpointText(settingsOf(endpoint))
  expect(text('/v2/orgs/{orgId}/access')).toBe('POST https://api.example.com/prefix/v2/orgs/{orgId}/access')
  const elsewhere = 'https://login.example.com/{orgId}/token'
  expect(text(elsewhere)).toBe(`POST ${elsewhere}`)
  expect(text(`${elsewhere}?code=key`), 'a query may hold a key').toBe(`POST ${elsewhere}`)
  expect(
    [
      '/v2/oauth/token?x=1',
      'https://api.example.com/prefix/oauth/token',
      'https://API.example.com.:443/prefix/oauth/token',
      'https://api.example.com/oauth/token',
      'https://login.example.com/prefix/oauth/token',
    ].map((endpoint) => closedPath(settingsOf(endpoint))),
  ).toEqual(['/v2/oauth/token', '/oauth/token', '/oauth/token', undefined, undefined])
})
