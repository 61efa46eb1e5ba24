/** What the parts of token/ tell about themselves, for metrics and the log. Nothing here ever holds a token or a secret. */

import type { TokenError, TokenErrorCode } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { MintReason } from './token-source.ts'

/** One call of the token endpoint. */
export interface SettledMint {
  readonly org: OrgId
  readonly reason: MintReason
  readonly outcome: 'ok' | TokenErrorCode
  readonly durationMs: number
  readonly error?: TokenError
}

/** `unusable`: the file held no secret that could be tried. `unproved`: taken over without a proof, because no org was known to mint for. */
export type SecretReloadOutcome = 'proved' | 'unproved' | 'rejected' | 'undecided' | 'unusable'

/** Each method is optional and must not throw. */
export interface TokenObserver {
  mintSettled?(mint: SettledMint): void
  /** No call was made: over the budget, failing fast, or told to wait. */
  mintRefused?(org: OrgId, reason: MintReason, error: TokenError): void
  /** The origin answered that a token is no longer good. */
  tokenRejected?(org: OrgId): void
  tokenEvicted?(org: OrgId): void
  /** The token endpoint refused the org, which is remembered for `refusalTtlMs`. */
  orgRefused?(org: OrgId, error: TokenError): void
  estimateChanged?(estimateMs: number): void
  /** No mint is sent for `pauseMs`, but for one probe at its end. */
  mintsPaused?(code: TokenErrorCode, pauseMs: number): void
  mintsResumed?(): void
  secretReloaded?(outcome: SecretReloadOutcome): void
}
