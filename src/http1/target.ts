/** Request targets in origin-form (RFC 9112 §3.2.1). */

/** The target, or a URL, without its query, which may hold a key. */
export function pathOf(target: string): string {
  const end = target.indexOf('?')
  return end === -1 ? target : target.slice(0, end)
}

/** The path of a base URL, to be put in front of an origin-form target: `''` or `/api`, never with a slash at its end. */
export function targetPrefix(baseUrl: URL): string {
  return baseUrl.pathname.replace(/(?<!\/)\/+$/, '')
}
