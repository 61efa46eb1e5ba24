/** The table of parts in `docs/architecture.md` says who may import whom. */

import { dirname, join } from 'node:path/posix'
import { expect, test } from 'vitest'
import { projectFilesBelow, readProjectFile } from '../../support/project-files.ts'
import { codeSpans, documentAt, tablesBelow, unquoted } from './documents.ts'

const page = documentAt('docs/architecture.md')
/** By folder: the folders, and the single files, that it may import. */
const table = new Map(
  tablesBelow(page, '## The parts').map(([folder = '', , imports = '']) => [
    unquoted(folder),
    imports === '' ? [] : imports.split(', ').map(unquoted),
  ]),
)

const beside = projectFilesBelow('src', '.ts').filter((path) => dirname(path) === 'src')
const fileNames = beside.map((path) => path.slice('src/'.length))
/** They begin a process. */
const ENTRIES = ['main.ts', 'early-signals.ts']
const ground = fileNames.filter((name) => !ENTRIES.includes(name))
const GRAMMAR = 'http1/'
const PAGE = 'src/admin/page/'
/** Files of the sandbox that start the proxy, and the type of its settings file. */
const STARTERS = ['demo', 'testing', 'config-file'].map((name) => `src/sandbox/${name}.ts`)

/** The names in each line of the diagram. */
const lines = (/```text\n([^`]+)```/.exec(page.text)?.[1] ?? '')
  .trim()
  .split('\n')
  .map((line) => line.split(/ +/))

test('the diagram and the table have each folder, and the diagram each file that others import', () => {
  const folders = new Set(projectFilesBelow('src', '.ts').flatMap((path) => folderOf(path) ?? []))
  expect([...table.keys()].sort()).toEqual([...folders].sort())
  expect(lines.flat().sort()).toEqual([...folders, ...ground, 'main.ts'].sort())
  expect(codeSpans(page)).toEqual(expect.arrayContaining(ENTRIES))
})

test('every import points down', () => {
  const lineOf = (name: string) => lines.findIndex((names) => names.includes(name))
  for (const [folder, entries] of table) {
    for (const entry of entries) {
      const to = entry.slice(0, entry.indexOf('/') + 1)
      expect([folder, entry, lineOf(to) > lineOf(folder)]).toEqual([folder, entry, true])
    }
  }
})

test('the table has every import between folders, and nothing else', () => {
  const used = new Map([...table.keys()].map((folder) => [folder, new Set<string>()]))
  const strange: string[] = []
  for (const path of projectFilesBelow('src', '.ts').filter((file) => !file.startsWith(PAGE))) {
    const from = folderOf(path)
    if (from === undefined) continue
    for (const target of importsOf(path).filter((file) => folderOf(file) !== from)) {
      const name = target.slice('src/'.length)
      const entry = table.get(from)?.find((allowed) => name.startsWith(allowed))
      if (entry !== undefined) used.get(from)?.add(entry)
      else if (folderOf(target) !== undefined && folderOf(target) !== GRAMMAR) strange.push(`${path}: ${name}`)
    }
  }
  expect(strange).toEqual([])
  const sorted = (lists: Iterable<readonly [string, Iterable<string>]>) =>
    Object.fromEntries([...lists].map(([folder, entries]) => [folder, [...entries].sort()]))
  expect(sorted(used)).toEqual(sorted(table))
})

test('no import is against the text below the table', () => {
  const isGood = (path: string, target: string) => {
    if (path.startsWith(PAGE)) return target.startsWith('src/admin/')
    if (ground.some((name) => path === `src/${name}`)) return lines.at(-1)?.includes(target.slice('src/'.length))
    if (path.startsWith('src/sandbox/') && !STARTERS.includes(path)) return target.startsWith('src/sandbox/')
    return folderOf(target) !== undefined || ground.some((name) => target === `src/${name}`) || STARTERS.includes(path)
  }
  const found = projectFilesBelow('src', '.ts')
    .filter((path) => path !== 'src/main.ts')
    .flatMap((path) => importsOf(path).flatMap((target) => (isGood(path, target) ? [] : `${path}: ${target}`)))
  expect(found).toEqual([])
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
