/** Request targets (RFC 9112 §3.2): which are refused, and which a service may read as the token endpoint. */

/** Most targets: no segment begins with a dot, and every character is unreserved or one of the usual marks. */
const PLAIN = /^(?:\/[\w\-~!$&'()*+,=:@][\w\-.~!$&'()*+,=:@]*)+\/?(?:\?[\w\-.~!$&'()*+,;=:@/?%[\]{}|"<>^`]*)?$/
const NOT_VISIBLE_ASCII = /[^\x21-\x7e]/
const BROKEN_PERCENT = /%(?![0-9A-Fa-f]{2})/
const ENCODED_CONTROL = /%(?:[01][0-9A-Fa-f]|7[Ff])/
const DOT_SEGMENT = /[/\\]\.\.?(?:[/\\;?#]|$)/
/** One more decoding turns this into a separator. For a path that has been decoded once or not at all. */
const ENCODED_SEPARATOR = /%(?:2f|5c)/gi

/** True for a path that may go on byte for byte. `target` is in origin-form. */
export function isForwardable(target: string): boolean {
  if (PLAIN.test(target)) return true
  if (!target.startsWith('/') || NOT_VISIBLE_ASCII.test(target) || target.includes('#')) return false
  const path = pathOf(target)
  if (path.includes('\\') || BROKEN_PERCENT.test(path)) return false
  return !hasDotSegment(path)
}

/** True if the path has a percent-encoded control. Servers cut a path at such a character, or drop it. */
export function hasEncodedControl(path: string): boolean {
  return path.includes('%') && ENCODED_CONTROL.test(path)
}

/** The target without its query. */
export function pathOf(target: string): string {
  const end = target.indexOf('?')
  return end === -1 ? target : target.slice(0, end)
}

/**
 * True if a service may resolve a dot segment: a segment is `.` or `..` when it is decoded once or twice, between separators
 * of either kind, with or without `;parameters` (servlet containers read `/..;/` as `/../`), or at the end of what a service
 * takes for the path if it decodes before it looks for the query.
 */
function hasDotSegment(path: string): boolean {
  const once = decodeOnce(path)
  return [once, decodeOnce(once)].some((reading) => DOT_SEGMENT.test(reading))
}

/** Replaces each `%xx` by the one character with that number, so that no two paths become equal. Never throws. */
function decodeOnce(path: string): string {
  if (!path.includes('%')) return path
  return path.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
}

/** Stands for the org id in the path of a token endpoint, as a whole segment. */
export const ORG_ID_SEGMENT = '{orgId}'
/** Of version 2.0 of the service. It is closed whatever the configuration says. */
const STANDARD_ENDPOINT = '/v2/orgs/{orgId}/access'

/** The fixed segments of a token endpoint, folded. One segment with the org id is between the two lists, unless there is no first one. */
interface EndpointSegments {
  readonly before: readonly string[] | undefined
  readonly between: readonly string[]
  /** Servers drop a suffix that picks a format, trim blanks, and stop reading at a control. */
  readonly last: RegExp
}

/**
 * Returns a test of paths: true if a service may read the path as a token endpoint, that of version 2.0 or `configured`. An
 * endpoint is compared without a first segment such as `v2`, and whatever precedes it in the path counts as a prefix. Compares
 * after decoding twice, without regard to case, without `;parameters` and without empty segments. Servers disagree on two
 * points, so every reading counts: a segment of parameters alone (`/;x/`) counts as a segment or not, and an encoded separator
 * ends a segment or is part of it.
 */
export function tokenEndpointTest(configured = STANDARD_ENDPOINT): (path: string) => boolean {
  const endpoints = [...new Set([STANDARD_ENDPOINT, configured])].map(segmentsOf)
  // Most paths end here.
  const mayName = new RegExp([...endpoints.map(({ name }) => escaped(name)), '%'].join('|'), 'i')
  return (path) => {
    if (!mayName.test(path)) return false
    const once = decodeOnce(path)
    const encodedSeparators = `${path} ${once}`.match(ENCODED_SEPARATOR)?.length ?? 0
    const decoded = decodeOnce(once)
    // Some origins decode the target before they look for its query.
    const withoutQuery = decoded.slice(0, decoded.search(/[?#]|$/))
    return [decoded, withoutQuery].some((reading) => {
      const names = namesIn(reading, encodedSeparators > 0)
      return endpoints.some((endpoint) => endsInEndpoint(names, endpoint, encodedSeparators))
    })
  }
}

function segmentsOf(endpoint: string): EndpointSegments & { readonly name: string } {
  const [version = '', ...rest] = endpoint.split('/').filter((segment) => segment !== '')
  const segments = /^v[\d.]+$/i.test(version) ? rest : [version, ...rest]
  // Without the org id in the path, all segments but the last are a fixed row before it.
  const at = segments.indexOf(ORG_ID_SEGMENT)
  const fixed = (from: number, to: number) => segments.slice(from, to).map(folded)
  // The suffix may be any other, or none.
  const name = (segments.at(-1) ?? '').replace(/\.(?:json|xml)$/i, '')
  const last = new RegExp(`^\\s*${escaped(folded(name))}\\s*(?:$|[.\\p{Cc}])`, 'u')
  return { before: at === -1 ? undefined : fixed(0, at), between: fixed(at + 1, -1), last, name }
}

const escaped = (text: string) => text.replace(/[$()*+.?[\\\]^{|}]/g, '\\$&')

/** The segments of a decoded path. An encoded separator may be a segment by itself. */
function namesIn(decoded: string, hasEncodedSeparators: boolean): string[] {
  // Decoding gave one character an octet.
  return Buffer.from(decoded, 'latin1')
    .toString()
    .split(/[/\\]/)
    .filter((segment) => segment !== '' || hasEncodedSeparators)
    .map((segment) => folded(segment.replace(/;.*/s, ''))) // without parameters
}

/**
 * Without regard to case, as any matcher may see it: those that compare character by character take a long s for an s and a
 * Kelvin sign for a k, and those that fold whole strings take a sharp s for two.
 */
function folded(segment: string): string {
  const plain = segment.toLowerCase()
  if (!/[^\0-\x7f]/.test(plain)) return plain
  // The dot of a Turkish i, and characters that nobody sees.
  return plain
    .normalize('NFKC')
    .toUpperCase()
    .toLowerCase()
    .replaceAll(/\u0307|\p{Cf}/gu, '')
}

/** `encodedSeparators` of the separators in the decoded path were encoded. */
function endsInEndpoint(names: readonly string[], endpoint: EndpointSegments, encodedSeparators: number): boolean {
  const { before, between, last } = endpoint
  let end = names.length - 1
  while (end > 0 && names[end] === '') end--
  if (!last.test(names[end] ?? '')) return false
  const start = startOfRow(names, between, end)
  if (start === undefined || before === undefined) return start !== undefined
  // One segment has the org id. A service may skip segments without a name, and an encoded separator may join two segments into
  // one.
  let named = 0
  for (let i = start - 1; i >= 0; i--) {
    if (names[i] !== '') named++
    if (named > encodedSeparators + 1) return false
    // Of a row of segments without a name, the first one will do.
    if (names[i - 1] !== '' && startOfRow(names, before, i) !== undefined) return true
  }
  return false
}

/** Where `row` begins if it stands before `end`, apart from segments without a name; undefined if it does not. */
function startOfRow(names: readonly string[], row: readonly string[], end: number): number | undefined {
  let at = end
  for (let next = row.length - 1; next >= 0; next--) {
    do at--
    while (at > 0 && names[at] === '')
    if (names[at] !== row[next]) return undefined
  }
  return at
}

/** `"METHOD /path"` of the configuration, taken apart. */
export interface RoutePattern {
  /** `*` stands for any method. */
  readonly method: string
  /** Without the trailing `*` where `isPrefix`. */
  readonly path: string
  readonly isPrefix: boolean
}

/** HEAD is GET without the content (RFC 9110 §9.3.2), so a pattern for GET matches it. */
export function matchesRoute(patterns: readonly RoutePattern[], method: string, path: string): boolean {
  return patterns.some(
    (pattern) =>
      (pattern.method === '*' || pattern.method === method || (pattern.method === 'GET' && method === 'HEAD')) &&
      matchesPath(pattern, path),
  )
}

export function matchesPath({ path: pattern, isPrefix }: RoutePattern, path: string): boolean {
  return isPrefix ? path.startsWith(pattern) : path === pattern
}

/** A URL with or without its scheme, or an absolute path. */
const REFERENCE = /^(?:(?:(https?):)?\/\/([^/?#\\]*))?([/?#].*)?$/i
const AUTHORITY = /^(\[[^\]]*\]|[^:]*?)\.?(?::(\d*))?$/

/**
 * The target at this proxy for a `Location` of the service. Undefined if it does not lead below the base URL, or is a path
 * that leads there through the proxy as well. Nothing but the prefix is taken away.
 */
export function targetOfLocation(location: string, baseUrl: URL): string | undefined {
  const match = REFERENCE.exec(location)
  // Clients drop tabs: the path would be another one.
  if (match === null || /\s/.test(location)) return undefined
  const [, scheme, authority, reference = ''] = match
  const prefix = targetPrefix(baseUrl)
  if (authority === undefined ? prefix === '' : !isOrigin(scheme, authority, baseUrl)) return undefined
  const [path = ''] = reference.split(/[?#]/, 1)
  if (!`${path}/`.startsWith(`${prefix}/`) || hasDotSegment(path)) return undefined
  const target = reference.slice(prefix.length)
  // It would name another host: browsers take a backslash for a slash.
  if (/^\/[/\\]/.test(target)) return undefined
  return target.startsWith('/') ? target : `/${target}`
}

const ABSOLUTE = /^(?:https?:)?\/\//i
/** One link of a `Link` field (RFC 8288 §3), up to the next one. Each octet has one place, so the match takes linear time. */
const LINK =
  /(<)([^<>]*)(>[\t ]*(?:;[\t ]*(?:[^\t ",;<=>]+[\t ]*(?:=[\t ]*(?:"(?:[^"\\]|\\.)*"|[^\t ",;<>]+)[\t ]*)?)?)*(?:,[\t ,]*|$))/y

/** A `Link` field whose targets below the base URL have `self` in its place. Unchanged if it is no list of links. */
export function linksThrough(self: string, field: string, baseUrl: URL): string {
  let text = ''
  for (LINK.lastIndex = 0; LINK.lastIndex < field.length; ) {
    const [, before, reference = '', behind] = LINK.exec(field) ?? []
    if (before === undefined) return field
    // A relative target is resolved by the client, and leads to the proxy.
    const target = ABSOLUTE.test(reference) ? targetOfLocation(reference, baseUrl) : undefined
    text += before + (target === undefined ? reference : self + target) + behind
  }
  return text
}

function isOrigin(scheme: string | undefined, authority: string, { protocol, hostname, port }: URL): boolean {
  if (scheme !== undefined && `${scheme.toLowerCase()}:` !== protocol) return false
  const [, host, givenPort] = AUTHORITY.exec(authority.toLowerCase()) ?? []
  const defaultPort = protocol === 'https:' ? '443' : '80'
  return host === hostname.replace(/\.$/, '') && (givenPort || defaultPort) === (port || defaultPort)
}

/** The path of a base URL, to be put in front of an origin-form target: `''` or `/api`, never with a slash at its end. */
export function targetPrefix(baseUrl: URL): string {
  return baseUrl.pathname.replace(/(?<!\/)\/+$/, '')
}
