import { expect, test } from 'vitest'
import { RELOADABLE, withReloadable } from '../../src/config/changes.ts'
import type { Config } from '../../src/config/schema.ts'
import { settings } from '../../src/config/settings.ts'

/** A configuration in which each setting has the value `${mark} ${key}`. */
function markedConfig(mark: string): Record<string, unknown> {
  const config: Record<string, Record<string, unknown> | string> = {}
  for (const { key, group, name } of settings) {
    if (group === undefined) config[name] = `${mark} ${key}`
    else config[group] = { ...(config[group] as object), [name]: `${mark} ${key}` }
  }
  return config
}

test('a reload applies the settings that need no restart, and keeps all others', () => {
  const [running, latest] = [markedConfig('running'), markedConfig('latest')]
  const expected = settings.map(({ key }) => `${RELOADABLE.has(key) ? 'latest' : 'running'} ${key}`)
  const result = Object.values(withReloadable(running as unknown as Config, latest as unknown as Config))
  const values = result.flatMap((value) => (typeof value === 'string' ? [value] : Object.values(value)))
  expect(values.filter((value) => value !== undefined).sort()).toEqual(expected.sort())
})
