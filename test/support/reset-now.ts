/** A reset without a FIN before it. */

import type { Socket } from 'node:net'

/**
 * `resetAndDestroy()` ends the socket first, so that the peer reads a FIN, and perhaps never the RST after it. The flag that
 * it sets, together with `destroy()`, sends only the RST.
 */
export function resetNow(socket: Socket): void {
  // Under TLS, the TCP socket that carries it.
  const { _parent: carrier } = socket as Socket & { readonly _parent?: Socket | null }
  if (!socket.destroyed) Object.assign(carrier ?? socket, { resetAndClosing: true }).destroy()
}
