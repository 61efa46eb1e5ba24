/** Classifies field names: fields that stop at the proxy, fields that admission reads, fields that no other name may imitate. */

/** The meaning of a request field to this gateway. A `plain` field goes on unchanged. */
export type RequestFieldKind =
  | 'plain'
  | 'dropped'
  | 'connection'
  | 'content-length'
  | 'transfer-encoding'
  | 'upgrade'
  | 'websocket'
  | 'host'
  | 'expect'
  | 'origin'
  | 'sec-fetch-site'
  | 'forwarded'
  | 'forwarded-host'
  | 'caller-key'
  | 'org-id'
  | 'request-id'
  | 'traceparent'
  | 'via'
  | 'imitation'

/** All of them are protected: a request is refused if an origin that reads `_` as `-` could take another name for one of them. */
const REQUEST_FIELDS: Readonly<Record<string, RequestFieldKind>> = {
  connection: 'connection',
  'content-length': 'content-length',
  'transfer-encoding': 'transfer-encoding',
  upgrade: 'upgrade',
  host: 'host',
  expect: 'expect',
  origin: 'origin',
  'sec-fetch-site': 'sec-fetch-site',
  'x-forwarded-for': 'forwarded',
  forwarded: 'forwarded-host',
  'x-real-ip': 'forwarded',
  'x-proxy-key': 'caller-key',
  'x-org-id': 'org-id',
  'x-request-id': 'request-id',
  traceparent: 'traceparent',
  via: 'via',
  // Hop-by-hop fields (RFC 9110 §7.6.1), and the client's credential.
  'keep-alive': 'dropped',
  te: 'dropped',
  trailer: 'dropped',
  authorization: 'dropped',
  'http2-settings': 'dropped',
  // Some services take another method, path or host from these fields than the ones that were checked here.
  'x-original-url': 'dropped',
  'x-original-uri': 'dropped',
  'x-original-method': 'dropped',
  'x-rewrite-url': 'dropped',
  'x-forwarded-uri': 'dropped',
  'x-forwarded-path': 'dropped',
  'x-forwarded-method': 'dropped',
  'x-forwarded-host': 'dropped',
  'x-forwarded-proto': 'dropped',
  'x-forwarded-prefix': 'dropped',
  'x-http-method-override': 'dropped',
  'x-http-method': 'dropped',
  'x-method-override': 'dropped',
  'script-name': 'dropped',
  'path-info': 'dropped',
  'x-sendfile-type': 'dropped',
  'x-accel-mapping': 'dropped',
  'sec-websocket-key': 'websocket',
  'sec-websocket-version': 'websocket',
  'sec-websocket-protocol': 'websocket',
  'sec-websocket-extensions': 'websocket',
  'sec-websocket-accept': 'websocket',
  // Goes on unchanged; listed because it is protected.
  'content-type': 'plain',
}

/** Clients repeat the same names, so the kind of each spelling is remembered. The bounds keep hostile names from filling the memory. */
const MAX_REMEMBERED = 2048
const MAX_REMEMBERED_LENGTH = 64
const remembered = new Map<string, RequestFieldKind>()

export function requestFieldKind(name: string): RequestFieldKind {
  const known = remembered.get(name)
  if (known !== undefined) return known
  const kind = classifyRequestField(name.toLowerCase())
  if (remembered.size < MAX_REMEMBERED && name.length <= MAX_REMEMBERED_LENGTH) remembered.set(name, kind)
  return kind
}

function classifyRequestField(name: string): RequestFieldKind {
  if (name.includes('_') && imitatesProtected(name)) return 'imitation'
  return protectedKind(name) ?? 'plain'
}

function protectedKind(name: string): RequestFieldKind | undefined {
  if (name.startsWith('proxy-')) return 'dropped'
  return Object.hasOwn(REQUEST_FIELDS, name) ? REQUEST_FIELDS[name] : undefined
}

/** A CGI-like origin reads `X_Org_Id` as `X-Org-Id`; some read `Authorization_` as `Authorization`. */
function imitatesProtected(name: string): boolean {
  const folded = name.replaceAll('_', '-')
  return protectedKind(folded) !== undefined || protectedKind(withoutDashesAround(folded)) !== undefined
}

/** Not a regular expression: `/-+$/` takes time quadratic in the number of dashes. */
function withoutDashesAround(name: string): string {
  let start = 0
  let end = name.length
  while (start < end && name[start] === '-') start++
  while (end > start && name[end - 1] === '-') end--
  return name.slice(start, end)
}

export type ResponseFieldKind =
  | 'plain'
  | 'upgrade'
  | 'date'
  | 'dropped'
  | 'connection'
  | 'keep-alive'
  | 'content-length'
  | 'transfer-encoding'
  | 'vary'
  | 'proxy-status'
  | 'malformed'

/** RFC 9110 §5.6.2. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

const rememberedResponse = new Map<string, ResponseFieldKind>()

export function responseFieldKind(name: string): ResponseFieldKind {
  const known = rememberedResponse.get(name)
  if (known !== undefined) return known
  const kind = classifyResponseField(name.toLowerCase())
  // Stores a copy: the name is a slice, and a slice keeps the whole head in memory.
  if (rememberedResponse.size < MAX_REMEMBERED && name.length <= MAX_REMEMBERED_LENGTH)
    rememberedResponse.set(Buffer.from(name, 'latin1').toString('latin1'), kind)
  return kind
}

function classifyResponseField(name: string): ResponseFieldKind {
  switch (name) {
    case 'connection':
    case 'keep-alive':
    case 'content-length':
    case 'transfer-encoding':
    case 'date':
    case 'upgrade':
    case 'vary':
    case 'proxy-status':
      return name
    case 'te':
    case 'trailer':
    case 'proxy-connection':
    case 'proxy-authenticate':
    case 'proxy-authorization':
    case 'proxy-authentication-info':
      return 'dropped'
    default:
      if (!TOKEN.test(name)) return 'malformed'
      return name.startsWith('access-control-') ? 'dropped' : 'plain' // would let web pages read the response
  }
}

/**
 * Adds the fields that a `Connection` field names, in lower case, to those of the `Connection` fields before it. Usually none
 * is named, and the result is undefined.
 */
export function namedByConnection(value: string, before?: Set<string>): Set<string> | undefined {
  if (value === 'keep-alive' || value === 'close' || value === 'Keep-Alive') return before
  let named = before
  for (const option of value.toLowerCase().split(',')) {
    const name = option.trim()
    if (name === '' || name === 'close' || name === 'keep-alive') continue
    named ??= new Set()
    named.add(name)
  }
  return named
}

/** A copy of the flat list without the fields of these lower-case names. */
export function withoutFields(fields: readonly string[], names: ReadonlySet<string>): string[] {
  const kept: string[] = []
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const name = fields[i] as string
    if (!names.has(name.toLowerCase())) kept.push(name, fields[i + 1] as string)
  }
  return kept
}

/** Matches a character that no field value may hold (RFC 9110 §5.5). Allows obs-text, read as latin1. */
const NOT_FIELD_VALUE = /[^\t\x20-\x7e\x80-\xff]/

export function isFieldValue(value: string): boolean {
  return !NOT_FIELD_VALUE.test(value)
}

/** A flat list as Node's own client takes fields: an array of values is sent as one line each. */
export function groupFields(fields: readonly string[]): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = Object.create(null)
  // Node would keep only the last of two spellings of one name.
  const spellings = new Map<string, string>()
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const written = fields[i] as string
    const value = fields[i + 1] as string
    const lowerCase = written.toLowerCase()
    const name = spellings.get(lowerCase) ?? written
    const before = headers[name]
    if (before === undefined) {
      spellings.set(lowerCase, name)
      headers[name] = value
    } else if (typeof before === 'string') headers[name] = [before, value]
    else before.push(value)
  }
  return headers
}
