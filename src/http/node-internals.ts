/**
 * Everything that this program takes from Node beyond its documented API. Each entry says what breaks without it. The
 * behaviour tests run on every supported version of Node, so a version that renames one of these fails them.
 */

import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'

/** Pieces of content of this size or more go on as they are. */
const LARGE_PIECE_BYTES = 4 * 1024
const EMPTY = Buffer.alloc(0)

/**
 * Joins the small pieces of content that come in one read. Node's parser makes an object of each chunk of chunked content, and
 * there may be 10,900 chunks in one read. Without this, 64 KiB of content that nobody reads yet take 9 MB.
 */
export function joinPieces(message: IncomingMessage): void {
  const push = message.push.bind(message)
  let joined = EMPTY
  let length = 0
  const pass = () => {
    if (length === 0) return
    const whole = joined.subarray(0, length)
    joined = EMPTY
    length = 0
    if (!message.destroyed) push(whole) // also reads on
  }
  message.push = (piece: unknown) => {
    if (!Buffer.isBuffer(piece) || piece.length >= LARGE_PIECE_BYTES) {
      pass()
      return push(piece)
    }
    if (length === 0) passing = passing.then(nextTurn).then(pass)
    const end = length + piece.length
    if (end <= joined.length) piece.copy(joined, length)
    else joined = Buffer.concat([joined.subarray(0, length), piece], 2 * end)
    length = end
    return false // stops reading
  }
}

/** One joined piece is passed on in each turn of the event loop: parsing a read of tiny chunks takes 15 ms, and others want to run in between. */
let passing = Promise.resolve()

/**
 * Ends a connection with a reset and nothing before it. The documented `resetAndDestroy` sends a FIN first: a client that
 * reads until the end of the connection would take a broken response for a complete one. Unix sockets have no reset (and
 * no address); they are closed. Under TLS, the socket that carries it is reset.
 */
export function resetNow(socket: Socket): void {
  if (socket.remoteAddress !== undefined) Object.assign(carrierOf(socket), { resetAndClosing: true })
  socket.destroy()
}

/** Returns the TCP socket that carries a TLS connection; any other socket is its own. */
export function carrierOf(socket: Socket): Socket {
  return (socket as Socket & { readonly _parent?: Socket | null })._parent ?? socket
}

interface HttpParser {
  onIncoming: ((message: IncomingMessage, keepsAlive: boolean) => number) | null
}

/** Codes that `onIncoming` may return to llhttp, the parser. */
const STOP_PARSING = 21 // HPE_PAUSED
const OTHER_PROTOCOL_FOLLOWS = 2

/**
 * Takes the requests of a connection from Node's parser. `takesRequest` is called after each head; if it returns false, Node
 * emits `clientError` with the code `HPE_PAUSED`. If it never did, Node would parse all requests that come in one read, 3,600
 * in 64 KiB, and keep some 4 KiB for each until the first has been answered. Otherwise `take` gets the request, and no `request`
 * event follows: Node would make a `ServerResponse`, which costs 3 µs.
 *
 * A head that offers another protocol causes an `upgrade` event with all bytes behind it, even if it declares content. Node 20
 * and 24 do that by themselves; Node 26 would insert a stream.
 *
 * Call it for each `connection` event.
 */
export function takeRequests(
  socket: Socket,
  takesRequest: () => boolean,
  take: (message: IncomingMessage, keepsAlive: boolean) => void,
): void {
  const { parser } = socket as Socket & { readonly parser?: HttpParser | null }
  if (parser == null) return
  parser.onIncoming = (message, keepsAlive) => {
    const incoming = message as IncomingMessage & { upgrade?: boolean | null }
    if (!takesRequest()) {
      incoming.upgrade = false // from Node 26 on, an offer of another protocol would go on all the same
      return STOP_PARSING
    }
    if (incoming.upgrade === true) {
      message.complete = true
      return OTHER_PROTOCOL_FOLLOWS
    }
    take(message, keepsAlive)
    return 0
  }
}

/** Takes a connection away from Node's parser, and discards all further input. */
export function discardInput(socket: Socket): void {
  socket.removeAllListeners('data')
  socket.on('data', () => undefined) // Node stops reading a socket that has another reader
  socket.resume()
}

type WriteDone = (error?: Error | null) => void

/** Errors of a write to a peer that reads no more. What the peer sent before may still be read. */
const READS_NO_MORE: ReadonlySet<unknown> = new Set(['EPIPE', 'ECONNRESET'])

/**
 * Keeps `socket` reading after a write has failed, and calls `onFailed` then. A service may answer before it has read the
 * content, and close: its kernel resets the connection, our next write fails, and the answer still lies in our receive
 * buffer. Node destroys a socket whose write fails, and the answer is lost with it. So the error is withheld from the
 * stream: no write after it reaches the kernel, and reading goes on to the end of the connection, which follows at once.
 * Without this, most uploads of 2 MB that are answered early end as a 502.
 */
export function keepReading(socket: Socket, onFailed: () => void): void {
  let streamDone: WriteDone | undefined
  let done: WriteDone = () => undefined
  // The stream passes the same function each time, so that one wrapper serves them all.
  const wrapped = (given: WriteDone): WriteDone => {
    if (given === streamDone) return done
    streamDone = given
    done = (error) => {
      if (error instanceof Error && 'code' in error && READS_NO_MORE.has(error.code)) onFailed()
      else given(error)
    }
    return done
  }
  const write = socket._write
  const writev = socket._writev
  socket._write = (chunk, encoding, given) => write.call(socket, chunk, encoding, wrapped(given))
  if (writev) socket._writev = (chunks, given) => writev.call(socket, chunks, wrapped(given))
}
