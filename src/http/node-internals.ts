/**
 * Everything that this program takes from Node beyond its documented API. Each entry says what breaks without it. The
 * behaviour tests run on every supported version of Node, so a version that renames one of these fails them.
 */

import { type IncomingMessage, type Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

interface ResponseState {
  /** Not null once the head has been sent. */
  _header: string | null
  _headerSent: boolean
  /** The connection ends with this response. */
  _last: boolean
  finished: boolean
}

interface MessageState {
  /** Node must not read the content to its end. */
  _consuming: boolean
  readonly _readableState: { ended: boolean; endEmitted: boolean }
}

/**
 * Marks a request without content as read. Without it, Node ends such a request in four ticks of its own, which costs about
 * 1 µs per request. Newer versions of Node offer `optimizeEmptyRequests` for the same purpose.
 */
export function markEmpty(message: IncomingMessage): void {
  const state = message as unknown as MessageState
  state._consuming = true
  state._readableState.ended = true
  state._readableState.endEmitted = true
}

/** Pieces of content of this size or more go on as they are. */
const LARGE_PIECE_BYTES = 4 * 1024

/**
 * Joins the small pieces of content that come in one read. Node's parser makes an object of each chunk of chunked content, and
 * there may be 10,900 chunks in one read. Without this, 64 KiB of content that nobody reads yet take 9 MB.
 */
export function joinPieces(message: IncomingMessage): void {
  const push = message.push.bind(message)
  let joined = NO_BYTES
  let length = 0
  const pass = () => {
    if (length === 0) return
    const whole = joined.subarray(0, length)
    joined = NO_BYTES
    length = 0
    if (!message.destroyed) push(whole) // also reads on
  }
  message.push = (piece: unknown) => {
    if (!Buffer.isBuffer(piece) || piece.length >= LARGE_PIECE_BYTES) {
      pass()
      return push(piece)
    }
    if (length === 0) inTurn(pass)
    const end = length + piece.length
    if (end <= joined.length) piece.copy(joined, length)
    else joined = Buffer.concat([joined.subarray(0, length), piece], 2 * end)
    length = end
    return false // stops reading
  }
}

const turns: (() => void)[] = []

/** Runs one of these in each turn of the event loop: parsing a read of tiny chunks takes 15 ms, and others want to run in between. */
function inTurn(run: () => void): void {
  if (turns.push(run) === 1) setImmediate(runNext)
}

function runNext(): void {
  turns.shift()?.()
  if (turns.length > 0) setImmediate(runNext)
}

/**
 * Returns true if the client will accept another response on this connection. Node records the client's wish in
 * `shouldKeepAlive`, and a client that has finished sending in `_last`. Without `_last`, a response to such a client would
 * offer a connection that Node closes.
 */
export function keepsConnection(response: ServerResponse): boolean {
  return response.shouldKeepAlive && !(response as unknown as ResponseState)._last
}

/**
 * Tells Node that we write the head to the socket ourselves. `isKept`: the connection stays open behind the response.
 * Without this and `markEnded`, Node's own writer would have to be used: it validates and joins every field again, and
 * corks, ticks and allocates for each response (11.7 µs of CPU for a small response instead of 8.9).
 */
export function markBegun(response: ServerResponse, isKept: boolean): void {
  const state = response as unknown as ResponseState
  state._header = 'written by the relay'
  state._headerSent = true
  if (!isKept) state._last = true
}

/**
 * Tells Node that the last byte was written to `socket`. Node starts the next request of the connection on `finish`, which
 * is emitted here once the kernel has taken everything. Without it, a connection serves one request only.
 */
export function markEnded(response: ServerResponse, socket: Socket): void {
  const state = response as unknown as ResponseState
  state.finished = true
  if (socket.writableLength === 0) response.emit('finish')
  else socket.write('', 'latin1', () => response.emit('finish'))
}

/**
 * Ends a connection with a reset and nothing before it. The documented `resetAndDestroy` sends a FIN first: a client that
 * reads until the end of the connection would take a broken response for a complete one. Unix sockets have no reset (and
 * no address); they are closed.
 */
export function resetNow(socket: Socket): void {
  if (socket.remoteAddress !== undefined) Object.assign(socket, { resetAndClosing: true })
  socket.destroy()
}

/**
 * Returns a response for `message` that is written to `socket`, and is the last one there. Node hands the connection of an
 * upgrade over without a response. Without `assignSocket`, each refusal of a handshake, and each plain answer to one, would
 * need a response writer of its own.
 */
export function lastResponse(message: IncomingMessage, socket: Socket): ServerResponse {
  const response = new ServerResponse(message)
  response.shouldKeepAlive = false
  response.assignSocket(socket)
  response.once('finish', () => leaveSocket(response, socket))
  return response
}

/** Takes `response` off `socket`. Without it, Node would write what is left of the response into a tunnel. */
export function leaveSocket(response: ServerResponse, socket: Socket): void {
  if (response.socket !== null) response.detachSocket(socket)
}

interface HttpParser {
  onIncoming: ((message: IncomingMessage, keepsAlive: boolean) => number) | null
  resume(): void
}

type ParsedSocket = Socket & { readonly parser?: HttpParser | null; _paused: boolean }

/** Codes that `onIncoming` may return to llhttp, the parser. */
const STOP_PARSING = 21 // HPE_PAUSED
const OTHER_PROTOCOL_FOLLOWS = 2

/**
 * Lets a connection stop Node's parser behind the head that the parser has just read. `isStopped` is called after each head. Node then emits `clientError` with an error that `stoppedParser` recognizes, once for each read. Without it,
 * Node parses all requests that come in one read, 3,600 in 64 KiB, and keeps some 4 KiB for each until the first has been answered.
 *
 * A head that offers another protocol causes an `upgrade` event with all bytes behind it, even if it declares content. Node 20
 * and 24 do that by themselves; Node 26 would insert a stream.
 *
 * Call it for each `connection` event. It costs one more call for each request.
 */
export function makeStoppable(socket: Socket, isStopped: () => boolean): void {
  const { parser } = socket as ParsedSocket
  const take = parser?.onIncoming
  if (parser == null || take == null) return
  parser.onIncoming = (message, keepsAlive) => {
    if ((message as IncomingMessage & { upgrade?: boolean | null }).upgrade === true) {
      message.complete = true
      return OTHER_PROTOCOL_FOLLOWS
    }
    const code = take(message, keepsAlive)
    if (!isStopped()) return code
    const stopped = socket as ParsedSocket
    // If the client does not read, Node stops reading, and restarts the parser on `drain`. That is too early for us.
    stopped._paused = false
    return STOP_PARSING
  }
}

/** Node's report of bytes that came while the parser was stopped, or that stopped it. */
export interface StoppedParser {
  readonly bytes: Buffer
  /** The number of parsed bytes. Meaningless if the parser had been stopped before. */
  readonly parsedBytes: number
}

/** Undefined for any other error. */
export function stoppedParser(error: Error): StoppedParser | undefined {
  if (!('code' in error) || error.code !== 'HPE_PAUSED') return undefined
  if (!('rawPacket' in error) || !Buffer.isBuffer(error.rawPacket)) return undefined
  const parsedBytes = 'bytesParsed' in error ? Number(error.bytesParsed) : 0
  return { bytes: error.rawPacket, parsedBytes }
}

/** An empty buffer whose memory is not null: llhttp takes a null pointer for the end of the input. */
const NO_BYTES = Buffer.allocUnsafe(1).subarray(1)

/** Restarts a stopped parser, and gives it these bytes before any others. It may stop again during the call. */
export function restartParser(socket: Socket, bytes: Buffer | undefined): void {
  ;(socket as ParsedSocket).parser?.resume()
  parse(socket, bytes === undefined || bytes.length === 0 ? NO_BYTES : bytes)
}

/** Gives bytes to Node's parser as if they had just been read. `unshift` cannot do it once the input has ended. */
export function parse(socket: Socket, bytes: Buffer): void {
  socket.emit('data', bytes)
}

/** Takes a connection away from Node's parser, and discards all further input. */
export function discardInput(socket: Socket): void {
  socket.removeAllListeners('data')
  socket.on('data', () => undefined) // Node stops reading a socket that has another reader
  socket.resume()
}

/**
 * Sets whether the connection ends after this response. When the client has finished sending, Node marks its newest response
 * as the last. But requests that we hold back may follow it.
 */
export function markLast(response: ServerResponse, isLast: boolean): void {
  ;(response as unknown as ResponseState)._last = isLast
}

/** Lets a client finish sending before it has its response. Without it, the end of a client's input also ends our output. */
export function allowHalfOpen(server: Server): Server {
  return Object.assign(server, { httpAllowHalfOpen: true })
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
