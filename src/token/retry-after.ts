/** `Retry-After` (RFC 9110 §10.2.3) as whole seconds from now. */

/** A longer wait would keep orgs out because of one odd answer. */
const MAX_SECONDS = 3_600
const DELAY_SECONDS = /^\d+$/
/** `Date.parse` alone takes nearly anything for a date. */
const HTTP_DATE = /^\w{3,9}, .+ GMT$/

/** Undefined where there is none to be read. */
export function parseRetryAfter(value: string | undefined, wallNowMs: number): number | undefined {
  if (value === undefined) return undefined
  if (DELAY_SECONDS.test(value)) return Math.min(Number(value), MAX_SECONDS)
  const restMs = HTTP_DATE.test(value) ? Date.parse(value) - wallNowMs : Number.NaN
  if (Number.isNaN(restMs)) return undefined
  return Math.min(Math.max(Math.ceil(restMs / 1_000), 0), MAX_SECONDS)
}
