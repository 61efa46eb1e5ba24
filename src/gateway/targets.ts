/** Which request targets go on, and which targets of a response lead back to the proxy. */

import { pathOf, targetPrefix } from '../http1/target.ts'

/** Most targets: no segment begins with a dot, and every character is unreserved or one of the usual marks. */
const PLAIN = /^(?:\/[\w\-~!$&'()*+,=:@][\w\-.~!$&'()*+,=:@]*)+\/?(?:\?[\w\-.~!$&'()*+,;=:@/?%[\]{}|"<>^`]*)?$/
const NOT_VISIBLE_ASCII = /[^\x21-\x7e]/
const BROKEN_PERCENT = /%(?![0-9A-Fa-f]{2})/
const ENCODED_CONTROL = /%(?:[01][0-9A-Fa-f]|7[Ff])/
const DOT_SEGMENT = /[/\\]\.\.?(?:[/\\;?#]|$)/

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
export function decodeOnce(path: string): string {
  if (!path.includes('%')) return path
  return path.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))
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
