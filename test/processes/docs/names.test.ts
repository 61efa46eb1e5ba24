/** The names of settings, variables, metrics, alerts, log lines, codes, scripts and attacks in the documents are those of the project. */

import { describe, expect, test } from 'vitest'
import { ADMIN_PROBLEMS } from '../../../src/admin/admin-server.ts'
import { Metrics } from '../../../src/admin/metrics.ts'
import { Warnings } from '../../../src/admin/warnings.ts'
import { settings } from '../../../src/config/settings.ts'
import { CONFIG_VARIABLE } from '../../../src/config/settings-file.ts'
import { PROBLEMS } from '../../../src/errors.ts'
import { projectFilesBelow, readManifest, readProjectFile } from '../../support/project-files.ts'
import { NO_GAUGES } from '../../units/admin/records.ts'
import { codeSpans, documentAt, documents, tableBetween, tablesBelow, unquoted } from './documents.ts'

const operations = documentAt('docs/operations.md')
const firstCells = (heading: string) => tablesBelow(operations, heading).map(([cell = '']) => unquoted(cell))

/** Two documents name settings and metrics of earlier versions. */
const ofNow = documents.filter(({ path }) => !['CHANGELOG.md', 'docs/upgrading.md'].includes(path))

describe('settings', () => {
  const keys = settings.map(({ key }) => key as string)
  const groups = new Set(settings.map(({ group }) => group))

  test('documents name only settings that exist', () => {
    const named = ofNow
      .flatMap(codeSpans)
      .map((span) => /^(\w+)\.\w+(?=$|: )/.exec(span))
      .flatMap((match) => (match !== null && groups.has(match[1]) ? [match[0]] : []))
    const isKnown = (name: string) => keys.some((key) => key === name || key.startsWith(`${name}.`))
    expect(named.filter((name) => !isKnown(name))).toEqual([])
  })

  test('documents name only variables that exist', () => {
    const known = [CONFIG_VARIABLE, 'OAP_CALLERS', ...settings.map(({ variable }) => variable)]
    const named = documents.flatMap(({ text }) => text.match(/\bOAP_[A-Z][A-Z_]*/g) ?? [])
    expect(named.filter((variable) => !known.includes(variable))).toEqual([])
  })
})

describe('metrics', () => {
  const families = [
    ...new Metrics({ hasFleet: true, isMinter: true, isSidecar: true }).families(NO_GAUGES, '0'),
    new Warnings([]).family(),
  ]
  const names = families.map(({ name }) => name)

  test('each has its row in Operations, and no other', () => {
    expect(firstCells('## Metrics').toSorted()).toEqual(names.toSorted())
  })

  test('documents name only metrics that exist', () => {
    const named = ofNow.flatMap(({ text }) => text.match(/\boap_\w+/g) ?? [])
    expect(named.filter((name) => !names.includes(name.replace(/_(bucket|sum|count)$/, '')))).toEqual([])
  })
})

describe('lines of the log', () => {
  /** A level and a literal message, with any arguments before it. */
  const CALL =
    /\blogger\s*\.(trace|debug|info|warn|error|fatal)\((?:[^'()]|\((?:[^()]|\([^()]*\))*\))*?'([^']+)',?\s*\)/g
  const sources = projectFilesBelow('src', '.ts').map(readProjectFile)
  const written = sources.flatMap((source) =>
    [...source.matchAll(CALL)].map(([, level, message]) => `${message} ${level}`),
  )
  const documented = tablesBelow(operations, '### Other lines')
    .filter(([line = '']) => line.startsWith('`'))
    .map(([line = '', level]) => `${unquoted(line)} ${level}`)

  test('each has its row in Operations, and no other', () => {
    expect(written.length).toBeGreaterThan(15)
    expect(documented.toSorted()).toEqual([...new Set(written)].sort())
  })
})

test('documents name only scripts that exist', () => {
  const { scripts } = readManifest()
  const named = documents.flatMap(({ text }) =>
    [...text.matchAll(/npm run ([a-z][\w:-]*)/g)].map(([, name = '']) => name),
  )
  expect(named.filter((name) => !Object.hasOwn(scripts, name))).toEqual([])
})

test('the table of Operations has exactly the codes of the program, with their statuses', () => {
  const rows = tableBetween(operations, 'codes').map(([status, code = '']) => `${unquoted(code)} ${status}`)
  expect(rows.sort()).toEqual(
    Object.entries(PROBLEMS)
      .map(([code, { status }]) => `${code} ${status}`)
      .sort(),
  )
  expect(codeSpans(operations)).toEqual(expect.arrayContaining(Object.keys(ADMIN_PROBLEMS)))
})

test('the threat model names a test for each protection, and has every attack that has a test', () => {
  const security = documentAt('docs/security.md')
  expect(codeSpans(security)).toEqual(expect.arrayContaining(projectFilesBelow('test/attacks', '.test.ts')))
  const rows = tablesBelow(security, '## The attacks, and what stops them')
  expect(rows.length).toBeGreaterThan(30)
  for (const row of rows) expect(row.at(-1)).toMatch(/^`test\/[\w/-]+\.test\.ts`/)
})

test('the areas of the mutants are files and tests of the project', () => {
  const areas: Record<string, { mutate: string[]; tests: string[] }> = JSON.parse(
    readProjectFile('test/mutants/areas.json'),
  )
  const files = [...projectFilesBelow('src', '.ts'), ...projectFilesBelow('test', '.ts')]
  const isThere = (glob: string) => {
    const text = glob.replace(/[.[\]]/g, '\\$&').replace(/\*\*\/|\*/g, (star) => (star === '*' ? '[^/]*' : '(?:.*/)?'))
    return files.some((file) => new RegExp(`^${text}$`).test(file))
  }
  const named = Object.values(areas).flatMap(({ mutate, tests }) => [...mutate, ...tests])
  expect(named.filter((glob) => !isThere(glob))).toEqual([])
  const chosen: { area: string; file: string }[] = JSON.parse(readProjectFile('test/mutants/chosen.json'))
  expect(chosen.filter(({ area, file }) => !Object.hasOwn(areas, area) || !files.includes(file))).toEqual([])
})
