/** Parsers of single settings. Each throws `Unsuitable`. */

import type { OrgRule } from '../callers/caller-rule.ts'
import { isForwardable, type RoutePattern } from '../http/target.ts'
import { isLoopback, type ListenAddress, parseAddress } from './address.ts'
import { Unsuitable } from './problem.ts'

export function parseAppId(text: string): string {
  if (text.trim() === '') throw new Unsuitable('is blank: give the App id')
  if (text.includes(':')) throw new Unsuitable('contains ":": Basic credentials would be ambiguous (RFC 7617 §2)')
  if (/\p{Cc}/u.test(text)) throw new Unsuitable('contains a control character: Basic credentials cannot carry one')
  return text
}

const BASE_URL_EXAMPLE = 'write https://api.example.com or https://example.com/prefix'

/** No message repeats the text, because a misplaced password would be in it. */
export function parseBaseUrl(text: string): URL {
  // Checked before `new URL`, which drops an empty query, trims, and reads a backslash as a slash.
  const match = /^https?:\/\/([^/?#\\]+)([^?#]*)(.*)$/is.exec(text)
  if (match === null) throw new Unsuitable(`is not an http(s) URL: ${BASE_URL_EXAMPLE}`)
  const [, authority = '', path = '', rest = ''] = match
  if (authority.includes('@')) {
    throw new Unsuitable('contains a user name or password: remove it, the App authenticates with appId and its secret')
  }
  if (rest !== '') throw new Unsuitable(`has a query or a fragment: ${BASE_URL_EXAMPLE}`)
  if (!URL.canParse(text)) throw new Unsuitable(`is not an http(s) URL: ${BASE_URL_EXAMPLE}`)
  const url = new URL(text)
  // The parser rewrites dot segments, blanks, backslashes and non-ASCII: the result would be another path.
  if (url.pathname !== (path === '' ? '/' : path) || path.includes('//')) {
    throw new Unsuitable('has a path with "." or ".." segments, "//", "\\", blanks or non-ASCII: write a plain path')
  }
  return url
}

/** Returns true if the network can read what is sent to this URL, the App secret included. */
export function isReadableOnTheWay(url: URL): boolean {
  return url.protocol === 'http:' && !isLoopback(url.hostname.replace(/^\[|\]$/g, ''))
}

const ROUTE_EXAMPLE = 'write "METHOD /path", such as "GET /v2/things" or "* /v2/things/*"'
const NEVER_FORWARDED: ReadonlySet<string> = new Set(['CONNECT', 'TRACE'])

export function parseRoutePattern(text: string): RoutePattern {
  const match = /^(\*|[A-Z][A-Z-]*) (\/[^*]*)(\*?)$/.exec(text)
  if (match === null) throw new Unsuitable(`is not a route: ${ROUTE_EXAMPLE}`)
  const [, method = '', path = '', star = ''] = match
  if (NEVER_FORWARDED.has(method)) throw new Unsuitable('names a method that is never forwarded')
  if (star === '*' && !path.endsWith('/')) throw new Unsuitable(`has "*" inside a segment: ${ROUTE_EXAMPLE}`)
  if (path.includes('?') || !isForwardable(path)) {
    throw new Unsuitable('has a path that matches no request: no query, "#", "\\", blanks or dot segments')
  }
  return { method, path, isPrefix: star === '*' }
}

export function parseAdminAddress(text: string): ListenAddress | 'off' {
  return text === 'off' ? 'off' : parseAddress(text)
}

/** A name as it stands in `Host`, without its port; `*` for all. */
export function parseHostName(text: string): string {
  const name = text.toLowerCase()
  if (name !== '*' && !/^(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)$/.test(name)) {
    throw new Unsuitable('is not a host name: write it without scheme and port, an IPv6 address in brackets')
  }
  return name
}

/** An origin exactly as browsers send it. Any other spelling would never match (RFC 6454 §6.2). */
export function parseOrigin(text: string): string {
  if (!/^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s*]+$/.test(text) || !URL.canParse(text)) {
    throw new Unsuitable('is not an origin: write scheme://host or scheme://host:port')
  }
  const { host, origin, protocol } = new URL(text)
  const sent = origin === 'null' ? `${protocol}//${host}` : origin
  if (sent !== text) throw new Unsuitable(`is not how a browser sends it: write ${sent}`)
  return text
}

/** Octal with a leading zero. Without one the number may be decimal, as Kubernetes writes modes. */
export function parseFileMode(text: string): number {
  const match = /^0o?([0-7]{3})$/.exec(text)
  if (match === null) throw new Unsuitable('is not a file mode: write it in octal with a leading zero, such as 0660')
  return Number.parseInt(match[1] ?? '', 8)
}

/** Of an org id. */
export const DEFAULT_PATTERN = '^[\\w-][\\w.~:@+=-]{0,127}$'

/** Anchored at both ends, because a part of an id is not an id. */
export function parseOrgPattern(text: string): RegExp {
  try {
    // Compiled alone first: the group below would make `a)|(b` valid.
    return new RegExp(`^(?:${new RegExp(text).source})$`)
  } catch {
    throw new Unsuitable(`is not a regular expression: the default is ${DEFAULT_PATTERN}`)
  }
}

/** Stands in metrics and logs, so only plain characters. */
export function parseCallerName(text: string): string {
  if (!/^[a-zA-Z0-9][\w.-]{0,63}$/.test(text)) {
    throw new Unsuitable('is not a name: 1 to 64 letters, digits or any of _ . -, beginning with a letter or digit')
  }
  return text
}

export function parseSocketPath(text: string): string {
  const address = parseAddress(`unix:${text}`)
  return address.kind === 'unix' ? address.path : text
}

/** An org id, or the beginning of one and `*`. Ids are compared exactly: nothing else is special. */
export function parseOrgRule(text: string): OrgRule {
  const match = /^([^*]*)(\*?)$/.exec(text)
  if (match === null || text === '') throw new Unsuitable('is not an org id, or the beginning of one and "*"')
  const [, id = '', star] = match
  return { id, isPrefix: star === '*' }
}

/** A file, or an https URL. Anybody who can change the answer can mint tokens for the caller, so plain http is refused. */
export function parseKeySetLocation(text: string): string {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return text
  if (!text.startsWith('https://') || !URL.canParse(text)) throw new Unsuitable('is not a file or an https URL')
  const { username, password, hash } = new URL(text)
  if (username !== '' || password !== '' || hash !== '') {
    throw new Unsuitable('has a user, a password or a fragment: use jwksTokenFile for a credential')
  }
  return text
}
