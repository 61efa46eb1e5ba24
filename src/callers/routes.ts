/** Routes: which requests a `"METHOD /path"` of the settings means. */

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
