import { expect, test } from 'vitest'
import type { OrgId } from '../../../src/org-id.ts'
import { groupedByCause } from '../../../src/token/token-warnings.ts'

test('causes are read once for each Org, however many differ', () => {
  let reads = 0
  const troubled = Array.from({ length: 1_000 }, (_, index) => ({
    org: `org-${index}` as OrgId,
    error: {
      code: 'org_access_refused' as const,
      get hint() {
        reads++
        return `number ${index % 500}`
      },
    },
    since: 1_000 - index,
  }))
  const groups = groupedByCause(troubled)
  expect(groups.size).toBe(500)
  expect(groups.get('number 3')).toEqual({ orgs: ['org-3', 'org-503'], since: 497 })
  expect(reads).toBe(1_000)
})
