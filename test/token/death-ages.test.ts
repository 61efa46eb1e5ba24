import { expect, test } from 'vitest'
import { DeathAges } from '../../src/token/death-ages.ts'

/** `a 90-100@5` is a token of the org `a` that was minted at 5, accepted at the age of 90 and rejected at that of 100. */
function agesAfter(endings: string): DeathAges {
  const ages = new DeathAges()
  endings.split(', ').forEach((ending, i) => {
    const [, org = '', aliveMs, deadMs, mintedAt = 1_000 * i] = /^(\S+) (\d+)-(\d+)@?(\d+)?$/.exec(ending) ?? []
    ages.add({ org, mintedAt: Number(mintedAt), aliveMs: Number(aliveMs), deadMs: Number(deadMs) }, 5)
  })
  return ages
}

test.each([
  ['three orgs at one age', 'a 90-101, b 95-100, c 80-104', 100],
  ['two orgs', 'a 90-101, b 95-100, b 80-104', undefined],
  ['three ages', 'a 90-100, b 190-200, c 290-300', undefined],
  ['one in five lives longer', 'a 90-100, b 90-100, c 90-100, c 90-100, d 150-160', 100],
  ['one in four lives longer', 'a 90-100, b 90-100, c 90-100, d 150-160', undefined],
  ['tokens that were not used for most of their lives', 'a 10-100, b 20-100, c 30-100', undefined],
  ['three orgs at one moment', 'a 90-100@0, b 90-100@0, c 90-100@1', undefined],
  ['three orgs at one moment, and one that was accepted then', 'a 90-100@0, b 90-100@0, c 90-100@1, d 90-100@50', 100],
  ['the same, told in another order', 'd 90-100@50, a 90-100@0, b 90-100@0, c 90-100@1', 100],
  ['two orgs at one moment, and one later', 'a 90-100@0, b 90-100@0, c 90-100@500', 100],
])('%s', (_, endings, endMs) => {
  expect(agesAfter(endings).endMs).toBe(endMs)
})

test('a token that lived when the others died, and is accepted later, tells that their age was the reason', () => {
  const ages = agesAfter('a 90-100@0, b 90-100@0, c 90-100@1')
  expect(ages).toMatchObject({ mayHaveDiedTogether: true, bornBefore: 90, diedAt: 120 })
  ages.noteSurvivor()
  expect(ages).toMatchObject({ mayHaveDiedTogether: false, endMs: 100 })
})

test('a token that is accepted at a greater age tells that this is not the age of all orgs, until a greater one is regular', () => {
  const ages = agesAfter('a 90-100, b 90-100, c 90-100')
  expect(ages).toMatchObject({ endMs: 100, endOfAllMs: 100, disprovedAfterMs: 130 })
  ages.disprove()
  expect(ages).toMatchObject({ endMs: 100, endOfAllMs: undefined })
  for (const org of [...'efghijklmnop']) ages.add({ org, mintedAt: 9_000, aliveMs: 190, deadMs: 200 }, 5)
  ages.noteSurvivor()
  expect(ages).toMatchObject({ endMs: 200, endOfAllMs: 200 })
})

test('the oldest endings are forgotten', () => {
  const old = Array.from({ length: 12 }, (_, i) => `old-${i} 90-100`)
  const young = Array.from({ length: 12 }, (_, i) => `young-${i} 45-50`)
  expect(agesAfter([...old, ...young].join(', ')).endMs).toBe(50)
})
