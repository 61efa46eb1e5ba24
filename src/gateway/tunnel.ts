/** A WebSocket behind its 101: joins the client's connection with one to the service. */

import type { Socket } from 'node:net'
import { keepReading } from '../origin/request-writer.ts'

/**
 * Copies bytes both ways, those that have come already before all others. A side that ends ends the other side
 * (RFC 6455 §7.1.1), and a side that breaks breaks it. Both sockets allow that one side ends before the other.
 */
export function joinTunnel(client: Socket, ofClient: Buffer, service: Socket, ofService: Buffer): void {
  copy(client, ofClient, service)
  copy(service, ofService, client)
}

function copy(from: Socket, firstBytes: Buffer, to: Socket): void {
  if (firstBytes.length > 0) from.unshift(firstBytes)
  // A side may send its last frame, and close without reading the rest. The rest is dropped, and `to` is read to its end.
  let readsNoMore = false
  keepReading(to, (done) => {
    readsNoMore = true
    done()
    if (to.readableEnded) to.destroy()
  })
  to.once('end', () => {
    if (readsNoMore) to.destroy()
  })
  from.pipe(to) // ends `to` behind the last byte
  // `pipe` ends nothing when a side breaks. Behind an end, `to` still has to send what it holds.
  from.once('close', () => (from.readableEnded ? to.destroySoon() : to.destroy()))
}
