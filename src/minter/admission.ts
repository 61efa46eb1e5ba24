/** Decides whether a sidecar's request for a token is admitted, by the rules of the gateway and in their order. */

import type { Caller, CallerRefusal, Peer } from '../callers/callers.ts'
import {
  type Admission,
  type AdmissionRules,
  type Admitted,
  admitOrg,
  declaresContent,
  refuse,
  senderOf,
} from '../gateway/admission.ts'
import { gatherFields } from '../gateway/fields.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import type { OrgId } from '../org-id.ts'

export interface AdmittedSidecarRequest extends Pick<Admitted, 'verdict' | 'hasContent' | 'expectsContinue'> {
  readonly orgId: OrgId
  readonly caller: Caller
}

export const tokenTarget = (org: OrgId): string => `/v1/orgs/${encodeURIComponent(org)}/token`

/** Of a `POST` of a `tokenTarget`. Whoever gets a token is a caller. */
export function admitSidecarRequest(
  head: RequestHead,
  rules: AdmissionRules,
  peer: Peer,
  verified?: Caller | CallerRefusal,
): AdmittedSidecarRequest | Exclude<Admission, Admitted> {
  const found = gatherFields(head.rawFields)
  const caller = senderOf(head, found, rules, peer, verified)
  if (caller === undefined) return refuse('caller_refused')
  if ('verdict' in caller) return caller
  const named = head.method === 'POST' ? orgIn(head.target) : undefined
  if (named === undefined) return { ...refuse('target_invalid'), hint: WRONG_TARGET, caller }
  if (!caller.mayHaveTokens)
    return { ...refuse('caller_refused', 'callers[].tokens', 'no_tokens'), hint: NO_TOKENS, caller }
  if (caller.hasRoutes) return { ...refuse('route_refused', 'callers[].routes'), hint: NO_ROUTES, caller }
  const orgId = admitOrg({ orgId: named }, rules, caller)
  if (typeof orgId === 'object') return { ...orgId, caller }
  if (found.imitation !== undefined || found.isInvalid) return { ...refuse('field_invalid'), caller }
  const [hasContent, expectsContinue] = [declaresContent(head), found.expectation !== undefined]
  return { verdict: 'admitted', orgId, caller, hasContent, expectsContinue }
}

const WRONG_TARGET = 'A minter answers POST /v1/orgs/{orgId}/token, and nothing else.'
const NO_TOKENS = 'This caller gets no tokens: at the minter, set tokens: true for it in callers.'
const NO_ROUTES = 'A token knows no routes, so a caller with routes gets none.'

/** The org id in a `tokenTarget`, not checked yet. */
function orgIn(target: string): string | undefined {
  const [, segment] = /^\/v1\/orgs\/([^/?#]{1,1024})\/token$/.exec(target) ?? []
  try {
    return segment && decodeURIComponent(segment)
  } catch {
    return undefined
  }
}
