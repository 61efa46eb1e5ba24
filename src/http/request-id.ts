/** Ids for requests that bring none: unique across processes and restarts, at the price of a counter. */

import { randomBytes } from 'node:crypto'

/** `xxxxxxxxxxxx-1`, `xxxxxxxxxxxx-2`, …: twelve random characters of this process, then a counter in base 36. */
export function requestIds(): () => string {
  const prefix = `${randomBytes(9).toString('base64url')}-`
  let last = 0
  return () => prefix + (++last).toString(36)
}
