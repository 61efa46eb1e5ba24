/** One connection to the origin. It carries one exchange at a time, and takes the next when nothing of the last is left. */

import type { Socket } from 'node:net'
import { OriginError } from '../errors.ts'
import type { ResponseHead, ResponseHeadOptions } from '../http/response-head.ts'
import type { Attempt, AttemptPlace, OriginRequest } from './attempt.ts'
import type { Connector, Opening, SocketReader } from './connector.ts'
import { RequestContent } from './request-content.ts'
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
  /** The connection takes no more attempts. Called once. */
  closed(connection: PooledConnection): void
}

/** The most that one read from the kernel brings. */
const READ_BYTES = 64 * 1024
/** Content up to this size is copied behind the head, into one write. */
const MAX_JOINED_BYTES = 8 * 1024

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
  #isPaused = false
  #isClosed = false
  #wasReset = false
  #buffer: Buffer | undefined
  #isBufferKept = false
  /** Monotonic milliseconds. The host sets it while the connection is free. */
  expiresAt = 0

  /** Opens the connection for its first attempt. */
  constructor(connector: Connector, options: ResponseHeadOptions, host: ConnectionHost, first: Attempt) {
    this.#host = host
    this.#parser = new ResponseParser(this, options)
    this.#attempt = first
    first.place = this
    this.#opening = connector.open(this, (error, socket) => {
      if (socket === undefined) this.#fail(error ?? new OriginError('connection_refused', 'no connection'))
      else this.#opened(socket, first)
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
      this.#fail(error)
    })
    socket.on('end', () => this.#inputEnded(socket))
    socket.on('close', () => this.#fail(new OriginError('connection_terminated', 'closed by the origin')))
    socket.on('drain', () => this.#content?.resume())
    onFailedWrite(socket, () => this.#content?.detach())
    this.#start(socket, first)
  }

  /** Sends the request of `attempt`. The connection must be free. */
  take(attempt: Attempt): void {
    const socket = this.#socket
    if (socket === undefined) return
    this.#attempt = attempt
    attempt.place = this
    this.#start(socket, attempt)
  }

  #start(socket: Socket, attempt: Attempt): void {
    attempt.isConnected = true
    attempt.isReused = this.#exchanges++ > 0
    attempt.sink.connected()
    const { request } = attempt
    const { content } = request
    this.#parser.expect(request.method === 'HEAD')
    const head = requestHeadText(request)
    if (content === undefined) socket.write(head, 'latin1')
    else if (!Buffer.isBuffer(content)) {
      socket.write(head, 'latin1')
      const isChunked = request.contentLength === undefined
      this.#content = new RequestContent(socket, content, isChunked, attempt.sink)
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
    if (attempt === undefined) {
      // No request is under way. These bytes must not become the response to the next one.
      this.#close()
      return
    }
    try {
      this.#parser.read(bytes, length)
    } catch (error) {
      this.#fail(error instanceof Error ? error : new OriginError('http_protocol_error', 'not readable'))
      return
    }
    if (this.#attempt === attempt) attempt.sink.responsePaused()
  }

  responseBegun(): void {
    if (this.#attempt !== undefined) this.#attempt.hasResponse = true
  }

  responseHead(head: ResponseHead): void {
    this.#head = head
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
    const isRequestSent = this.#content?.isOver ?? true
    const attempt = this.#detach()
    const head = this.#head
    this.#head = undefined
    if (isClean && isRequestSent && head?.persists === true && this.#hasFlushed) {
      // The last piece of content may have paused the socket, and no exchange is left to resume it.
      this.resume()
      this.#host.freed(this, head.keepAliveSeconds)
    } else this.#close()
    attempt?.sink.responseEnd()
  }

  /** False if the origin answered without reading all of the request. It may never read the next one either. */
  get #hasFlushed(): boolean {
    return this.#socket?.writableLength === 0
  }

  #inputEnded(socket: Socket): void {
    // Node reports a reset right behind data as an end. But then the socket has no peer; behind a FIN it has one.
    if (socket.remoteAddress === undefined) this.#wasReset = true
    // A reset may have cut content that ends with its connection.
    if (!this.#wasReset && this.#attempt !== undefined && this.#parser.finish()) return
    this.#fail(new OriginError('connection_terminated', 'closed by the origin'))
  }

  abort(attempt: Attempt, reason: Error): void {
    if (attempt === this.#attempt) this.#fail(reason)
  }

  /** Closes the connection. The attempt that it carries fails. */
  #fail(error: Error): void {
    const attempt = this.#detach()
    this.#close()
    attempt?.sink.attemptFailed(attempt, error)
  }

  #detach(): Attempt | undefined {
    const attempt = this.#attempt
    this.#attempt = undefined
    if (attempt !== undefined) attempt.place = undefined
    this.#content?.detach()
    this.#content = undefined
    return attempt
  }

  /** Closes the connection. The attempt that it carries fails with `reason`. */
  destroy(reason: Error): void {
    this.#fail(reason)
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

type WriteDone = (error?: Error | null) => void

/** Errors of a write to a peer that reads no more. What the peer sent before may still be read. */
const READS_NO_MORE: ReadonlySet<unknown> = new Set(['EPIPE', 'ECONNRESET'])

/**
 * Keeps `socket` reading after a write has failed, and calls `onFailed` then. A service may answer before it has read the
 * content, and close: its kernel resets the connection, our next write fails, and the answer still lies in our receive
 * buffer. Node destroys a socket whose write fails, and the answer is lost with it. So the error is withheld from the
 * stream: no write after it reaches the kernel, and reading goes on to the end of the connection, which follows at once.
 */
function onFailedWrite(socket: Socket, onFailed: () => void): void {
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
