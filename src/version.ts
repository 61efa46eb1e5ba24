/** The version of this program, from the package that it was installed as. */

import { createRequire } from 'node:module'

/** Set by rolldown.config.ts when the program is built. */
declare const BUILD_REVISION: string

/** The commit that the program was built from. */
export const revision = typeof BUILD_REVISION === 'string' ? BUILD_REVISION : 'unknown'

export function readVersion(): string {
  // By its own name: the built program has fewer folders than its source.
  const { version }: { version: string } = createRequire(import.meta.url)('org-access-proxy/package.json')
  return version
}
