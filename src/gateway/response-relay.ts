/** Writes the service's response to the client's socket: a small one in a single write, a large one as it comes. */

import type { IncomingMessage } from 'node:http'
import type { ClientResponse } from '../http/client-response.ts'
import { resetNow } from '../http/node-internals.ts'
import { type ResponseFraming, type ResponseHead, responseHeadText } from '../http/response-head.ts'
import type { ContentFate } from '../origin/attempt.ts'

/** Content up to this size is copied behind the head. One write of a string costs less than a write of two parts. */
const MAX_JOINED_BYTES = 8 * 1024

export class ResponseRelay {
  readonly #message: IncomingMessage
  readonly #response: ClientResponse
  #framing: ResponseFraming = 'none'
  /** Head and content that are still to be written. */
  #text = ''
  /** True once the service's head is here. */
  hasHead = false
  /** Octets of content so far. */
  bytes = 0

  constructor(message: IncomingMessage, response: ClientResponse) {
    this.#message = message
    this.#response = response
  }

  /** Takes the head. It is written together with the content that came with it. */
  begin(head: ResponseHead, keepAliveSeconds: number): void {
    this.hasHead = true
    this.#framing = this.#framingOf(head)
    if (this.#framing === 'until close') this.#response.keepsAlive = false
    this.#text = responseHeadText(head, this.#framing, this.#response.keepsAlive ? keepAliveSeconds : undefined)
  }

  #framingOf(head: ResponseHead): ResponseFraming {
    if (!head.hasContent) return 'none'
    if (head.contentLength !== undefined) return 'counted'
    return this.#message.httpVersionMinor === 0 ? 'until close' : 'chunked'
  }

  /** Returns `full` if the client is slower than the service. Its socket emits `drain` when the client has caught up. */
  write(bytes: Buffer, start: number, end: number): ContentFate {
    const length = end - start
    this.bytes += length
    if (this.#framing === 'none' || length === 0) return 'taken'
    const lineEnd = this.#framing === 'chunked' ? '\r\n' : ''
    if (lineEnd !== '') this.#text += `${length.toString(16)}\r\n`
    const { socket } = this.#response
    // Nothing more is joined behind a client that reads nothing: an endless run of small pieces would fill the memory.
    if (!socket.writableNeedDrain && this.#text.length + length <= MAX_JOINED_BYTES) {
      this.#text += bytes.toString('latin1', start, end) + lineEnd
      return 'taken'
    }
    if (socket.destroyed) return 'taken'
    const isMany = this.#text !== ''
    if (isMany) socket.cork()
    this.flush()
    socket.write(bytes.subarray(start, end))
    this.#text = lineEnd
    if (isMany) {
      this.flush()
      socket.uncork()
    }
    if (socket.writableLength === 0) return 'taken'
    return socket.writableNeedDrain ? 'full' : 'kept'
  }

  /** Writes what is held back. The service has sent nothing more for now, so waiting for more would delay the client. */
  flush(): void {
    this.#response.write(this.#takeText())
  }

  /** Returns true if the system has taken everything. */
  end(): boolean {
    if (this.#framing === 'chunked') this.#text += '0\r\n\r\n'
    return this.#response.end(this.#takeText())
  }

  #takeText(): string {
    const text = this.#text
    this.#text = ''
    return text
  }

  /** Nothing more is written. What is still to be flushed counts as not sent. */
  discard(): void {
    const unsent = this.#text.length + this.#response.socket.writableLength
    this.bytes = Math.max(0, this.bytes - unsent)
    this.#text = ''
  }

  /** Breaks the message off. A reset is needed if the end of the connection would look like the end of the content. */
  cut(): void {
    this.discard()
    const { socket } = this.#message
    if (this.#framing === 'until close') resetNow(socket)
    else socket.destroy()
  }
}
