import { expect, test } from 'vitest'
import { startSandbox } from '../../src/sandbox/sandbox.ts'
import { DEFAULT_APP_SECRET } from '../../src/sandbox/switches.ts'
import { TokenRegister } from '../../src/sandbox/tokens.ts'
import { basic, call, errorOf, mint } from './client.ts'

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

test('dead tokens are forgotten in the end, live ones never', () => {
  let nowMs = 0
  const tokens = new TokenRegister(() => nowMs)
  const dead = tokens.issue('acme', 10, 'opaque')
  const live = tokens.issue('acme', 1000, 'opaque')
  nowMs = 10
  expect(tokens.check(dead).state).toBe('expired')
  for (let count = 0; count < 100_000; count += 1) tokens.issue('globex', 1000, 'opaque')
  expect(tokens.check(dead).state).toBe('unknown')
  expect(tokens.check(live)).toEqual({ state: 'live', org: 'acme' })
})
