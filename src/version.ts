/** The version of this program, and the commit that it was built from. */

import { readFileSync } from 'node:fs'

/** Both are set by rolldown.config.ts when the program is built. */
declare const BUILD_VERSION: string
declare const BUILD_REVISION: string

export const revision = typeof BUILD_REVISION === 'string' ? BUILD_REVISION : 'unknown'

export function readVersion(): string {
  if (typeof BUILD_VERSION === 'string') return BUILD_VERSION
  const { version }: { version: string } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'))
  return version
}

/** In the requests of the program itself. */
export const USER_AGENT = `org-access-proxy/${readVersion()}`
