/** One connection to the origin. It carries one exchange at a time, and takes the next when nothing of the last is left. */

import type { Socket } from 'node:net'
import { OriginError } from '../errors.ts'
import { keepReading } from '../http/node-internals.ts'
import type { ResponseHead } from '../http/response-head.ts'
import type { Attempt, AttemptPlace, AttemptSink, ContentSource, ContentWriter, OriginRequest } from './attempt.ts'
import type { Connector, Opening, SocketReader } from './connector.ts'
import { originError } from './origin-failure.ts'
import { type ResponseEvents, ResponseParser } from './response-parser.ts'

/** A connection that counts against the size of the pool. */
export interface PooledConnection {
  readonly isConnected: boolean
  /** The attempt that the connection carries; undefined while it is free. */
  readonly attempt: Attempt | undefined
  /** Closes the connection. Its attempt fails with `reason`. */
  destroy(reason: Error): void
}

export interface ConnectionHost {
  /** The connection can take another attempt. */
  freed(connection: Connection, keepAliveSeconds: number | undefined): void
  /** The connection has ended before a byte of `attempt` was written to it. */
  unsent(attempt: Attempt): void
  /** The connection takes no more attempts. Called once. */
  closed(connection: PooledConnection): void
}

/** The most that one read from the kernel brings. */
const READ_BYTES = 64 * 1024
/** Content up to this size is copied behind the head, into one write. Servers get it with the head, in one or two reads. */
const MAX_JOINED_BYTES = 8 * 1024

/** From this status on, a service may have answered without reading the content. */
const MULTIPLE_CHOICES = 300

export class Connection implements AttemptPlace, PooledConnection, ResponseEvents, SocketReader {
  readonly #host: ConnectionHost
  readonly #parser: ResponseParser
  readonly #opening: Opening
  #socket: Socket | undefined
  #attempt: Attempt | undefined
  /** Content that goes out in pieces; undefined if the request has none, or all of it was written with the head. */
  #content: RequestContent | undefined
  #head: ResponseHead | undefined
  #exchanges = 0
  /** True from `take` until the request is written. */
  #isLooking = false
  #isPaused = false
  #isClosed = false
  /** True if the request has content that the service may not have read when it answers. */
  #hasMuchContent = false
  /** True if the service may have answered without reading all of the request. */
  #isEarly = false
  #wasReset = false
  #buffer: Buffer | undefined
  #isBufferKept = false
  /** Monotonic milliseconds. No request is taken after it. */
  readonly retiresAt: number
  /** Monotonic milliseconds. The host sets it while the connection is free. */
  expiresAt = 0

  /** Opens the connection for its first attempt. */
  constructor(connector: Connector, host: ConnectionHost, first: Attempt, retiresAt: number) {
    this.#host = host
    this.retiresAt = retiresAt
    this.#parser = new ResponseParser(this)
    this.#attempt = first
    first.place = this
    this.#opening = connector.open(this, {
      opened: (socket) => this.#opened(socket, first),
      failed: (reason) => this.destroy(reason),
    })
  }

  get isConnected(): boolean {
    return this.#socket !== undefined
  }

  get attempt(): Attempt | undefined {
    return this.#attempt
  }

  #opened(socket: Socket, first: Attempt): void {
    this.#socket = socket
    socket.on('error', (error) => {
      this.#wasReset = true
      this.destroy(originError(error))
    })
    socket.on('end', () => this.#inputEnded(socket))
    socket.on('close', () => this.destroy(CLOSED))
    socket.on('drain', () => this.#content?.resume())
    keepReading(socket, () => this.#content?.detach())
    this.#start(socket, first)
  }

  /**
   * Sends the request of `attempt`, after a look at the connection: bytes or an end may wait on it that the event loop has not
   * read yet. Written before that, the request would get these bytes for its response. An immediate runs when all that waited
   * has been read. The connection must be free.
   */
  take(attempt: Attempt): void {
    this.#attempt = attempt
    attempt.place = this
    this.#isLooking = true
    setImmediate(lookOnce, this)
  }

  /** Nothing has come since `take`. */
  lookEnded(): void {
    if (!this.#isLooking || this.#attempt === undefined || this.#socket === undefined) return
    this.#isLooking = false
    this.#start(this.#socket, this.#attempt)
  }

  #start(socket: Socket, attempt: Attempt): void {
    try {
      attempt.isConnected = true
      attempt.isReused = this.#exchanges++ > 0
      attempt.sink.connected()
      this.#parser.expect(attempt.request.method === 'HEAD')
      this.#write(socket, attempt)
    } catch (error) {
      this.destroy(asError(error))
    }
  }

  #write(socket: Socket, { request, sink }: Attempt): void {
    const { content } = request
    const head = requestHeadText(request)
    const length = Buffer.isBuffer(content) ? content.length : request.contentLength
    this.#hasMuchContent = content !== undefined && (length === undefined || length > MAX_JOINED_BYTES)
    if (content === undefined) socket.write(head, 'latin1')
    else if (!Buffer.isBuffer(content)) {
      socket.write(head, 'latin1')
      this.#content = new RequestContent(socket, content, request.contentLength === undefined, sink)
      this.#content.start()
    } else {
      request.content = undefined // the socket has it; the response may go on for hours
      if (content.length <= MAX_JOINED_BYTES) {
        socket.write(head + content.toString('latin1'), 'latin1')
        return
      }
      socket.cork()
      socket.write(head, 'latin1')
      socket.write(content)
      socket.uncork()
    }
  }

  nextBuffer(): Buffer {
    if (this.#buffer === undefined || this.#isBufferKept) this.#buffer = Buffer.allocUnsafeSlow(READ_BYTES)
    this.#isBufferKept = false
    return this.#buffer
  }

  received(bytes: Buffer, length: number): void {
    const attempt = this.#attempt
    if (attempt === undefined || this.#isLooking) {
      // No request is under way. These bytes must not become the response to the next one.
      this.destroy(UNASKED)
      return
    }
    try {
      this.#parser.read(bytes, length)
      if (this.#attempt === attempt) attempt.sink.responsePaused()
    } catch (error) {
      this.destroy(asError(error))
    }
  }

  responseBegun(): void {
    if (this.#attempt !== undefined) this.#attempt.hasResponse = true
  }

  responseHead(head: ResponseHead): void {
    this.#head = head
    // Content that the kernel took whole may still be unread.
    const mayBeUnread = this.#hasMuchContent && head.status >= MULTIPLE_CHOICES
    this.#isEarly = mayBeUnread || this.#content?.isOver === false || this.#socket?.writableLength !== 0
    this.#attempt?.sink.responseHead(head)
  }

  responseContent(bytes: Buffer, start: number, end: number): void {
    const fate = this.#attempt?.sink.responseContent(bytes, start, end)
    if (fate === undefined || fate === 'taken') return
    this.#isBufferKept = true
    if (fate !== 'full') return
    this.#isPaused = true
    this.#socket?.pause()
  }

  resume(): void {
    if (!this.#isPaused) return
    this.#isPaused = false
    this.#socket?.resume()
  }

  /** Frees the connection first: the exchange may send its next attempt from within `responseEnd`. */
  responseEnd(isClean: boolean): void {
    const attempt = this.#detach()
    const head = this.#head
    this.#head = undefined
    // A service that answers early may never read the rest, or close although it said otherwise.
    if (isClean && head?.persists === true && !this.#isEarly) this.#free(head.keepAliveSeconds)
    else this.#close()
    try {
      attempt?.sink.responseEnd()
    } catch (error) {
      attempt?.sink.attemptFailed(attempt, asError(error))
    }
  }

  #free(keepAliveSeconds: number | undefined): void {
    if (!this.#isPaused) {
      this.#host.freed(this, keepAliveSeconds)
      return
    }
    // The last piece of content has paused the socket. A look would see nothing before the socket reads again.
    this.resume()
    setImmediate(() => {
      if (!this.#isClosed) this.#host.freed(this, keepAliveSeconds)
    })
  }

  #inputEnded(socket: Socket): void {
    // Node reports a reset right behind data as an end. But then the socket has no peer; behind a FIN it has one.
    if (socket.remoteAddress === undefined) this.#wasReset = true
    // A reset may have cut content that ends with its connection.
    if (!this.#wasReset && this.#attempt !== undefined && this.#parser.finish()) return
    this.destroy(CLOSED)
  }

  abort(attempt: Attempt, reason: Error): void {
    if (attempt !== this.#attempt) return
    this.#isLooking = false
    this.destroy(reason)
  }

  /** Closes the connection. The attempt that it carries fails with `reason`, or goes elsewhere if it was not sent. */
  destroy(reason: Error): void {
    const isUnsent = this.#isLooking
    const attempt = this.#detach()
    this.#close()
    if (attempt === undefined) return
    if (isUnsent) this.#host.unsent(attempt)
    else attempt.sink.attemptFailed(attempt, reason)
  }

  #detach(): Attempt | undefined {
    const attempt = this.#attempt
    this.#attempt = undefined
    this.#isLooking = false
    if (attempt !== undefined) attempt.place = undefined
    this.#content?.detach()
    this.#content = undefined
    return attempt
  }

  #close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#parser.stop()
    this.#opening.cancel()
    this.#socket?.destroy()
    this.#host.closed(this)
  }
}

const CLOSED = new OriginError('connection_terminated', 'closed by the origin')
const UNASKED = new OriginError('connection_terminated', 'the origin sent bytes that nobody asked for')

/** One function for all: a closure for each request would be garbage. */
function lookOnce(connection: Connection): void {
  setImmediate(sendAfterLook, connection)
}

function sendAfterLook(connection: Connection): void {
  connection.lookEnded()
}

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error('not an error')
}

/** Methods whose requests state a length of zero, too (RFC 9110 §8.6). */
const STATES_LENGTH: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH', 'QUERY', 'PROPFIND', 'PROPPATCH'])

/** Returns the head of a request on the wire, in latin1 (RFC 9112 §3 and §6). */
export function requestHeadText(request: OriginRequest): string {
  const { method, target, fields, content } = request
  let text = `${method} ${target} HTTP/1.1\r\n`
  for (let i = 0; i + 1 < fields.length; i += 2) text += `${fields[i]}: ${fields[i + 1]}\r\n`
  text += 'connection: keep-alive\r\n'
  if (content === undefined) return STATES_LENGTH.has(method) ? `${text}content-length: 0\r\n\r\n` : `${text}\r\n`
  const length = Buffer.isBuffer(content) ? content.length : request.contentLength
  return length === undefined ? `${text}transfer-encoding: chunked\r\n\r\n` : `${text}content-length: ${length}\r\n\r\n`
}

const LAST_CHUNK = '0\r\n\r\n'

/** Writes the content of one request to the socket, as it comes from the client, and frames it. */
export class RequestContent implements ContentWriter {
  readonly #socket: Socket
  readonly #source: ContentSource
  readonly #isChunked: boolean
  readonly #sink: Pick<AttemptSink, 'contentSent'>
  #isOver = false

  constructor(socket: Socket, source: ContentSource, isChunked: boolean, sink: Pick<AttemptSink, 'contentSent'>) {
    this.#socket = socket
    this.#source = source
    this.#isChunked = isChunked
    this.#sink = sink
  }

  /** True once the last of the content has been handed to the socket, or `detach` was called. */
  get isOver(): boolean {
    return this.#isOver
  }

  /** Starts behind the head. */
  start(): void {
    this.#source.streamTo(this)
  }

  write(chunk: Buffer, isOwned: boolean): boolean {
    if (this.#isOver || chunk.length === 0) return true
    const socket = this.#socket
    this.#sink.contentSent()
    if (this.#isChunked) {
      socket.cork()
      socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1')
      socket.write(chunk)
      socket.write('\r\n', 'latin1')
      socket.uncork()
    } else socket.write(chunk)
    if (socket.writableLength > 0) return !socket.writableNeedDrain
    // The kernel has a copy of everything.
    if (isOwned) free(chunk)
    return true
  }

  end(): void {
    if (this.#isOver) return
    this.#isOver = true
    if (this.#isChunked) this.#socket.write(LAST_CHUNK, 'latin1')
    this.#sink.contentSent()
  }

  /** The socket has room again. */
  resume(): void {
    if (!this.#isOver) this.#source.resume()
  }

  /** The connection takes no more content. */
  detach(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#source.detach()
  }
}

/** Below this, freeing costs more than it saves. */
const MIN_FREED_BYTES = 16 * 1024

/** A message to a closed port is dropped at once, and memory that was transferred to it is freed. */
const nowhere = new MessageChannel().port1
nowhere.close()

/**
 * Frees the memory of `chunk`, without waiting for the garbage collector. V8 collects the whole heap each time such memory
 * has grown by some 64 MiB, and each new piece lies in memory that no processor cache holds. Does nothing if `chunk`
 * shares its memory.
 */
function free(chunk: Buffer): void {
  const { buffer } = chunk
  if (chunk.length < MIN_FREED_BYTES || chunk.length !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return
  nowhere.postMessage(null, [buffer])
}
