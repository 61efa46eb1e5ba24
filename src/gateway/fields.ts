/** The meaning of each field to this gateway: which stop here, which admission reads, which no other name may imitate. */

/** The field that carries the token to the service, and what stands around the token. */
export interface TokenField {
  /** In lower case. */
  readonly name: string
  readonly before: string
  readonly after: string
}

/** The fields of one request. The values of a repeated field are joined by commas, so a field that must stand alone fails its check. */
export class RequestFindings {
  /** Flat list of the fields that go on. */
  readonly kept: string[] = []
  /** The same for those that go on with a WebSocket handshake only. */
  readonly ofHandshake: string[] = []
  /** A value has a control character, or two fields contradict each other. */
  isInvalid = false
  connection: string | undefined = undefined
  upgrade: string | undefined = undefined
  webSocketKey: string | undefined = undefined
  webSocketVersion: string | undefined = undefined
  host: string | undefined = undefined
  expectation: string | undefined = undefined
  origin: string | undefined = undefined
  fetchSite: string | undefined = undefined
  forwarded: string | undefined = undefined
  callerKey: string | undefined = undefined
  orgId: string | undefined = undefined
  requestId: string | undefined = undefined
  traceparent: string | undefined = undefined
  via: string | undefined = undefined
  cookie: string | undefined = undefined
  contentType: string | undefined = undefined
  methodOverride: string | undefined = undefined
  maxForwards: string | undefined = undefined
  /** The name looks like another one. */
  imitation: string | undefined = undefined
}

type RequestFinding = Exclude<keyof RequestFindings, 'kept' | 'ofHandshake' | 'isInvalid'>

/** Collects the findings in one pass, and decides nothing. `rawFields` is the flat list as received. */
export function gatherFields(
  rawFields: readonly string[],
  keepsCookies = false,
  ruleOf: FieldRules = requestFieldRule,
): RequestFindings {
  const found = new RequestFindings()
  for (let i = 0; i + 1 < rawFields.length; i += 2) {
    const name = rawFields[i] as string
    const value = rawFields[i + 1] as string
    if (!isFieldValue(value)) found.isInvalid = true
    const { goesOn, finding } = ruleOf(name)
    if (goesOn === 'always' || (goesOn === 'cookie' && keepsCookies)) found.kept.push(name, value)
    else if (goesOn === 'handshake') found.ofHandshake.push(name, value)
    if (finding === undefined) continue
    const before = found[finding]
    // With two types, the content can be read in two ways (RFC 9110 §8.3). A comma may stand in one.
    if (finding === 'contentType' && before !== undefined) found.isInvalid = true
    found[finding] = before === undefined ? value : `${before}, ${value}` // RFC 9110 §5.3
  }
  return found
}

interface RequestFieldRule {
  /** `handshake`: to the service with a WebSocket handshake only. `cookie`: if `origin.sendCookies` is set. */
  readonly goesOn: 'always' | 'handshake' | 'cookie' | 'never'
  readonly finding: RequestFinding | undefined
}

const passed = (finding?: RequestFinding): RequestFieldRule => ({ goesOn: 'always', finding })
const ofHandshake = (finding?: RequestFinding): RequestFieldRule => ({ goesOn: 'handshake', finding })
const read = (finding?: RequestFinding): RequestFieldRule => ({ goesOn: 'never', finding })
const plain = passed()
const dropped = read()
const imitation = read('imitation')

/** All of them are protected: a request is refused if a service that reads `_` as `-` could take another name for one of them. */
const PROTECTED: Readonly<Record<string, RequestFieldRule>> = {
  connection: read('connection'),
  'content-length': dropped,
  'transfer-encoding': dropped,
  upgrade: read('upgrade'),
  host: read('host'),
  expect: read('expectation'),
  origin: read('origin'),
  'x-proxy-key': read('callerKey'),
  'x-org-id': read('orgId'),
  'sec-fetch-site': passed('fetchSite'),
  'x-forwarded-for': passed('forwarded'),
  'x-real-ip': passed('forwarded'),
  forwarded: read('forwarded'), // if it is no reason to refuse, it still must not name another host to the service
  'x-request-id': passed('requestId'),
  traceparent: passed('traceparent'),
  via: passed('via'),
  'max-forwards': passed('maxForwards'),
  // The cookie jar of an app knows one host, this proxy. It would send the session of one Org with the token of another.
  cookie: { goesOn: 'cookie', finding: 'cookie' },
  // Some services take the method from these. They go on where no route is checked.
  'x-http-method-override': passed('methodOverride'),
  'x-http-method': passed('methodOverride'),
  'x-method-override': passed('methodOverride'),
  // Hop-by-hop fields (RFC 9110 §7.6.1), and the client's credential.
  'keep-alive': dropped,
  te: dropped,
  trailer: dropped,
  authorization: dropped,
  'http2-settings': dropped,
  // Some services take another method, path or host from these fields than the ones that were checked here.
  'x-original-url': dropped,
  'x-original-uri': dropped,
  'x-original-method': dropped,
  'x-rewrite-url': dropped,
  'x-forwarded-uri': dropped,
  'x-forwarded-path': dropped,
  'x-forwarded-method': dropped,
  'x-forwarded-host': dropped,
  'x-forwarded-proto': dropped,
  'x-forwarded-prefix': dropped,
  'script-name': dropped,
  'path-info': dropped,
  'x-sendfile-type': dropped,
  'x-accel-mapping': dropped,
  'sec-websocket-key': ofHandshake('webSocketKey'),
  'sec-websocket-version': ofHandshake('webSocketVersion'),
  'sec-websocket-protocol': ofHandshake(),
  'sec-websocket-extensions': ofHandshake(),
  'sec-websocket-accept': ofHandshake(),
  'content-type': passed('contentType'),
}

/** Remembers what `classify` says: clients and services repeat the same names. The bounds keep hostile names from filling the memory. */
function remembering<Rule extends string | object>(classify: (lowerCase: string) => Rule): (name: string) => Rule {
  const remembered = new Map<string, Rule>()
  return (name) => {
    const known = remembered.get(name)
    if (known !== undefined) return known
    const rule = classify(name.toLowerCase())
    // Stores a copy: a name of a response is a slice, and a slice keeps the whole head in memory.
    if (remembered.size < 2_048 && name.length <= 64)
      remembered.set(Buffer.from(name, 'latin1').toString('latin1'), rule)
    return rule
  }
}

const requestFieldRule = remembering((name) => {
  // A service like CGI reads `X_Org_Id` as `X-Org-Id`; some read `Authorization_` as `Authorization`.
  if (name.includes('_') && protectedRule(withDashes(name)) !== undefined) return imitation
  return protectedRule(name) ?? plain
})

/** What becomes of a field of this name. */
export type FieldRules = (name: string) => RequestFieldRule

/** The rules where the proxy sends fields with these names itself, so that clients cannot. */
export function fieldRulesBeside(ours: readonly string[]): FieldRules {
  const more = ours.map((name) => name.toLowerCase()).filter((name) => requestFieldRule(name) === plain)
  if (more.length === 0) return requestFieldRule
  const looks = new Set(more.map(withDashes))
  return remembering((name) => {
    if (more.includes(name)) return dropped
    return looks.has(withDashes(name)) ? imitation : requestFieldRule(name)
  })
}

/** As services see it that read `_` as `-`. */
export const withDashes = (name: string) =>
  name
    .split(/[-_]+/)
    .filter((word) => word !== '')
    .join('-')

/** A field of this name has a meaning here, or looks like one that has. */
export function hasMeaning(name: string): boolean {
  return requestFieldRule(name) !== plain
}

function protectedRule(name: string): RequestFieldRule | undefined {
  if (name.startsWith('proxy-')) return dropped
  return Object.hasOwn(PROTECTED, name) ? PROTECTED[name] : undefined
}

export const responseFieldKind = remembering((name) => {
  switch (name) {
    case 'connection':
    case 'content-length':
    case 'date':
    case 'upgrade':
    case 'vary':
    case 'proxy-status':
    case 'location':
    case 'content-location':
    case 'link':
    case 'set-cookie':
      return name
    case 'keep-alive':
    case 'transfer-encoding':
    case 'te':
    case 'trailer':
    case 'proxy-connection':
    case 'proxy-authenticate':
    case 'proxy-authorization':
    case 'proxy-authentication-info':
      return 'dropped'
    default:
      return name.startsWith('access-control-') ? 'dropped' : 'plain' // would let web pages read the response
  }
})

export type ResponseFieldKind = ReturnType<typeof responseFieldKind>

/** Matches a character that no field value may hold (RFC 9110 §5.5). Allows obs-text, read as latin1. */
const NOT_FIELD_VALUE = /[^\t\x20-\x7e\x80-\xff]/

function isFieldValue(value: string): boolean {
  return !NOT_FIELD_VALUE.test(value)
}
