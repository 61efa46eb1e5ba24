/** Breaks off a TCP connection so that its peer cannot take what it has got for all there is. */

import type { Socket } from 'node:net'

/** `carrier`: the TCP socket beneath `socket`, or the same. Sends a reset, and no FIN before it. */
export function resetConnection(socket: Socket, carrier: Socket): void {
  if (!carrier.destroyed) {
    // `resetAndDestroy` first ends our side, which would send a FIN.
    Object.assign(carrier, { end: () => carrier })
    carrier.resetAndDestroy()
  }
  carrier.destroy()
  socket.destroy()
}
