/** The documents have exactly the codes of the program, with their statuses. */

import { expect, test } from 'vitest'
import { ADMIN_PROBLEMS } from '../../src/admin/admin-server.ts'
import { PROBLEMS } from '../../src/errors.ts'
import { codeSpans, documentAt, tableBetween } from './documents.ts'

const statusByCode = Object.entries(PROBLEMS)
  .map(([code, { status }]) => `${code} ${status}`)
  .sort()

test('in the table of Operations', () => {
  const rows = tableBetween(documentAt('docs/operations.md'), 'codes')
  expect(rows.map(([status, code = '']) => `${unquoted(code)} ${status}`).sort()).toEqual(statusByCode)
})

test('the codes of the admin listener alone are named', () => {
  const own = Object.keys(ADMIN_PROBLEMS).filter((code) => !Object.hasOwn(PROBLEMS, code))
  expect(codeSpans(documentAt('docs/operations.md'))).toEqual(expect.arrayContaining(own))
})

function unquoted(cell: string): string {
  return cell.replaceAll('`', '')
}
