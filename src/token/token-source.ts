/** The one interface between the parts of token/: whoever can mint, and whoever stands in front of one who can. */

import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'

/** What a mint is for. All but `cold` serve an org that had a token before. */
export type MintReason = 'cold' | 'warm' | 'refresh' | 'expired' | 'rejected' | 'handshake' | 'rotation'

export interface MintOptions {
  readonly reason?: MintReason
  /** Monotonic milliseconds: nobody waits for the answer after it. */
  readonly deadlineAt?: number
}

export interface TokenSource {
  /**
   * A newly minted token of `org`. Takes no signal: a mint is shared by all who wait for it and ends on its own.
   * @throws {TokenError}
   */
  mint(org: OrgId, options?: MintOptions): Promise<AccessToken>
}
