/** T-TK-11 The token endpoint says 429: its time is honoured to the second, passed on, and concerns no token in hand. */

import { expect, test } from 'vitest'
import { get } from '../support/case-table.ts'
import { eventually } from '../support/changes.ts'
import { fieldOf, problemOf, type RawResponse, request } from '../support/raw-client.ts'
import { type Service, startService } from '../support/service.ts'
import { type ProxyUnderTest, startProxy } from '../support/start-proxy.ts'

const WAIT_SECONDS = 2

function ask(proxy: ProxyUnderTest, org: string): Promise<RawResponse> {
  return request(proxy.port, get('/v2/x', org))
}

function limit(service: Service, retryAfter: string): void {
  service.tokens.script = () => ({ status: 429, fields: ['Retry-After', retryAfter] })
}

test.concurrent.each<[string, () => string]>([
  ['seconds', () => `${WAIT_SECONDS}`],
  // A date has whole seconds: one more, so that it lies as far ahead as is asserted.
  ['a date', () => new Date(Date.now() + (WAIT_SECONDS + 1) * 1_000).toUTCString()],
])('no mint before the time is over, for any org; told as %s', async (_, retryAfter) => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  expect((await ask(proxy, 'warm')).status).toBe(200)

  limit(service, retryAfter())
  const first = await ask(proxy, 'cold-1')
  const limitedAt = performance.now()
  expect(first.status).toBe(503)
  expect(problemOf(first).code).toBe('token_endpoint_rate_limited')
  expect(Number(fieldOf(first, 'retry-after'))).toBeGreaterThanOrEqual(WAIT_SECONDS)
  expect(Number(fieldOf(first, 'retry-after'))).toBeLessThanOrEqual(WAIT_SECONDS + 1)

  service.tokens.script = (mint) => mint.issue()
  const mintsBefore = service.tokens.mints.length
  const served = await eventually(async () => {
    expect((await ask(proxy, 'warm')).status).toBe(200)
    const answer = await ask(proxy, 'cold-2')
    if (answer.status === 200) return performance.now()
    expect(problemOf(answer).code).toBe('token_endpoint_rate_limited')
    // The limit began when the 429 reached the proxy, a little before the test knew of it.
    const leftMs = limitedAt + WAIT_SECONDS * 1_000 - performance.now()
    expect(Number(fieldOf(answer, 'retry-after')) * 1_000).toBeGreaterThanOrEqual(leftMs - 200)
    expect(service.tokens.mints).toHaveLength(mintsBefore)
    return undefined
  }, 'a token after the limit')
  expect(served - limitedAt).toBeGreaterThanOrEqual(WAIT_SECONDS * 1_000 - 200)
  expect(served - limitedAt).toBeLessThan(WAIT_SECONDS * 1_000 + 2_500)
})

test.concurrent('without a time it is asked again after a while, one mint at a time', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service)
  service.tokens.script = () => ({ status: 429 })
  const startedAt = performance.now()
  while (performance.now() - startedAt < 1_500) {
    const answers = await Promise.all(Array.from({ length: 10 }, (_, i) => ask(proxy, `org-${i}`)))
    for (const answer of answers) expect(problemOf(answer).code).toBe('token_endpoint_rate_limited')
  }
  // All ten may be on their way before the first answer; after it, a pause of about a second, and one probe.
  expect(service.tokens.mints.length).toBeLessThanOrEqual(12)
})

test.concurrent('a limit met while a token is renewed leaves the token in use', async () => {
  await using service = await startService()
  await using proxy = await startProxy(service, {
    'tokens.lifetime': '1s',
    'tokens.minLifetime': '1s',
    'tokens.learn': 'false',
  })
  expect((await ask(proxy, 'acme')).status).toBe(200)
  limit(service, '30')
  await eventually(async () => {
    expect((await ask(proxy, 'acme')).status).toBe(200)
    return proxy.logs.some(({ msg, token }) => msg === 'request' && token === 'stale') || undefined
  }, 'requests past the estimate')
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
  for (let i = 0; i < 50; i++) expect((await ask(proxy, 'acme')).status).toBe(200)
  expect(service.tokens.mintsOf('acme')).toHaveLength(2)
})
