/**
 * The head of a response: reads the origin's, strictly, keeps what may go on to the client, and writes it for the client.
 */

import { isFieldValue, namedByConnection, responseFieldKind, withoutFields } from './fields.ts'
import { targetOfLocation } from './target.ts'

/** Takes the fields one by one. `finish` tells whether the response is sound. */
export class ResponseHead {
  readonly status: number
  /** Empty if it contains characters that must not be sent on. */
  readonly reason: string
  /** A flat list of names and values that go on to the client, with order, case and duplicates as received. */
  fields: string[] = []
  /** In octets; undefined if the content is chunked or ends with the connection. */
  contentLength: number | undefined = undefined
  isChunked = false
  /** False if no content follows, whatever the fields say (RFC 9112 §6.3). */
  hasContent = true
  hasDate = false
  /** Its `Vary` names the org, or everything. */
  variesByOrg = false
  /** The protocol that the origin switches to, in lower case. */
  upgrade: string | undefined = undefined
  /** True if the connection may carry another exchange (RFC 9112 §9.3). Until `finish`, true for HTTP/1.1. */
  persists: boolean
  /** For how long the origin keeps an idle connection; undefined if it does not say. */
  keepAliveSeconds: number | undefined = undefined
  #connection = ''
  #hasLocation = false

  constructor(status: number, reason: string, persists: boolean) {
    this.status = status
    this.reason = isFieldValue(reason) ? reason : ''
    this.persists = persists
  }

  /** The challenges of `WWW-Authenticate` (RFC 9110 §11.6.1). */
  get challenge(): string {
    const { fields } = this
    return fields.filter((_, i) => i % 2 === 1 && fields[i - 1]?.toLowerCase() === 'www-authenticate').join(', ')
  }

  /** Returns false if the response must be refused. */
  take(name: string, value: string): boolean {
    if (!isFieldValue(value)) return false
    const kind = responseFieldKind(name)
    switch (kind) {
      case 'plain':
        break
      case 'date':
        this.hasDate = true
        break
      case 'location':
      case 'content-location':
        this.#hasLocation = true
        break
      case 'content-length':
        if (this.contentLength !== undefined || !LENGTH.test(value)) return false
        this.contentLength = Number(value)
        this.fields.push(name, String(this.contentLength)) // some clients read a leading zero as octal
        return true
      case 'upgrade':
        this.upgrade = value.toLowerCase()
        // Hop-by-hop, but a 426 must say which protocol is required (RFC 9110 §15.5.22).
        if (this.status !== UPGRADE_REQUIRED) return true
        break
      case 'vary': {
        const isComplete = value === '' || this.variesByOrg || VARIES_BY_ORG.test(value)
        this.fields.push(name, isComplete ? value : `${value}, X-Org-Id`)
        if (value !== '') this.variesByOrg = true
        return true
      }
      case 'proxy-status': {
        const others = withoutOurStatus(value)
        if (others !== '') this.fields.push(name, others)
        return true
      }
      case 'transfer-encoding': {
        const isFirst = !this.isChunked
        this.isChunked = true
        return isFirst && this.persists && value.toLowerCase() === 'chunked'
      }
      case 'connection':
        this.#connection += this.#connection === '' ? value : `,${value}`
        return true
      case 'keep-alive': {
        const [, seconds] = KEEP_ALIVE_TIMEOUT.exec(value) ?? []
        this.keepAliveSeconds = seconds === undefined ? undefined : Number(seconds)
        return true
      }
      default:
        return kind === 'dropped'
    }
    this.fields.push(name, value)
    return true
  }

  /** To be called behind the last field. Returns false if the response must be refused. */
  finish(): boolean {
    if (this.#connection !== '') this.#obeyConnection(this.#connection)
    // It must not state one (RFC 9110 §8.6).
    if (this.status === NO_CONTENT) this.fields = withoutFields(this.fields, LENGTH_NAME)
    return !(this.isChunked && this.contentLength !== undefined)
  }

  /** A client that follows a location of the service below `baseUrl` stays behind the proxy. */
  relocate(baseUrl: URL): void {
    if (!this.#hasLocation) return
    this.fields = this.fields.map((value, i, all) => {
      const isLocation = i % 2 === 1 && LOCATION.test(all[i - 1] ?? '')
      return (isLocation ? targetOfLocation(value, baseUrl) : undefined) ?? value
    })
  }

  #obeyConnection(options: string): void {
    if (CLOSE.test(options)) this.persists = false
    else if (KEEP_ALIVE.test(options)) this.persists = true
    const named = namedByConnection(options)
    if (named === undefined) return
    if (this.status === UPGRADE_REQUIRED) named.delete('upgrade')
    named.delete('content-length') // the length belongs to the message, even if `Connection` names it
    this.fields = withoutFields(this.fields, named)
    if (named.has('date')) this.hasDate = false
    if (named.has('vary')) this.variesByOrg = false
  }
}

export interface EndpointAnswer extends Pick<ResponseHead, 'status' | 'fields'> {
  /** Of a success only. Any other answer says enough by its status, and its content may be huge, cut, or never come. */
  readonly content: Buffer
}

const NO_CONTENT = 204
const UPGRADE_REQUIRED = 426

const LENGTH_NAME: ReadonlySet<string> = new Set(['content-length'])
const LENGTH = /^\d{1,15}$/
const USUAL_LINE = 'HTTP/1.1 200 OK\r\n'
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: (.*))?$/
const LOCATION = /^(?:content-)?location$/i
const CLOSE = /(?:^|,)[\t ]*close[\t ]*(?:,|$)/i
const KEEP_ALIVE = /(?:^|,)[\t ]*keep-alive[\t ]*(?:,|$)/i
const VARIES_BY_ORG = /(?:^|,)[\t ]*(?:\*|x-org-id)[\t ]*(?:,|$)/i
const KEEP_ALIVE_TIMEOUT = /(?:^|[\s,;])timeout=(\d{1,9})/i

const HTAB = 0x09
const SP = 0x20
const CRLF = '\r\n'

/**
 * Parses the head in latin1, without the empty line that ends it. Returns undefined if the head is malformed, if a value
 * must not be sent on, or if the framing is doubtful (RFC 9112 §6.3): several or conflicting lengths, a length beside a
 * transfer coding, or a coding other than chunked.
 */
export function parseResponseHead(text: string): ResponseHead | undefined {
  let lineEnd = text.indexOf(CRLF)
  if (lineEnd === -1) lineEnd = text.length
  const isUsual = text.startsWith(USUAL_LINE)
  const head = isUsual ? new ResponseHead(200, 'OK', true) : parseStatusLine(text.slice(0, lineEnd))
  if (head === undefined) return undefined
  while (lineEnd < text.length) {
    const start = lineEnd + CRLF.length
    lineEnd = text.indexOf(CRLF, start)
    if (lineEnd === -1) lineEnd = text.length
    const colon = text.indexOf(':', start)
    if (colon === -1 || colon >= lineEnd) return undefined
    // Blanks before the colon go, too (RFC 9112 §5.1). Before the name, they are a folded line.
    const name = isBlank(text.charCodeAt(start)) ? '' : trimmed(text, start, colon)
    if (!head.take(name, trimmed(text, colon + 1, lineEnd))) return undefined
  }
  return head.finish() ? head : undefined
}

function parseStatusLine(line: string): ResponseHead | undefined {
  // `.` matches neither CR nor LF, so no reason can split the head.
  const [, minor, status, reason = ''] = STATUS_LINE.exec(line) ?? []
  return status === undefined ? undefined : new ResponseHead(Number(status), reason, minor === '1')
}

/** Returns the value without the white space around it (RFC 9112 §5). */
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

const OUR_STATUS = /^\s*"?org-access-proxy"?\s*(?:;|$)/i

/** A `Proxy-Status` without the members that speak for this proxy: clients tell our errors by them (RFC 9209 §2). */
function withoutOurStatus(value: string): string {
  if (!/org-access-proxy/i.test(value)) return value
  const others: string[] = []
  let start = 0
  let isQuoted = false
  for (let i = 0; i <= value.length; i++) {
    const character = value[i] ?? ','
    if (character === '"') isQuoted = !isQuoted
    else if (isQuoted) i += character === '\\' ? 1 : 0
    else if (character === ',') {
      const member = value.slice(start, i)
      if (member.trim() !== '' && !OUR_STATUS.test(member)) others.push(member.trim())
      start = i + 1
    }
  }
  // Where a quoted string does not end, a client may see other members than we do (RFC 9651 §4.2.5).
  return isQuoted ? '' : others.join(', ')
}

/**
 * Returns the head in latin1. Adds a `Date` if the origin sent none (RFC 9110 §6.6.1), a `Vary`, and `connectionLines`.
 */
export function responseHeadText(head: ResponseHead, isChunked: boolean, connectionLines: string): string {
  const { fields } = head
  let text = `HTTP/1.1 ${head.status} ${head.reason}\r\n`
  for (let i = 0; i + 1 < fields.length; i += 2) text += `${fields[i]}: ${fields[i + 1]}\r\n`
  if (!head.hasDate) text += `Date: ${httpDate()}\r\n`
  // The token tells orgs apart for the service, but caches of clients never see it. They would serve the response of one org
  // to another (RFC 9111 §4.1).
  if (!head.variesByOrg) text += 'Vary: X-Org-Id\r\n'
  if (isChunked) text += 'Transfer-Encoding: chunked\r\n'
  // An `Upgrade` must be named by `Connection` (RFC 9110 §7.8).
  if (head.status === UPGRADE_REQUIRED) text += 'Connection: upgrade\r\n'
  return `${text}${connectionLines}\r\n`
}

let dateSecond = Number.NaN
let dateText = ''

/** Rendered once a second. */
export function httpDate(): string {
  const second = Math.floor(Date.now() / 1_000)
  if (second !== dateSecond) {
    dateSecond = second
    dateText = new Date(second * 1_000).toUTCString()
  }
  return dateText
}
