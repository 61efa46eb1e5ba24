/**
 * Everything that relies on what Node does, but does not document: each with the reason, and with the plain way that it replaces.
 * `test/units/node-internals.test.ts` fails on a version of Node where one of them has stopped working.
 */

import { type Server as NetServer, Socket } from 'node:net'
import type { Server } from 'node:tls'
import type { MessagePort } from 'node:worker_threads'

/**
 * Breaks off a connection with a reset: its peer cannot take what it has got for all there is. That no FIN goes before it, Node does
 * not document. `carrier`: the TCP socket beneath `socket`, or the same.
 */
export function resetConnection(socket: Socket, carrier: Socket): void {
  if (!carrier.destroyed) carrier.resetAndDestroy()
  carrier.destroy()
  socket.destroy()
}

/** Begins TLS on a connection that was accepted elsewhere. The plain way, a `TLSSocket`, has no SNI, time limit and client errors. */
export function beginTls(server: Server, carrier: Socket): void {
  server.emit('connection', carrier)
}

/** What comes on all accepted sockets is read into it, one read at a time. */
const READS = Buffer.allocUnsafeSlow(64 * 1024)

/** Octets up to `length` are new, and overwritten after this call: see `kept`. Returns false if no more is wanted. */
type Reader = (bytes: Buffer, length: number) => boolean

/** The fields of Node's sockets that are used here. */
interface Internals extends Socket {
  _handle?: { useUserBuffer?: unknown } | null
  _server?: NetServer | null
  server?: NetServer | null
}

/**
 * To be called when a socket was just accepted, and allows that one side ends before the other. Returns the socket that takes its
 * place, on the same connection, as `server` counts it: for a socket that connects, Node reads into a given buffer (`onread`), but
 * for one that was accepted it makes a new one for each read, which costs a tenth of a small request. That is the plain way.
 */
export function readAccepted(accepted: Socket, reader: Reader): Socket {
  const before = accepted as Internals
  const { _handle: handle, _server: server } = before
  if (typeof handle?.useUserBuffer !== 'function' || server == null) {
    return accepted.on('data', (bytes: Buffer) => reader(bytes, bytes.length))
  }
  const options = {
    handle,
    allowHalfOpen: true,
    highWaterMark: accepted.writableHighWaterMark,
    onread: { buffer: READS, callback: (length: number) => reader(READS, length) },
  }
  const socket = new Socket(options)
  Object.assign(socket, { _server: server, server })
  before._handle = null
  before._server = null
  before.server = null
  return socket
}

/**
 * Gives what `onread` has brought to whoever reads `socket` as a stream from now on, as those of a WebSocket do. Returns false if
 * they want no more for now. `push` is documented for those who write a stream. The plain way has no `onread`, and makes a buffer
 * for each read of each connection that might become a WebSocket.
 */
export function pushRead(socket: Socket, bytes: Buffer): boolean {
  return socket.push(bytes)
}

/** Returns octets `start` to `end` in memory that nobody overwrites. */
export function kept(bytes: Buffer, start: number, end: number): Buffer {
  const part = bytes.subarray(start, end)
  return bytes.buffer === READS.buffer ? Buffer.from(part) : part
}

/** Below this, freeing costs more than it saves. */
const MIN_FREED_BYTES = 16 * 1024

/** A message to a closed port is dropped at once, and memory that was transferred to it is freed. */
let nowhere: MessagePort | undefined

function closedPort(): MessagePort {
  const { port1 } = new MessageChannel()
  port1.close()
  return port1
}

/**
 * Frees the memory of `chunk`, without waiting for the garbage collector, which is the plain way. V8 collects the whole heap each time such memory
 * has grown by some 64 MiB, and each new piece lies in memory that no processor cache holds. Does nothing if `chunk`
 * shares its memory.
 */
export function release(chunk: Buffer): void {
  const { buffer } = chunk
  if (chunk.length < MIN_FREED_BYTES || chunk.length !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return
  nowhere ??= closedPort()
  nowhere.postMessage(null, [buffer])
}

type WriteDone = (error?: Error | null) => void

/** Errors of a write to a peer that reads no more. What the peer sent before may still be read. */
const READS_NO_MORE: ReadonlySet<unknown> = new Set(['EPIPE', 'ECONNRESET'])

/**
 * Keeps `socket` reading after a write has failed, and calls `onFailed` then. A service may answer before it has read the
 * content, and close: its kernel resets the connection, our next write fails, and the answer still lies in our receive
 * buffer. Node destroys a socket whose write fails, and the answer is lost with it. So the error is withheld from the
 * stream: reading goes on to the end of the connection, which follows at once. No write after it reaches the kernel, unless
 * `onFailed` calls `done`, as if this one had succeeded. Without this, most uploads of 2 MB that are answered early end as a
 * 502.
 */
export function keepReading(socket: Socket, onFailed: (done: () => void) => void): void {
  let streamDone: WriteDone | undefined
  let done: WriteDone = () => undefined
  // The stream passes the same function each time, so that one wrapper serves them all.
  const wrapped = (given: WriteDone): WriteDone => {
    if (given === streamDone) return done
    streamDone = given
    done = (error) => {
      if (error instanceof Error && 'code' in error && READS_NO_MORE.has(error.code)) onFailed(given)
      else given(error)
    }
    return done
  }
  const write = socket._write
  const writev = socket._writev
  socket._write = (chunk, encoding, given) => write.call(socket, chunk, encoding, wrapped(given))
  if (writev) socket._writev = (chunks, given) => writev.call(socket, chunks, wrapped(given))
}

/**
 * Reads on in the next turn of the event loop, if `mayResume` then. To be called when something was read. Node tells of a reset as
 * of an end if it finds the reset together with data, and goes on reading (`uv__stream_io` of libuv). Content that only the end of
 * the connection ends would look complete. Behind a pause, it reads the reset by itself. The plain way trusts `end`.
 */
export function pauseForTurn(socket: Socket, mayResume: () => boolean): void {
  socket.pause()
  setImmediate(() => {
    if (mayResume()) socket.resume()
  })
}

/**
 * True if a socket that has ended was reset. For one through a proxy, the pause above is none: it was read before we see it. But a
 * socket that was reset has no peer; behind a FIN it has one. A unix socket has no addresses at all. The plain way trusts `end`.
 */
export function wasReset(socket: Socket): boolean {
  return socket.remoteAddress === undefined && socket.localAddress !== undefined
}
