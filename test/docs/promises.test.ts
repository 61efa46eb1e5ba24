/**
 * `test/README.md` leads from each topic of the documents to its tests. It must name every test file, and only files that
 * exist.
 */

import { expect, test } from 'vitest'
import { projectFilesBelow } from '../support/project-files.ts'
import { documentAt, tablesBelow } from './documents.ts'

const rows = tablesBelow(documentAt('test/README.md'), '## Promises and their tests')
const named = rows.map(([topic = '', tests = '']) => ({ topic, places: tests.split(', ').map(unquoted) }))
const files = projectFilesBelow('test', '.test.ts')

test('each topic names tests that exist', () => {
  expect(rows.length).toBeGreaterThan(30)
  const missing = named.flatMap(({ places }) => places).filter((place) => !files.some((file) => isAt(file, place)))
  expect(missing).toEqual([])
})

test('each test file belongs to a topic', () => {
  const places = named.flatMap(({ places }) => places)
  expect(files.filter((file) => !places.some((place) => isAt(file, place)))).toEqual([])
})

test('each file about the whole program is named itself, not only its folder', () => {
  const places = new Set(named.flatMap(({ places }) => places))
  const whole = files.filter((file) => /^test\/(behaviour|tokens)\//.test(file))
  expect(whole.filter((file) => !places.has(file.slice('test/'.length)))).toEqual([])
})

/** `place` is a file, or a folder with a slash at its end. */
function isAt(file: string, place: string): boolean {
  const path = `test/${place}`
  return place.endsWith('/') ? file.startsWith(path) : file === path
}

function unquoted(cell: string): string {
  return cell.replaceAll('`', '')
}
