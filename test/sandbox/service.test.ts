/** The token endpoint, and what a request with a token gets. */

import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { startSandbox } from '../../src/sandbox/sandbox.ts'
import { DEFAULT_APP_SECRET } from '../../src/sandbox/switches.ts'
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

test.each([
  ['*', 'any-org-at-all', 200],
  [['org-*'], 'org-17', 200],
  [['org-*'], 'org', 403],
  [['acme'], 'acme2', 403],
  [[], 'acme', 403],
] as const)('linked %j answers %s with %i, until that changes', async (linked, org, status) => {
  await using sandbox = await startSandbox({ linked })
  const response = await callTokenEndpoint(sandbox, org)
  expect(response.status).toBe(status)
  if (status === 403) expect(await errorOf(response)).toBe('org_not_linked')
  sandbox.set({ linked: [org] })
  expect((await callTokenEndpoint(sandbox, org)).status).toBe(200)
})

test('statuses that the specification leaves open are switches', async () => {
  await using sandbox = await startSandbox({ badCredentialsStatus: 400, unlinkedStatus: 404, expiredStatus: 403 })
  expect((await callTokenEndpoint(sandbox, 'acme', basic('sandbox-app', 'wrong'))).status).toBe(400)
  expect((await callTokenEndpoint(sandbox, 'initech')).status).toBe(404)
  expect((await call(sandbox, '/v2/example/endpoint', 'never-issued')).status).toBe(403)
})

test('the org id is one decoded segment, and a secret may contain any character', async () => {
  await using sandbox = await startSandbox({ linked: '*', appSecret: 'a:b:ü' })
  const token = await mint(sandbox, 'a%2Fb%3A')
  expect(await (await call(sandbox, '/v2/example/endpoint', token)).json()).toMatchObject({ org: 'a/b:' })
})

test('a token lives as long as the switch was set when it was issued', async () => {
  await using sandbox = await startSandbox({ tokenLifetimeMs: 60_000 })
  const long = await mint(sandbox, 'acme')
  sandbox.set({ tokenLifetimeMs: 100 })
  const short = await mint(sandbox, 'acme')
  await sleep(110)
  expect((await call(sandbox, '/v2/example/endpoint', long)).status).toBe(200)
  const expired = await call(sandbox, '/v2/example/endpoint', short)
  expect(expired.status).toBe(401)
  expect(expired.headers.get('www-authenticate')).toBe('Bearer error="invalid_token"')
  expect(await errorOf(expired)).toBe('token_expired')
})

test('a revocation ends the present tokens of one org, or of all', async () => {
  await using sandbox = await startSandbox()
  const revoked = [await mint(sandbox, 'acme'), await mint(sandbox, 'acme')]
  const other = await mint(sandbox, 'globex')
  const statusOf = async (token: string) => (await call(sandbox, '/v2/example/endpoint', token)).status
  expect(sandbox.revoke('acme')).toBe(2)
  expect(sandbox.revoke('acme')).toBe(0)
  expect(await Promise.all([...revoked, other, await mint(sandbox, 'acme')].map(statusOf))).toEqual([
    401, 401, 200, 200,
  ])
  expect(sandbox.revoke('*')).toBe(2)
  expect(await statusOf(other)).toBe(401)
})

test.each([
  ['one that was never issued', 'Bearer nobody-knows-it'],
  ['none', ''],
  ['App credentials', basic('sandbox-app', DEFAULT_APP_SECRET)],
])('%s is not a live token', async (_, authorization) => {
  await using sandbox = await startSandbox()
  const response = await fetch(`${sandbox.baseUrl}/v2/anything`, { headers: { authorization } })
  expect([response.status, await errorOf(response)]).toEqual([401, 'token_unknown'])
})

test('a new token is not known until it has settled', async () => {
  await using sandbox = await startSandbox({ tokenSettleMs: 60_000 })
  const early = await call(sandbox, '/v2/example/endpoint', await mint(sandbox, 'acme'))
  expect([early.status, await errorOf(early)]).toEqual([401, 'token_unknown'])
  sandbox.set({ tokenSettleMs: 50 })
  const token = await mint(sandbox, 'acme')
  await sleep(60)
  expect((await call(sandbox, '/v2/example/endpoint', token)).status).toBe(200)
  expect(sandbox.stats().orgs['acme']).toMatchObject({ requests: 1, rejected: 1 })
})

test('with one token per org, a new one ends those before it', async () => {
  await using sandbox = await startSandbox({ oneTokenPerOrg: true })
  const tokens = [await mint(sandbox, 'acme'), await mint(sandbox, 'globex'), await mint(sandbox, 'acme')]
  const answers = await Promise.all(tokens.map((token) => call(sandbox, '/v2/example/endpoint', token)))
  expect(answers.map(({ status }) => status)).toEqual([401, 200, 200])
})
