/** Reads and checks the files that settings name: secrets and certificates. */

import { X509Certificate } from 'node:crypto'
import { createSecureContext } from 'node:tls'
import { type KeyPair, Secret } from '../secret.ts'
import { type FileContent, readRegularFile } from '../watched-file.ts'
import type { Draft } from './draft.ts'
import type { Place } from './problem.ts'
import { Unsuitable } from './types.ts'

/** Twenty times the size of the bundle that operating systems ship. */
export const MAX_CERTIFICATE_FILE_BYTES = 4 * 1_048_576

/** White space at either end is part of the secret, and probably a mistake. */
export const OUTER_WHITE_SPACE = 'begins or ends with white space, which counts as part of the secret: is that meant?'

/** Like the functions below, returns undefined if the setting is not set, or after it reported a problem to the draft. */
export async function readAppSecret(draft: Draft): Promise<Secret | undefined> {
  const { appSecret, appSecretFile } = draft.values
  if (appSecret === undefined) {
    // A secret in the wrong place is not a missing secret.
    if (appSecretFile === undefined && !draft.hasProblemWith('appSecret')) {
      draft.reportMissing(
        'appSecretFile',
        'is required: name the file that holds the App secret, or set OAP_APP_SECRET',
      )
    }
    return readWatchedSecret(draft, 'appSecretFile')
  }
  const place: Place = { key: 'appSecret' }
  if (appSecretFile !== undefined) {
    draft.report({ ...place, message: 'is set, and so is appSecretFile: keep one, better the file' })
  }
  draft.warn({ ...place, message: 'is in the environment, which other processes may read: use appSecretFile' })
  return draft.attempt(place, () => {
    const secret = parseSecret(appSecret)
    if (hasOuterWhiteSpace(secret)) draft.warn({ ...place, message: OUTER_WHITE_SPACE })
    return secret
  })
}

/** These files have watchers of their own, so no reload depends on them. */
export async function readWatchedSecret(
  draft: Draft,
  key: 'appSecretFile' | 'fleet.passwordFile',
): Promise<Secret | undefined> {
  const path = draft.values[key]
  return path === undefined ? undefined : readSecret(draft, { key }, () => readRegularFile(path))
}

/** A key for `X-Proxy-Key`. */
export async function readKeyFile(draft: Draft, place: Place, path: string | undefined): Promise<Secret | undefined> {
  if (path === undefined) return undefined
  const key = await readSecret(draft, place, () => draft.read(place, path))
  // A field value loses the blanks at its ends (RFC 9110 §5.5).
  if (key === undefined || /^[\x21-\x7e]+$/.test(key.reveal())) return key
  const message = 'contains blanks or non-ASCII: use visible ASCII only, because the key is sent in a field'
  draft.report({ ...place, message })
  return undefined
}

async function readSecret(draft: Draft, place: Place, read: () => Promise<FileContent>): Promise<Secret | undefined> {
  return draft.attempt(place, async () => {
    const { bytes, mode } = await read()
    const secret = parseSecretBytes(bytes)
    if (hasOuterWhiteSpace(secret)) draft.warn({ ...place, message: OUTER_WHITE_SPACE })
    if ((mode & 0o077) !== 0) {
      draft.warn({ ...place, message: 'can be read by other users of this machine: chmod 600 prevents that' })
    }
    return secret
  })
}

/** @throws {Unsuitable} */
export function parseSecretBytes(bytes: Uint8Array): Secret {
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw new Unsuitable('is not UTF-8 text: it may be only half written')
  }
  return parseSecret(text)
}

/** One line of text. One trailing newline is dropped. */
function parseSecret(text: string): Secret {
  const value = text.replace(/\r?\n$/, '')
  if (value.trim() === '') throw new Unsuitable('is empty: put the secret into it')
  if (/\p{Cc}/u.test(value)) throw new Unsuitable('has a second line, or is not text: put only the secret into it')
  return new Secret(value)
}

export function hasOuterWhiteSpace(secret: Secret): boolean {
  return secret.reveal() !== secret.reveal().trim()
}

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g

/** Returns PEM. Each certificate is checked here, because TLS ignores one that it cannot read. */
export async function readCertificates(
  draft: Draft,
  place: Place,
  path: string | undefined,
): Promise<string | undefined> {
  if (path === undefined) return undefined
  return draft.attempt(place, async () => {
    const { bytes } = await draft.read(place, path, MAX_CERTIFICATE_FILE_BYTES)
    const certificates = bytes.toString('latin1').match(CERTIFICATE) ?? []
    if (certificates.length === 0) throw new Unsuitable('contains no "-----BEGIN CERTIFICATE-----": give a PEM file')
    if (!certificates.every(isReadable)) throw new Unsuitable('contains a certificate that cannot be read')
    return `${certificates.join('\n')}\n`
  })
}

function isReadable(certificate: string): boolean {
  try {
    return new X509Certificate(certificate).raw.length > 0
  } catch {
    return false
  }
}

/** The setting and its key file name one pair. */
export async function readKeyPair(
  draft: Draft,
  certKey: 'origin.certFile' | 'listen.tls.certFile',
  keyKey: 'origin.keyFile' | 'listen.tls.keyFile',
): Promise<KeyPair | undefined> {
  const [certPath, keyPath] = [draft.values[certKey], draft.values[keyKey]]
  if (certPath === undefined && keyPath === undefined) return undefined
  if (certPath === undefined || keyPath === undefined) {
    const [set, missing] = certPath === undefined ? [keyKey, certKey] : [certKey, keyKey]
    draft.report({ key: set, message: `needs ${missing}: a certificate and its key belong together` })
    return undefined
  }
  const certificates = await readCertificates(draft, { key: certKey }, certPath)
  if (certificates === undefined) return undefined
  return draft.attempt({ key: keyKey }, async () => {
    const { bytes } = await draft.read({ key: keyKey }, keyPath)
    const key = new Secret(bytes.toString('latin1'))
    try {
      createSecureContext({ cert: certificates, key: key.reveal() })
    } catch {
      throw new Unsuitable(`is no private key (PEM, not encrypted) of the certificate in ${certKey}`)
    }
    return { certificates, key }
  })
}
