/** The caller key: compared in constant time, whatever the lengths. */

import { createHash, timingSafeEqual } from 'node:crypto'
import type { Secret } from '../secret.ts'

export function callerKeyCheck(key: Secret): (value: string) => boolean {
  const expected = digest(key.reveal())
  return (value) => timingSafeEqual(digest(value), expected)
}

/** Digests are of one length, so that the comparison tells nothing about that of the key. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text, 'latin1').digest()
}
