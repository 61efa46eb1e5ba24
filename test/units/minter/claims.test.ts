/** The claims of one caller about one Org: how many of them may cause a mint. */

import { expect, test } from 'vitest'
import { Claims } from '../../../src/minter/claims.ts'

const COOLDOWN_MS = 10_000
const HOUR_MS = 3_600_000

/** When claims may cause a mint, if each successor is claimed every `everyMs`, as seconds from the first. */
function mintsIn(spanMs: number, everyMs: number, ageMs = HOUR_MS): number[] {
  const claims = new Claims()
  const mints: number[] = []
  let mintedAt = -ageMs
  for (let now = 0; now <= spanMs; now += everyMs) {
    if (!claims.admit(now - mintedAt, now, COOLDOWN_MS)) continue
    mintedAt = now
    mints.push(now / 1_000)
  }
  return mints
}

test('claims in a loop cause mints in growing pauses, and one more in each cooldown, which grows, too', () => {
  expect(mintsIn(30_000, 50)).toEqual([0, 0.3, 1.35, 5.4, 10.05])
  const hour = mintsIn(HOUR_MS, 50)
  expect(hour.length).toBeLessThan(45)
  const late = hour.filter((at) => at > 1_800)
  expect(late.length).toBeLessThan(16)
})

test('claims that come a minute apart are all heard', () => {
  expect(mintsIn(600_000, 61_000)).toHaveLength(10)
})

test('where tokens live shortly, half the age of the token before is enough, but ten seconds at least', () => {
  expect(mintsIn(600_000, 30_000, 30_000)).toHaveLength(21)
  expect(mintsIn(600_000, 9_000, 9_000).length).toBeLessThan(25)
})

test('shorter and shorter lives bring no more than one mint in ten seconds', () => {
  const claims = new Claims()
  let now = 0
  let mintedAt = -HOUR_MS
  let mints = 0
  while (now < HOUR_MS) {
    if (claims.admit(now - mintedAt, now, COOLDOWN_MS)) {
      mints += 1
      mintedAt = now
    }
    now += 10_000
  }
  expect(mints).toBeLessThanOrEqual(HOUR_MS / 10_000 + 1)
})

test('a mint that failed is no useless one', () => {
  const claims = new Claims()
  for (let now = 0; now < 1_000; now += 100) {
    expect(claims.admit(HOUR_MS, now, COOLDOWN_MS)).toBe(true)
    claims.noteFailedMint()
  }
})

test('the same token again is a useless mint', () => {
  const claims = new Claims()
  expect(claims.admit(HOUR_MS, 0, COOLDOWN_MS)).toBe(true)
  claims.noteUselessMint(0)
  expect(claims.admit(HOUR_MS, 200, COOLDOWN_MS)).toBe(false)
  expect(claims.admit(HOUR_MS, 250, COOLDOWN_MS)).toBe(true)
})
