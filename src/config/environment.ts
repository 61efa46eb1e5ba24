/** Settings in environment variables: `OAP_` and the key's path in upper snake case. */

import type { Given } from './given.ts'
import { nearest } from './nearest.ts'
import { type Notation, type SettingKey, settings } from './settings.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** Names the config file; the only `OAP_` variable that is not a setting. */
export const CONFIG_VARIABLE = 'OAP_CONFIG'

/** An empty variable is what compose and shells make of one that is not set, and is taken so. */
export function readEnvironment(env: Environment): ReadonlyMap<SettingKey, Given> {
  const values = new Map<SettingKey, Given>()
  for (const { key, variable, notation } of settings) {
    const text = env[variable] ?? ''
    if (text !== '') values.set(key, { value: decode(text, notation), source: { kind: 'environment', variable } })
  }
  return values
}

/** What cannot be decoded stays text, so that the setting's own check says what is wrong with it. */
function decode(text: string, notation: Notation): unknown {
  switch (notation) {
    case 'text':
      return text
    case 'number':
      return /^\d+(\.\d+)?$/.test(text) ? Number(text) : text
    case 'flag':
      return text === 'true' ? true : text === 'false' ? false : text
    case 'text list':
      return items(text)
    case 'number list':
      return items(text).map((item) => decode(item, 'number'))
  }
}

function items(text: string): string[] {
  return text.split(',').map((item) => item.trim())
}

/** Told, because what was meant to be bounded by one of them is not. */
export function emptyVariables(env: Environment): string[] {
  const empty = settings.map((setting) => setting.variable).filter((variable) => env[variable] === '')
  return empty.length === 0 ? [] : [`set to nothing, which counts as not set: ${empty.join(', ')}`]
}

/** Warned about only: Kubernetes sets `OAP_…` variables of its own for a service of that name. */
export function unknownVariables(env: Environment): string[] {
  const known = [CONFIG_VARIABLE, ...settings.map((setting) => setting.variable)]
  return Object.keys(env)
    .filter((name) => name.startsWith('OAP_') && !known.includes(name))
    .sort()
    .map((name) => {
      const meant = nearest(name, known)
      return `${name} is no setting and is ignored${meant === undefined ? '' : `: did you mean ${meant}?`}`
    })
}
