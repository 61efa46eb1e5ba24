/** What was given for a key, before anybody looked whether it is right. */

import type { Problem, Source } from './problem.ts'
import type { SettingKey } from './settings.ts'

export interface Given {
  readonly value: unknown
  readonly source: Source
}

/** What one place (the file, the environment) gives. */
export interface GivenSettings {
  readonly values: ReadonlyMap<SettingKey, Given>
  readonly problems: readonly Problem[]
}
