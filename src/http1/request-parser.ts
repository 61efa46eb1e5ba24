/** Parses the requests on one connection, one after another: the start line and the head (RFC 9112 §3). */

import assert from 'node:assert/strict'
import { type ContentEvents, MessageParser, TOKEN_TEXT } from './message-parser.ts'

export interface RequestHead {
  readonly method: string
  /** As received: origin-form, absolute-form, authority-form of CONNECT, or `*`. */
  readonly target: string
  readonly minorVersion: 0 | 1
  /** Flat list of names and values, with case, order and duplicates as received. Values are latin1, without blanks around them. */
  readonly rawFields: string[]
  /** The length that is stated; undefined if none is. A request that is not chunked and states none has no content. */
  readonly contentLength: number | undefined
  readonly isChunked: boolean
  /** True if the client expects to send another request on the connection (RFC 9112 §9.3). */
  readonly keepsAlive: boolean
}

export interface RequestEvents extends ContentEvents {
  requestHead(head: RequestHead): void
}

const MAX_FIELDS = 1_000

const METHOD = new RegExp(`^(?=.{1,32}$)${TOKEN_TEXT}$`)
/** In another case, a method is most likely one of these misspelt, and services disagree on what it is (RFC 9110 §9.1). */
const KNOWN_METHODS: ReadonlySet<string> = new Set(
  (
    'ACL BIND CHECKOUT CONNECT COPY DELETE GET HEAD LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR MKCOL MOVE NOTIFY OPTIONS ' +
    'PATCH POST PROPFIND PROPPATCH PURGE PUT QUERY REBIND REPORT SEARCH SOURCE SUBSCRIBE TRACE UNBIND UNLINK UNLOCK UNSUBSCRIBE'
  ).split(' '),
)

/** Another major version of HTTP, or another protocol that looks like it. */
const OTHER_VERSION = /^(?:HTTP\/[02-9]|(?!HTTP)[A-Z]+\/\d)\.\d$/
const ABSOLUTE = /^[A-Za-z]+:\/\/[\w.~!*'()%;:&=+$,[\]-]+(?:@[\w.~!*'()%;:&=+$,[\]-]+)?(?:[/?][\x21-\x7e]*)?$/
const AUTHORITY = /^[\w.~%:[\]-]+$/
const NOT_VISIBLE_ASCII = /[^\x21-\x7e]/

export class RequestParser extends MessageParser {
  readonly #events: RequestEvents
  /** Of the request whose head is being read; empty before its start line is known to be sound. */
  method = ''
  target = ''

  constructor(events: RequestEvents, maxHeadBytes: number) {
    super('request', events, { maxHeadBytes, maxFields: MAX_FIELDS })
    this.#events = events
  }

  protected override startLine(line: string): boolean {
    // A server should ignore empty lines before a request (RFC 9112 §2.2).
    if (line === '') return false
    const methodEnd = line.indexOf(' ')
    const targetEnd = line.indexOf(' ', methodEnd + 1)
    const method = line.slice(0, methodEnd)
    const target = line.slice(methodEnd + 1, targetEnd === -1 ? undefined : targetEnd)
    const version = targetEnd === -1 ? 'HTTP/0.9' : line.slice(targetEnd + 1)
    // The preface of HTTP/2 (RFC 9113 §3.4) is no request.
    if (line === 'PRI * HTTP/2.0') this.refuse('http2')
    if (!isMethod(method)) this.refuse('bad_method')
    const isKnown = version === 'HTTP/1.1' || version === 'HTTP/1.0'
    if (!isKnown && !OTHER_VERSION.test(version)) this.refuse('bad_request_line')
    if (!isTarget(target, method)) this.refuse('bad_target')
    this.method = method
    this.target = target
    if (!isKnown) this.refuse('unknown_version')
    this.minorVersion = version === 'HTTP/1.1' ? 1 : 0
    return true
  }

  protected override headEnded(isChunked: boolean): void {
    const { method, target, minorVersion, rawFields, contentLength, keepsAlive } = this
    this.method = ''
    this.target = ''
    this.expectContent(isChunked ? 'chunked' : (contentLength ?? 0))
    this.#events.requestHead({ method, target, minorVersion, rawFields, contentLength, isChunked, keepsAlive })
  }
}

/** The request of this text. @throws {MalformedMessage} As for the same octets on a connection. */
export function parseRequestHead(text: string, maxHeadBytes: number): RequestHead {
  let head: RequestHead | undefined
  const events = { requestHead: (told: RequestHead) => (head = told), messageContent: () => {}, messageEnd: () => {} }
  const bytes = Buffer.from(text)
  const parser = new RequestParser(events, maxHeadBytes)
  for (let at = 0; head === undefined && at < bytes.length; ) at = parser.read(bytes, at, bytes.length)
  assert(head !== undefined)
  return head
}

function isMethod(text: string): boolean {
  return KNOWN_METHODS.has(text) || (METHOD.test(text) && !KNOWN_METHODS.has(text.toUpperCase()))
}

/** RFC 9112 §3.2. What a path may hold is for the gateway to decide. */
function isTarget(target: string, method: string): boolean {
  if (method === 'CONNECT') return AUTHORITY.test(target)
  if (target.startsWith('/')) return !NOT_VISIBLE_ASCII.test(target)
  return target === '*' || ABSOLUTE.test(target)
}
