/** The version of this program, from the package that it was installed as. */

import { createRequire } from 'node:module'

export function readVersion(): string {
  // By its own name: the built program has fewer folders than its source.
  const manifest: unknown = createRequire(import.meta.url)('org-access-proxy/package.json')
  if (typeof manifest === 'object' && manifest !== null && 'version' in manifest) return String(manifest.version)
  return 'unknown'
}
