/** A secret in a file or a variable: one line of text. One trailing newline is dropped. */

import { Secret } from '../secret.ts'
import { Unsuitable } from './problem.ts'

/** @throws {Unsuitable} */
export function parseSecret(text: string): Secret {
  const value = text.replace(/\r?\n$/, '')
  if (value === '') throw new Unsuitable('is empty: put the secret into it')
  if (value.trim() === '') throw new Unsuitable('is blank: put the secret into it')
  if (/[\r\n]/.test(value)) throw new Unsuitable('has more than one line: put only the secret into it')
  if (/\p{Cc}/u.test(value)) throw new Unsuitable('contains control characters: it is not text, or only half written')
  return new Secret(value)
}

/** A caller key is sent as a field value, which loses blanks at its ends (RFC 9110 §5.5). @throws {Unsuitable} */
export function checkCallerKey(secret: Secret): Secret {
  if (/^[\x21-\x7e]+$/.test(secret.reveal())) return secret
  throw new Unsuitable('contains blanks or non-ASCII: use visible ASCII only, because the key is sent in a field')
}

/** White space at either end is part of the secret, and probably a mistake. */
export const OUTER_WHITE_SPACE = 'begins or ends with white space, which counts as part of the secret: is that meant?'

export function hasOuterWhiteSpace(secret: Secret): boolean {
  return secret.reveal() !== secret.reveal().trim()
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
