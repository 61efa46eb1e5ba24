/**
 * Attacks on the check of a caller's credential: a JWT that takes quadratic time, and a key that is guessed from the time of
 * its refusal.
 */

import { expect, test } from 'vitest'
import { byJwt, encode, makeIssuer } from '../units/callers/issuer.ts'
import { ANY, byKey, callerOf, makeCallers, rule } from '../units/callers/make-callers.ts'

// Deep nesting, many dots and long runs make some parsers quadratic.
test.each([
  ['dots', (n: number) => '.'.repeat(n)],
  ['letters and dots', (n: number) => 'a.'.repeat(n / 2)],
  ['nesting', (n: number) => `${encode({ alg: 'ES256' })}.${Buffer.from('['.repeat(n / 2)).toString('base64url')}.AA`],
  [
    'digits',
    (n: number) =>
      `${encode({ alg: 'ES256' })}.${Buffer.from(`{"iss":${'9'.repeat(n / 2)}}`).toString('base64url')}.AA`,
  ],
])('the cost of a token of %s grows linearly with the length', async (_, make) => {
  const callers = makeCallers([rule('batch', byJwt(await makeIssuer()))])
  const costOf = async (length: number) => {
    const token = make(length)
    let best = Number.POSITIVE_INFINITY
    for (let round = 0; round < 20; round++) {
      const startedAt = performance.now()
      for (let i = 0; i < 50; i++) await callerOf(callers, token)
      best = Math.min(best, performance.now() - startedAt)
    }
    return best
  }
  const [short, long] = [await costOf(1_000), await costOf(8_000)]
  // Eight times the length: linear is 8, quadratic is 64.
  expect(long / short).toBeLessThan(32)
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
