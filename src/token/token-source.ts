/**
 * The interface of everything that mints. The cache asks the guard for a token, and the guard asks the endpoint. In a fleet,
 * the shared tokens stand between cache and guard. A *mint* is one call of the token endpoint.
 */

import { TokenError, type TokenErrorCode, type TokenErrorOptions } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'

/** What a mint is for. All but `cold` serve an org that had a token before. */
export type MintReason = 'cold' | 'warm' | 'refresh' | 'expired' | 'rejected' | 'handshake' | 'rotation'

/** Compared by identity: a connection object, or the name of a caller. */
export type Requester = object | string

export interface MintOptions {
  readonly reason?: MintReason
  /** The token that the caller holds and wants replaced. A source that shares tokens never answers with it. */
  readonly replaces?: AccessToken | undefined
  /** Stands for the client connection or the caller that waits. Sources share their budget out fairly between requesters. */
  readonly requester?: Requester | undefined
  /** Id of the request that caused the mint, for the log. */
  readonly requestId?: string | undefined
  /** Monotonic milliseconds: nobody waits for the answer after it. */
  readonly deadlineAt?: number
}

export interface TokenSource {
  /**
   * A token of `org`, new or at least other than `replaces`. Takes no signal: all waiters share one mint, which ends by itself.
   * @throws {TokenError}
   */
  mint(org: OrgId, options?: MintOptions): Promise<AccessToken>
}

/** No token, and the token endpoint was not called for one: in a pause, or over the budget. */
export class MintNotSent extends TokenError {
  /** Has no stack: a flood makes thousands of these in a second. */
  constructor(code: TokenErrorCode, message: string, options?: TokenErrorOptions) {
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0
    super(code, message, options)
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Nobody should wait any longer, but the mint goes on. Whoever keeps tokens may take the one that comes late. */
export class MintGoesOn extends TokenError {
  readonly token: Promise<AccessToken>

  constructor(code: TokenErrorCode, message: string, token: Promise<AccessToken>, options?: TokenErrorOptions) {
    super(code, message, options)
    this.token = token
  }
}
