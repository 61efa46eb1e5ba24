/**
 * Parses the responses on one connection (RFC 9112). Strict: a response whose end is in doubt is refused. Bytes go in,
 * events come out; no socket is involved.
 */

import { OriginError } from '../errors.ts'
import { parseResponseHead, type ResponseHead, type ResponseHeadOptions } from '../http/response-head.ts'
import { ChunkedContent } from './chunked-content.ts'

export interface ResponseEvents {
  /** The first byte of a response has arrived. */
  responseBegun(): void
  /** The final head is complete. */
  responseHead(head: ResponseHead): void
  /** Content has arrived, in order: octets `start` to `end` of `bytes`. */
  responseContent(bytes: Buffer, start: number, end: number): void
  /** The response is complete. `isClean` is false if bytes have arrived that belong to no response of ours. */
  responseEnd(isClean: boolean): void
}

type Expects = 'nothing' | 'head' | 'counted content' | 'chunked content' | 'content until the end'

const END_OF_HEAD = '\r\n\r\n'
const VERSION = 'HTTP/1.'
/** A line feed without a carriage return before it. A head with such lines may never contain `END_OF_HEAD`. */
const BARE_LINE_FEED = /[^\r]\n/
/** Larger heads are refused. */
const MAX_HEAD_BYTES = 64 * 1024
/** Searched at once. Most heads are much shorter, and content behind a head should not become a string. */
const HEAD_SLICE_BYTES = 4 * 1024
/** More interim responses than any service needs. */
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
  /** The last octets of `#held`. */
  #seam = ''
  #interims = 0
  #remaining = 0
  #chunked: ChunkedContent | undefined

  constructor(events: ResponseEvents, options: ResponseHeadOptions) {
    this.#events = events
    this.#options = options
  }

  /** A request has been sent. `isHead`: it was a HEAD, so the response has no content, whatever its fields say. */
  expect(isHead: boolean): void {
    this.#expects = 'head'
    this.#isHead = isHead
    this.#interims = 0
  }

  /** Ends parsing. No more events follow. */
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

  /** The connection has ended. Returns true if that is a valid end of the content. */
  finish(): boolean {
    if (this.#expects !== 'content until the end') return false
    this.#end(false)
    return true
  }

  #readHead(bytes: Buffer, start: number, end: number): number {
    if (this.#held === '') this.#events.responseBegun()
    const stop = Math.min(end, start + HEAD_SLICE_BYTES)
    const slice = bytes.toString('latin1', start, stop)
    const before = this.#held
    // Only the last octets are searched again, and V8 does not flatten `#held`: a head in a thousand pieces is read once.
    const seam = this.#seam
    const found = (seam + slice).indexOf(END_OF_HEAD)
    if (found === -1) {
      if (BARE_LINE_FEED.test(seam + slice)) throw malformed('a line of the head ends without a carriage return')
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
    // Bytes that are not HTTP may never contain the end of a head.
    if (this.#held.length < VERSION.length && !begins(text, VERSION)) throw malformed('the response is not HTTP')
    // Up to three of the four octets that end the head may be included.
    if (text.length >= MAX_HEAD_BYTES + END_OF_HEAD.length) throw malformed('the head is too large')
    this.#held = text
    this.#seam = seam
  }

  #takeHead(text: string, isLast: boolean): void {
    const head = parseResponseHead(text, this.#options)
    if (head === undefined) throw malformed('the head is malformed, or its framing is doubtful')
    const { status } = head
    // No request here asks for another protocol.
    if (status > 599 || status === SWITCHING_PROTOCOLS) throw malformed('the status is no valid answer to the request')
    if (status < 200) {
      // A client must accept a 100 that it did not ask for (RFC 9110 §15.2.1). Interim responses are dropped.
      if (++this.#interims > MAX_INTERIM) throw malformed('too many interim responses')
      return
    }
    this.#frame(head)
    this.#events.responseHead(head)
    // The event may have called `stop`, which is not the end of the response.
    if (this.#expects === 'counted content' && this.#remaining === 0) this.#end(isLast)
  }

  /** RFC 9112 §6.3. */
  #frame(head: ResponseHead): void {
    this.#remaining = 0
    this.#expects = 'counted content'
    if (this.#isHead || head.status === NOT_MODIFIED) return
    if (head.status === NO_CONTENT) {
      // An origin that declares content here may send it (RFC 9110 §8.6). It would be read as the next response.
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

/** Returns true if `text` begins with `start`, or with its beginning if `text` is shorter. */
function begins(text: string, start: string): boolean {
  return text.length < start.length ? start.startsWith(text) : text.startsWith(start)
}

function malformed(detail: string): OriginError {
  return new OriginError('http_protocol_error', detail)
}
