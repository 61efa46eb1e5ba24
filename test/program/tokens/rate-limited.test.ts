/**
 * The token endpoint answers 429 for one org: its Retry-After is respected to the second and passed on. Other orgs are served, and
 * cached tokens go on working.
 */

import { expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { eventually } from '../../support/changes.ts'
import { fieldOf, problemOf, type RawResponse, request } from '../../support/raw-client.ts'
import { startService } from '../../support/service.ts'
import { type ProxyUnderTest, startProxy } from '../../support/start-proxy.ts'

const WAIT_SECONDS = 2

function ask(proxy: ProxyUnderTest, org: string): Promise<RawResponse> {
  return request(proxy.port, get('/v2/x', org))
}

test('no mint for the org before the time is over', async () => {
  let opensAt = 0
  let mintedAt = 0
  await using service = await startService({
    mint: (mint) => {
      if (mint.org !== 'limited') return mint.issue()
      if (opensAt > 0) {
        mintedAt = performance.now()
        return mint.issue()
      }
      opensAt = performance.now() + WAIT_SECONDS * 1_000
      return { status: 429, fields: ['Retry-After', `${WAIT_SECONDS}`] }
    },
  })
  await using proxy = await startProxy(service)
  const first = await ask(proxy, 'limited')
  expect(first.status).toBe(503)
  expect(problemOf(first).code).toBe('token_endpoint_rate_limited')
  expect(fieldOf(first, 'retry-after')).toBe(`${WAIT_SECONDS}`)

  let others = 0
  await eventually(
    async () => {
      expect((await ask(proxy, 'warm')).status).toBe(200)
      expect((await ask(proxy, `cold-${++others}`)).status).toBe(200)
      const askedAt = performance.now()
      const answer = await ask(proxy, 'limited')
      if (answer.status === 200) return true
      expect(problemOf(answer).code).toBe('token_endpoint_rate_limited')
      // Rounded up to whole seconds, so that a client that waits as long is not too early.
      const retryAt = askedAt + Number(fieldOf(answer, 'retry-after')) * 1_000
      expect(retryAt + (performance.now() - askedAt)).toBeGreaterThanOrEqual(opensAt)
      return undefined
    },
    'a token after the limit',
    10_000,
  )
  expect(mintedAt).toBeGreaterThanOrEqual(opensAt)
  expect(mintedAt - opensAt).toBeLessThan(2_500)
})
