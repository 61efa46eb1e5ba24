/**
 * Responses out of the bytes of one connection (RFC 9112), strictly: what leaves a doubt about where a response ends is
 * refused. Bytes in, events out; it knows no socket.
 */

import { OriginError } from '../errors.ts'
import { parseResponseHead, type ResponseHead, type ResponseHeadOptions } from '../http/response-head.ts'
import { ChunkedContent } from './chunked-content.ts'

export interface ResponseEvents {
  /** The first byte of it has come. */
  responseBegun(): void
  /** The final head. */
  responseHead(head: ResponseHead): void
  /** Octets `start` to `end` of `bytes`, in the order of the content. */
  responseContent(bytes: Buffer, start: number, end: number): void
  /** All of it. `isClean` unless bytes have come that belong to no response of ours. */
  responseEnd(isClean: boolean): void
}

type Expects = 'nothing' | 'head' | 'counted content' | 'chunked content' | 'content until the end'

const END_OF_HEAD = '\r\n\r\n'
const VERSION = 'HTTP/1.'
/** Heads larger than this are a fault of the origin. */
const MAX_HEAD_BYTES = 64 * 1024
/** Looked at in one go; a usual head is much shorter, and content must not be made a string. */
const HEAD_SLICE_BYTES = 4 * 1024
/** More interim responses than any use of them needs. */
const MAX_INTERIM = 32

const SWITCHING_PROTOCOLS = 101
const NO_CONTENT = 204
const NOT_MODIFIED = 304

export class ResponseParser {
  readonly #events: ResponseEvents
  readonly #options: ResponseHeadOptions
  #expects: Expects = 'nothing'
  #isHead = false
  #held = ''
  /** The last octets of what is held. */
  #seam = ''
  #interims = 0
  #remaining = 0
  #chunked: ChunkedContent | undefined

  constructor(events: ResponseEvents, options: ResponseHeadOptions) {
    this.#events = events
    this.#options = options
  }

  /** A request has been sent. `isHead`: its response has no content, whatever its head says. */
  expect(isHead: boolean): void {
    this.#expects = 'head'
    this.#isHead = isHead
    this.#interims = 0
  }

  /** No more events. */
  stop(): void {
    this.#expects = 'nothing'
  }

  /** Reads the first `end` octets. @throws {OriginError} */
  read(bytes: Buffer, end: number): void {
    let at = 0
    while (at < end && this.#expects !== 'nothing') at = this.#readSome(bytes, at, end)
  }

  #readSome(bytes: Buffer, at: number, end: number): number {
    switch (this.#expects) {
      case 'head':
        return this.#readHead(bytes, at, end)
      case 'counted content':
        return this.#readCounted(bytes, at, end)
      case 'chunked content':
        return this.#readChunked(bytes, at, end)
      case 'content until the end':
        this.#events.responseContent(bytes, at, end)
        return end
      case 'nothing':
        return end
    }
  }

  /** The connection has ended. True where that is how the content ends, too. */
  finish(): boolean {
    if (this.#expects !== 'content until the end') return false
    this.#end(false)
    return true
  }

  #readHead(bytes: Buffer, start: number, end: number): number {
    if (this.#held === '') this.#events.responseBegun()
    const stop = Math.min(end, start + HEAD_SLICE_BYTES)
    const slice = bytes.latin1Slice(start, stop)
    const before = this.#held
    // Only the seam is looked at again, and what is held stays a rope: a head in a thousand pieces is still read once.
    const seam = this.#seam
    const found = (seam + slice).indexOf(END_OF_HEAD)
    if (found === -1) {
      this.#hold(before + slice, (seam + slice).slice(-(END_OF_HEAD.length - 1)))
      return stop
    }
    this.#held = ''
    this.#seam = ''
    const length = before.length - seam.length + found
    if (length > MAX_HEAD_BYTES) throw malformed('the head is too large')
    this.#takeHead((before + slice).slice(0, length), start + length - before.length + END_OF_HEAD.length === end)
    return start + length - before.length + END_OF_HEAD.length
  }

  #hold(text: string, seam: string): void {
    // What is no HTTP may never come to an end of a head.
    if (this.#held.length < VERSION.length && !begins(text, VERSION)) throw malformed('no head of a response')
    // All but the last octet of its end may be here already.
    if (text.length >= MAX_HEAD_BYTES + END_OF_HEAD.length) throw malformed('the head is too large')
    this.#held = text
    this.#seam = seam
  }

  #takeHead(text: string, isLast: boolean): void {
    const head = parseResponseHead(text, this.#options)
    if (head === undefined) throw malformed('the head is not one to rely on')
    const { status } = head
    // Nobody asked for other protocols here.
    if (status > 599 || status === SWITCHING_PROTOCOLS) throw malformed('a status that no request of ours can have')
    if (status < 200) {
      // A client must put up with a 100 that it never asked for (RFC 9110 §15.2.1); interim responses are dropped.
      if (++this.#interims > MAX_INTERIM) throw malformed('interim responses without end')
      return
    }
    this.#frame(head)
    this.#events.responseHead(head)
    // `stop` may have been called meanwhile, which nobody can take for an end.
    if (this.#expects === 'counted content' && this.#remaining === 0) this.#end(isLast)
  }

  /** RFC 9112 §6.3. */
  #frame(head: ResponseHead): void {
    this.#remaining = 0
    this.#expects = 'counted content'
    if (this.#isHead || head.status === NOT_MODIFIED) return
    if (head.status === NO_CONTENT) {
      // Who announces content where none can be may send it yet (RFC 9110 §8.6), and it would be the next response.
      if (head.isChunked || (head.contentLength ?? 0) > 0) head.persists = false
      return
    }
    if (head.isChunked) {
      this.#chunked = new ChunkedContent((bytes, start, end) => this.#events.responseContent(bytes, start, end))
      this.#expects = 'chunked content'
    } else if (head.contentLength === undefined) this.#expects = 'content until the end'
    else this.#remaining = head.contentLength
  }

  #readCounted(bytes: Buffer, start: number, end: number): number {
    const stop = Math.min(end, start + this.#remaining)
    this.#remaining -= stop - start
    this.#events.responseContent(bytes, start, stop)
    if (this.#remaining === 0 && this.#expects === 'counted content') this.#end(stop === end)
    return stop
  }

  #readChunked(bytes: Buffer, start: number, end: number): number {
    const chunked = this.#chunked
    if (chunked === undefined) return end
    const stop = chunked.read(bytes, start, end)
    if (chunked.isOver && this.#expects === 'chunked content') this.#end(stop === end)
    return stop
  }

  #end(isClean: boolean): void {
    this.#expects = 'nothing'
    this.#chunked = undefined
    this.#events.responseEnd(isClean)
  }
}

/** True where `text` begins with `start`, as far as it has come. */
function begins(text: string, start: string): boolean {
  return text.length < start.length ? start.startsWith(text) : text.startsWith(start)
}

function malformed(detail: string): OriginError {
  return new OriginError('http_protocol_error', detail)
}
