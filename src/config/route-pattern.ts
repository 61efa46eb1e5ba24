/** Patterns of routes: `"GET /v2/things"`, `"* /v2/things/*"`. */

import { isForwardable, type RoutePattern } from '../http/target.ts'
import { Unsuitable } from './unsuitable.ts'

const NEVER_FORWARDED: ReadonlySet<string> = new Set(['CONNECT', 'TRACE'])

/** @throws {Unsuitable} */
export function parseRoutePattern(text: string): RoutePattern {
  const example = 'write "METHOD /path", such as "GET /v2/things" or "* /v2/things/*"'
  const match = /^(\*|[A-Z][A-Z-]*) (\/[^*]*)(\*?)$/.exec(text)
  if (match === null) throw new Unsuitable(`is not a route: ${example}`)
  const [, method = '', path = '', star = ''] = match
  if (NEVER_FORWARDED.has(method)) throw new Unsuitable('names a method that is never forwarded')
  if (star === '*' && !path.endsWith('/')) throw new Unsuitable(`has a "*" inside a segment: ${example}`)
  if (path.includes('?') || !isForwardable(path)) {
    throw new Unsuitable('has a path that no admitted request can have: no query, "#", "\\", blanks, dot segments')
  }
  return { method, path, isPrefix: star === '*' }
}
