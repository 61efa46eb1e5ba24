/**
 * HTTP/1.1 read by the letter of RFC 9112, from bytes that are all there: the judge of what the proxy made of them.
 * Texts are latin1, one character an octet.
 */

export interface Field {
  /** In lower case. */
  readonly name: string
  readonly value: string
}

export interface RequestRead {
  readonly method: string
  readonly target: string
  /** Values of `X-Org-Id`. */
  readonly orgs: readonly string[]
  /** Undefined where the bytes end, or go wrong, inside it. */
  readonly content: string | undefined
}

export interface ResponseRead {
  readonly status: number
  readonly fields: readonly Field[]
  readonly content: string
  /** False where the bytes end inside the message. */
  readonly isComplete: boolean
}

/** What follows the content, or why there is nothing that could follow. */
type ContentRead = { readonly content: string; readonly rest: string } | 'short' | 'malformed'

/** More than one space is put up with (RFC 9112 §3): nobody can take it for anything else. */
const REQUEST_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+) +([\x21-\x7e\x80-\xff]+) +HTTP\/1\.[01]$/
const STATUS_LINE = /^HTTP\/1\.[01] (\d{3})(?: ([\t\x20-\x7e\x80-\xff]*))?$/
/** The proxy takes no reason phrase on trust: what is in it makes no response doubtful. */
const ANY_STATUS_LINE = /^HTTP\/1\.[01] (\d{3})(?: [^\r\n]*)?$/
const STATUS_LINE_BEGUN = /^(?:$|H(?:$|T(?:$|T(?:$|P(?:$|\/(?:$|1(?:$|\.(?:$|[01](?:$| (?:$|\d.*))))))))))/s
const FIELD_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*$/
const LENGTH = /^\d{1,15}$/
const CHUNK_LINE = /^([0-9A-Fa-f]{1,15})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?$/
const HEAD_END = '\r\n\r\n'

/** The requests in these bytes, up to the first that is none. */
export function readRequests(text: string): RequestRead[] {
  const requests: RequestRead[] = []
  let rest = text
  for (;;) {
    rest = rest.replace(/^[\r\n]+/, '') // RFC 9112 §2.2 asks a server to ignore an empty line
    const head = readHead(rest)
    if (head === undefined) return requests
    const [, method, target] = REQUEST_LINE.exec(head.startLine) ?? []
    if (method === undefined || target === undefined) return requests
    const orgs = valuesOf(head.fields, 'x-org-id')
    const read = readContent(head.rest, head.fields, 'none')
    if (typeof read === 'string') return [...requests, { method, target, orgs, content: undefined }]
    requests.push({ method, target, orgs, content: read.content })
    rest = read.rest
  }
}

/**
 * All responses in these bytes. `method` tells the method of the request that each belongs to; `hasEnded` whether the
 * connection was ended in good order, which ends content that nothing else ends. Undefined: these are no responses.
 */
export function readResponses(
  text: string,
  method: (index: number) => string,
  hasEnded: boolean,
): ResponseRead[] | undefined {
  const responses: ResponseRead[] = []
  for (let rest = text; rest !== ''; ) {
    const read = readFinalResponse(rest, method(responses.length), hasEnded)
    if (read === 'malformed') return undefined
    if (read === 'short') return responses
    responses.push(read.response)
    rest = read.rest
  }
  return responses
}

/** What a server said in answer to one request, as every client would take it; undefined where it is doubtful or not all there. */
export function readAnswer(text: string, method: string, hasEnded: boolean): ResponseRead | undefined {
  const read = readFinalResponse(text, method, hasEnded, ANY_STATUS_LINE)
  return typeof read === 'string' || !read.response.isComplete ? undefined : read.response
}

function readFinalResponse(
  text: string,
  method: string,
  hasEnded: boolean,
  statusLine = STATUS_LINE,
): { readonly response: ResponseRead; readonly rest: string } | 'short' | 'malformed' {
  for (let rest = text; ; ) {
    const head = readHead(rest)
    if (head === undefined) return STATUS_LINE_BEGUN.test(rest) ? 'short' : 'malformed'
    const status = Number(statusLine.exec(head.startLine)?.[1])
    if (Number.isNaN(status)) return 'malformed'
    rest = head.rest
    if (status < 200) continue
    const { fields } = head
    if (method === 'HEAD' || status === 204 || status === 304) {
      return { response: { status, fields, content: '', isComplete: true }, rest }
    }
    const read = readContent(rest, fields, 'until-close')
    if (read === 'malformed') return 'malformed'
    if (read === 'short') return { response: { status, fields, content: '', isComplete: false }, rest: '' }
    const isComplete = isFramed(fields) || hasEnded
    return { response: { status, fields, content: read.content, isComplete }, rest: read.rest }
  }
}

export function valuesOf(fields: readonly Field[], name: string): string[] {
  return fields.filter((field) => field.name === name).map(({ value }) => value)
}

interface Head {
  readonly startLine: string
  readonly fields: readonly Field[]
  readonly rest: string
}

function readHead(text: string): Head | undefined {
  const end = text.indexOf(HEAD_END)
  if (end === -1) return undefined
  const [startLine = '', ...lines] = text.slice(0, end).split('\r\n')
  const fields = readFields(lines)
  return fields === undefined ? undefined : { startLine, fields, rest: text.slice(end + HEAD_END.length) }
}

function readFields(lines: readonly string[]): Field[] | undefined {
  const fields: Field[] = []
  for (const line of lines) {
    const [, name, value] = FIELD_LINE.exec(line) ?? []
    if (name === undefined || value === undefined) return undefined
    fields.push({ name: name.toLowerCase(), value })
  }
  return fields
}

function isFramed(fields: readonly Field[]): boolean {
  return fields.some(({ name }) => name === 'content-length' || name === 'transfer-encoding')
}

/** RFC 9112 §6.3; two statements about the length are none. */
function readContent(text: string, fields: readonly Field[], unframed: 'none' | 'until-close'): ContentRead {
  const lengths = valuesOf(fields, 'content-length')
  const codings = valuesOf(fields, 'transfer-encoding')
  if (lengths.length + codings.length > 1) return 'malformed'
  const [length] = lengths
  const [coding] = codings
  if (coding !== undefined) return coding.toLowerCase() === 'chunked' ? readChunks(text, unframed) : 'malformed'
  if (length === undefined) return unframed === 'none' ? { content: '', rest: text } : { content: text, rest: '' }
  if (!LENGTH.test(length)) return 'malformed'
  const octets = Number(length)
  return text.length < octets ? 'short' : { content: text.slice(0, octets), rest: text.slice(octets) }
}

function readChunks(text: string, unframed: 'none' | 'until-close'): ContentRead {
  let content = ''
  for (let at = 0; ; ) {
    const lineEnd = text.indexOf('\r\n', at)
    if (lineEnd === -1) return 'short'
    const [, digits] = CHUNK_LINE.exec(text.slice(at, lineEnd)) ?? []
    if (digits === undefined) return 'malformed'
    const octets = Number.parseInt(digits, 16)
    at = lineEnd + 2
    if (octets === 0) return readTrailers(text.slice(at), content, unframed)
    if (text.length < at + octets + 2) return 'short'
    if (text.slice(at + octets, at + octets + 2) !== '\r\n') return 'malformed'
    content += text.slice(at, at + octets)
    at += octets + 2
  }
}

/** Framing among the trailers of a request is an attack; among those of a response it is dropped with them. */
function readTrailers(text: string, content: string, unframed: 'none' | 'until-close'): ContentRead {
  if (text.startsWith('\r\n')) return { content, rest: text.slice(2) }
  const end = text.indexOf(HEAD_END)
  if (end === -1) return 'short'
  const trailers = readFields(text.slice(0, end).split('\r\n'))
  const isAttack = trailers !== undefined && unframed === 'none' && isFramed(trailers)
  return trailers === undefined || isAttack ? 'malformed' : { content, rest: text.slice(end + 4) }
}
