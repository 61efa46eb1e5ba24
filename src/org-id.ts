/** The id of an Org as it stands in `X-Org-Id`: opaque, case-sensitive, safe as one path segment. */

declare const orgId: unique symbol

/** An org id that has passed `parseOrgId`. */
export type OrgId = string & { readonly [orgId]: true }

/** Stands for the id in the path of a token endpoint, as a whole segment. */
export const ORG_ID_SEGMENT = '{orgId}'

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

/** A copy to keep longer than the request: a slice of the head would keep all of that in memory. */
export function copyOfOrgId(id: OrgId): OrgId {
  return Buffer.from(id, 'latin1').toString('latin1') as OrgId
}

/** Which rule an invalid id breaks. It goes into the log and says nothing of the id itself. */
export type OrgIdFault = 'twice' | 'blank' | 'character' | 'too_long'

const USUAL_LENGTH = 128

/** `value` is what `parseOrgId` refused. Several fields come joined by a comma and a blank (RFC 9110 §5.3). */
export function faultOfOrgId(value: string, pattern: RegExp): OrgIdFault {
  if (value.includes(', ')) return 'twice'
  if (/\s/.test(value)) return 'blank'
  if (NEVER.test(value)) return 'character'
  // A pattern limits the length, too: if it accepts the beginning, the rest is too much.
  const isCut = value.length > USUAL_LENGTH && pattern.test(value.slice(0, USUAL_LENGTH))
  return isCut || value.length > MAX_ORG_ID_LENGTH ? 'too_long' : 'character'
}
