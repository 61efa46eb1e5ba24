/** The one interface between the parts of token/: whoever can mint, and whoever stands in front of one who can. */

import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'

export interface TokenSource {
  /**
   * A newly minted token of `org`. Takes no signal: a mint is shared by all who wait for it and ends on its own.
   * @throws {TokenError}
   */
  mint(org: OrgId): Promise<AccessToken>
}
