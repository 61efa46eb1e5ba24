/** `baseUrl`: where the service is. No message repeats the text, because a misplaced password would be in it. */

import { isLoopback } from './address.ts'
import { Unsuitable } from './unsuitable.ts'

const EXAMPLE = 'write https://api.example.com or https://example.com/prefix'

/** @throws {Unsuitable} */
export function parseBaseUrl(text: string): URL {
  // Looked at before `new URL`, which drops an empty query, trims, and takes a backslash for a slash.
  const match = /^https?:\/\/([^/?#\\]+)([^?#]*)(.*)$/is.exec(text)
  if (match === null) throw new Unsuitable(`is not an http(s) URL: ${EXAMPLE}`)
  const [, authority = '', path = '', rest = ''] = match
  if (authority.includes('@')) {
    throw new Unsuitable('holds a user name or password: take it out, the App authenticates with appId and its secret')
  }
  if (rest !== '') throw new Unsuitable(`has a query or a fragment: ${EXAMPLE}`)
  if (!URL.canParse(text)) throw new Unsuitable(`is not an http(s) URL: ${EXAMPLE}`)
  const url = new URL(text)
  // A path that the parser had to change (dot segments, blanks, backslashes, non-ASCII) would not be the one that was meant.
  if (url.pathname !== (path === '' ? '/' : path) || path.includes('//')) {
    throw new Unsuitable('has a path that is not plain: no "." or ".." segments, "//", "\\", blanks or non-ASCII in it')
  }
  return url
}

/** True where what is sent, the App's secret first of all, could be read on the way. */
export function isReadableOnTheWay(url: URL): boolean {
  return url.protocol === 'http:' && !isLoopback(url.hostname.replace(/^\[|\]$/g, ''))
}
