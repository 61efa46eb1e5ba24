/** What each field name means to a gateway: which fields end here, which decide something, which must not be imitated. */

/** What a request field is to this gateway. `plain` goes on as it came. */
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
  | 'preflight'
  | 'forwarded'
  | 'caller-key'
  | 'org-id'
  | 'request-id'
  | 'via'
  | 'imitation'

/** Each of them is protected, too: an origin must not be able to read it out of another field, one with an underscore. */
const REQUEST_FIELDS: Readonly<Record<string, RequestFieldKind>> = {
  connection: 'connection',
  'content-length': 'content-length',
  'transfer-encoding': 'transfer-encoding',
  upgrade: 'upgrade',
  host: 'host',
  expect: 'expect',
  origin: 'origin',
  'sec-fetch-site': 'sec-fetch-site',
  'access-control-request-method': 'preflight',
  'x-forwarded-for': 'forwarded',
  forwarded: 'forwarded',
  'x-real-ip': 'forwarded',
  'x-proxy-key': 'caller-key',
  'x-org-id': 'org-id',
  'x-request-id': 'request-id',
  via: 'via',
  // Hop-by-hop (RFC 9110 §7.6.1), and what only a proxy of ours may say.
  'keep-alive': 'dropped',
  te: 'dropped',
  trailer: 'dropped',
  authorization: 'dropped',
  'http2-settings': 'dropped',
  // They change what the origin runs with our token.
  'x-original-url': 'dropped',
  'x-rewrite-url': 'dropped',
  'x-forwarded-host': 'dropped',
  'x-forwarded-proto': 'dropped',
  'x-forwarded-prefix': 'dropped',
  'sec-websocket-key': 'websocket',
  'sec-websocket-version': 'websocket',
  'sec-websocket-protocol': 'websocket',
  'sec-websocket-extensions': 'websocket',
  'sec-websocket-accept': 'websocket',
  // Only protected.
  'content-type': 'plain',
}

/** Names as clients write them repeat endlessly; their kinds are kept, up to a bound that hostile names cannot pass. */
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

/** `X_Org_Id` reaches a CGI-like origin under the name of `X-Org-Id`; so does `Authorization_` with some. */
function imitatesProtected(name: string): boolean {
  const folded = name.replaceAll('_', '-')
  return protectedKind(folded) !== undefined || protectedKind(folded.replace(/^-+|-+$/g, '')) !== undefined
}

export type ResponseFieldKind =
  | 'plain'
  | 'date'
  | 'dropped'
  | 'connection'
  | 'keep-alive'
  | 'content-length'
  | 'transfer-encoding'
  | 'access-control'
  | 'malformed'

/** RFC 9110 §5.6.2. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/

const rememberedResponse = new Map<string, ResponseFieldKind>()

export function responseFieldKind(name: string): ResponseFieldKind {
  const known = rememberedResponse.get(name)
  if (known !== undefined) return known
  const kind = classifyResponseField(name.toLowerCase())
  // A copy: what is cut out of a head keeps all of it in memory.
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
      return name
    case 'te':
    case 'trailer':
    case 'upgrade':
    case 'proxy-connection':
    case 'proxy-authenticate':
    case 'proxy-authorization':
    case 'proxy-authentication-info':
      return 'dropped'
    default:
      if (!TOKEN.test(name)) return 'malformed'
      return name.startsWith('access-control-') ? 'access-control' : 'plain'
  }
}

/** Options of a `Connection` field that name other fields, in lower case; undefined for the usual ones that name none. */
export function namedByConnection(value: string): string[] | undefined {
  if (value === 'keep-alive' || value === 'close' || value === 'Keep-Alive') return undefined
  const named = value
    .toLowerCase()
    .split(',')
    .map((option) => option.trim())
    .filter((option) => option !== '' && option !== 'close' && option !== 'keep-alive')
  return named.length > 0 ? named : undefined
}

/** The flat list without the fields of these (lower-case) names. What was received is not changed. */
export function withoutFields(fields: readonly string[], names: readonly string[]): string[] {
  const kept: string[] = []
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i] ?? ''
    if (!names.includes(name.toLowerCase())) kept.push(name, fields[i + 1] ?? '')
  }
  return kept
}

/** What may stand in a field value on the wire (RFC 9110 §5.5), obs-text as latin1 included. */
const NOT_FIELD_VALUE = /[^\t\x20-\x7e\x80-\xff]/

export function isFieldValue(value: string): boolean {
  return !NOT_FIELD_VALUE.test(value)
}

/** As Node's own client takes fields: it sends an array as one line each, in this order and case. */
export function groupFields(fields: readonly string[]): Record<string, string | string[]> {
  const headers: Record<string, string | string[]> = Object.create(null)
  // A name in another case is the same field: Node would let the last one win.
  const spellings = new Map<string, string>()
  for (let i = 0; i + 1 < fields.length; i += 2) {
    const written = fields[i] ?? ''
    const value = fields[i + 1] ?? ''
    const name = spellings.get(written.toLowerCase()) ?? written
    spellings.set(written.toLowerCase(), name)
    const before = headers[name]
    headers[name] = before === undefined ? value : [before, value].flat()
  }
  return headers
}
