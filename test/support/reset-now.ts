/** A reset that nothing goes before. */

import type { Socket } from 'node:net'

/**
 * `resetAndDestroy()` ends the socket first, so that the peer reads a FIN and perhaps never the RST behind it. The flag
 * that it sets, with `destroy()`, sends the RST alone.
 */
export function resetNow(socket: Socket): void {
  if (!socket.destroyed) Object.assign(socket, { resetAndClosing: true }).destroy()
}
