/** The generated files match the declaration. `npm run generate` runs this test so that it writes them. */

import { readFile } from 'node:fs/promises'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { loadConfig } from '../../../src/config/load.ts'
import { settings } from '../../../src/config/settings.ts'
import { makeFolder } from '../../support/folder.ts'
import { GOOD } from './refusal.ts'
import {
  renderReference,
  renderSchema,
  renderSettingNames,
  renderSettingsTable,
  withSettingsTable,
} from './rendered.ts'

describe('the generated files are up to date', () => {
  test('config/schema.json', async () => {
    await expect(renderSchema()).toMatchFileSnapshot('../../../config/schema.json')
  })

  test('config/reference.yaml', async () => {
    await expect(renderReference()).toMatchFileSnapshot('../../../config/reference.yaml')
  })

  test.each([
    ['README.md', renderSettingNames],
    ['docs/configuration.md', renderSettingsTable],
  ])('the table in %s', async (name, render) => {
    const path = `../../../${name}`
    const document = await readFile(new URL(path, import.meta.url), 'utf8')
    await expect(withSettingsTable(document, render())).toMatchFileSnapshot(path)
  })
})

describe('the reference file', () => {
  test('loads, and changes no default', async () => {
    await using folder = await makeFolder()
    const file = await folder.write('reference.yaml', renderReference())
    const { config, given } = await loadConfig({ file, env: GOOD })
    const byDefault = await loadConfig({ env: GOOD })
    expect(config).toEqual(byDefault.config)
    for (const { key, defaultValue } of settings) {
      const { text, source = '' } = given.get(key) ?? {}
      const former = byDefault.given.get(key)
      const isInFile = defaultValue !== undefined && key !== 'callers' && key !== 'tokens.rejectedStatuses'
      expect([key, text, source]).toEqual([
        key,
        former?.text,
        isInFile ? expect.stringContaining(file) : former?.source,
      ])
    }
  })
})

describe('the schema', () => {
  test('accepts the reference file, as an editor reads it', () => {
    const schema = z.fromJSONSchema(JSON.parse(renderSchema()))
    expect(schema.safeParse(parse(renderReference())).error?.issues ?? []).toEqual([])
  })

  type Shape = { readonly [name: string]: { readonly properties?: Shape } }
  const { properties: top } = parse(renderSchema()) as { properties: Shape }

  test('has all keys except the one that must not be in a file, and permits no other', () => {
    const keysIn = (shape: Shape, prefix = ''): string[] =>
      Object.entries(shape).flatMap(([name, { properties }]) =>
        properties === undefined ? [`${prefix}${name}`] : keysIn(properties, `${prefix}${name}.`),
      )
    const keys = keysIn(top)
    expect(keys).toEqual(settings.map(({ key }) => key).filter((key) => key !== 'appSecret'))
    expect(renderSchema().match(/"additionalProperties": false/g)).toHaveLength(18)
    expect(renderSchema()).not.toContain('"required"')
  })
})

test('every setting is described in one sentence', () => {
  for (const { key, description } of settings)
    expect([key, description]).toEqual([key, expect.stringMatching(/^[^\n|]+\.$/)])
})
