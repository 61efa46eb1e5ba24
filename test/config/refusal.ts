/** The lines of a refused configuration. */

import { expect } from 'vitest'
import { type LoadOptions, loadConfig } from '../../src/config/load.ts'
import { ConfigRefused, describeProblem } from '../../src/config/problem.ts'

/** The smallest environment that is accepted. */
export const GOOD = {
  OAP_APP_ID: 'my-app',
  OAP_APP_SECRET: 'correct horse battery staple',
  OAP_BASE_URL: 'https://api.example.com',
}

export async function refusalOf(options: LoadOptions): Promise<string[]> {
  const refused = await loadConfig(options).then(
    () => expect.fail('the configuration was accepted'),
    (error: unknown) => error,
  )
  if (!(refused instanceof ConfigRefused)) throw refused
  return refused.problems.map(describeProblem)
}

/** The smallest environment, with one more variable. */
export function refusalWith(variables: Record<string, string>): Promise<string[]> {
  return refusalOf({ env: { ...GOOD, ...variables } })
}
