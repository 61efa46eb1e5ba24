import { expect, test } from 'vitest'
import { DeathAges } from '../../src/token/death-ages.ts'

function agesAfter(endings: readonly [org: string, aliveMs: number, deadMs: number][]): number | undefined {
  const ages = new DeathAges({ capacity: 12, minDeaths: 3, minOrgs: 3, tolerance: 0.05 })
  for (const [org, aliveMs, deadMs] of endings) ages.add({ org, aliveMs, deadMs })
  return ages.endMs
}

test.each<[string, readonly [string, number, number][], number | undefined]>([
  [
    'three orgs at one age',
    [
      ['a', 90, 101],
      ['b', 95, 100],
      ['c', 80, 104],
    ],
    100,
  ],
  [
    'two orgs',
    [
      ['a', 90, 101],
      ['b', 95, 100],
      ['b', 80, 104],
    ],
    undefined,
  ],
  [
    'three ages',
    [
      ['a', 90, 100],
      ['b', 190, 200],
      ['c', 290, 300],
    ],
    undefined,
  ],
  [
    'one in five lives longer',
    [
      ['a', 90, 100],
      ['b', 90, 100],
      ['c', 90, 100],
      ['c', 90, 100],
      ['d', 150, Infinity],
    ],
    100,
  ],
  [
    'one in four lives longer',
    [
      ['a', 90, 100],
      ['b', 90, 100],
      ['c', 90, 100],
      ['d', 150, Infinity],
    ],
    undefined,
  ],
  [
    'tokens that were not used for most of their lives',
    [
      ['a', 10, 100],
      ['b', 20, 100],
      ['c', 30, 100],
    ],
    undefined,
  ],
])('%s', (_, endings, endMs) => {
  expect(agesAfter(endings)).toBe(endMs)
})

test('the oldest endings are forgotten', () => {
  const old = Array.from({ length: 12 }, (_, i): [string, number, number] => [`old-${i}`, 90, 100])
  const young = Array.from({ length: 12 }, (_, i): [string, number, number] => [`young-${i}`, 45, 50])
  expect(agesAfter([...old, ...young])).toBe(50)
})
