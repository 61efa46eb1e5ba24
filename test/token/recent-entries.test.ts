import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { OrgId } from '../../src/http/org-id.ts'
import { AccessToken } from '../../src/token/access-token.ts'
import { RecentEntries } from '../../src/token/recent-entries.ts'
import { TokenEntry } from '../../src/token/token-entry.ts'

const ORGS = 14

/** The same by its definition: a list, the most recently used first. */
class Model {
  readonly evicted: OrgId[] = []
  orgs: OrgId[] = []
  readonly #max: number

  constructor(max: number) {
    this.#max = max
  }

  use(org: OrgId): void {
    if (this.orgs.includes(org)) this.orgs = [org, ...this.orgs.filter((other) => other !== org)]
  }

  add(org: OrgId): void {
    this.orgs = [org, ...this.orgs]
    const last = this.orgs[this.#max]
    if (last === undefined) return
    this.orgs.pop()
    this.evicted.push(last)
  }
}

type Step = readonly ['use' | 'look' | 'delete' | 'list' | 'clear', number]

const step: fc.Arbitrary<Step> = fc.tuple(
  fc.oneof(
    { weight: 30, arbitrary: fc.constant('use' as const) },
    { weight: 4, arbitrary: fc.constantFrom('look' as const, 'list' as const, 'delete' as const) },
    { weight: 1, arbitrary: fc.constant('clear' as const) },
  ),
  fc.integer({ min: 0, max: ORGS - 1 }),
)

describe('entries by their last use', () => {
  test('are evicted and listed as by a plain list, wherever the order is numbered, renumbered or kept', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 2 * ORGS + 2 }),
        fc.integer({ min: 2 * ORGS, max: 80 }),
        fc.array(step, { maxLength: 200, size: 'max' }),
        (max, maxUses, steps) => {
          const evicted: OrgId[] = []
          const entries = new RecentEntries({ max, maxUses, onEvict: (org) => evicted.push(org) })
          const model = new Model(max)
          const listed = () => entries.list().map((entry) => entry.org)
          for (const [action, number] of steps) {
            const org = `org-${number}` as OrgId
            switch (action) {
              case 'use':
                if (entries.get(org) === undefined) {
                  entries.add(entryOf(org))
                  model.add(org)
                } else model.use(org)
                break
              case 'look':
                expect(entries.peek(org) !== undefined).toBe(model.orgs.includes(org))
                expect(entries.has(org)).toBe(model.orgs.includes(org))
                break
              case 'delete':
                expect(entries.delete(org)).toBe(model.orgs.includes(org))
                model.orgs = model.orgs.filter((other) => other !== org)
                break
              case 'list':
                expect(listed()).toEqual(model.orgs)
                break
              case 'clear':
                entries.clear()
                model.orgs = []
                break
            }
            expect(entries.size).toBe(model.orgs.length)
          }
          expect(evicted).toEqual(model.evicted)
          expect(listed()).toEqual(model.orgs)
        },
      ),
      { numRuns: 500 },
    )
  })

  test('of two thousand and more, the order is that of the uses', () => {
    const evicted: OrgId[] = []
    const max = 10_000
    const entries = new RecentEntries({ max, onEvict: (org) => evicted.push(org) })
    const orgs = Array.from({ length: max }, (_, i) => `org-${i}` as OrgId)
    for (const org of orgs.slice(0, 2_000)) entries.add(entryOf(org))
    entries.get('org-0' as OrgId)
    for (const org of orgs.slice(2_000)) entries.add(entryOf(org))
    expect(entries.list().at(-1)?.org).toBe('org-1')
    entries.get('org-1' as OrgId)
    for (const number of [1, 2, 3]) entries.add(entryOf(`new-${number}` as OrgId))
    expect(evicted).toEqual(['org-2', 'org-3', 'org-4'])
    expect(entries.list().at(-1)?.org).toBe('org-5')
  })

  test('of two orgs with one place in the table, each is found as its own', () => {
    // So many that a fifth of them share theirs, and not so many that the table is given up.
    const orgs = Array.from({ length: 2_000 }, (_, i) => `org-${i}` as OrgId)
    const entries = new RecentEntries({ max: 10_000, onEvict: () => undefined })
    for (const org of orgs) entries.add(entryOf(org))
    for (const org of [...orgs, ...orgs.toReversed()]) {
      expect(entries.get(org)?.org).toBe(org)
      expect(entries.peek(org)?.org).toBe(org)
    }
    for (const org of orgs) {
      entries.delete(org)
      expect(entries.get(org)).toBeUndefined()
    }
    expect(entries.size).toBe(0)
  })

  test.each([
    { max: 2, left: ['second', 'third'] },
    { max: 8, left: ['first', 'second', 'third'] },
  ])('with room for $max, what was evicted or deleted is not held anywhere', async ({ max, left }) => {
    const entries = new RecentEntries({ max, onEvict: () => undefined })
    const added = (['first', 'deleted', 'second', 'third'] as OrgId[]).map((org) => {
      const entry = entryOf(org)
      entries.add(entry)
      if (org === 'deleted') {
        entries.get(org)
        entries.delete(org)
      }
      return new WeakRef(entry)
    })
    await collectGarbage()
    expect(added.flatMap((entry) => entry.deref()?.org ?? [])).toEqual(left)
    expect(entries.size).toBe(left.length)
  })
})

function entryOf(org: OrgId): TokenEntry {
  return new TokenEntry(org, new AccessToken(`token-of-${org}`, 0), 1)
}

/** What a `WeakRef` was made for in this turn of the loop is kept for its length. */
async function collectGarbage(): Promise<void> {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  await new Promise(setImmediate)
  collect()
}
