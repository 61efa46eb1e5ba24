/**
 * The words of this folder. A *mint* is one call of the token endpoint, and brings an access token of one org. The cache asks
 * the guard for a token, and the guard asks the endpoint. In a fleet, the shared tokens stand between cache and guard.
 */

import type { TokenError, TokenErrorCode } from '../errors.ts'
import type { OrgId } from '../org-id.ts'
import { Secret } from '../secret.ts'

/** One Org Access Token. It never prints itself. Its secret is the value of the `Authorization` field, rendered once. */
export class AccessToken extends Secret {
  /** Monotonic milliseconds, taken before the mint was sent. Negative if minted before this process began. */
  readonly mintedAt: number
  /** The same instant as time of day: the monotonic clock may stop while the machine sleeps. */
  readonly mintedDayAt: number
  /** From the mint to the end that the token itself states. `Infinity` if it states none. */
  readonly statedLifeMs: number
  /** The age at which it will probably end, as another process learned that shared it. `Infinity` if nothing was told. */
  readonly knownLifeMs: number

  constructor(
    token: string,
    mintedAt: number,
    statedLifeMs = Number.POSITIVE_INFINITY,
    knownLifeMs = Number.POSITIVE_INFINITY,
    mintedDayAt = Date.now() - (performance.now() - mintedAt),
  ) {
    // Makes one flat string. V8 would keep a concatenated one as a tree of its parts until it is first written.
    super(Buffer.from(`Bearer ${token}`, 'latin1').toString('latin1'))
    // There may be a hundred thousand tokens, and V8 stores small integers inline.
    this.mintedAt = Math.floor(mintedAt)
    this.mintedDayAt = Math.floor(mintedDayAt)
    this.statedLifeMs = statedLifeMs
    this.knownLifeMs = knownLifeMs
  }
}

/** The purposes of a mint. `cold`: a request for an org that has no token, which comes last in the budget. `probe`: nobody waits for it. */
export const MINT_REASONS = ['cold', 'warm', 'probe', 'refresh', 'expired', 'rejected'] as const
export type MintReason = (typeof MINT_REASONS)[number]

export interface MintOptions {
  readonly reason?: MintReason
  /** Id of the request that caused the mint, for the log. */
  readonly requestId?: string | undefined
  /** The client connection or the caller that waits. Sources share their budget out fairly between them. */
  readonly requester?: object | undefined
  /** The token that the caller holds and wants replaced. A source that shares tokens never answers with it. */
  readonly replaces?: AccessToken | undefined
  /** The learned life of this org's tokens; `Infinity` if unknown. A source that shares tokens tells it to other replicas. */
  readonly knownLifeMs?: number | undefined
}

/** Who causes a mint. */
export type Asker = Pick<MintOptions, 'requester' | 'requestId'>

/** Gets a function that ends the call, to make room for others. No request calls it: all waiters share one mint. */
export type OnCall = (breakOff: () => void) => void

export interface TokenSource {
  /** A token of `org`, new or at least other than `replaces`. @throws {TokenError} */
  mint(org: OrgId, options?: MintOptions, onCall?: OnCall): Promise<AccessToken>
}

export interface SettledMint extends Pick<MintOptions, 'requestId'>, Required<Pick<MintOptions, 'reason'>> {
  readonly org: OrgId
  /** Of the call, to the token endpoint or to the minter. */
  readonly method: string
  readonly url: string
  readonly durationMs: number
  /** Undefined if the call brought a token. */
  readonly error: TokenError | undefined
}

/** Events for the metrics and the log. None of them holds a token or a secret. Each method is optional and must not throw. */
export interface TokenObserver {
  mintSettled?(mint: SettledMint): void
  /** The service ends tokens with this status, which `tokens.rejectedStatuses` does not name. */
  statusLearned?(status: number): void
  tokenEvicted?(org: OrgId): void
  /** The endpoint is not called for any org for `pauseMs`. Then one call is the probe. */
  mintsPaused?(code: TokenErrorCode, pauseMs: number): void
  mintsResumed?(): void
}
