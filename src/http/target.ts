/** Request targets (RFC 9112 §3.2): what is refused, and the comparison that keeps the token endpoint out of reach. */

/** Every segment free of dots at its start, only unreserved characters and the usual marks: nothing to look at twice. */
const PLAIN = /^(?:\/[\w\-~!$&'()*+,=:@][\w\-.~!$&'()*+,=:@]*)+\/?(?:\?[\w\-.~!$&'()*+,;=:@/?%[\]{}|"<>^`]*)?$/
const NOT_VISIBLE_ASCII = /[^\x21-\x7e]/
const BROKEN_PERCENT = /%(?![0-9A-Fa-f]{2})/
const SEPARATOR = /[/\\]/
const ENCODED_SEPARATOR = /%(?:2f|5c)/i

/** True for a path that may go on byte for byte. `target` is in origin-form. */
export function isForwardable(target: string): boolean {
  if (PLAIN.test(target)) return true
  if (!target.startsWith('/') || NOT_VISIBLE_ASCII.test(target) || target.includes('#')) return false
  const path = pathOf(target)
  if (path.includes('\\') || BROKEN_PERCENT.test(path)) return false
  return !hasDotSegment(path)
}

/** The target without its query. */
export function pathOf(target: string): string {
  const end = target.indexOf('?')
  return end === -1 ? target : target.slice(0, end)
}

/**
 * A segment that an origin may resolve away: dots once decoded, whatever it takes for a separator, with or without
 * `;parameters` behind (`/..;/` is how servlet containers are climbed).
 */
function hasDotSegment(path: string): boolean {
  const decoded = decodeOnce(path)
  if (!decoded.includes('.')) return false
  return decoded.split(SEPARATOR).some((segment) => {
    const name = segment.split(';', 1)[0]
    return name === '.' || name === '..'
  })
}

/** Each `%xx` as the one character of that number: never throws, and every byte stays distinguishable. */
function decodeOnce(path: string): string {
  if (!path.includes('%')) return path
  return path.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
}

const MAY_NAME_TOKEN_ENDPOINT = /access|%/i

/**
 * True where an origin could read `/v2/orgs/{x}/access` out of the path: compared decoded, in lower case, with slashes
 * collapsed and `;parameters` dropped, with an encoded slash once taken as part of a segment and once as a separator.
 */
export function isTokenEndpoint(target: string): boolean {
  if (!MAY_NAME_TOKEN_ENDPOINT.test(target)) return false
  const path = pathOf(target)
  if (isTokenEndpointPath(path.split('/').map(decodeOnce), false)) return true
  // Where a separator is encoded, nobody knows how many segments the origin will see between the first and the last.
  return isTokenEndpointPath(decodeOnce(path).split(SEPARATOR), ENCODED_SEPARATOR.test(path))
}

/** `;x` alone is a segment, if an odd one: only what is empty from the start counts as a collapsed slash. */
function isTokenEndpointPath(segments: readonly string[], hasAnyLength: boolean): boolean {
  const names = segments
    .filter((segment) => segment !== '')
    .map((segment) => (segment.split(';', 1)[0] ?? '').toLowerCase())
  if (names.length < 4 || (names.length > 4 && !hasAnyLength)) return false
  return names[0] === 'v2' && names[1] === 'orgs' && names.at(-1) === 'access'
}

/** `"METHOD /path"` of the configuration, taken apart. */
export interface RoutePattern {
  /** `*` for any method. */
  readonly method: string
  /** Without the trailing `*` where `isPrefix`. */
  readonly path: string
  readonly isPrefix: boolean
}

export function matchesRoute(patterns: readonly RoutePattern[], method: string, path: string): boolean {
  return patterns.some(
    (pattern) =>
      (pattern.method === '*' || pattern.method === method) &&
      (pattern.isPrefix ? path.startsWith(pattern.path) : path === pattern.path),
  )
}

/** A target taken apart where it is in absolute-form (RFC 9112 §3.2.2); undefined where it is not a URI with an authority. */
export function parseAbsoluteForm(target: string): { authority: string; originForm: string } | undefined {
  const match = /^https?:\/\/([^/?#]*)(.*)$/is.exec(target)
  if (match === null) return undefined
  const rest = match[2] ?? ''
  return { authority: match[1] ?? '', originForm: rest.startsWith('/') ? rest : `/${rest}` }
}

/** The prefix of a base URL, to be put in front of an origin-form target: `''` or `/api`, never with a slash at its end. */
export function targetPrefix(baseUrl: URL): string {
  return baseUrl.pathname.replace(/\/+$/, '')
}
