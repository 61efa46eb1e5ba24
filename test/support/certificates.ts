/** Certificates of a CA for these tests only, all with the same key. Valid from 2025 to 2125, except for the expired one. */

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

function pathOf(name: string): string {
  return fileURLToPath(new URL(`./certificates/${name}.pem`, import.meta.url))
}

/** For `origin.caFile`. */
export const CA_FILE = pathOf('ca')

/** `localhost` is correct for that host. Each of the others is wrong in one way. */
export type CertificateName = 'localhost' | 'expired' | 'other-host' | 'self-signed'

export function certificate(name: CertificateName): { readonly key: Buffer; readonly cert: Buffer } {
  return { key: readFileSync(pathOf('key')), cert: readFileSync(pathOf(name)) }
}

/** For servers that read the files themselves. */
export function certificateFiles(name: CertificateName): { readonly key: string; readonly certificate: string } {
  return { key: pathOf('key'), certificate: pathOf(name) }
}
