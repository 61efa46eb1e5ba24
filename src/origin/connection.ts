/** One connection to the origin. It carries one exchange at a time, and takes the next when nothing of the last is left. */

import type { Socket } from 'node:net'
import { OriginError } from '../errors.ts'
import { ResponseHead } from '../http/response-head.ts'
import { MalformedMessage } from '../http1/malformed.ts'
import { type ReceivedResponse, type ResponseEvents, ResponseParser } from '../http1/response-parser.ts'
import type { Attempt, AttemptPlace } from './attempt.ts'
import type { Connector } from './connector.ts'
import type { Origin } from './origin.ts'
import { originError } from './origin-failure.ts'
import { isJoined, type RequestContent, writeRequest } from './request-writer.ts'

/** The most that one read from the kernel brings. */
const READ_BYTES = 64 * 1024

const SWITCHING_PROTOCOLS = 101
/** From this status on, a service may have answered without reading the content. */
const MULTIPLE_CHOICES = 300

export class Connection implements AttemptPlace, ResponseEvents {
  readonly #pool: Origin
  readonly #parser: ResponseParser
  readonly #cancelOpening: () => void
  #socket: Socket | undefined
  /** Undefined while the connection is free. */
  attempt: Attempt | undefined
  /** Content that goes out in pieces; undefined if the request has none, or all of it was written with the head. */
  #content: RequestContent | undefined
  /** The final response, or a 101. */
  #response: ReceivedResponse | undefined
  /** True if the connection may carry another exchange behind this response. */
  #persists = false
  /** Octets of the last read. */
  #readBytes = 0
  /** True if the request has content that the service may not have read when it answers. */
  #hasMuchContent = false
  /** True once the connection takes no more attempts. */
  #isClosed = false
  #isTunnel = false
  /** For the next read. Undefined if the last one is still in use. */
  #buffer: Buffer | undefined
  /** Monotonic milliseconds. No request is taken after it. */
  readonly retiresAt: number
  /** Monotonic milliseconds. The pool sets it while the connection is free. */
  expiresAt = 0

  /** Opens the connection for its first attempt. */
  constructor(connector: Connector, pool: Origin, first: Attempt, retiresAt: number) {
    this.#pool = pool
    this.retiresAt = retiresAt
    this.#parser = new ResponseParser(this)
    this.attempt = first
    first.place = this
    first.isReused = false
    this.#cancelOpening = connector.open(this, (result) => {
      if (result instanceof OriginError) this.destroy(result)
      else this.#opened(result)
    })
  }

  get isConnected(): boolean {
    return this.#socket !== undefined
  }

  #opened(socket: Socket): void {
    this.#socket = socket
    socket.on('error', (error) => this.destroy(originError(error)))
    socket.on('end', () => this.#inputEnded(socket))
    socket.on('close', () => this.destroy())
    socket.on('drain', () => this.#content?.resume())
    // A socket that is read into our buffers never emits it.
    socket.on('data', (chunk: Buffer) => this.received(chunk, chunk.length))
    if (this.attempt?.request.isHandshake !== true) keepReading(socket, () => this.#content?.detach())
    this.send()
  }

  /**
   * Sends the request of `attempt`, after a look at the connection: bytes or an end may wait on it that the event loop has not
   * read yet. Written before that, the request would get these bytes for its response. The second immediate runs when the loop
   * has polled once more, and has read all that waited.
   */
  take(attempt: Attempt): void {
    this.attempt = attempt
    attempt.place = this
    attempt.isReused = true
    if (looking.push(this) === 1) setImmediate(lookOnce)
  }

  /** Writes the request, unless its attempt has ended or gone elsewhere meanwhile. */
  send(): void {
    const { attempt } = this
    if (attempt === undefined || this.#socket === undefined) return
    try {
      const { request, sink } = attempt
      attempt.isSent = true
      sink.connected?.()
      this.#parser.expect(request.method === 'HEAD', request.isHandshake === true)
      this.#hasMuchContent = !isJoined(request)
      this.#content = writeRequest(this.#socket, request)
    } catch (error) {
      this.destroy(error as Error)
    }
  }

  /** The buffer for the next read. */
  nextBuffer(): Buffer {
    if (this.#isTunnel) return this.#pool.tunnelBuffer
    this.#buffer ??= Buffer.allocUnsafeSlow(READ_BYTES)
    return this.#buffer
  }

  /** The first `length` octets of `bytes` are new. Returns false if no more is wanted until `resume` of the socket. */
  received(bytes: Buffer, length: number): boolean {
    const { attempt } = this
    // Whoever has got the socket of a tunnel reads it as a stream.
    if (this.#isTunnel) return this.#socket?.push(Buffer.from(bytes.subarray(0, length))) === true
    if (attempt?.isSent !== true) {
      // No request has been sent. These bytes must not become the response to the next one.
      this.destroy()
      return false
    }
    attempt.hasResponse = true
    try {
      this.#readBytes = length
      const next = this.#parser.read(bytes, 0, length)
      if (this.#response?.status === SWITCHING_PROTOCOLS) this.#switch(this.#response, bytes.subarray(next, length))
      else if (this.attempt === attempt) {
        attempt.sink.responsePaused?.()
        if (this.#parser.endsWithConnection) this.#pauseForTurn()
      }
    } catch (error) {
      this.destroy(error instanceof MalformedMessage ? protocolError(error) : (error as Error))
    }
    return true
  }

  /**
   * Node tells of a reset as of an end if it finds the reset together with data, and goes on reading (uv__stream_io of libuv). Then
   * content that was cut would look complete. Behind a pause, it reads the reset by itself.
   */
  #pauseForTurn(): void {
    if (this.#socket?.isPaused() !== false) return // the sink goes on when it can
    this.#socket.pause()
    setImmediate(() => this.resume())
  }

  responseHead(response: ReceivedResponse): void {
    const { attempt } = this
    this.#response = response
    if (response.status === SWITCHING_PROTOCOLS) return
    // A service that answers early may never read the rest of the request, even if the kernel took it whole. Or it closes
    // although it said otherwise.
    const mayBeUnread = this.#hasMuchContent && response.status >= MULTIPLE_CHOICES
    const isAllSent = this.#content?.isOver !== false && this.#socket?.writableLength === 0
    const isHandshake = attempt?.request.isHandshake === true
    this.#persists = response.keepsAlive && !mayBeUnread && isAllSent && !isHandshake
    attempt?.sink.responseHead(new ResponseHead(response))
  }

  /** The response is a 101. `firstBytes` are of the other protocol. */
  #switch(response: ReceivedResponse, firstBytes: Buffer): void {
    const { attempt } = this
    const socket = this.#socket
    if (attempt?.request.isHandshake !== true || socket === undefined) {
      throw new Error('a 101 to a request that offers no protocol')
    }
    const head = new ResponseHead(response)
    if (head.upgrade !== 'websocket') throw new OriginError('http_upgrade_failed', 'a 101 for another protocol')
    this.#detach()
    this.#isClosed = true
    this.#isTunnel = true
    this.#buffer = undefined
    this.#pool.tunnels++
    socket.once('close', () => this.#pool.tunnels--)
    this.#pool.closed(this)
    for (const event of ['data', 'end', 'drain']) socket.removeAllListeners(event)
    socket.pause()
    socket.allowHalfOpen = true // a WebSocket may end one side first
    attempt.sink.protocolSwitched?.(head, socket, Buffer.from(firstBytes))
  }

  messageContent(bytes: Buffer, start: number, end: number): void {
    const use = this.attempt?.sink.responseContent(bytes, start, end)
    if (use === undefined || use === 'consumed') return
    this.#buffer = undefined
    if (use === 'pause') this.#socket?.pause()
  }

  resume(): void {
    this.#socket?.resume()
  }

  /** Frees the connection first: the exchange may send its next attempt from within `responseEnd`. */
  messageEnd(next: number): void {
    const response = this.#response
    const attempt = this.#detach()
    if (this.#socket?.isPaused() === true) this.resume() // the last piece of content has paused it
    // Bytes behind the response belong to no other one of ours.
    if (this.#persists && next === this.#readBytes) this.#pool.freed(this, response?.keepAliveSeconds)
    else this.#close()
    try {
      attempt?.sink.responseEnd()
    } catch (error) {
      attempt?.sink.attemptFailed(attempt, error as Error)
    }
  }

  #inputEnded(socket: Socket): void {
    if (this.#isClosed) return
    // For a socket through a proxy, that pause is none. But a socket that was reset has no peer; behind a FIN it has one.
    const wasReset = socket.remoteAddress === undefined
    if (!wasReset && this.attempt !== undefined && this.#parser.finish()) return
    this.destroy()
  }

  abort(attempt: Attempt, reason: Error): void {
    this.#close()
    attempt.sink.attemptFailed(attempt, reason)
  }

  /** Closes the connection. The attempt that it carries fails with `reason`, or goes elsewhere if it was not sent. */
  destroy(reason: Error = CLOSED): void {
    const attempt = this.#close()
    if (attempt?.isReused === true && !attempt.isSent) this.#pool.dispatch(attempt)
    else attempt?.sink.attemptFailed(attempt, reason)
  }

  #detach(): Attempt | undefined {
    const { attempt } = this
    this.attempt = undefined
    if (attempt !== undefined) attempt.place = undefined
    this.#content?.detach()
    this.#content = undefined
    this.#response = undefined
    return attempt
  }

  #close(): Attempt | undefined {
    const attempt = this.#detach()
    this.#socket?.destroy()
    if (this.#isClosed) return attempt
    this.#isClosed = true
    this.#parser.stop()
    this.#cancelOpening()
    this.#pool.closed(this)
    return attempt
  }
}

function protocolError({ reason }: MalformedMessage): OriginError {
  return new OriginError(reason === 'switch_to_nothing' ? 'http_upgrade_failed' : 'http_protocol_error', reason, {
    reason,
  })
}

const CLOSED = new OriginError('connection_terminated', 'closed by the origin')

/** Those that began to look in this turn of the event loop. */
let looking: Connection[] = []

function lookOnce(): void {
  setImmediate(endLooks, looking)
  looking = []
}

function endLooks(connections: readonly Connection[]): void {
  for (const connection of connections) connection.send()
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
function keepReading(socket: Socket, onFailed: () => void): void {
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
