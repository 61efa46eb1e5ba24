/**
 * Attacks on the identity of a caller: two credentials in one request, so that two checks find two callers; and keys guessed
 * piece by piece from the time of their comparison.
 */

import { expect, test } from 'vitest'
import { request } from '../support/raw-client.ts'
import { startService } from '../support/service.ts'
import { startProxy } from '../support/start-proxy.ts'
import { ANY, byKey, makeCallers, rule } from '../units/callers/make-callers.ts'

const KEY = 'reports-key-0123456789'

test('two credentials at once, and one that Connection names', async () => {
  await using service = await startService()
  await using proxy = await startProxy(
    service,
    {},
    {
      'proxy.yaml': 'callers: [{name: a, keyFiles: [a.key], orgs: ["*"]}, {name: b, keyFiles: [b.key], orgs: ["*"]}]',
      'a.key': KEY,
      'b.key': 'another-key-0123456789',
    },
  )
  const send = (...lines: string[]) =>
    request(proxy.port, ['GET /v2/x HTTP/1.1', 'Host: localhost', 'X-Org-Id: acme', ...lines, '', ''].join('\r\n'))
  for (const lines of [
    [`X-Proxy-Key: ${KEY}`, 'X-Proxy-Key: another-key-0123456789'],
    [`X-Proxy-Key: ${KEY}`, `x-proxy-key: ${KEY}`],
    [`X-Proxy-Key: ${KEY}`, 'X-Proxy-Key:'],
    [`X-Proxy-Key: ${KEY}, another-key-0123456789`],
    [`X_Proxy_Key: ${KEY}`],
    [`Proxy-Authorization: Bearer ${KEY}`],
    [`Authorization: Bearer ${KEY}`],
  ]) {
    const { status, content } = await send(...lines)
    expect([status, JSON.parse(content.toString()).code]).toEqual([403, 'caller_refused'])
  }
  expect(service.origin.requests).toEqual([])
  expect((await send('Connection: x-proxy-key', `X-Proxy-Key: ${KEY}`)).status).toBe(200)
  expect(service.requests[0]?.fields.join()).not.toMatch(/proxy-key|reports-key/i)
})

// A comparison byte by byte takes longer, the longer the correct beginning. A hash of the whole key does not.
test('a key with a correct beginning takes no longer than any other', () => {
  const key = 'x'.repeat(4_000)
  const callers = makeCallers([rule('a', byKey(key))])
  const guesses = [`y${key.slice(1)}`, `${key.slice(0, -1)}y`]
  const best = guesses.map(() => Number.POSITIVE_INFINITY)
  for (let round = 0; round < 200; round++) {
    for (const [index, guess] of guesses.entries()) {
      const startedAt = performance.now()
      for (let i = 0; i < 20; i++) callers.identify(ANY, 1, guess)
      best[index] = Math.min(best[index] ?? 0, performance.now() - startedAt)
    }
  }
  const [early = 0, late = 0] = best
  expect(late / early).toBeLessThan(2)
  expect(early / late).toBeLessThan(2)
})
