/**
 * Takes `100 Continue` out of what an origin sends. A client must put up with one that it never asked for (RFC 9110
 * §15.2.1), and we never forward `Expect`; undici breaks the connection over it (`bad response`) and loses the request.
 */

import type { Socket } from 'node:net'

/** Whether the next bytes on the connection begin a response. */
export interface ResponsePosition {
  awaitsHead: boolean
}

const CONTINUE = Buffer.from('HTTP/1.1 100')
const END_OF_HEAD = '\r\n\r\n'
const MAX_HEAD_BYTES = 4 * 1024

/** undici takes bytes through `read` alone: ours stands in front of it. */
export function dropContinue(socket: Socket, position: ResponsePosition): void {
  const { read } = socket
  let held: Buffer | undefined
  socket.read = (size?: number): Buffer | null => {
    const chunk: Buffer | null = read.call(socket, size)
    if (chunk === null || !position.awaitsHead) return chunk
    let bytes = held === undefined ? chunk : Buffer.concat([held, chunk])
    held = undefined
    while (isContinue(bytes)) {
      const end = bytes.indexOf(END_OF_HEAD)
      if (end === -1) {
        if (bytes.length > MAX_HEAD_BYTES) break
        held = bytes
        return null
      }
      bytes = bytes.subarray(end + END_OF_HEAD.length)
    }
    if (bytes.length === 0) return null
    position.awaitsHead = false
    return bytes
  }
}

/** True also where so few bytes have come that it may yet be one. */
function isContinue(bytes: Buffer): boolean {
  const length = Math.min(bytes.length, CONTINUE.length)
  return length > 0 && bytes.compare(CONTINUE, 0, length, 0, length) === 0
}
