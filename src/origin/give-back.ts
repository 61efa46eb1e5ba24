/**
 * Gives the memory of content that has been sent on back at once. Left to the garbage collector, what V8 does not hold itself
 * makes it collect the whole heap for every 64 MiB that go through, and each new piece lies in memory that no cache has.
 */

import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Moves the bytes to a new buffer of that length, and frees the old one (`ArrayBuffer.prototype.transfer`, ECMAScript 2024). */
type Transfer = (this: ArrayBuffer, newLength: number) => ArrayBuffer

/** Below this, giving back costs more than it brings. */
const MIN_BYTES = 16 * 1024

/** Nobody may look at `chunk` any more. */
export function giveBack(chunk: Buffer): void {
  const { buffer } = chunk
  // A part of something larger stays: the rest of it may be in use.
  if (chunk.length < MIN_BYTES || chunk.length !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return
  discard(buffer)
}

let transfer: Transfer | undefined

function discard(buffer: ArrayBuffer): void {
  transfer ??= findTransfer()
  transfer.call(buffer, 0)
}

function findTransfer(): Transfer {
  const { transfer: standard } = ArrayBuffer.prototype as { transfer?: Transfer }
  return standard ?? transferOfNewContext()
}

/** Before Node 22 it is there, but behind a flag, which V8 looks at when it makes a context. */
function transferOfNewContext(): Transfer {
  setFlagsFromString('--harmony-rab-gsab-transfer')
  try {
    return runInNewContext('ArrayBuffer.prototype.transfer')
  } finally {
    setFlagsFromString('--no-harmony-rab-gsab-transfer')
  }
}
