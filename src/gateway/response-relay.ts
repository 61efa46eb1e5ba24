/** The client's side of an exchange: an origin's response written straight through, a small one in a single write. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ResponseHead } from '../http/response-head.ts'

/** What Node lets stand as a reason phrase. */
const REASON = /^[\t\x20-\x7e\x80-\xff]*$/

/** Content up to this size is copied into the head's write. */
const MAX_JOINED_BYTES = 8 * 1024

export interface RelayOwner {
  clientDrained(): void
}

export class ResponseRelay {
  readonly #message: IncomingMessage
  readonly #response: ServerResponse
  #status = 0
  #reason = ''
  #head: ResponseHead | undefined
  #firstChunk: Buffer | undefined
  #isOver = false
  #listensForDrain = false
  /** Octets of content. */
  bytes = 0

  constructor(message: IncomingMessage, response: ServerResponse) {
    this.#message = message
    this.#response = response
  }

  /** True once there is a head to relay. */
  get hasBegun(): boolean {
    return this.#head !== undefined
  }

  /** True once a byte of the response may have reached the client. */
  get hasStarted(): boolean {
    return this.#response.headersSent
  }

  /** Takes the head; it is written with the first content, with the end, or when the tick is over. */
  begin(status: number, reason: string, head: ResponseHead): void {
    this.#status = status
    this.#reason = reason
    this.#head = head
    process.nextTick(flushRelay, this)
  }

  /** `false` where the client is slower than the origin: `owner` is told when it has caught up. */
  write(chunk: Buffer, owner: RelayOwner): boolean {
    this.bytes += chunk.length
    if (!this.hasStarted) {
      if (this.#firstChunk === undefined) {
        this.#firstChunk = chunk
        return true
      }
      this.flush()
    }
    if (this.#response.write(chunk)) return true
    if (!this.#listensForDrain) {
      this.#listensForDrain = true
      this.#response.on('drain', () => owner.clientDrained())
    }
    return false
  }

  end(): void {
    this.#isOver = true
    if (this.hasStarted) {
      this.#response.end()
      return
    }
    this.#writeHead()
    const chunk = this.#firstChunk
    if (chunk === undefined) this.#response.end()
    else if (chunk.length > MAX_JOINED_BYTES || !joinToHead(this.#response, chunk)) this.#response.end(chunk)
  }

  /** What has not ended within its tick is not small: it goes out as it comes. */
  flush(): void {
    if (this.#isOver || this.hasStarted) return
    this.#writeHead()
    const chunk = this.#firstChunk
    this.#firstChunk = undefined
    if (chunk === undefined) this.#response.flushHeaders()
    else this.#response.write(chunk)
  }

  /** Nothing more is written. */
  abandon(): void {
    this.#isOver = true
  }

  /** Lets the client see a broken message: a reset where the end of the connection would pass for the end of the content. */
  breakOff(): void {
    this.#isOver = true
    const { socket } = this.#message
    const endsWithConnection = this.#head?.contentLength === undefined && !this.#response.chunkedEncoding
    if (endsWithConnection) socket.resetAndDestroy()
    else socket.destroy()
  }

  #writeHead(): void {
    const head = this.#head
    if (head === undefined) return
    this.#response.writeHead(this.#status, REASON.test(this.#reason) ? this.#reason : '', head.fields)
  }
}

/**
 * Ends the response with its content in the very string of its head: Node would otherwise write head, content and an empty
 * end as a vector, at about a tenth of the price of the whole request. `_header` is internal to Node, though as old as its
 * streams; where it is no string any more, nothing is joined.
 */
function joinToHead(response: ServerResponse & { _header?: unknown }, chunk: Buffer): boolean {
  if (typeof response._header !== 'string' || response.chunkedEncoding || response.req.method === 'HEAD') return false
  response._header += chunk.toString('latin1')
  response.end()
  return true
}

function flushRelay(relay: ResponseRelay): void {
  relay.flush()
}
