/** The token endpoint, and what a request with a token gets. */

import { setTimeout as sleep } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { type Sandbox, startSandbox } from '../../../src/sandbox/sandbox.ts'
import { DEFAULT_APP_SECRET } from '../../../src/sandbox/switches.ts'
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

describe('what a version of the service may do otherwise', () => {
  const claimsOf = (token: string) => JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString())
  const ask = (sandbox: Sandbox, target = '/v2/orgs/acme/access', method = 'POST') =>
    fetch(`${sandbox.baseUrl}${target}`, {
      method,
      headers: { authorization: basic(sandbox.appId, sandbox.appSecret) },
    })
  const replyFrom = async (sandbox: Sandbox) => JSON.parse(await (await ask(sandbox)).text())

  test('another method, path and field', async () => {
    await using sandbox = await startSandbox({
      tokenEndpoint: 'GET /v2.1/tenants/{orgId}/tokens/new',
      tokenField: 'data.token',
    })
    const response = await ask(sandbox, '/prefix/v2.1/tenants/org-a%2Fb/tokens/new', 'GET')
    const { data } = (await response.json()) as { data: { token: string } }
    expect(await (await call(sandbox, '/v2.1/example/endpoint', data.token)).json()).toMatchObject({ org: 'org-a/b' })
    const wrong = await ask(sandbox, '/v2.1/tenants/acme/tokens/new', 'PUT')
    expect([wrong.status, wrong.headers.get('allow')]).toEqual([405, 'GET'])
    expect((await ask(sandbox)).status, 'the path of version 2.0 is none').toBe(401)
  })

  test('stated ends, by the clock of the service', async () => {
    await using sandbox = await startSandbox({
      statedEnds: ['jwt', 'expires_in', 'expiresIn', 'expires_at', 'expiresAt'],
      tokenLifetimeMs: 60_500,
      clockOffsetMs: 3_600_000,
    })
    const response = await ask(sandbox)
    const reply = JSON.parse(await response.text())
    const nowMs = Date.parse(response.headers.get('date') ?? '')
    expect(nowMs - Date.now()).toBeGreaterThan(3_590_000)
    expect(reply).toMatchObject({ expires_in: 60, expiresIn: 60 })
    for (const endMs of [
      claimsOf(reply.orgAccessToken).exp * 1_000,
      Date.parse(reply.expires_at),
      reply.expiresAt * 1_000,
    ]) {
      expect(Math.abs(endMs - nowMs - 60_500)).toBeLessThan(5_000)
    }
    expect((await call(sandbox, '/v2/x', reply.orgAccessToken)).status).toBe(200)
  })

  test('the same token again, until it ends', async () => {
    await using sandbox = await startSandbox({ sameToken: true })
    const first = await mint(sandbox, 'acme')
    expect([await mint(sandbox, 'acme'), await mint(sandbox, 'globex')]).toEqual([
      first,
      expect.not.stringMatching(first),
    ])
    sandbox.revoke('acme')
    expect(await mint(sandbox, 'acme')).not.toBe(first)
  })

  test('a sliding life begins anew with each use', async () => {
    await using sandbox = await startSandbox({ tokenLifetimeKind: 'sliding', tokenLifetimeMs: 150 })
    const token = await mint(sandbox, 'acme')
    const startedAt = performance.now()
    while (performance.now() - startedAt < 400) {
      expect((await call(sandbox, '/v2/x', token)).status).toBe(200)
      await sleep(10)
    }
    await sleep(160)
    expect((await call(sandbox, '/v2/x', token)).status).toBe(401)
  })

  test('an irregular life differs from token to token', async () => {
    await using sandbox = await startSandbox({
      tokenLifetimeKind: 'irregular',
      tokenLifetimeMs: 60_000,
      statedEnds: ['jwt'],
    })
    const lives = new Set<number>()
    for (let i = 0; i < 5; i++) {
      const { iat, exp } = claimsOf(await mint(sandbox, 'acme'))
      expect(exp - iat).toBeGreaterThanOrEqual(30)
      expect(exp - iat).toBeLessThanOrEqual(90)
      lives.add(exp - iat)
    }
    expect(lives.size).toBe(5)
  })

  test('some back ends may know a new token late: each connection leads to one', async () => {
    await using sandbox = await startSandbox({ tokenSettleMs: 60_000, tokenSettleShare: 0.25 })
    const token = await mint(sandbox, 'acme')
    const statuses: number[] = []
    for (let i = 0; i < 8; i++) {
      const response = await call(sandbox, '/v2/x', token, { headers: { connection: 'close' } })
      statuses.push(response.status)
      await response.arrayBuffer()
    }
    expect(statuses.filter((status) => status === 401)).toHaveLength(2)
  })

  test('a redirect to a login, where the token has ended', async () => {
    await using sandbox = await startSandbox({ expiredStatus: 302 })
    const response = await call(sandbox, '/v2/x', 'none', { redirect: 'manual' })
    expect([response.status, response.headers.get('location')]).toEqual([302, 'https://login.example/'])
    expect(response.headers.get('www-authenticate')).toBeNull()
  })

  test('a limit tells what is left of it, and then when to come back', async () => {
    await using sandbox = await startSandbox({ mintLimit: { count: 2, windowMs: 60_000, perOrg: true } })
    const told = async (org: string) => {
      const { status, headers } = await callTokenEndpoint(sandbox, org)
      return [status, headers.get('x-ratelimit-remaining'), headers.get('retry-after')]
    }
    expect(await told('acme')).toEqual([200, '1', null])
    expect(await told('acme')).toEqual([200, '0', null])
    expect(await told('acme')).toEqual([429, '0', '60'])
    expect(await told('globex')).toEqual([200, '1', null])
    sandbox.set({ mintLimit: { count: 2, windowMs: 1 }, requestLimit: { count: 1, windowMs: 60_000, status: 503 } })
    const token = await mint(sandbox, 'acme')
    expect((await call(sandbox, '/v2/x', token)).status).toBe(200)
    expect((await call(sandbox, '/v2/x', token)).status).toBe(503)
  })

  test('the token in another header, which no echo shows', async () => {
    await using sandbox = await startSandbox({ tokenHeader: 'X-Access-Token: token {token}' })
    const token = await mint(sandbox, 'acme')
    const withHeader = (value: string) => fetch(`${sandbox.baseUrl}/v2/x`, { headers: { 'x-access-token': value } })
    expect((await withHeader(token)).status).toBe(401)
    expect((await call(sandbox, '/v2/x', token)).status).toBe(401)
    const answer = await (await withHeader(`token ${token}`)).text()
    expect(JSON.parse(answer)).toMatchObject({
      org: 'acme',
      fields: expect.arrayContaining(['x-access-token: [credentials]']),
    })
    expect(answer).not.toContain(token)
  })

  test('further secret headers: of requests, and of calls of the token endpoint; none is shown', async () => {
    await using sandbox = await startSandbox()
    const token = await mint(sandbox, 'acme')
    const headers = { 'subscription-key': 'key-of-requests' }
    sandbox.set({ secretHeaders: headers, mintSecretHeaders: { 'Mint-Key': 'key-of-mints' } })
    expect((await call(sandbox, '/v2/x', token)).status).toBe(403)
    const answer = await call(sandbox, '/v2/x', token, { headers })
    expect([answer.status, (await answer.text()).includes('key-of-requests')]).toEqual([200, false])
    const statusOfMint = async (key: string) => {
      const authorization = basic(sandbox.appId, sandbox.appSecret)
      const url = `${sandbox.baseUrl}/v2/orgs/acme/access`
      return (await fetch(url, { method: 'POST', headers: { authorization, 'mint-key': key } })).status
    }
    expect([await statusOfMint('another'), await statusOfMint('key-of-mints')]).toEqual([403, 200])
    const shown = await fetch(`${sandbox.baseUrl}/sandbox/switches`, { method: 'PUT', body: '{}' })
    expect(await shown.text()).not.toMatch(/key-of/)
  })

  test('the answer of a member in objects stands beside the stated end', async () => {
    await using sandbox = await startSandbox({ tokenField: 'a.b.c', statedEnds: ['expires_in'] })
    expect(await replyFrom(sandbox)).toEqual({ a: { b: { c: expect.any(String), expires_in: 299 } } })
  })
})
