/** Request targets (RFC 9112 §3.2): which are refused, and which an origin may read as the token endpoint. */

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
 * True if an origin may resolve a dot segment: a segment is `.` or `..` when it is decoded once or twice, between separators
 * of either kind, with or without `;parameters` (servlet containers read `/..;/` as `/../`), or at the end of what an origin
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

const MAY_NAME_TOKEN_ENDPOINT = /access|%/i

/**
 * What folds into `s` outside ASCII, as the octets of its UTF-8 in lower case: matchers that ignore case take a long s for an
 * s, and those that fold whole strings take a sharp s for two.
 */
const LONG_S = /\u00e5\u00bf/g
const SHARP_S = /\u00e3\u009f|\u00e1\u00ba\u009e/g

/** Servers drop a suffix that picks a format, trim blanks, and stop reading at a control. */
const ACCESS = /^access *(?:$|[.\p{Cc}])/u

/**
 * True if an origin may read the path as `…/orgs/{x}/access`, the token endpoint. Compares after decoding twice, without
 * regard to case, without `;parameters` and without empty segments. Servers disagree on two points, so every reading counts: a
 * segment of parameters alone (`/;x/`) counts as a segment or not, and an encoded separator ends a segment or is part of it.
 */
export function isTokenEndpoint(path: string): boolean {
  if (!MAY_NAME_TOKEN_ENDPOINT.test(path)) return false
  const once = decodeOnce(path)
  const encodedSeparators = `${path} ${once}`.match(ENCODED_SEPARATOR)?.length ?? 0
  const decoded = decodeOnce(once).toLowerCase().replace(LONG_S, 's').replace(SHARP_S, 'ss')
  // Some origins decode the target before they look for its query.
  const withoutQuery = decoded.slice(0, decoded.search(/[?#]|$/))
  return [decoded, withoutQuery].some((reading) => endsInTokenEndpoint(reading, encodedSeparators))
}

/** `encodedSeparators` of the separators in the decoded path were encoded. */
function endsInTokenEndpoint(decoded: string, encodedSeparators: number): boolean {
  const names = decoded
    .split(/[/\\]/)
    .filter((segment) => segment !== '' || encodedSeparators > 0) // an encoded separator may be a segment by itself
    .map((segment) => segment.replace(/;.*/s, '')) // without parameters
  let last = names.length - 1
  while (last > 0 && names[last] === '') last--
  if (!ACCESS.test(names[last] ?? '')) return false
  // One segment is between `orgs` and `access`. An origin may skip segments without a name, and an encoded separator may join
  // two segments into one.
  let named = 0
  for (let i = last - 1; i >= 0 && named <= encodedSeparators + 1; i--) {
    if (names[i] === 'orgs' && last - i > 1) return true
    if (names[i] !== '') named++
  }
  return false
}

/** `"METHOD /path"` of the configuration, taken apart. */
export interface RoutePattern {
  /** `*` stands for any method. */
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

/** The path of a base URL, to be put in front of an origin-form target: `''` or `/api`, never with a slash at its end. */
export function targetPrefix(baseUrl: URL): string {
  return baseUrl.pathname.replace(/\/+$/, '')
}
