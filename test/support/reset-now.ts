/** A reset without a FIN before it. */

import type { Socket } from 'node:net'

/**
 * `resetAndDestroy()` ends the socket first, so that the peer reads a FIN, and perhaps never the RST after it. The flag that
 * it sets, together with `destroy()`, sends only the RST.
 */
export function resetNow(socket: Socket): void {
  if (!socket.destroyed) Object.assign(socket, { resetAndClosing: true }).destroy()
}
