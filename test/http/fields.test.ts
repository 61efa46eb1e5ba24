import { expect, test } from 'vitest'
import { gatherFields, isFieldValue } from '../../src/http/fields.ts'

// `test/behaviour/request-fields.test.ts` and `test/advisory` send the names that matter.
test('known names of request fields are recognized among very many others', () => {
  const goesOn = (name: string) => gatherFields([name, '1']).kept.length > 0
  for (let i = 0; i < 5_000; i++) expect(goesOn(`x-flood-${i}`)).toBe(true)
  expect(goesOn('aUtHoRiZaTiOn')).toBe(false)
})

test('field values', () => {
  expect(isFieldValue('a \t b\u00ff')).toBe(true)
  for (const bad of ['\u0000', '\r', '\n', '\u007f', '\u0100']) expect(isFieldValue(`a${bad}b`)).toBe(false)
})
