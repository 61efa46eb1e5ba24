/** Writes the service's response to the client's socket: a small one in a single write, a large one as it comes. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { markBegun, markEnded, resetNow } from '../http/node-internals.ts'
import { type ResponseFraming, type ResponseHead, responseHeadText } from '../http/response-head.ts'
import type { ContentFate } from '../origin/attempt.ts'

/** Content up to this size is copied behind the head. One write of a string costs less than a write of two parts. */
const MAX_JOINED_BYTES = 8 * 1024
const LAST_CHUNK = '0\r\n\r\n'

const NO_CONTENT = 204
const NOT_MODIFIED = 304

export interface RelayOwner {
  clientDrained(): void
}

export class ResponseRelay {
  readonly #message: IncomingMessage
  readonly #response: ServerResponse
  readonly #keepAliveSeconds: number
  #framing: ResponseFraming = 'none'
  /** Head and content that are still to be written. */
  #text = ''
  #hasHead = false
  #isOver = false
  #awaitsDrain = false
  /** Octets of content so far. */
  bytes = 0

  constructor(message: IncomingMessage, response: ServerResponse, keepAliveSeconds: number) {
    this.#message = message
    this.#response = response
    this.#keepAliveSeconds = keepAliveSeconds
  }

  /** True once the service's head is here. */
  get hasHead(): boolean {
    return this.#hasHead
  }

  /** True once a byte of the response may have reached the client. */
  get hasStarted(): boolean {
    return this.#response.headersSent
  }

  /** Takes the head. It is written together with the content that came with it. */
  begin(head: ResponseHead): void {
    this.#hasHead = true
    this.#framing = this.#framingOf(head)
    const isKept = this.#response.shouldKeepAlive && this.#framing !== 'until close'
    this.#response.shouldKeepAlive = isKept
    this.#text = responseHeadText(head, this.#framing, { isKept, keepAliveSeconds: this.#keepAliveSeconds })
  }

  #framingOf(head: ResponseHead): ResponseFraming {
    if (this.#message.method === 'HEAD' || head.status === NO_CONTENT || head.status === NOT_MODIFIED) return 'none'
    if (head.contentLength !== undefined) return 'counted'
    return this.#message.httpVersionMinor === 0 ? 'until close' : 'chunked'
  }

  /** Returns `full` if the client is slower than the service. `owner` is told when the client has caught up. */
  write(bytes: Buffer, start: number, end: number, owner: RelayOwner): ContentFate {
    const length = end - start
    this.bytes += length
    if (this.#framing === 'none' || length === 0) return 'taken'
    if (this.#framing === 'chunked') this.#text += `${length.toString(16)}\r\n`
    // Nothing more is joined behind a client that reads nothing: an endless run of small pieces would fill the memory.
    const takesMore = this.#response.socket?.writableNeedDrain !== true
    if (takesMore && this.#text.length + length <= MAX_JOINED_BYTES) {
      this.#text += bytes.toString('latin1', start, end)
      if (this.#framing === 'chunked') this.#text += '\r\n'
      return 'taken'
    }
    return this.#writeThrough(bytes.subarray(start, end), owner)
  }

  #writeThrough(chunk: Buffer, owner: RelayOwner): ContentFate {
    const { socket } = this.#response
    if (socket === null || socket.destroyed) return 'taken'
    const isChunked = this.#framing === 'chunked'
    if (this.#text !== '' || isChunked) {
      socket.cork()
      this.#writeText()
      socket.write(chunk)
      if (isChunked) socket.write('\r\n', 'latin1')
      socket.uncork()
    } else socket.write(chunk)
    if (socket.writableLength === 0) return 'taken'
    if (!socket.writableNeedDrain) return 'kept'
    this.#awaitDrain(owner)
    return 'full'
  }

  #awaitDrain(owner: RelayOwner): void {
    if (this.#awaitsDrain) return
    this.#awaitsDrain = true
    this.#response.socket?.once('drain', () => {
      this.#awaitsDrain = false
      owner.clientDrained()
    })
  }

  /** Returns true if the system has taken everything. Otherwise the response emits `finish` when it has. */
  end(): boolean {
    this.#isOver = true
    if (this.#framing === 'chunked') this.#text += LAST_CHUNK
    const last = this.#text
    this.#text = ''
    if (last !== '' && !this.hasStarted) markBegun(this.#response, this.#response.shouldKeepAlive)
    const { socket } = this.#response
    return socket !== null && markEnded(this.#response, socket, last)
  }

  /** Writes what is held back. The service has sent nothing more for now, so waiting for more would delay the client. */
  flush(): void {
    if (!this.#isOver) this.#writeText()
  }

  #writeText(): void {
    const text = this.#text
    if (text === '') return
    this.#text = ''
    if (!this.hasStarted) markBegun(this.#response, this.#response.shouldKeepAlive)
    this.#response.socket?.write(text, 'latin1')
  }

  /** Nothing more is written. What is still to be flushed counts as not sent. */
  abandon(): void {
    this.#isOver = true
    const unsent = this.#text.length + (this.#response.socket?.writableLength ?? 0)
    this.bytes = Math.max(0, this.bytes - unsent)
    this.#text = ''
  }

  /** Breaks the message off. A reset is needed if the end of the connection would look like the end of the content. */
  breakOff(): void {
    this.abandon()
    const { socket } = this.#message
    if (this.#framing === 'until close') resetNow(socket)
    else socket.destroy()
  }
}
