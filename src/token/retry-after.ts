/** `Retry-After` (RFC 9110 §10.2.3) as whole seconds from now. */

/** A longer wait would keep orgs out because of one odd answer. */
const MAX_SECONDS = 3_600
const DELAY_SECONDS = /^\d{1,9}$/

/** Undefined where there is none to be read. */
export function parseRetryAfter(value: string | string[] | undefined, wallNowMs: number): number | undefined {
  if (typeof value !== 'string') return undefined
  const seconds = DELAY_SECONDS.test(value) ? Number(value) : (Date.parse(value) - wallNowMs) / 1_000
  if (Number.isNaN(seconds)) return undefined
  return Math.min(Math.max(Math.ceil(seconds), 0), MAX_SECONDS)
}
