import { expect, test } from 'vitest'
import { gatherFields } from '../../../src/gateway/fields.ts'
import { collectGarbage } from '../../support/collect-garbage.ts'

// `test/program/behaviour/request-fields.test.ts` and `test/attacks` send the names that matter.
test('known names of request fields are recognized among very many others, which do not fill the memory', () => {
  const goesOn = (name: string) => gatherFields([name, '1']).kept.length > 0
  collectGarbage()
  const before = process.memoryUsage().heapUsed
  for (let i = 0; i < 2_000; i++) expect(goesOn(`${i}`.padStart(8_000, 'x'))).toBe(true)
  for (let i = 0; i < 200_000; i++) goesOn(`x-flood-${i}`)
  expect(goesOn('aUtHoRiZaTiOn')).toBe(false)
  collectGarbage()
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(4 * 1024 * 1024)
})
