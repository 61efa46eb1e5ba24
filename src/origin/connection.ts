/** One connection to the origin: one exchange at a time, and no other until nothing of the one before is left. */

import type { Socket } from 'node:net'
import { OriginError } from '../errors.ts'
import type { ResponseHead, ResponseHeadOptions } from '../http/response-head.ts'
import type { Attempt, AttemptPlace } from './attempt.ts'
import type { Connector, Opening, SocketReader } from './connector.ts'
import { RequestContent } from './request-content.ts'
import { requestHeadText } from './request-text.ts'
import { type ResponseEvents, ResponseParser } from './response-parser.ts'

export interface ConnectionHost {
  /** It can take another attempt. */
  freed(connection: Connection, keepAliveSeconds: number | undefined): void
  /** It cannot any more; told once. */
  closed(connection: Connection): void
}

/** What one read of the kernel may bring. */
const READ_BYTES = 64 * 1024
/** Content up to this size is copied into the head's write. */
const MAX_JOINED_BYTES = 8 * 1024

export class Connection implements AttemptPlace, ResponseEvents, SocketReader {
  readonly #host: ConnectionHost
  readonly #isSingle: boolean
  readonly #parser: ResponseParser
  readonly #opening: Opening
  #socket: Socket | undefined
  #attempt: Attempt | undefined
  /** What of the request goes out in pieces. */
  #content: RequestContent | undefined
  #head: ResponseHead | undefined
  #exchanges = 0
  #isPaused = false
  #isClosed = false
  #wasReset = false
  #buffer: Buffer | undefined
  #isBufferKept = false
  /** Monotonic milliseconds; set by the host while it is free. */
  expiresAt = 0

  /** Opens it for its first attempt. `isSingle`: it carries no other. */
  constructor(
    connector: Connector,
    options: ResponseHeadOptions,
    host: ConnectionHost,
    first: Attempt,
    isSingle: boolean,
  ) {
    this.#host = host
    this.#isSingle = isSingle
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

  #opened(socket: Socket, first: Attempt): void {
    this.#socket = socket
    socket.on('error', (error) => {
      this.#wasReset = true
      this.#fail(error)
    })
    socket.on('end', () => this.#inputEnded(socket))
    socket.on('close', () => this.#fail(new OriginError('connection_terminated', 'closed by the origin')))
    socket.on('drain', () => this.#content?.resume())
    this.#start(socket, first)
  }

  /** Sends the request of `attempt`; the connection is free. */
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
    const head = requestHeadText(request, this.#isSingle)
    if (content === undefined) socket.write(head, 'latin1')
    else if (!Buffer.isBuffer(content)) {
      socket.write(head, 'latin1')
      const isChunked = request.contentLength === undefined
      this.#content = new RequestContent(socket, content, isChunked, attempt.sink)
      this.#content.start()
    } else if (content.length <= MAX_JOINED_BYTES) {
      socket.write(head + content.latin1Slice(0, content.length), 'latin1')
    } else {
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
      // Nothing was asked: whatever it is, it must not become the answer to the next request.
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

  /** The place is given back first: what the end of a response brings about may want it. */
  responseEnd(isClean: boolean): void {
    const isRequestSent = this.#content?.isOver ?? true
    const attempt = this.#detach()
    const head = this.#head
    this.#head = undefined
    if (isClean && isRequestSent && !this.#isSingle && head?.persists === true && this.#hasFlushed) {
      // The last content may have been more than its reader wanted; there is nobody left to ask for more.
      this.resume()
      this.#host.freed(this, head.keepAliveSeconds)
    } else this.#close()
    attempt?.sink.responseEnd()
  }

  /** False where the origin has answered without taking all that was sent: it may never take the next request. */
  get #hasFlushed(): boolean {
    return this.#socket?.writableLength === 0
  }

  #inputEnded(socket: Socket): void {
    // A reset right behind data is told as a plain end; but no peer is left then, as there is behind a FIN.
    if (socket.remoteAddress === undefined) this.#wasReset = true
    // Content that ends with its connection may as well have been cut where that was reset.
    if (!this.#wasReset && this.#attempt !== undefined && this.#parser.finish()) return
    this.#fail(new OriginError('connection_terminated', 'closed by the origin'))
  }

  abort(attempt: Attempt, reason: Error): void {
    if (attempt === this.#attempt) this.#fail(reason)
  }

  /** Ends it together with the attempt that it carries. */
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

  /** Ends it; whoever uses it is told. */
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
