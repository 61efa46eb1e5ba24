/**
 * Node's bookkeeping of a request whose end we know already, and of a response whose bytes we write to the socket ourselves.
 * Its own writer checks and joins every field once more, and corks, ticks and allocates for each response; its reader ends
 * an empty request in four ticks: a bare server's 11.7 µs of CPU for a small one become 8.9. What it has to know to serve the
 * next request of the connection is told here, and in this file alone. The names are internal, though as old as keep-alive;
 * the behaviour tests see to them on every version that is supported.
 */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

interface Bookkeeping {
  /** Not null: the head has been sent. */
  _header: string | null
  _headerSent: boolean
  /** The connection ends with this response. */
  _last: boolean
  finished: boolean
}

interface EmptyMessage {
  /** Somebody reads the content; nobody has to read it away. */
  _consuming: boolean
  readonly _readableState: { ended: boolean; endEmitted: boolean }
}

/** The request has no content: nobody will read it to its end. Newer versions do the like as `optimizeEmptyRequests`. */
export function markEmpty(message: IncomingMessage): void {
  const bookkeeping = message as unknown as EmptyMessage
  bookkeeping._consuming = true
  bookkeeping._readableState.ended = true
  bookkeeping._readableState.endEmitted = true
}

/** True where the connection can serve another request behind this one, as far as the client is concerned. */
export function keepsConnection(response: ServerResponse): boolean {
  // Node notes a client that has said all it has to say in `_last`, and the client's wish in `shouldKeepAlive`.
  return response.shouldKeepAlive && !(response as unknown as Bookkeeping)._last
}

/** The head is about to be written; the connection is kept behind the response if `isKept`. */
export function markBegun(response: ServerResponse, isKept: boolean): void {
  const bookkeeping = response as unknown as Bookkeeping
  bookkeeping._header = 'written by the relay'
  bookkeeping._headerSent = true
  if (!isKept) bookkeeping._last = true
}

/** The last byte has been written: Node goes on to the next request once the kernel has everything. */
export function markEnded(response: ServerResponse, socket: Socket): void {
  const bookkeeping = response as unknown as Bookkeeping
  bookkeeping.finished = true
  if (socket.writableLength === 0) response.emit('finish')
  else socket.write('', 'latin1', () => response.emit('finish'))
}

/**
 * Ends a connection with a reset that nothing goes before. `resetAndDestroy` ends our side first: the peer would read a FIN,
 * and take what it has for whole. Unix sockets know no reset; they are those without an address.
 */
export function resetNow(socket: Socket): void {
  if (socket.remoteAddress !== undefined) Object.assign(socket, { resetAndClosing: true })
  socket.destroy()
}
