/** A secret as it stands in a file or a variable: one line of text, of which one trailing newline is dropped. */

import { open } from 'node:fs/promises'
import { Secret } from '../secret.ts'
import { explainUnreadable } from './file-access.ts'
import { Unsuitable } from './unsuitable.ts'

const MAX_SECRET_BYTES = 65_536

export interface SecretContent {
  readonly secret: Secret
  /** True where others than the owner may read it. */
  readonly isReadableByOthers: boolean
}

/** @throws {Unsuitable} Whatever the reason: it can be told to a person as it is. */
export async function readSecret(path: string): Promise<SecretContent> {
  let bytes: Buffer
  let mode: number
  try {
    await using file = await open(path)
    ;({ mode } = await file.stat())
    bytes = await file.readFile()
  } catch (error) {
    throw new Unsuitable(explainUnreadable(error), { cause: error })
  }
  return { secret: parseSecretBytes(bytes), isReadableByOthers: (mode & 0o077) !== 0 }
}

/** @throws {Unsuitable} */
export function parseSecret(text: string): Secret {
  const value = text.replace(/\r?\n$/, '')
  if (value === '') throw new Unsuitable('is empty: put the secret into it')
  if (value.trim() === '') throw new Unsuitable('is blank: put the secret into it')
  if (/[\r\n]/.test(value)) throw new Unsuitable('has more than one line: put the secret and nothing else into it')
  if (/\p{Cc}/u.test(value)) throw new Unsuitable('has control characters in it: it is not text, or only half written')
  return new Secret(value)
}

/** A caller key travels in a field value, which loses blanks at its ends and carries no others (RFC 9110 §5.5). */
export function checkCallerKey(secret: Secret): void {
  if (/^[\x21-\x7e]+$/.test(secret.reveal())) return
  throw new Unsuitable('has blanks or non-ASCII in it: a key travels in a field value, so use visible ASCII only')
}

function parseSecretBytes(bytes: Buffer): Secret {
  if (bytes.length > MAX_SECRET_BYTES) throw new Unsuitable('is larger than 64 KiB: is it the right file?')
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw new Unsuitable('is not UTF-8 text: it may be only half written')
  }
  return parseSecret(text)
}
