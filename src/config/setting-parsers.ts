/** Parsers of single settings that need no file of their own. Each throws `Unsuitable`. */

import { type ListenAddress, parseAddress } from './address.ts'
import { Unsuitable } from './unsuitable.ts'

export function parseAppId(text: string): string {
  if (text.trim() === '') throw new Unsuitable('is blank: give the App id')
  if (text.includes(':')) throw new Unsuitable('has a ":" in it: Basic credentials would be ambiguous (RFC 7617 §2)')
  if (/\p{Cc}/u.test(text)) throw new Unsuitable('has a control character in it: Basic credentials cannot carry one')
  return text
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

/** An origin exactly as browsers send it: anything else would never match (RFC 6454 §6.2). */
export function parseOrigin(text: string): string {
  if (!/^[a-z][a-z0-9+.-]*:\/\/[^/?#@\s*]+$/.test(text) || !URL.canParse(text)) {
    throw new Unsuitable('is not an origin: write scheme://host or scheme://host:port')
  }
  const { host, origin, protocol } = new URL(text)
  const sent = origin === 'null' ? `${protocol}//${host}` : origin
  if (sent !== text) throw new Unsuitable(`is not how a browser sends it: write ${sent}`)
  return text
}

/** Octal with a leading zero: 660 may be meant as decimal, as Kubernetes writes modes. */
export function parseFileMode(text: string): number {
  const match = /^0o?([0-7]{3})$/.exec(text)
  if (match === null) throw new Unsuitable('is not a file mode: write it in octal with a leading zero, such as 0660')
  return Number.parseInt(match[1] ?? '', 8)
}

/** Anchored at both ends, whatever the text says: half an id is not an id. */
export function parseOrgPattern(text: string): RegExp {
  try {
    // Compiled as it stands first: `a)|(b` is made valid by the brackets around it.
    return new RegExp(`^(?:${new RegExp(text).source})$`)
  } catch {
    throw new Unsuitable('is not a regular expression: the default is ^[\\w-][\\w.~:@+=-]{0,127}$')
  }
}
