/**
 * Parses HTTP/1.1 messages on one connection (RFC 9112): what requests and responses have in common. Bytes go in, events come
 * out; no socket is involved. Strict: what is not surely right is refused. What is accepted means the same to llhttp.
 */

import { fieldLines } from './field-list.ts'
import { MalformedMessage, type MalformedReason } from './malformed.ts'

/** Receives the content and the end of a message. Each event may call `stop` of the parser. */
export interface ContentEvents {
  /** Octets `start` to `end` of `bytes`, at least one. */
  messageContent(bytes: Buffer, start: number, end: number): void
  /**
   * The message is complete. `next` is the index behind it in the bytes that are being read; undefined if the connection has
   * ended. Comes with the head if there is no content.
   */
  messageEnd(next?: number): void
}

/**
 * The receiver's use of the bytes of content. `consumed`: it is done with them, and they may be overwritten. `borrowed`: it still
 * reads them. `pause`: it still reads them, and wants no more until it says so.
 */
export type ContentUse = 'consumed' | 'borrowed' | 'pause'

export interface ParserLimits {
  /** Of a head, from its first octet to its empty line, and of the trailers. */
  readonly maxHeadBytes: number
  /** Of a head, and of the trailers. */
  readonly maxFields: number
}

/** What has to come next. The order is that of a message; states of a section come first, then those of the chunked coding. */
const FIRST_WORD = 0
const START_LINE = 1
const START_LINE_LF = 2
const FIELD_NAME = 3
const COLON = 4
const FIELD_VALUE = 5
const FIELD_LF = 6
const LAST_LF = 7
const CHUNK_SIZE = 8
const CHUNK_SIZE_END = 9
const CHUNK_EXTENSION = 10
const CHUNK_SIZE_LF = 11
const CHUNK_DATA = 12
const CHUNK_CR = 13
const CHUNK_LF = 14
/** Content with a length, or up to the end of the connection. */
const PLAIN_CONTENT = 15
const NOTHING = 16

const HTAB = 0x09
const LF = 0x0a
/** The first octet of a TLS connection (RFC 8446 §5.1). */
const TLS_HANDSHAKE = 0x16
const CR = 0x0d
const SP = 0x20
const COLON_SIGN = 0x3a
const SEMICOLON = 0x3b
const DEL = 0x7f

/** Decoded at once. Most heads are shorter, and content behind a head should not become a string. */
const SLICE_BYTES = 4 * 1024
/** Octets. Blanks and extensions of one chunk. */
const MAX_BESIDE_SIZE = 4 * 1024
/** With zeros in front. */
const MAX_SIZE_DIGITS = 16
const MAX_CHUNK_BYTES = 2 ** 52
/** Smaller chunks that come in one read are moved together. */
const SMALL_CHUNK_BYTES = 4 * 1024

const CONTENT_LENGTH = /^\d{1,15}$/
/** A token (RFC 9110 §5.6.2), for a regular expression. */
export const TOKEN_TEXT = "[!#$%&'*+\\-.^_`|~0-9A-Za-z]+"
const OTHER_CODING = `(?!chunked[\\t ]*(?:[,;]|$))${TOKEN_TEXT}(?:[\\t ]*;[\\t ]*${TOKEN_TEXT}=(?:${TOKEN_TEXT}|"[^"]*"))*`
/** A list of other codings (RFC 9112 §7). `chunked` is the last one, if it is there: behind it, no end of the content shows. */
const UNKNOWN_CODING = new RegExp(
  `^${OTHER_CODING}(?:[\\t ]*,[\\t ]*${OTHER_CODING})*(?:[\\t ]*,[\\t ]*chunked)?$`,
  'i',
)
/** As Node's parser takes them (RFC 9112 §7.1.1). */
const CHUNK_EXTENSIONS = new RegExp(`^(?:;${TOKEN_TEXT}(?:=(?:${TOKEN_TEXT}|"(?:[^"\\\\]|\\\\.)*"))?)*$`)
const NOT_IN_TRAILERS = /^(?:content-length|transfer-encoding|(?:proxy-)?connection)$/i

/** 1 for the octets of a token (RFC 9110 §5.6.2). */
const TOKEN = tableOf((octet) => new RegExp(TOKEN_TEXT).test(String.fromCharCode(octet)))
/** 1 for the octets of a field value (RFC 9110 §5.5). */
const TEXT = tableOf((octet) => octet === HTAB || (octet >= SP && octet !== DEL))

const NOT_HEX = 16
const HEX = Uint8Array.from({ length: 256 }, (_, octet) => {
  const digit = '0123456789abcdef'.indexOf(String.fromCharCode(octet).toLowerCase())
  return digit === -1 ? NOT_HEX : digit
})

/** 1 for the octets of the first word of a message: a method, or a version. */
const FIRST_WORDS = {
  request: TOKEN,
  response: tableOf((octet) => /[HTP/1.0]/.test(String.fromCharCode(octet))),
}

function tableOf(isMember: (octet: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, octet) => (isMember(octet) ? 1 : 0))
}

export abstract class MessageParser {
  readonly #events: ContentEvents
  readonly #kind: 'request' | 'response'
  readonly #limits: ParserLimits
  #state = FIRST_WORD
  #isTrailers = false
  /** `read` returns: behind each message, and where it was suspended. */
  #isBehindMessage = false
  #refused: MalformedMessage | undefined
  /** The beginning of a line of the head or the trailers whose end has not come yet. */
  #held = ''
  /** Index in that line. */
  #colon = 0
  /** Of the head or the trailers so far. */
  #sectionBytes = 0
  #fields = 0
  /** Octets of content or of a chunk that have not come yet; `Infinity` if only the end of the connection ends it. */
  #remaining = 0
  #sizeDigits = 0
  /** What stands around the digits of a size. */
  #besideSize = ''

  /** Flat list of the names and values of the head, as received. */
  protected rawFields: string[] = []
  /** Its field lines in the usual form, `Name: value`. */
  protected lines = ''
  /** They came so. */
  #isUsual = true
  protected minorVersion: 0 | 1 = 1
  protected contentLength: number | undefined = undefined
  /** The field `Keep-Alive`. */
  protected keepAlive: string | undefined = undefined
  #coding: string | undefined
  /** The values of `Connection`, joined. */
  #connection: string | undefined

  protected constructor(kind: 'request' | 'response', events: ContentEvents, limits: ParserLimits) {
    this.#kind = kind
    this.#events = events
    this.#limits = limits
  }

  /** Takes the start line. Returns false if it is to be skipped. */
  protected abstract startLine(line: string): boolean
  /** The head is complete. Calls one of the `expect…` methods, then tells the head. */
  protected abstract headEnded(isChunked: boolean): void

  /** True if no octet of a message has come since the last one ended. Empty lines before a request, and parts of one, do not count. */
  get isBetweenMessages(): boolean {
    return (
      this.#state === NOTHING ||
      (this.#state === FIRST_WORD && this.#held === '') ||
      (this.#state === START_LINE_LF && this.#held === '\r')
    )
  }

  /** To be called from an event that tells a head: `read` stops behind it. */
  suspend(): void {
    this.#isBehindMessage = true
  }

  /** Ends parsing. No more events follow. */
  stop(): void {
    this.#state = NOTHING
  }

  /**
   * Reads octets `start` to `end`. Returns the index of the first one that it has not read: it stops behind the end of a
   * message, behind a 101, and where it was suspended. What is left has to be given to the next call.
   *
   * Small chunks are moved together within `bytes`, so that 10,000 of them in one read are one event. Octets that have been
   * told, and those that have not been read, stay as they are. @throws {MalformedMessage} From then on, always.
   */
  read(bytes: Buffer, start: number, end: number): number {
    if (this.#refused !== undefined) throw this.#refused
    this.#isBehindMessage = false
    let at = start
    while (at < end && !this.#isBehindMessage && this.#state !== NOTHING) {
      if (this.#state < CHUNK_SIZE) at = this.#readSection(bytes, at, end)
      else if (this.#state === PLAIN_CONTENT) at = this.#readContent(bytes, at, end)
      else at = this.#readChunks(bytes, at, end)
    }
    return at
  }

  protected refuse(reason: MalformedReason): never {
    this.#state = NOTHING
    this.#refused = new MalformedMessage(reason)
    throw this.#refused
  }

  protected expectHead(): void {
    this.#state = FIRST_WORD
    this.#isTrailers = false
    this.#held = ''
    this.#sectionBytes = 0
    this.#fields = 0
    this.rawFields = []
    this.#isUsual = true
    this.contentLength = undefined
    this.keepAlive = undefined
    this.#coding = undefined
    this.#connection = undefined
  }

  /** `length` is `Infinity` if only the end of the connection ends the content. */
  protected expectContent(length: number | 'chunked'): void {
    if (length === 'chunked') this.#expectChunk()
    else {
      this.#remaining = length
      this.#state = PLAIN_CONTENT
    }
  }

  /** True if only the end of the connection ends the content. */
  get endsWithConnection(): boolean {
    return this.#state === PLAIN_CONTENT && this.#remaining === Number.POSITIVE_INFINITY
  }

  /** Refuses framing that is in doubt (RFC 9112 §6.3). Returns true if the content is chunked. */
  #checkFraming(): boolean {
    const coding = this.#coding
    if (coding === undefined) return false
    if (this.contentLength !== undefined) this.refuse('length_with_coding')
    if (this.minorVersion === 0) this.refuse('coding_in_http_1_0')
    if (coding.toLowerCase() !== 'chunked') this.refuse(UNKNOWN_CODING.test(coding) ? 'unknown_coding' : 'bad_coding')
    return true
  }

  /** RFC 9112 §9.3. */
  protected get keepsAlive(): boolean {
    if (this.#connection === undefined) return this.minorVersion === 1
    if (this.#connection === 'keep-alive') return true
    return !this.hasOption('close') && (this.minorVersion === 1 || this.hasOption('keep-alive'))
  }

  /** True if `Connection` has this option (RFC 9110 §7.6.1). */
  protected hasOption(lowerCase: string): boolean {
    const options = this.#connection?.toLowerCase() ?? ''
    // Beside a tab, only a `close` is obeyed.
    if (lowerCase !== 'close' && options.includes('\t')) return false
    return options.split(',').some((option) => trimmed(option, 0, option.length) === lowerCase)
  }

  /** Reads lines of a head or of trailers. */
  #readSection(bytes: Buffer, start: number, end: number): number {
    const { maxHeadBytes } = this.#limits
    const stop = Math.min(end, start + SLICE_BYTES, start + maxHeadBytes - this.#sectionBytes)
    const text = this.#held + bytes.toString('latin1', start, stop)
    /** Where `text` begins in `bytes`. May lie before `start`. */
    const textStart = start - this.#held.length
    const firstWord = FIRST_WORDS[this.#kind]
    let line = textStart
    let colon = line + this.#colon
    let state = this.#state
    let at = start
    /** Where the first field line begins in `text`, if it does. */
    let linesAt = -1
    while (at < stop) {
      if (state === FIELD_NAME) {
        while (at < stop && TOKEN[bytes[at] as number] === 1) at++
        if (at === stop) break
        const octet = bytes[at] as number
        if (octet === CR && at === line) state = LAST_LF
        else if (at === line) this.refuse(isBlank(octet) ? 'obs_fold' : reasonFor(octet, 'bad_field_name'))
        else if (octet === COLON_SIGN) {
          colon = at
          state = FIELD_VALUE
        } else if (isBlank(octet)) {
          if (this.#kind === 'request') this.refuse('blank_before_colon')
          state = COLON
        } else this.refuse(octet === CR ? 'no_colon' : reasonFor(octet, 'bad_field_name'))
        if (++at === stop) break
      }
      if (state === FIELD_VALUE) {
        while (at < stop && TEXT[bytes[at] as number] === 1) at++
        if (at === stop) break
        const octet = bytes[at++] as number
        if (octet !== CR) this.refuse(reasonFor(octet, 'control_character'))
        state = FIELD_LF
        if (at === stop) break
      }
      if (state === FIELD_LF) {
        if (bytes[at++] !== LF) this.refuse('bare_cr')
        this.#field(text, line - textStart, colon - textStart, at - 2 - textStart)
        line = at
        state = FIELD_NAME
      } else if (state === LAST_LF) {
        if (bytes[at++] !== LF) this.refuse('bare_cr')
        this.#held = ''
        this.#sectionBytes = 0
        if (this.#isTrailers) this.#messageEnded(at)
        else {
          const isUsual = this.#isUsual && linesAt !== -1
          this.lines = isUsual ? text.slice(linesAt, line - textStart) : fieldLines(this.rawFields)
          this.#headEnded(at)
        }
        return at
      } else if (state === FIRST_WORD) {
        while (at < stop && firstWord[bytes[at] as number] === 1) at++
        if (at === stop) break
        const octet = bytes[at] as number
        if (octet === CR && at === line) state = START_LINE
        else if (octet === SP && at > line) state = START_LINE
        else if (octet === TLS_HANDSHAKE && at === line && this.#kind === 'request') this.refuse('tls')
        else this.refuse(reasonFor(octet, this.#kind === 'request' ? 'bad_method' : 'not_http'))
      } else if (state === START_LINE) {
        while (at < stop && TEXT[bytes[at] as number] === 1) at++
        if (at === stop) break
        const octet = bytes[at++] as number
        if (octet !== CR) this.refuse(reasonFor(octet, 'control_character'))
        state = START_LINE_LF
      } else if (state === START_LINE_LF) {
        if (bytes[at++] !== LF) this.refuse('bare_cr')
        state = this.startLine(text.slice(line - textStart, at - 2 - textStart)) ? FIELD_NAME : FIRST_WORD
        line = at
        linesAt = at - textStart
      } else if (state === COLON) {
        const octet = bytes[at] as number
        if (octet === COLON_SIGN) {
          colon = at
          state = FIELD_VALUE
        } else if (!isBlank(octet)) this.refuse(octet === CR ? 'no_colon' : reasonFor(octet, 'bad_field_name'))
        at++
      }
    }
    this.#state = state
    this.#held = text.slice(line - textStart)
    this.#colon = colon - line
    this.#sectionBytes += stop - start
    if (this.#sectionBytes === maxHeadBytes) this.refuse('head_too_large')
    return stop
  }

  /** A field line: its beginning, its colon, and its end in `text`. */
  #field(text: string, start: number, colon: number, end: number): void {
    const name = trimmed(text, start, colon)
    const value = trimmed(text, colon + 1, end)
    if (++this.#fields > this.#limits.maxFields) this.refuse('too_many_fields')
    if (this.#isTrailers) {
      // All are dropped. None may say anything about the message or its connection (RFC 9110 §6.5.1).
      if (NOT_IN_TRAILERS.test(name)) this.refuse('bad_trailer')
      return
    }
    this.rawFields.push(name, value)
    const isUsual = colon - start === name.length && end - colon - 2 === value.length
    if (!isUsual || text.charCodeAt(colon + 1) !== SP) this.#isUsual = false
    // Node's parser takes the one for the other, too.
    if (isNamed(name, 'connection') || isNamed(name, 'proxy-connection')) {
      const options = hasTabBehind(text, end) ? `${value}\t` : value
      this.#connection = this.#connection === undefined ? options : `${this.#connection},${options}`
    } else if (isNamed(name, 'keep-alive')) {
      this.keepAlive = value
    } else if (isNamed(name, 'content-length')) {
      if (this.contentLength !== undefined) this.refuse('two_lengths')
      if (!CONTENT_LENGTH.test(value) || hasTabBehind(text, end)) this.refuse('bad_length')
      this.contentLength = Number(value)
    } else if (isNamed(name, 'transfer-encoding')) {
      if (this.#coding !== undefined) this.refuse('two_codings')
      if (hasTabBehind(text, end)) this.refuse('bad_coding')
      this.#coding = value
    }
  }

  #headEnded(next: number): void {
    this.headEnded(this.#checkFraming())
    // The event may have called `stop`, which is not the end of the message.
    if (this.#state === PLAIN_CONTENT && this.#remaining === 0) this.#messageEnded(next)
  }

  #messageEnded(next: number): void {
    this.#isBehindMessage = true
    this.expectHead()
    if (this.#kind === 'response') this.#state = NOTHING
    this.#events.messageEnd(next)
  }

  #readContent(bytes: Buffer, start: number, end: number): number {
    const stop = Math.min(end, start + this.#remaining)
    this.#remaining -= stop - start
    this.#events.messageContent(bytes, start, stop)
    if (this.#remaining === 0 && this.#state === PLAIN_CONTENT) this.#messageEnded(stop)
    return stop
  }

  #expectChunk(): void {
    this.#state = CHUNK_SIZE
    this.#remaining = 0
    this.#sizeDigits = 0
    this.#besideSize = ''
  }

  #readChunks(bytes: Buffer, start: number, end: number): number {
    let at = start
    // Content that was found and is not told yet.
    let from = start
    let to = start
    try {
      while (at < end) {
        if (this.#state === CHUNK_SIZE) at = this.#readSize(bytes, at, end)
        else if (this.#state === CHUNK_DATA) {
          const stop = Math.min(end, at + this.#remaining)
          const isJoined = to > from && stop - at <= SMALL_CHUNK_BYTES
          if (isJoined) {
            bytes.copyWithin(to, at, stop)
            to += stop - at
          } else {
            if (to > from) {
              const first = from
              from = to
              this.#events.messageContent(bytes, first, to)
              if (this.#state !== CHUNK_DATA) return at
            }
            from = at
            to = stop
          }
          this.#remaining -= stop - at
          at = stop
          if (this.#remaining === 0) this.#state = CHUNK_CR
        } else if (this.#state === CHUNK_CR) {
          const octet = bytes[at++] as number
          if (octet !== CR) this.refuse(octet === LF ? 'bare_lf' : 'bad_chunk_end')
          this.#state = CHUNK_LF
        } else if (this.#state === CHUNK_LF) {
          if (bytes[at++] !== LF) this.refuse('bare_cr')
          this.#expectChunk()
        } else if (this.#state === CHUNK_SIZE_LF) {
          if (bytes[at++] !== LF) this.refuse('bare_cr')
          this.#state = CHUNK_DATA
          if (this.#remaining > 0) continue
          this.#state = FIELD_NAME
          this.#isTrailers = true
          this.#fields = 0
          return at
        } else {
          if (this.#besideSize.length === MAX_BESIDE_SIZE) this.refuse('chunk_line_too_long')
          this.#state = this.#nextInSizeLine(bytes[at++] as number)
        }
      }
      return at
    } finally {
      if (to > from) this.#events.messageContent(bytes, from, to)
    }
  }

  #readSize(bytes: Buffer, start: number, end: number): number {
    let at = start
    for (; at < end; at++) {
      const digit = HEX[bytes[at] as number] as number
      if (digit === NOT_HEX) break
      this.#remaining = this.#remaining * 16 + digit
      if (++this.#sizeDigits > MAX_SIZE_DIGITS || this.#remaining >= MAX_CHUNK_BYTES) this.refuse('bad_chunk_size')
    }
    if (at < end) this.#state = CHUNK_SIZE_END
    return at
  }

  /** Beside the digits of a size (RFC 9112 §7.1.1). Extensions are dropped. A service may write blanks, and any extension. */
  #nextInSizeLine(octet: number): number {
    const isRequest = this.#kind === 'request'
    if (this.#state === CHUNK_EXTENSION) {
      if (octet === CR) {
        if (isRequest && !CHUNK_EXTENSIONS.test(this.#besideSize)) this.refuse('bad_chunk_extension')
        return CHUNK_SIZE_LF
      }
      if (TEXT[octet] !== 1) this.refuse(reasonFor(octet, 'bad_chunk_extension'))
    } else if (isRequest || !isBlank(octet)) {
      if (octet === CR && this.#sizeDigits > 0) return CHUNK_SIZE_LF
      if (octet !== SEMICOLON || this.#sizeDigits === 0) this.refuse(reasonFor(octet, 'bad_chunk_size'))
      this.#state = CHUNK_EXTENSION
    }
    this.#besideSize += String.fromCharCode(octet)
    return this.#sizeDigits === 0 ? CHUNK_SIZE : this.#state
  }
}

function reasonFor(octet: number, otherwise: MalformedReason): MalformedReason {
  if (octet === LF) return 'bare_lf'
  const isControl = (octet < SP && octet !== CR && octet !== HTAB) || octet === DEL
  return isControl ? 'control_character' : otherwise
}

/** Returns the part without the white space around it (RFC 9112 §5). */
function trimmed(text: string, from: number, to: number): string {
  let start = from
  let end = to
  while (start < end && isBlank(text.charCodeAt(start))) start++
  while (end > start && isBlank(text.charCodeAt(end - 1))) end--
  return text.slice(start, end)
}

/** With a tab behind it, llhttp does not recognize a length, a coding or an option of `Connection`. */
function hasTabBehind(text: string, end: number): boolean {
  let last = end - 1
  while (text.charCodeAt(last) === SP) last--
  return text.charCodeAt(last) === HTAB
}

export function isNamed(name: string, lowerCase: string): boolean {
  return name.length === lowerCase.length && name.toLowerCase() === lowerCase
}

function isBlank(code: number): boolean {
  return code === SP || code === HTAB
}
