/**
 * Gives the memory of content that has been sent on back at once. Left to the garbage collector, what V8 does not hold itself
 * makes it collect the whole heap for every 64 MiB that go through, and each new piece lies in memory that no cache has.
 */

/** Below this, giving back costs more than it brings. */
const MIN_BYTES = 16 * 1024

/** Nobody may look at `chunk` any more. */
export function giveBack(chunk: Buffer): void {
  const { buffer } = chunk
  // A part of something larger stays: the rest of it may be in use.
  if (chunk.length < MIN_BYTES || chunk.length !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return
  discard(buffer)
}

const discard = newDiscard()

function newDiscard(): (buffer: ArrayBuffer) => void {
  const { transfer } = ArrayBuffer.prototype as { transfer?: (this: ArrayBuffer, newLength: number) => ArrayBuffer }
  if (transfer !== undefined) return (buffer) => void transfer.call(buffer, 0)
  // Before Node 22: what is handed over to a port whose other end is closed is dropped there.
  const { port1, port2 } = new MessageChannel()
  port2.close()
  port1.unref()
  return (buffer) => port1.postMessage(undefined, [buffer])
}
