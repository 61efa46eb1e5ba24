import { expect, test } from 'vitest'
import { type Sandbox, startSandbox } from '../../src/sandbox/sandbox.ts'
import { basic, call, callTokenEndpoint, mint } from './client.ts'

async function shownStats(sandbox: Sandbox): Promise<unknown> {
  return (await fetch(`${new URL(sandbox.baseUrl).origin}/sandbox/stats`)).json()
}

test('mints, tokens, requests and rejections are counted per org and in total', async () => {
  await using sandbox = await startSandbox()
  const token = await mint(sandbox, 'acme')
  for (let count = 0; count < 3; count += 1) await call(sandbox, '/v2/example/endpoint', token)
  sandbox.revoke('acme')
  await call(sandbox, '/v2/example/endpoint', token)
  await call(sandbox, '/v2/example/endpoint', 'never-issued')
  await callTokenEndpoint(sandbox, 'initech')
  await callTokenEndpoint(sandbox, 'initech', basic('sandbox-app', 'wrong'))
  await fetch(`${sandbox.baseUrl}/v2/links`, {
    method: 'POST',
    headers: { authorization: basic(sandbox.appId, sandbox.appSecret) },
  })

  const expected = {
    totals: { mints: 3, tokens: 1, requests: 3, rejected: 2, peakConcurrentMints: 1, appRequests: 1 },
    orgs: {
      acme: { mints: 1, tokens: 1, requests: 3, rejected: 1, peakConcurrentMints: 1 },
      initech: { mints: 2, tokens: 0, requests: 0, rejected: 0, peakConcurrentMints: 1 },
    },
  }
  expect(sandbox.stats()).toEqual(expected)
  expect(await shownStats(sandbox)).toEqual(expected)
})

test('the peak is the number of mints at once, in total and for one org', async () => {
  await using sandbox = await startSandbox({ mintLatencyMs: 3_600_000 })
  const abort = new AbortController()
  const authorization = basic(sandbox.appId, sandbox.appSecret)
  const mints = ['acme', 'acme', 'acme', 'globex'].map((org) =>
    fetch(`${sandbox.baseUrl}/v2/orgs/${org}/access`, {
      method: 'POST',
      headers: { authorization },
      signal: abort.signal,
    }).catch(() => undefined),
  )
  await expect.poll(() => sandbox.stats().totals.mints).toBe(4)
  abort.abort()
  await Promise.all(mints)

  // Mints of clients that left have ended, so one more mint at a time does not raise the peak of its org.
  sandbox.set({ mintLatencyMs: 0 })
  await mint(sandbox, 'globex')
  expect(sandbox.stats()).toMatchObject({
    totals: { peakConcurrentMints: 4 },
    orgs: { acme: { peakConcurrentMints: 3 }, globex: { peakConcurrentMints: 1 } },
  })
})

test('the numbers are a copy, and an org may have any name', async () => {
  await using sandbox = await startSandbox({ linked: '*' })
  const before = sandbox.stats()
  await mint(sandbox, '__proto__')
  expect(before.totals.mints).toBe(0)
  expect(Object.keys(sandbox.stats().orgs)).toEqual(['__proto__'])
  expect(JSON.stringify(await shownStats(sandbox))).toContain('"__proto__":{"mints":1')
})
