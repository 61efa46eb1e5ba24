/** The id of an Org as it stands in `X-Org-Id`: opaque, case-sensitive, safe as one path segment. */

declare const orgId: unique symbol

/** An org id that has passed `parseOrgId`. */
export type OrgId = string & { readonly [orgId]: true }

/** The longest id that any pattern may allow. Ids are keys in memory, and an operator's pattern may backtrack. */
export const MAX_ORG_ID_LENGTH = 256

/** Refused whatever the pattern says: each of them could change the path of the mint or hide a second id. */
const NEVER = /[^\x21-\x7e]|[/\\?#%,]/

/** The id, or undefined if it does not have the shape. `pattern` is `orgs.pattern`; it sees only ids of a bounded length. */
export function parseOrgId(value: string, pattern: RegExp): OrgId | undefined {
  if (value === '' || value === '.' || value === '..' || value.length > MAX_ORG_ID_LENGTH) return undefined
  if (NEVER.test(value) || !pattern.test(value)) return undefined
  return value as OrgId
}
