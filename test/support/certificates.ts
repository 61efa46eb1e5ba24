/** Certificates of a CA that exists for these tests alone; one key for all of them. Valid from 2025 to 2125, but for the expired one. */

import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

function pathOf(name: string): string {
  return fileURLToPath(new URL(`./certificates/${name}.pem`, import.meta.url))
}

/** For `origin.caFile`. */
export const CA_FILE = pathOf('ca')

/** `localhost` is right for the name of that host; each of the others is wrong in one way. */
export type CertificateName = 'localhost' | 'expired' | 'other-host' | 'self-signed'

export function certificate(name: CertificateName): { readonly key: Buffer; readonly cert: Buffer } {
  return { key: readFileSync(pathOf('key')), cert: readFileSync(pathOf(name)) }
}

/** For servers that read them by themselves. */
export function certificateFiles(name: CertificateName): { readonly key: string; readonly certificate: string } {
  return { key: pathOf('key'), certificate: pathOf(name) }
}
