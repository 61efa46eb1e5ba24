/** The table of parts in `docs/architecture.md` says who may import whom, and the linter's rules are made from it. */

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
const ENTRIES = ['main.ts', 'keep-inspector-closed.ts']
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

test('biome.json', async () => {
  const given = JSON.parse(readProjectFile('biome.json'))
  const others = given.overrides.filter((override: unknown) => !JSON.stringify(override).includes(RULE))
  const rendered = { ...given, overrides: [...others, ...importRules()] }
  await expect(`${JSON.stringify(rendered, null, 2)}\n`).toMatchFileSnapshot('../../../biome.json')
})

const RULE = 'noRestrictedImports'

function importRules(): object[] {
  const known = [...ground, GRAMMAR]
  return [
    importRule(
      ground.map((name) => `src/${name}`),
      ['./**', '!./clock.ts'],
    ),
    importRule([`${PAGE}**`], ['../../**']),
    ...[...table].flatMap(([folder, entries]) => {
      if (folder === GRAMMAR) return importRule([`src/${folder}**`], allBut(ground))
      if (folder === 'admin/') return importRule([`src/${folder}**`, `!${PAGE}**`], allBut([...known, ...entries]))
      if (folder !== 'sandbox/') return importRule([`src/${folder}**`], allBut([...known, ...entries]))
      const others = importRule([`src/${folder}**`, ...STARTERS.map((path) => `!${path}`)], ['../**'])
      return [others, importRule(STARTERS, allBut([...entries, ...ENTRIES]))]
    }),
  ]
}

function importRule(includes: readonly string[], group: readonly string[]): object {
  const message = 'docs/architecture.md has the table of imports'
  const options = { patterns: [{ group, message }] }
  return { includes, linter: { rules: { style: { [RULE]: { level: 'error', options } } } } }
}

function allBut(entries: readonly string[]): string[] {
  return ['../**', ...entries.map((entry) => `!../${entry.endsWith('/') ? `${entry}**` : entry}`)]
}

/** Undefined for a file beside the folders. */
function folderOf(path: string): string | undefined {
  const [, folder, file] = path.split('/')
  return file === undefined ? undefined : `${folder}/`
}

function importsOf(path: string): string[] {
  const named = readProjectFile(path).matchAll(/(?:from |import\(|import )'(\.[^']+)'/g)
  return [...named].map(([, target = '']) => join(dirname(path), target))
}
