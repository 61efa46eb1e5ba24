import { expect, test } from 'vitest'
import { startSandbox } from '../../src/sandbox/sandbox.ts'
import { DEFAULT_APP_SECRET, DEFAULT_SWITCHES } from '../../src/sandbox/switches.ts'
import { TokenRegister } from '../../src/sandbox/tokens.ts'
import { basic, call, callTokenEndpoint, errorOf, mint } from './client.ts'

test('the right credentials get a token for a linked org, and nothing else in the object', async () => {
  await using sandbox = await startSandbox()
  const response = await callTokenEndpoint(sandbox, 'acme')
  expect(response.status).toBe(200)
  expect(response.headers.get('content-type')).toBe('application/json')
  expect(await response.json()).toEqual({ orgAccessToken: expect.stringMatching(/^[\w-]{43}$/) })
})

test.each([
  ['a wrong secret', basic('sandbox-app', 'wrong')],
  ['a wrong App id', basic('other-app', DEFAULT_APP_SECRET)],
  ['no colon', `Basic ${Buffer.from('sandbox-app').toString('base64')}`],
  ['another scheme', `Bearer ${DEFAULT_APP_SECRET}`],
  ['the pair without base64', `Basic sandbox-app:${DEFAULT_APP_SECRET}`],
  ['nothing', ''],
])('%s gets a challenge and no token', async (_, authorization) => {
  await using sandbox = await startSandbox()
  const response = await callTokenEndpoint(sandbox, 'acme', authorization)
  expect(response.status).toBe(401)
  expect(response.headers.get('www-authenticate')).toBe('Basic realm="sandbox"')
  expect(await errorOf(response)).toBe('app_credentials_wrong')
})

test('a secret may contain colons and characters beyond ASCII', async () => {
  await using sandbox = await startSandbox({ appId: 'app', appSecret: 'a:b:ü' })
  expect((await callTokenEndpoint(sandbox, 'acme', basic('app', 'a:b:ü'))).status).toBe(200)
})

test('an org that has not linked is refused until it links', async () => {
  await using sandbox = await startSandbox()
  const refused = await callTokenEndpoint(sandbox, 'initech')
  expect(refused.status).toBe(403)
  expect(await errorOf(refused)).toBe('org_not_linked')

  sandbox.set({ linked: ['initech'] })
  expect((await callTokenEndpoint(sandbox, 'initech')).status).toBe(200)
  expect((await callTokenEndpoint(sandbox, 'acme')).status).toBe(403)
})

test.each([
  ['*', 'any-org-at-all', 200],
  [['org-*'], 'org-17', 200],
  [['org-*'], 'org', 403],
  [['acme'], 'acme2', 403],
  [['acme'], 'ACME', 403],
  [[], 'acme', 403],
] as const)('linked %j answers %s with %i', async (linked, org, status) => {
  await using sandbox = await startSandbox({ linked })
  expect((await callTokenEndpoint(sandbox, org)).status).toBe(status)
})

test('statuses that the specification leaves open are switches', async () => {
  await using sandbox = await startSandbox({ badCredentialsStatus: 400, unlinkedStatus: 404, expiredStatus: 403 })
  const badCredentials = await callTokenEndpoint(sandbox, 'acme', basic('sandbox-app', 'wrong'))
  expect(badCredentials.status).toBe(400)
  expect(badCredentials.headers.get('www-authenticate')).toBeNull()
  expect((await callTokenEndpoint(sandbox, 'initech')).status).toBe(404)
  expect((await call(sandbox, '/v2/example/endpoint', 'never-issued')).status).toBe(403)
})

test('the org id is one decoded segment; a segment that cannot be decoded is refused', async () => {
  await using sandbox = await startSandbox({ linked: '*' })
  const token = await mint(sandbox, 'a%2Fb%3A')
  expect(await (await call(sandbox, '/v2/example/endpoint', token)).json()).toMatchObject({ org: 'a/b:' })
  const broken = await callTokenEndpoint(sandbox, '%zz')
  expect(broken.status).toBe(400)
  expect(await errorOf(broken)).toBe('org_invalid')
})

test('the request for a link URL accepts only the App credentials', async () => {
  await using sandbox = await startSandbox()
  const post = (authorization: string): Promise<Response> =>
    fetch(`${sandbox.baseUrl}/v2/links`, { method: 'POST', headers: { authorization } })
  const linked = await post(basic(sandbox.appId, sandbox.appSecret))
  expect(linked.status).toBe(200)
  expect(await linked.json()).toEqual({ linkUrl: expect.stringMatching(/^https:\/\/link\.example\//) })
  expect((await post(`Bearer ${await mint(sandbox, 'acme')}`)).status).toBe(401)
  expect((await post(basic(sandbox.appId, 'wrong'))).status).toBe(401)
})

test('a token lives exactly as long as the switch was set when it was issued', async () => {
  let nowMs = 1000
  await using sandbox = await startSandbox({ tokenLifetimeMs: 60_000, now: () => nowMs })
  const token = await mint(sandbox, 'acme')
  sandbox.set({ tokenLifetimeMs: 5 })

  nowMs += 59_999
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(200)
  nowMs += 1
  const expired = await call(sandbox, '/v2/example/endpoint', token)
  expect(expired.status).toBe(401)
  expect(expired.headers.get('www-authenticate')).toBe('Bearer error="invalid_token"')
  expect(await errorOf(expired)).toBe('token_expired')

  const short = await mint(sandbox, 'acme')
  nowMs += 5
  expect((await call(sandbox, '/v2/example/endpoint', short)).status).toBe(401)
})

test('a revocation ends the present tokens of one org', async () => {
  await using sandbox = await startSandbox()
  const revoked = [await mint(sandbox, 'acme'), await mint(sandbox, 'acme')]
  const other = await mint(sandbox, 'globex')
  expect(sandbox.revoke('acme')).toBe(2)
  expect(sandbox.revoke('acme')).toBe(0)

  for (const token of revoked) {
    const response = await call(sandbox, '/v2/example/endpoint', token)
    expect(response.status).toBe(401)
    expect(await errorOf(response)).toBe('token_revoked')
  }
  expect((await call(sandbox, '/v2/example/endpoint', other)).status).toBe(200)
  expect((await call(sandbox, '/v2/example/endpoint', await mint(sandbox, 'acme'))).status).toBe(200)
  expect(sandbox.revoke('*')).toBe(2)
  expect((await call(sandbox, '/v2/example/endpoint', other)).status).toBe(401)
})

test.each([
  ['one that was never issued', 'Bearer nobody-knows-it'],
  ['none', ''],
  ['App credentials', basic('sandbox-app', DEFAULT_APP_SECRET)],
])('%s is not a live token', async (_, authorization) => {
  await using sandbox = await startSandbox()
  const response = await fetch(`${sandbox.baseUrl}/v2/anything`, { headers: { authorization } })
  expect(response.status).toBe(401)
  expect(await errorOf(response)).toBe('token_unknown')
})

test('the oldest of very many tokens is forgotten', () => {
  const tokens = new TokenRegister(() => 0)
  const [first, second] = [tokens.issue('acme', DEFAULT_SWITCHES), tokens.issue('acme', DEFAULT_SWITCHES)]
  for (let count = 0; count < 99_999; count += 1) tokens.issue('globex', DEFAULT_SWITCHES)
  expect(tokens.check(first).state).toBe('unknown')
  expect(tokens.check(second)).toEqual({ state: 'live', org: 'acme' })
})

test('a new token is not known until it has settled', async () => {
  let nowMs = 0
  await using sandbox = await startSandbox({ tokenSettleMs: 2000, now: () => nowMs })
  const token = await mint(sandbox, 'acme')
  nowMs = 1999
  const early = await call(sandbox, '/v2/example/endpoint', token)
  expect([early.status, await errorOf(early)]).toEqual([401, 'token_unknown'])
  nowMs = 2000
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(200)
  expect(sandbox.stats().orgs['acme']).toMatchObject({ requests: 1, rejected: 1 })
})

test('with one token per org, a new one ends those before it', async () => {
  await using sandbox = await startSandbox({ oneTokenPerOrg: true })
  const tokens = [await mint(sandbox, 'acme'), await mint(sandbox, 'globex'), await mint(sandbox, 'acme')]
  const answers = await Promise.all(tokens.map((token) => call(sandbox, '/v2/example/endpoint', token)))
  expect(answers.map(({ status }) => status)).toEqual([401, 200, 200])
})
