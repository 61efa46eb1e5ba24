/** What was given for a key, before anybody looked whether it is right. */

import type { Source } from './problem.ts'

export interface Given {
  readonly value: unknown
  readonly source: Source
}
