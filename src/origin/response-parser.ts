/**
 * Parses the responses on one connection (RFC 9112). Strict: a response whose end is in doubt is refused. Bytes go in,
 * events come out; no socket is involved.
 */

import { OriginError } from '../errors.ts'
import { parseResponseHead, type ResponseHead } from '../http/response-head.ts'
import type { Connection } from './connection.ts'

/** Receives the events of the responses, content in order. */
export type ResponseEvents = Pick<Connection, 'responseHead' | 'protocolSwitched' | 'responseContent' | 'responseEnd'>

/** What has to come next, behind `#remaining` octets of content. `nothing`: parsing has ended. */
type Expects =
  | 'nothing'
  | 'head'
  | 'size of a chunk'
  | 'end of a chunk'
  | 'trailer'
  | 'end of the content'
  | 'end of the connection'

const LF = 0x0a
const CRLF = '\r\n'
const END_OF_HEAD = '\r\n\r\n'
const VERSION = 'HTTP/1.'
/** A line feed without a carriage return before it. A head with such lines may never contain `END_OF_HEAD`. */
const BARE_LINE_FEED = /[^\r]\n/
/** Larger heads are refused. */
const MAX_HEAD_BYTES = 64 * 1024
/** Searched at once. Most heads are much shorter, and content behind a head should not become a string. */
const HEAD_SLICE_BYTES = 4 * 1024

const SWITCHING_PROTOCOLS = 101
const NO_CONTENT = 204
const NOT_MODIFIED = 304

/** Sizes up to 2^52, padded with zeros or not. Extensions are skipped; blanks may stand before their semicolon. */
const SIZE_LINE = /^0{0,15}([0-9A-Fa-f]{1,13})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?$/
const TRAILER_LINE = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n$/
const MAX_LINE_BYTES = 4 * 1024

export class ResponseParser {
  readonly #events: ResponseEvents
  #expects: Expects = 'nothing'
  #isHead = false
  /** The beginning of a head or a line whose end has not come yet. */
  #held = ''
  /** Octets of content until what is expected; `Infinity` if only the end of the connection ends it. */
  #remaining = 0

  constructor(events: ResponseEvents) {
    this.#events = events
  }

  /** A request has been sent. `isHead`: it was a HEAD, so the response has no content, whatever its fields say. */
  expect(isHead: boolean): void {
    this.#expects = 'head'
    this.#isHead = isHead
  }

  /** Ends parsing. No more events follow. */
  stop(): void {
    this.#expects = 'nothing'
  }

  /** Reads the first `end` octets. @throws {OriginError} */
  read(bytes: Buffer, end: number): void {
    let at = 0
    while (at < end && this.#expects !== 'nothing') {
      if (this.#expects === 'head') at = this.#readHead(bytes, at, end)
      else if (this.#remaining > 0) at = this.#readContent(bytes, at, end)
      else at = this.#readLine(bytes, at, end)
    }
  }

  /** True inside content that only the end of the connection delimits. */
  get endsWithConnection(): boolean {
    return this.#expects === 'end of the connection'
  }

  /** The connection has ended. Returns true if that is a valid end of the content. */
  finish(): boolean {
    if (!this.endsWithConnection) return false
    this.#end(false)
    return true
  }

  #readHead(bytes: Buffer, start: number, end: number): number {
    const before = this.#held.length
    const stop = Math.min(end, start + HEAD_SLICE_BYTES)
    const text = this.#held + bytes.toString('latin1', start, stop)
    // Up to three of the four octets that end the head may have come before.
    const from = Math.max(0, before - (END_OF_HEAD.length - 1))
    const length = text.indexOf(END_OF_HEAD, from)
    if (length === -1) {
      // Bytes that are not HTTP may never contain the end of a head, so they are refused before.
      if (!VERSION.startsWith(text.slice(0, VERSION.length))) throw malformed('not_http')
      if (BARE_LINE_FEED.test(text.slice(from))) throw malformed('bare_lf')
      if (text.length >= MAX_HEAD_BYTES + END_OF_HEAD.length) throw malformed('head_too_large')
      this.#held = text
      return stop
    }
    if (length > MAX_HEAD_BYTES) throw malformed('head_too_large')
    this.#held = ''
    const next = start + length + END_OF_HEAD.length - before
    this.#takeHead(text.slice(0, length), bytes, next, end)
    return next
  }

  /** `next` and `end` delimit the octets behind the head. */
  #takeHead(text: string, bytes: Buffer, next: number, end: number): void {
    const head = parseResponseHead(text)
    if (head === undefined) throw malformed('bad_head')
    const { status } = head
    if (status === SWITCHING_PROTOCOLS) {
      this.#expects = 'nothing'
      this.#events.protocolSwitched(head, bytes.subarray(next, end))
      return
    }
    if (status > 599) throw malformed('bad_status_line')
    if (status < 200) {
      // Dropped, also a 100 that we did not ask for. Any number may come (RFC 9110 §15.2): the time limits end them.
      return
    }
    this.#frame(head)
    this.#events.responseHead(head)
    // The event may have called `stop`, which is not the end of the response.
    if (this.#expects === 'end of the content' && this.#remaining === 0) this.#end(next === end)
  }

  /** RFC 9112 §6.3. */
  #frame(head: ResponseHead): void {
    this.#expects = 'end of the content'
    head.hasContent = !this.#isHead && head.status !== NO_CONTENT && head.status !== NOT_MODIFIED
    // An origin that declares content of a 204 may send it (RFC 9110 §8.6). It would be read as the next response.
    if (head.status === NO_CONTENT && (head.isChunked || (head.contentLength ?? 0) > 0)) head.persists = false
    if (!head.hasContent) return
    if (head.isChunked) this.#expects = 'size of a chunk'
    else if (head.contentLength !== undefined) this.#remaining = head.contentLength
    else {
      this.#expects = 'end of the connection'
      this.#remaining = Number.POSITIVE_INFINITY
    }
  }

  #readContent(bytes: Buffer, start: number, end: number): number {
    const stop = Math.min(end, start + this.#remaining)
    this.#remaining -= stop - start
    this.#events.responseContent(bytes, start, stop)
    if (this.#remaining === 0 && this.#expects === 'end of the content') this.#end(stop === end)
    return stop
  }

  /** A line of the chunked coding (RFC 9112 §7.1). */
  #readLine(bytes: Buffer, start: number, end: number): number {
    const found = bytes.indexOf(LF, start)
    const stop = found === -1 || found >= end ? end : found + 1
    const line = this.#held + bytes.toString('latin1', start, stop)
    if (line.length > MAX_LINE_BYTES) throw malformed('chunk_line_too_long')
    // Checked before the line ends: its end may never come.
    if (this.#expects === 'end of a chunk' && !CRLF.startsWith(line)) throw malformed('bad_chunk_end')
    this.#held = line
    if (!line.endsWith('\n')) return stop
    if (!line.endsWith(CRLF)) throw malformed('bare_lf')
    this.#held = ''
    if (this.#expects === 'size of a chunk') this.#takeSize(line.slice(0, -CRLF.length))
    else if (this.#expects === 'end of a chunk') this.#expects = 'size of a chunk'
    else if (line === CRLF) this.#end(stop === end)
    // No client must take a length or a credential from a trailer field, so they are dropped.
    else if (!TRAILER_LINE.test(line)) throw malformed('bad_trailer')
    return stop
  }

  #takeSize(line: string): void {
    const size = SIZE_LINE.exec(line)?.[1]
    if (size === undefined) throw malformed('bad_chunk_size')
    this.#remaining = Number.parseInt(size, 16)
    this.#expects = this.#remaining === 0 ? 'trailer' : 'end of a chunk'
  }

  #end(isClean: boolean): void {
    this.#expects = 'nothing'
    this.#events.responseEnd(isClean)
  }
}

/** `reason` is the word of the log for the rule that was broken. */
export function malformed(reason: string): OriginError {
  return new OriginError('http_protocol_error', reason, { reason })
}
