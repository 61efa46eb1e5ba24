/** Request targets in origin-form (RFC 9112 §3.2.1). */

/** The target, or a URL, without its query, which may hold a key. */
export function pathOf(target: string): string {
  const end = target.indexOf('?')
  return end === -1 ? target : target.slice(0, end)
}

const MAX_ROUTE_CHARACTERS = 200

/** Segments with a digit are ids, for which `*` stands; but for a version. A copy: a slice would keep the whole head. */
export function routeOf(method: string, path: string): string {
  const route = path.slice(0, MAX_ROUTE_CHARACTERS).replaceAll(/\/(?!v\d+(?:\/|$))(?=[^/]*\d)[^/]+/g, '/*')
  return Buffer.from(`${method} ${route}`, 'latin1').toString('latin1')
}

/** The path of a base URL, to be put in front of an origin-form target: `''` or `/api`, never with a slash at its end. */
export function targetPrefix(baseUrl: URL): string {
  return baseUrl.pathname.replace(/(?<!\/)\/+$/, '')
}
