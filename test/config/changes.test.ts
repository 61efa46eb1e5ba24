import { expect, test } from 'vitest'
import { RELOADABLE, withReloadable } from '../../src/config/changes.ts'
import type { Config } from '../../src/config/schema.ts'
import { settings } from '../../src/config/settings.ts'

type Marked = { [name: string]: Marked | string }

/** A configuration in which each setting has the value `${mark} ${key}`. */
function markedConfig(mark: string): Marked {
  const config: Marked = {}
  for (const { key, group, name } of settings) {
    let inner = config
    for (const step of group?.split('.') ?? []) {
      const next = typeof inner[step] === 'object' ? inner[step] : {}
      inner[step] = next
      inner = next
    }
    inner[name] = `${mark} ${key}`
  }
  return config
}

function valuesIn(config: Marked): string[] {
  return Object.values(config).flatMap((value) => (typeof value === 'object' ? valuesIn(value) : (value ?? [])))
}

test('a reload applies the settings that need no restart, and keeps all others', () => {
  const [running, latest] = [markedConfig('running'), markedConfig('latest')]
  const expected = settings.map(({ key }) => `${RELOADABLE.has(key) ? 'latest' : 'running'} ${key}`)
  const result = withReloadable(running as unknown as Config, latest as unknown as Config)
  expect(valuesIn(result as unknown as Marked).sort()).toEqual(expected.sort())
})
