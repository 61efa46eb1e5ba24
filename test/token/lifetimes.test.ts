import { expect, test } from 'vitest'
import { OrgLifetime } from '../../src/token/lifetimes.ts'
import { ServiceHabits } from '../../src/token/service-habits.ts'
import { AccessToken } from '../../src/token/token-source.ts'
import { TOKEN_CACHE_OPTIONS } from '../support/token-cache-options.ts'

/** No token is left to live past its expected end. */
const RANDOM = 0.999
const NONE = Number.POSITIVE_INFINITY

/** `a 90-100@5` is a token of the org `a` that was minted at 5, accepted at the age of 90 and rejected at that of 100. */
function orgAfter(events: string, asked: string, toldMs?: number): OrgLifetime {
  const all = new ServiceHabits(TOKEN_CACHE_OPTIONS)
  const orgs = new Map<string, OrgLifetime>()
  const orgOf = (name: string, mintedAt: number) => {
    const token = new AccessToken('token', mintedAt, undefined, toldMs)
    const org = orgs.get(name) ?? new OrgLifetime(token, all, RANDOM)
    orgs.set(name, org)
    org.replaceWith(token, RANDOM)
    return org
  }
  events.split(', ').forEach((event, i) => {
    const [, name = '', aliveMs, deadMs, at = 1_000 * i] = /^(\S+) (\d+)(?:-(\d+))?(?:@(\d+))?$/.exec(event) ?? []
    const mintedAt = Number(at)
    const org = orgOf(name, mintedAt)
    org.noteAlive(mintedAt + Number(aliveMs))
    if (deadMs !== undefined) org.noteDeath({ mintedAt, aliveMs: Number(aliveMs), deadMs: Number(deadMs) })
  })
  return orgOf(asked, 1_000_000)
}

const REGULAR = 'a 90-100, b 90-100, c 90-100'
const TOGETHER = 'a 90-100@0, b 90-100@0, c 90-100@1'
const LATER = 'a 90-100@2, b 90-100@2, c 90-100@2'

test.each([
  ['three orgs at one age, and one as old', 'a 90-101, b 95-100, c 80-104, d 100', 'new', 100],
  ['two orgs', 'a 90-101, b 95-100, b 80-104', 'new', NONE],
  ['three ages', 'a 90-100, b 190-200, c 290-300', 'new', NONE],
  ['three orgs at one moment', TOGETHER, 'new', NONE],
  ['three orgs at one moment, and one that was accepted then', `${TOGETHER}, d 90-100@50, ${REGULAR}`, 'new', 100],
  ['the same, and a token of that time is accepted later', `${TOGETHER}, d 40@85, ${LATER}`, 'new', 100],
  ['two orgs at one moment, and one later', 'a 90-100@0, b 90-100@0, c 90-100@500', 'new', 100],
  ['tokens of some orgs live longer', `${REGULAR}, d 200`, 'new', NONE],
  ['tokens of some orgs live longer, asked by another', `${REGULAR}, d 200`, 'c', 100],
  ['one own death at another age', `${REGULAR}, d 190-200`, 'd', NONE],
  ['two own deaths at another age', `${REGULAR}, d 190-200, d 190-200`, 'd', 200],
  ['an age at which most do not die', `${REGULAR}, d 190-200, e 290-300, f 390-400, g 490-500`, 'a', NONE],
  ['a token outlives the usual age', `${REGULAR}, c 110`, 'a', 'left'],
  ['another one, by less', `${REGULAR}, ${REGULAR}, a 110, b 101, c 90-100, c 90-100, c 90-100`, 'b', NONE],
  ['the same, and then three die as the ones before', `${REGULAR}, c 110, ${REGULAR}, ${REGULAR}`, 'a', 100],
  ['a token outlives an odd death before it', `${REGULAR}, d 190-200, d 300`, 'c', 100],
])('%s', (_, events, asked, endMs) => {
  const org = orgAfter(events, asked)
  expect(org.isExplored ? 'left' : org.endMs).toBe(endMs)
})

test('what another process expects counts if it is less, and no token has outlived it', () => {
  expect([50, 95, 150].map((toldMs) => orgAfter(REGULAR, 'new', toldMs).endMs)).toEqual([100, 95, 100])
  expect(orgAfter(REGULAR, 'new', 50).safeMs).toBe(49)
  expect(orgAfter('a 190-200, a 190-200', 'a', 250).endMs).toBe(200)
})

test('one death of any org makes its age doubtful, also if all may have died at one moment, until a token is accepted that is older', () => {
  const after = ['a 90-100', TOGETHER, 'a 90-100, b 106'].map((events) => orgAfter(events, 'new').safeMs)
  expect(after).toEqual([98, 98, NONE])
})
