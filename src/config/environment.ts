/** Settings in environment variables: `OAP_` and the key's path in upper snake case. */

import type { Given, GivenSettings } from './given.ts'
import { nearest } from './nearest.ts'
import type { Problem } from './problem.ts'
import { type Notation, type SettingKey, settings } from './settings.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** Names the config file; the only `OAP_` variable that is not a setting. */
export const CONFIG_VARIABLE = 'OAP_CONFIG'

export function readEnvironment(env: Environment): GivenSettings {
  const values = new Map<SettingKey, Given>()
  const problems: Problem[] = []
  for (const { key, variable, notation } of settings) {
    const text = env[variable]
    if (text === undefined) continue
    const source = { kind: 'environment', variable } as const
    if (text === '') problems.push({ key, source, message: 'is set but empty: give it a value, or unset it' })
    else values.set(key, { value: decode(text, notation), source })
  }
  return { values, problems }
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
