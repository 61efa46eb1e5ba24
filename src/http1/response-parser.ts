/** Parses the responses on one connection: the status line, what comes before the final response, and its framing (RFC 9112 §4). */

import { joinedValue } from './field-list.ts'
import { type ContentEvents, MessageParser, type ParserLimits } from './message-parser.ts'

/** A head as it was received. */
export interface ReceivedResponse {
  /** 101, or 200 to 999. */
  readonly status: number
  readonly reason: string
  readonly minorVersion: 0 | 1
  /** Flat list of names and values, with case, order and duplicates as received. Values are latin1, without blanks around them. */
  readonly rawFields: string[]
  /** Their lines, each `Name: value` with its end. */
  readonly lines: string
  /** The length that is stated, even if no content follows; undefined if none is. */
  readonly contentLength: number | undefined
  readonly isChunked: boolean
  /** False if no content follows, whatever the fields say (RFC 9112 §6.3). */
  readonly hasContent: boolean
  /** True if the connection may carry another exchange (RFC 9112 §9.3). */
  readonly keepsAlive: boolean
  /** For how long the service keeps an idle connection; undefined if it does not say. */
  readonly keepAliveSeconds: number | undefined
}

/** A response that is in memory as a whole. */
export interface WholeResponse {
  readonly status: number
  /** Flat list of names and values, as received. */
  readonly fields: readonly string[]
  /** Of an error, as much as came, and only if the caller asked for it. */
  readonly content: Buffer
}

export interface ResponseEvents extends ContentEvents {
  /** The final response, or a 101. Behind a 101, `read` returns: what is left belongs to the other protocol. */
  responseHead(head: ReceivedResponse): void
}

const LIMITS: ParserLimits = { maxHeadBytes: 64 * 1024, maxFields: 1_000 }

const USUAL_LINE = 'HTTP/1.1 200 OK'
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/
const KEEP_ALIVE_TIMEOUT = /(?:^|[\t ,;])timeout=(\d{1,9})/i

export const SWITCHING_PROTOCOLS = 101
export const NO_CONTENT = 204
const NOT_MODIFIED = 304

export class ResponseParser extends MessageParser {
  readonly #events: ResponseEvents
  #isHead = false
  #mayUpgrade = false
  #status = 0
  #reason = ''

  /** Takes no response before `expect`. */
  constructor(events: ResponseEvents) {
    super('response', events, LIMITS)
    this.#events = events
    this.stop()
  }

  /**
   * A request has been sent. `isHead`: it was a HEAD, so the response has no content, whatever its fields say. `mayUpgrade`: it
   * offered another protocol.
   */
  expect(isHead: boolean, mayUpgrade = false): void {
    this.#isHead = isHead
    this.#mayUpgrade = mayUpgrade
    this.expectHead()
  }

  /** The connection has ended. If that is a valid end of the content, tells the end of the message, and returns true. */
  finish(): boolean {
    if (!this.endsWithConnection) return false
    this.stop()
    this.#events.messageEnd()
    return true
  }

  protected override startLine(line: string): boolean {
    if (line === USUAL_LINE) {
      this.minorVersion = 1
      this.#status = 200
      this.#reason = 'OK'
      return true
    }
    const [, minor, status, reason = ''] = STATUS_LINE.exec(line) ?? []
    if (status === undefined) this.refuse(line.startsWith('HTTP/1.') ? 'bad_status_line' : 'not_http')
    this.minorVersion = minor === '1' ? 1 : 0
    this.#status = Number(status)
    this.#reason = reason
    return true
  }

  protected override headEnded(isChunked: boolean): void {
    const { minorVersion, rawFields, lines, contentLength, keepsAlive, keepAlive } = this
    const status = this.#status
    // A client must accept interim responses that it did not ask for (RFC 9110 §15.2). They are dropped.
    if (status < 200 && status !== SWITCHING_PROTOCOLS) {
      // Behind it, nothing may come; but the final response must.
      if (!keepsAlive) this.refuse('bad_interim_response')
      this.expectHead()
      return
    }
    const hasContent = status >= 200 && !this.#isHead && status !== NO_CONTENT && status !== NOT_MODIFIED
    if (status === SWITCHING_PROTOCOLS) {
      if (!this.#mayUpgrade) this.refuse('unexpected_switch')
      // Without them, some read the rest as content, and others as the next response (RFC 9110 §7.8).
      const protocol = joinedValue(rawFields, 'upgrade')
      if (protocol === '' || !this.hasOption('upgrade')) this.refuse('switch_to_nothing')
      this.stop()
    } else if (!hasContent) this.expectContent(0)
    else this.expectContent(isChunked ? 'chunked' : (contentLength ?? Number.POSITIVE_INFINITY))
    // A service that declares content of a 204 may send it (RFC 9110 §8.6). It would be read as the next response.
    const isFramedAnyway = status === NO_CONTENT && (isChunked || (contentLength ?? 0) > 0)
    this.#events.responseHead({
      status,
      reason: this.#reason,
      minorVersion,
      rawFields,
      lines,
      contentLength,
      isChunked,
      hasContent,
      keepsAlive: keepsAlive && !this.endsWithConnection && !isFramedAnyway,
      keepAliveSeconds: keepAlive === undefined ? undefined : secondsOf(keepAlive),
    })
  }
}

function secondsOf(keepAlive: string): number | undefined {
  const [, seconds] = KEEP_ALIVE_TIMEOUT.exec(keepAlive) ?? []
  return seconds === undefined ? undefined : Number(seconds)
}
