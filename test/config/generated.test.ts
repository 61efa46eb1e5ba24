/** What is generated must say what the declaration says: `npm run generate` brings it up to date. */

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { loadConfig } from '../../src/config/load.ts'
import { renderReference, renderSchema, renderSettingsTable, withSettingsTable } from '../../src/config/render.ts'
import { nearest, settings } from '../../src/config/settings.ts'
import { makeFolder } from './folder.ts'
import { GOOD } from './refusal.ts'

const root = new URL('../../', import.meta.url)

describe('the generated files', () => {
  test('config/schema.json is what the declaration says', async () => {
    expect(await readFile(new URL('config/schema.json', root), 'utf8')).toBe(renderSchema())
  })

  test('config/reference.yaml is what the declaration says', async () => {
    expect(await readFile(new URL('config/reference.yaml', root), 'utf8')).toBe(renderReference())
  })

  test.each(['README.md', 'docs/configuration.md'].filter((name) => existsSync(new URL(name, root))))(
    'the table in %s is what the declaration says',
    async (name) => {
      const document = await readFile(new URL(name, root), 'utf8')
      expect(withSettingsTable(document)).toBe(document)
    },
  )

  test('a document without marks has no table to bring up to date', () => {
    expect(withSettingsTable('# Title\n')).toBeUndefined()
    const [before, after] = ['# Title\n', '\nEnd.\n']
    const document = `${before}<!-- settings:begin -->\nold\n<!-- settings:end -->${after}`
    expect(withSettingsTable(document)).toBe(`${before}${renderSettingsTable()}${after}`)
  })
})

describe('the reference file', () => {
  test('loads, and leaves every setting at its default', async () => {
    await using folder = await makeFolder()
    const file = await folder.write('reference.yaml', renderReference())
    const { config, texts, sources } = await loadConfig({ file, env: GOOD })
    const byDefault = await loadConfig({ env: GOOD })
    expect(config).toEqual(byDefault.config)
    expect(texts).toEqual(byDefault.texts)
    for (const { key, fallback } of settings) {
      expect([key, sources.get(key)?.kind]).toEqual([
        key,
        fallback === undefined ? byDefault.sources.get(key)?.kind : 'file',
      ])
    }
  })

  test('names every setting and its variable', () => {
    expect(renderReference()).not.toContain('undefined')
    for (const { name, variable } of settings) {
      if (variable !== undefined) expect(renderReference()).toContain(`# ${variable}\n`)
      if (name !== 'appSecret') expect(renderReference()).toMatch(new RegExp(`^ *(# )?${name}: `, 'm'))
    }
  })
})

describe('the schema', () => {
  const { properties: top } = parse(renderSchema()) as { properties: Record<string, { properties?: object }> }

  test('has all keys but the one that a file must not hold, and permits no other', () => {
    const keys = Object.entries(top).flatMap(([name, { properties }]) =>
      properties === undefined ? [name] : Object.keys(properties).map((inner) => `${name}.${inner}`),
    )
    expect(keys).toEqual(settings.map(({ key }) => key).filter((key) => key !== 'appSecret'))
    expect(renderSchema().match(/"additionalProperties": false/g)).toHaveLength(13)
    expect(renderSchema()).not.toContain('"required"')
  })

  test('tells an editor the units, the choices and the limits', () => {
    const headersTimeout = { type: 'string', default: '10s', pattern: expect.stringContaining('ms|s|m|h') }
    const maxInFlight = { type: 'integer', default: 2048, minimum: 1 }
    expect(top).toMatchObject({
      listen: { properties: { headersTimeout, maxInFlight } },
      log: { properties: { format: { enum: ['json', 'pretty'] } } },
    })
  })
})

test('every setting is described in one sentence', () => {
  for (const { key, description } of settings)
    expect([key, description]).toEqual([key, expect.stringMatching(/^[^\n|]+\.$/)])
})

test('the table has a row for every setting', () => {
  const rows = renderSettingsTable().split('\n').slice(3, -1)
  expect(rows.map((row) => row.split('`')[1])).toEqual(settings.map(({ key }) => key))
  for (const row of rows) expect(row.split(/(?<!\\)\|/)).toHaveLength(5)
})

describe('the nearest name', () => {
  const known = settings.map(({ key }) => key)
  test.each([
    ['listen.adress', 'listen.address'],
    ['tokens.maxorgs', 'tokens.maxOrgs'],
    ['token.maxOrgs', 'tokens.maxOrgs'],
    ['appid', 'appId'],
    ['baseURL', 'baseUrl'],
    ['base_url', 'baseUrl'],
    ['x', undefined],
    ['', undefined],
    ['entirely.something.else', undefined],
    ['l'.repeat(10_000), undefined],
  ])('of %s is %s', (name, expected) => {
    expect(nearest(name, known)).toBe(expected)
  })
})
