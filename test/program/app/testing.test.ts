import { generateKeyPairSync } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import { type Switches, startSandbox } from '../../../src/sandbox/sandbox.ts'
import { startProxy } from '../../../src/sandbox/testing.ts'

test('a proxy in front of a sandbox, with its settings and its log', async () => {
  await using sandbox = await startSandbox()
  const lines: string[] = []
  await using proxy = await startProxy(sandbox, {
    config: { orgs: { allow: ['acme'] }, tokens: { warm: ['acme'] } },
    log: (line) => lines.push(line),
  })
  expect(sandbox.stats().orgs['acme']?.mints).toBe(1)
  const call = (org: string) => fetch(`${proxy.url}/v2/example/endpoint`, { headers: { 'x-org-id': org } })
  expect((await call('acme')).status).toBe(200)
  expect((await call('globex')).status).toBe(403)
  const status = await (await fetch(`${proxy.adminUrl}/status`)).json()
  expect(status).toMatchObject({ isReady: true, service: { baseUrl: `${sandbox.baseUrl}/` } })
  const requests = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'request')
  expect(requests.map(({ orgId, status }) => [orgId, status])).toEqual([
    ['acme', 200],
    ['globex', 403],
  ])
})

test('wrong settings are named, and nothing keeps running', async () => {
  await using sandbox = await startSandbox()
  // @ts-expect-error: the types name every setting, too
  await expect(startProxy(sandbox, { config: { tokens: { lifeTime: '2s' } } })).rejects.toThrow(
    /^tokens\.lifeTime .*did you mean tokens\.lifetime\?$/,
  )
})

test('a relative path begins in the working directory', async () => {
  await using sandbox = await startSandbox()
  const caFile = 'test/support/certificates/ca.pem'
  await using proxy = await startProxy(sandbox, { config: { origin: { caFile } } })
  expect((await fetch(`${proxy.adminUrl}/readyz`)).status).toBe(200)
})

test('it waits no longer for new tokens to become known than the sandbox takes', async () => {
  await using sandbox = await startSandbox()
  const lines: string[] = []
  await using proxy = await startProxy(sandbox, { log: (line) => lines.push(line) })
  const call = () => fetch(`${proxy.url}/v2/example/endpoint`, { headers: { 'x-org-id': 'acme' } })
  expect((await call()).status).toBe(200)
  sandbox.revoke('acme')
  expect((await call()).status).toBe(200)
  const requests = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === 'request')
  // The rejected token is tried once more, because it worked a moment ago. By default, it would be tried for seconds.
  expect(requests.map(({ token }) => token)).toEqual(['miss', 'replayed'])
  expect(sandbox.stats().orgs['acme']).toMatchObject({ mints: 2, rejected: 2 })
})

test('it calls the token endpoint of the sandbox', async () => {
  await using sandbox = await startSandbox({ tokenEndpoint: 'PUT /v2.1/t/{orgId}/new', tokenField: 'data.token' })
  await using proxy = await startProxy(sandbox)
  const response = await fetch(`${proxy.url}/v2.1/example/endpoint`, { headers: { 'x-org-id': 'acme' } })
  expect(await response.json()).toMatchObject({ org: 'acme', path: '/v2.1/example/endpoint' })
})

describe('in front of a sandbox with another token request', () => {
  const key = (type: 'rsa' | 'ec' | 'ed25519') => {
    const pair =
      type === 'rsa'
        ? generateKeyPairSync('rsa', { modulusLength: 2048 })
        : type === 'ec'
          ? generateKeyPairSync('ec', { namedCurve: 'P-256' })
          : generateKeyPairSync('ed25519')
    return String(pair.privateKey.export({ format: 'pem', type: 'pkcs8' }))
  }
  const SAYS = { audience: 'https://issuer.example', keyId: 'key-1', algorithm: 'PS256' }
  const tokenForm = { grant_type: 'client_credentials', organization: '{orgId}' }
  const OAUTH = { tokenEndpoint: 'POST /v2/oauth/token', tokenField: 'access_token', tokenForm } as const

  test.each<[string, Partial<Switches>]>([
    ['a form', { ...OAUTH, appSecret: 'a+b%20:c' }],
    ['a form with the secret', { ...OAUTH, tokenAuth: 'form', appSecret: 'a+b%20:c&d' }],
    ['a JSON object', { ...OAUTH, tokenForm: undefined, tokenJson: { org: '{orgId}', kind: 'x' } }],
    ['a JWT', { tokenAuth: 'jwt', appSecret: key('rsa'), mintStatus: 201 }],
    ['an assertion', { ...OAUTH, tokenAuth: 'assertion', appSecret: key('ec') }],
    ['a JWT with all that it can say', { tokenAuth: 'jwt', appSecret: key('rsa'), tokenAssertion: SAYS }],
    ['an assertion with the same', { ...OAUTH, tokenAuth: 'assertion', appSecret: key('rsa'), tokenAssertion: SAYS }],
    ['its token in another header', { tokenHeader: 'X-Access-Token: {token}' }],
    ['an assertion by Ed25519', { ...OAUTH, tokenAuth: 'assertion', appSecret: key('ed25519') }],
  ])('%s', async (_, switches) => {
    await using sandbox = await startSandbox(switches)
    await using proxy = await startProxy(sandbox)
    const statusFor = async (org: string) =>
      (await fetch(`${proxy.url}/v2/example/endpoint`, { headers: { 'x-org-id': org } })).status
    expect([await statusFor('acme'), await statusFor('globex'), await statusFor('initech')]).toEqual([200, 200, 403])
    expect(sandbox.stats().orgs).toMatchObject({ acme: { tokens: 1 }, globex: { tokens: 1 }, initech: { mints: 1 } })
    sandbox.set({
      appSecret: switches.tokenAuth === 'assertion' || switches.tokenAuth === 'jwt' ? key('rsa') : 'other',
    })
    expect(await statusFor('org-1')).toBe(403)
  })

  test.each([
    [{ audience: 'https://another.example' }],
    [{ issuer: 'another' }],
    [{ keyId: 'key-2' }],
    [{ algorithm: 'RS256' }],
  ])('a JWT that does not say %o gives no token', async (wrong) => {
    await using sandbox = await startSandbox({ tokenAuth: 'jwt', appSecret: key('rsa'), tokenAssertion: SAYS })
    await using proxy = await startProxy(sandbox)
    sandbox.set({ tokenAssertion: { ...SAYS, ...wrong } })
    expect((await fetch(`${proxy.url}/v2/x`, { headers: { 'x-org-id': 'acme' } })).status).toBe(502)
  })

  test('whose clock is behind by more than a minute, a JWT comes from a time to come', async () => {
    const statusWith = async (clockOffsetMs: number) => {
      await using sandbox = await startSandbox({ tokenAuth: 'jwt', appSecret: key('rsa'), clockOffsetMs })
      await using proxy = await startProxy(sandbox)
      return (await fetch(`${proxy.url}/v2/example/endpoint`, { headers: { 'x-org-id': 'acme' } })).status
    }
    expect([await statusWith(-50_000), await statusWith(-90_000)]).toEqual([200, 502])
  })

  test('that decodes Basic as a form, a secret with a plus arrives by auth: form alone', async () => {
    const statusWith = async (tokenAuth: 'basic' | 'form') => {
      await using sandbox = await startSandbox({ ...OAUTH, decodesBasic: true, tokenAuth, appSecret: 'a+b' })
      await using proxy = await startProxy(sandbox)
      return (await fetch(`${proxy.url}/v2/example/endpoint`, { headers: { 'x-org-id': 'acme' } })).status
    }
    expect([await statusWith('basic'), await statusWith('form')]).toEqual([502, 200])
  })
})
