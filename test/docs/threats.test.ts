/** The threat model names a test for each protection, and contains every attack that has a test. */

import { expect, test } from 'vitest'
import { projectFilesBelow } from '../support/project-files.ts'
import { codeSpans, documentAt, tablesBelow } from './documents.ts'

const security = documentAt('docs/security.md')

test('every advisory is in the threat model', () => {
  expect(codeSpans(security)).toEqual(expect.arrayContaining(projectFilesBelow('test/advisory', '.test.ts')))
})

test('every row of the threat model names its test', () => {
  const rows = tablesBelow(security, '## The attacks, and what stops them')
  expect(rows.length).toBeGreaterThan(30)
  for (const row of rows) expect(row.at(-1)).toMatch(/^`test\/[\w/-]+\.test\.ts`/)
})
