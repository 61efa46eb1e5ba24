/** The table of parts in `docs/architecture.md` has every folder of the source, and the imports between them. */

import { dirname, join } from 'node:path/posix'
import { expect, test } from 'vitest'
import { projectFilesBelow, readProjectFile } from '../support/project-files.ts'
import { codeSpans, documentAt, tablesBelow, unquoted } from './documents.ts'

/** Folders that are no part of the program: declarations of types, and the page, which a browser runs. */
const NO_PART = /^src\/(?:types|admin\/page)\//
/** Every folder may import these. */
const SHARED = 'http1/'

const page = documentAt('docs/architecture.md')
const described = new Map(
  tablesBelow(page, '## The parts').map(([folder = '', , imports = '']) => [
    unquoted(folder),
    imports === '' ? [] : imports.split(', ').map(unquoted),
  ]),
)

test('each folder is in the table, with its imports', () => {
  const actual = new Map<string, Set<string>>()
  for (const path of projectFilesBelow('src', '.ts').filter((file) => !NO_PART.test(file))) {
    const from = folderOf(path)
    if (from === undefined) continue
    const imports = actual.get(from) ?? new Set()
    actual.set(from, imports)
    for (const target of importsOf(path)) {
      const to = folderOf(target)
      if (to !== undefined && to !== from && to !== SHARED) imports.add(to)
    }
  }
  const sorted = [...actual].map(([folder, imports]) => [folder, [...imports].sort()] as const)
  expect(Object.fromEntries(described)).toEqual(Object.fromEntries(sorted))
})

test('each file beside the folders is named', () => {
  const beside = projectFilesBelow('src', '.ts').filter((path) => dirname(path) === 'src')
  expect(codeSpans(page)).toEqual(expect.arrayContaining(beside.map((path) => path.slice('src/'.length))))
})

/** Undefined for a file beside the folders. */
function folderOf(path: string): string | undefined {
  const [, folder, file] = path.split('/')
  return file === undefined ? undefined : `${folder}/`
}

function importsOf(path: string): string[] {
  const named = readProjectFile(path).matchAll(/(?:from |import\(|import )'(\.[^']+)'/g)
  return [...named].map(([, target = '']) => join(dirname(path), target))
}
