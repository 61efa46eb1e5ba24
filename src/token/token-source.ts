/**
 * The words of this folder. A *mint* gets one access token of one Org. `Orgs` asks `Mints` for it, and that the endpoint or the
 * minter, in turns. In a fleet, the shared tokens stand between the two.
 */

import * as clock from '../clock.ts'
import type { TokenError } from '../errors.ts'
import type { OrgId } from '../org-id.ts'
import { Secret } from '../secret.ts'

/** One Org Access Token, as the endpoint gave it. It never prints itself. */
export class AccessToken extends Secret {
  /** When the endpoint answered, or a little before; monotonic milliseconds. Negative if that was before this process began. */
  readonly mintedAt: number
  /** The same instant as time of day: the monotonic clock may stop while the machine sleeps. */
  readonly mintedDayAt: number
  /** From then to the end that is stated. `Infinity` if none is. */
  readonly statedLifeMs: number

  constructor(
    token: string,
    mintedAt: number,
    statedLifeMs = Number.POSITIVE_INFINITY,
    mintedDayAt = clock.day() - (clock.now() - mintedAt),
  ) {
    super(token)
    // There may be a hundred thousand tokens, and V8 stores small integers inline.
    this.mintedAt = Math.floor(mintedAt)
    this.mintedDayAt = Math.floor(mintedDayAt)
    this.statedLifeMs = statedLifeMs
  }

  /** In milliseconds, by the clock that says more. `day` is the time of day. */
  ageAt(now: number, day: number): number {
    return Math.max(now - this.mintedAt, day - this.mintedDayAt)
  }

  /** It is past its stated end. */
  hasEndedAt(now: number, day: number): boolean {
    return this.ageAt(now, day) >= this.statedLifeMs
  }
}

/**
 * Why a mint is made. `cold`: an Org has no token. `warm`: the proxy asks by itself, ahead of requests. `refresh`: the end of the token
 * is near, and nobody waits. `expired`: the end has come, or the token may not be good any more. `rejected`: the service has rejected it.
 */
export const MINT_REASONS = ['cold', 'warm', 'refresh', 'expired', 'rejected'] as const
export type MintReason = (typeof MINT_REASONS)[number]

/** Nobody waits for it when it begins. */
export const isAhead = (reason: MintReason | undefined): boolean => reason === 'warm' || reason === 'refresh'

export interface MintOptions {
  readonly reason?: MintReason
  /** Id of the request that caused the mint, for the log. */
  readonly requestId?: string | undefined
  /**
   * The client connection or the caller of one that waits now; undefined if nobody does. Sources share their budget out fairly between
   * them. A call that nobody waits for is not begun, unless it is made ahead.
   */
  readonly awaitedBy?: (() => object | undefined) | undefined
  /** The token that the caller holds and wants replaced. A source that shares tokens never answers with it. */
  readonly replaces?: AccessToken | undefined
  /** The longest call, if it is to be shorter than usual. */
  readonly withinMs?: number | undefined
}

export interface TokenSource {
  /** A token of `org`, new or at least other than `replaces`. @throws {TokenError} */
  mint(org: OrgId, options?: MintOptions): Promise<AccessToken>
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
  /** A status has turned out to reject the tokens of this Org, and `tokens.rejectedStatuses` does not name it. */
  statusLearned?(status: number, org: OrgId): void
  tokenEvicted?(org: OrgId): void
}
