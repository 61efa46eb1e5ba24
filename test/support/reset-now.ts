/** A reset without a FIN before it. */

import type { Socket } from 'node:net'

/**
 * On a unix socket, which has no reset, it just closes. `resetAndDestroy()` ends the socket first, so that the peer reads a FIN, and perhaps never the RST after it. The flag that
 * it sets, together with `destroy()`, sends only the RST.
 */
export function resetNow(socket: Socket): void {
  // Under TLS, the TCP socket that carries it.
  const { _parent: carrier } = socket as Socket & { readonly _parent?: Socket | null }
  const isTcp = (carrier ?? socket).remotePort !== undefined
  if (!socket.destroyed) Object.assign(carrier ?? socket, { resetAndClosing: isTcp }).destroy()
}
