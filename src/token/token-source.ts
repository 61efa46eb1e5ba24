/**
 * The words of this folder. A *mint* is one call of the token endpoint, and brings an access token of one org.
 *
 * Everything that mints is a `TokenSource`. The cache asks the guard for a token, and the guard asks the endpoint. In a fleet,
 * the shared tokens stand between cache and guard. Each of them reports to one `TokenObserver`.
 */

import { TokenError, type TokenErrorCode, type TokenErrorOptions } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { Secret } from '../secret.ts'

/** Visible ASCII without white space: one word of a field value (RFC 9110 §5.5). */
const USABLE = /^[\x21-\x7e]+$/
const MAX_TOKEN_BYTES = 16 * 1024

/**
 * One Org Access Token. It never prints itself. Its secret is the value of the `Authorization` field, rendered once.
 *
 * There may be a hundred thousand tokens, so times are whole milliseconds: V8 stores small integers inline, and allocates an
 * object for each fraction and for `Infinity`.
 */
export class AccessToken extends Secret {
  /** Monotonic milliseconds, taken before the mint was sent. May lie in the past for a token that others share. */
  readonly mintedAt: number
  /** The age at which it will probably die, as far as another process knew that stored the token. */
  readonly expectedLifeMs: number | undefined
  readonly #statedLifeMs: number | undefined

  /** `expiresAt` is the end that the token itself states, by the same clock as `mintedAt`. */
  constructor(token: string, mintedAt: number, expiresAt?: number, expectedLifeMs?: number) {
    // Makes one flat string. V8 would keep a concatenated one as a tree of its parts until it is first written.
    super(Buffer.from(`Bearer ${token}`, 'latin1').toString('latin1'))
    this.mintedAt = Math.floor(mintedAt)
    this.#statedLifeMs = expiresAt === undefined ? undefined : Math.floor(expiresAt - mintedAt)
    this.expectedLifeMs = expectedLifeMs === undefined ? undefined : Math.floor(expectedLifeMs)
  }

  /** From the mint to the end that the token itself states. `Infinity` if it states none. */
  get statedLifeMs(): number {
    return this.#statedLifeMs ?? Number.POSITIVE_INFINITY
  }

  static isUsable(token: unknown): token is string {
    return typeof token === 'string' && token.length <= MAX_TOKEN_BYTES && USABLE.test(token)
  }
}

/** The purposes of a mint. All but `cold` serve an org that had a token before. */
export const MINT_REASONS = ['cold', 'warm', 'refresh', 'expired', 'rejected', 'handshake'] as const
export type MintReason = (typeof MINT_REASONS)[number]

/** Compared by identity: a connection, or a caller. */
export type Requester = object

/** Who causes a mint. */
export interface Asker {
  /** Stands for the client connection or the caller that waits. Sources share their budget out fairly between requesters. */
  readonly requester?: Requester | undefined
  /** Id of the request that caused the mint, for the log. */
  readonly requestId?: string | undefined
}

export interface MintOptions extends Asker {
  readonly reason?: MintReason
  /** The token that the caller holds and wants replaced. A source that shares tokens never answers with it. */
  readonly replaces?: AccessToken | undefined
  /** What the caller believes of the life of this org's tokens. A source that shares tokens tells it to other replicas. */
  readonly expectedLifeMs?: number | undefined
  /** Breaks the call off, to make room for others. No request has a part in it: all waiters share one mint. */
  readonly signal?: AbortSignal | undefined
}

export interface TokenSource {
  /**
   * A token of `org`, new or at least other than `replaces`.
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

/** No token, because the proxy has used up its own budget for the endpoint. */
export class OverBudget extends MintNotSent {
  constructor(retryAfterSeconds: number) {
    super('token_endpoint_unavailable', 'not called: over the budget for mints', {
      retryAfterSeconds,
      hint: 'The proxy has used up its budget for the token endpoint: see tokens.mintRate and tokens.mintConcurrency.',
    })
  }
}

export interface SettledMint extends Pick<Asker, 'requestId'> {
  readonly org: OrgId
  readonly url: string
  readonly reason: MintReason
  readonly outcome: 'ok' | TokenErrorCode
  readonly durationMs: number
  readonly error?: TokenError
}

/**
 * `loaded`: the file has a new secret, which the next mint uses. `accepted`, `rejected`: what the token endpoint said to it.
 * `unusable`: the file has no secret.
 */
export const SECRET_RELOAD_OUTCOMES = ['loaded', 'accepted', 'rejected', 'unusable'] as const
export type SecretReloadOutcome = (typeof SECRET_RELOAD_OUTCOMES)[number]

/**
 * What a rejection turned out to be. `expired`: a newer token was accepted in its place. `unsettled`: the token was too young
 * to be known to all of the service. `not_the_token`: the service accepts the token for other requests, or rejects the request
 * with any token. `unexplained`: the request could not be repeated.
 */
export const REJECTION_KINDS = ['expired', 'unsettled', 'not_the_token', 'unexplained'] as const
export type RejectionKind = (typeof REJECTION_KINDS)[number]

/** Events for the metrics and the log. None of them holds a token or a secret. Each method is optional and must not throw. */
export interface TokenObserver {
  mintSettled?(mint: SettledMint): void
  /** The service answered that a token is no longer good, and the request has ended. */
  tokenRejected?(org: OrgId, kind: RejectionKind): void
  /** The service ends tokens with this status, which `tokens.rejectedStatuses` does not name. */
  statusLearned?(status: number): void
  tokenEvicted?(org: OrgId): void
  orgRefused?(org: OrgId, error: TokenError): void
  /** The endpoint is not called for any org for `pauseMs`. Then one call is the probe. */
  mintsPaused?(code: TokenErrorCode, pauseMs: number): void
  /** The last such pause has ended. */
  mintsResumed?(): void
}
