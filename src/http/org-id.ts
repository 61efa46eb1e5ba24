/** The id of an Org as it stands in `X-Org-Id`: opaque, case-sensitive, safe as one path segment. */

declare const orgId: unique symbol

/** An org id that has passed `parseOrgId`. */
export type OrgId = string & { readonly [orgId]: true }

/** Refused whatever the configured pattern says: each could change the path of the mint or hide a second id. */
const NEVER = /[^\x21-\x7e]|[/\\?#%,]/

/** The id, or undefined where it is not of the shape. `pattern` is `orgs.pattern`. */
export function parseOrgId(value: string, pattern: RegExp): OrgId | undefined {
  if (value === '' || value === '.' || value === '..') return undefined
  if (NEVER.test(value) || !pattern.test(value)) return undefined
  return value as OrgId
}
