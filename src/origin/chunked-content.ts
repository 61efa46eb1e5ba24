/** Reads content in the chunked coding (RFC 9112 §7.1), strictly: anything malformed ends the response as broken. */

import { OriginError } from '../errors.ts'

/** Takes octets `start` to `end` of `bytes`. */
export type TakeContent = (bytes: Buffer, start: number, end: number) => void

type Expects = 'size' | 'data' | 'end of data' | 'trailer' | 'nothing'

/** Sizes up to 2^52, padded with zeros or not. Extensions are skipped; blanks may stand before their semicolon. */
const SIZE_LINE = /^0{0,15}([0-9A-Fa-f]{1,13})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?$/
const TRAILER_LINE = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*$/

const LF = 0x0a
const CRLF = '\r\n'
const MAX_LINE_BYTES = 4 * 1024
const MAX_TRAILER_BYTES = 16 * 1024

export class ChunkedContent {
  readonly #take: TakeContent
  #expects: Expects = 'size'
  #line = ''
  #remaining = 0
  #trailerBytes = 0

  constructor(take: TakeContent) {
    this.#take = take
  }

  get isOver(): boolean {
    return this.#expects === 'nothing'
  }

  /** Returns where it stopped: `end`, or earlier if the content ends there. @throws {OriginError} */
  read(bytes: Buffer, start: number, end: number): number {
    let at = start
    while (at < end && this.#expects !== 'nothing') {
      at = this.#expects === 'data' ? this.#readData(bytes, at, end) : this.#readLine(bytes, at, end)
    }
    return at
  }

  #readData(bytes: Buffer, start: number, end: number): number {
    const stop = Math.min(end, start + this.#remaining)
    this.#remaining -= stop - start
    if (this.#remaining === 0) this.#expects = 'end of data'
    this.#take(bytes, start, stop)
    return stop
  }

  #readLine(bytes: Buffer, start: number, end: number): number {
    const found = bytes.indexOf(LF, start)
    const stop = found === -1 || found >= end ? end : found + 1
    this.#line += bytes.toString('latin1', start, stop)
    if (this.#line.length > MAX_LINE_BYTES) throw malformed('a chunk line is too long')
    // Checked before the line ends: its end may never come.
    if (this.#expects === 'end of data' && !CRLF.startsWith(this.#line))
      throw malformed('a chunk is longer than its size')
    if (!this.#line.endsWith('\n')) return stop
    const line = this.#line
    this.#line = ''
    if (!line.endsWith('\r\n')) throw malformed('a chunk line ends without a carriage return')
    this.#takeLine(line.slice(0, -2))
    return stop
  }

  #takeLine(line: string): void {
    switch (this.#expects) {
      case 'size':
        this.#takeSize(line)
        return
      case 'end of data':
        this.#expects = 'size'
        return
      case 'trailer':
        this.#takeTrailer(line)
        return
      case 'data':
      case 'nothing':
        return
    }
  }

  #takeSize(line: string): void {
    const size = SIZE_LINE.exec(line)?.[1]
    if (size === undefined) throw malformed('the size of a chunk is not a number')
    this.#remaining = Number.parseInt(size, 16)
    this.#expects = this.#remaining === 0 ? 'trailer' : 'data'
  }

  /** Drops trailer fields, so that no client takes a length or a credential from them. */
  #takeTrailer(line: string): void {
    if (line === '') {
      this.#expects = 'nothing'
      return
    }
    this.#trailerBytes += line.length
    if (this.#trailerBytes > MAX_TRAILER_BYTES || !TRAILER_LINE.test(line))
      throw malformed('a trailer field is malformed')
  }
}

function malformed(detail: string): OriginError {
  return new OriginError('http_protocol_error', detail)
}
