/** What a response says about the token that its request was sent with. */

import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from '../token/access-token.ts'
import type { TokenCache } from '../token/token-cache.ts'
import type { GatewayObserver } from './request-record.ts'

export interface VerdictContext {
  readonly tokens: TokenCache
  readonly observer: GatewayObserver
  /** Statuses of the origin that say "this token is no longer good". */
  readonly rejectedStatuses: ReadonlySet<number>
}

/** `repeat`: the request is one already. `impossible`: its content was not kept, or it cannot be sent twice by its nature. */
export type Repeatability = 'possible' | 'impossible' | 'repeat'

/** A promise of the replacement where the request is to be repeated with it; undefined where the response goes to the client. */
export function judgeToken(
  context: VerdictContext,
  orgId: OrgId,
  token: AccessToken,
  status: number,
  repeatability: Repeatability,
  /** Monotonic milliseconds: when the request was sent. */
  sentAt: number | undefined,
): Promise<AccessToken> | undefined {
  const { tokens, observer, rejectedStatuses } = context
  const isRejected = rejectedStatuses.has(status)
  if (repeatability === 'repeat') {
    tokens.repeatSettled(orgId, token, !isRejected)
    observer.replaySettled(isRejected ? 'rejected' : 'accepted')
    return undefined
  }
  if (!isRejected) {
    tokens.accepted(orgId, token, sentAt)
    return undefined
  }
  if (repeatability === 'impossible') {
    tokens.retire(orgId, token)
    observer.replaySettled('refused')
    return undefined
  }
  const replacement = tokens.rejected(orgId, token)
  if (replacement === undefined) observer.replaySettled('passed')
  return replacement
}
