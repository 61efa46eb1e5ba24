/** Further CA certificates from a PEM file, looked at once at start: what TLS cannot read it ignores without a word. */

import { X509Certificate } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { explainUnreadable } from './file-access.ts'
import { Unsuitable } from './unsuitable.ts'

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** The certificates of the file, in PEM. @throws {Unsuitable} */
export async function readCertificates(path: string): Promise<string> {
  let text: string
  try {
    text = await readFile(path, 'latin1')
  } catch (error) {
    throw new Unsuitable(explainUnreadable(error), { cause: error })
  }
  const certificates = text.match(CERTIFICATE) ?? []
  if (certificates.length === 0) throw new Unsuitable('has no "-----BEGIN CERTIFICATE-----" in it: give a PEM file')
  if (!certificates.every(isReadable)) throw new Unsuitable('has a certificate in it that cannot be read')
  return `${certificates.join('\n')}\n`
}

function isReadable(certificate: string): boolean {
  try {
    return new X509Certificate(certificate).raw.length > 0
  } catch {
    return false
  }
}
