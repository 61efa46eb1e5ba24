/** The head of an origin's response: read strictly, and as it may go on to the client. */

import { isFieldValue, namedByConnection, responseFieldKind, withoutFields } from './fields.ts'

export interface ResponseHeadOptions {
  /** Keep `Access-Control-*`: only where browsers are let in at all. */
  readonly keepsAccessControl: boolean
}

export class ResponseHead {
  readonly status: number
  /** Empty where it holds what may not be sent on. */
  readonly reason: string
  /** Flat list of what goes on: order, case and duplicates as received. */
  fields: string[] = []
  /** Octets; undefined where the content is chunked or ends with the connection. */
  contentLength: number | undefined
  isChunked = false
  hasDate = false
  /** True where the connection may carry another exchange (RFC 9112 §9.3). */
  persists: boolean
  /** How long the origin says that it keeps an idle connection; undefined where it does not say. */
  keepAliveSeconds: number | undefined

  constructor(status: number, reason: string, persists: boolean) {
    this.status = status
    this.reason = reason
    this.persists = persists
  }

  /** For a response that must not state a length (RFC 9110 §8.6). */
  dropLength(): void {
    this.fields = withoutFields(this.fields, LENGTH_NAME)
  }
}

const LENGTH_NAME = ['content-length']
const LENGTH = /^\d{1,15}$/
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/
/** RFC 9112 §4. */
const REASON = /^[\t\x20-\x7e\x80-\xff]*$/
const KEEP_ALIVE_TIMEOUT = /(?:^|[\s,;])timeout=(\d{1,9})/i

const HTAB = 0x09
const SP = 0x20
const COLON = ':'
const CRLF = '\r\n'

/**
 * `text` is the head in latin1, without the empty line that ends it. Undefined where it is malformed, or its framing is
 * doubtful (RFC 9112 §6.3): several or conflicting lengths, a length beside a transfer coding, a coding other than
 * chunked; or where a value could not be sent on.
 */
export function parseResponseHead(text: string, options: ResponseHeadOptions): ResponseHead | undefined {
  let lineEnd = text.indexOf(CRLF)
  if (lineEnd === -1) lineEnd = text.length
  const head = parseStatusLine(text.slice(0, lineEnd))
  if (head === undefined) return undefined
  const reader = new FieldReader(head, options)
  while (lineEnd < text.length) {
    const start = lineEnd + CRLF.length
    lineEnd = text.indexOf(CRLF, start)
    if (lineEnd === -1) lineEnd = text.length
    const colon = text.indexOf(COLON, start)
    if (colon === -1 || colon >= lineEnd) return undefined
    if (!reader.take(text.slice(start, colon), trimmed(text, colon + 1, lineEnd))) return undefined
  }
  return reader.finish()
}

/** The same for fields that another parser has split: a flat list of names and values. */
export function readResponseHead(
  status: number,
  reason: string,
  fields: readonly string[],
  options: ResponseHeadOptions,
): ResponseHead | undefined {
  const reader = new FieldReader(new ResponseHead(status, relayedReason(reason), true), options)
  for (let i = 0; i + 1 < fields.length; i += 2) {
    if (!reader.take(fields[i] ?? '', fields[i + 1] ?? '')) return undefined
  }
  return reader.finish()
}

function parseStatusLine(line: string): ResponseHead | undefined {
  // The usual line needs no expression.
  if (line === 'HTTP/1.1 200 OK') return new ResponseHead(200, 'OK', true)
  // `.` takes neither a CR nor an LF: a reason that could split the head is no reason.
  const [, minor, status, reason] = STATUS_LINE.exec(line) ?? []
  if (status === undefined) return undefined
  return new ResponseHead(Number(status), relayedReason(reason ?? ''), minor === '1')
}

function relayedReason(reason: string): string {
  return REASON.test(reason) ? reason : ''
}

/** The value without the white space around it (RFC 9112 §5). */
function trimmed(text: string, from: number, to: number): string {
  let start = from
  let end = to
  while (start < end && isBlank(text.charCodeAt(start))) start++
  while (end > start && isBlank(text.charCodeAt(end - 1))) end--
  return text.slice(start, end)
}

function isBlank(code: number): boolean {
  return code === SP || code === HTAB
}

/** What the fields say, one after the other. */
class FieldReader {
  readonly #head: ResponseHead
  readonly #keepsAccessControl: boolean
  readonly #isHttp10: boolean
  #named: string[] | undefined
  #closes = false

  constructor(head: ResponseHead, options: ResponseHeadOptions) {
    this.#head = head
    this.#keepsAccessControl = options.keepsAccessControl
    this.#isHttp10 = !head.persists
  }

  /** False where the response cannot be relied on. */
  take(name: string, value: string): boolean {
    if (!isFieldValue(value)) return false
    const head = this.#head
    switch (responseFieldKind(name)) {
      case 'plain':
        head.fields.push(name, value)
        return true
      case 'date':
        head.hasDate = true
        head.fields.push(name, value)
        return true
      case 'content-length':
        if (head.contentLength !== undefined || !LENGTH.test(value)) return false
        head.contentLength = Number(value)
        head.fields.push(name, value)
        return true
      case 'transfer-encoding':
        if (head.isChunked || this.#isHttp10 || value.toLowerCase() !== 'chunked') return false
        head.isChunked = true
        return true
      case 'connection':
        this.#takeConnection(value)
        return true
      case 'keep-alive':
        head.keepAliveSeconds = Number(KEEP_ALIVE_TIMEOUT.exec(value)?.[1] ?? Number.NaN)
        if (Number.isNaN(head.keepAliveSeconds)) head.keepAliveSeconds = undefined
        return true
      case 'access-control':
        if (this.#keepsAccessControl) head.fields.push(name, value)
        return true
      case 'dropped':
        return true
      case 'malformed':
        return false
    }
  }

  #takeConnection(value: string): void {
    if (value === 'keep-alive') {
      this.#head.persists = true
      return
    }
    const options = value.toLowerCase().split(',').map(withoutBlanks)
    if (options.includes('close')) this.#closes = true
    if (options.includes('keep-alive')) this.#head.persists = true
    this.#named = [...(this.#named ?? []), ...(namedByConnection(value) ?? [])]
  }

  finish(): ResponseHead | undefined {
    const head = this.#head
    if (head.isChunked && head.contentLength !== undefined) return undefined
    if (this.#closes) head.persists = false
    const named = this.#named?.filter(isNotFraming) ?? []
    if (named.length > 0) {
      head.fields = withoutFields(head.fields, named)
      if (named.includes('date')) head.hasDate = false
    }
    return head
  }
}

function withoutBlanks(text: string): string {
  return text.trim()
}

/** The length belongs to the message, whatever `Connection` says. */
function isNotFraming(name: string): boolean {
  return name !== 'content-length'
}
