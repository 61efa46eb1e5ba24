/** Whether the other end of a connection is on this machine. */

import type { Socket } from 'node:net'

/** A unix socket has no address; a packet for loopback from elsewhere has come past a misconfigured host (`route_localnet`, a proxy of a container engine). */
export function isLocalPeer(socket: Socket): boolean {
  const address = socket.remoteAddress
  return address === undefined || address.startsWith('127.') || address === '::1' || address.startsWith('::ffff:127.')
}
