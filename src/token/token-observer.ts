/** Events of token/ for the metrics and the log. None of them holds a token or a secret. */

import type { TokenError, TokenErrorCode } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { MintReason } from './token-source.ts'

/** One mint: a call of the token endpoint. */
export interface SettledMint {
  readonly org: OrgId
  /** The URL that was called. */
  readonly url: string
  readonly reason: MintReason
  /** The request that caused it, if one did. */
  readonly requestId?: string | undefined
  readonly outcome: 'ok' | TokenErrorCode
  readonly durationMs: number
  readonly error?: TokenError
}

/** `unusable`: the file has no secret that could be tried. `unproved`: in use without a proof, because no org was known to mint for. */
export type SecretReloadOutcome = 'proved' | 'unproved' | 'rejected' | 'undecided' | 'unusable'

/** Each method is optional and must not throw. */
export interface TokenObserver {
  mintSettled?(mint: SettledMint): void
  /** No call was made: over the budget, or in a pause. */
  mintRefused?(org: OrgId, reason: MintReason, error: TokenError): void
  /** The origin answered that a token is no longer good. */
  tokenRejected?(org: OrgId): void
  tokenEvicted?(org: OrgId): void
  /** The token endpoint refused the org. */
  orgRefused?(org: OrgId, error: TokenError): void
  estimateChanged?(estimateMs: number): void
  /** The endpoint is not called for any org for `pauseMs`. Then one call is the probe. */
  mintsPaused?(code: TokenErrorCode, pauseMs: number): void
  mintsResumed?(): void
  secretReloaded?(outcome: SecretReloadOutcome): void
}
