/** Judges the token of a request by the status of the response, and waits for the repeat after a rejection (RFC 9110 §15.5.2). */

import type { OrgId } from '../http/org-id.ts'
import type { GatewayObserver } from '../http/request-record.ts'
import type { TokenCache } from '../token/token-cache.ts'
import type { AccessToken } from '../token/token-source.ts'
import type { ClientContent } from './client-content.ts'

export interface JudgeContext {
  readonly tokens: TokenCache
  readonly observer: GatewayObserver
  /** Statuses of the service that say "this token is no longer good". */
  readonly rejectedStatuses: ReadonlySet<number>
}

/** This response answers a repeat. Older: the cache held the token before the rejection came, so the service may have ended both. */
export type Repeated = 'with a newer token' | 'with an older token'

/** A token, and the request that it went with. */
export interface TokenUse {
  readonly orgId: OrgId
  readonly token: AccessToken
  /** Monotonic milliseconds. */
  readonly sentAt: number | undefined
  /** False if the content of the request was not kept, or the request is a handshake. */
  readonly isRepeatable: boolean
  /** Undefined for the first response. */
  readonly repeated: Repeated | undefined
}

/**
 * Tells the cache what `status` says about a token. Returns a promise of the replacement if the request is to be repeated
 * with it; undefined if the response goes to the client.
 */
export function judgeToken(context: JudgeContext, use: TokenUse, status: number): Promise<AccessToken> | undefined {
  const { tokens, observer, rejectedStatuses } = context
  const { orgId, token, repeated } = use
  const isRejected = rejectedStatuses.has(status)
  if (repeated !== undefined) {
    tokens.repeatSettled(orgId, token, !isRejected)
    observer.repeatSettled(isRejected ? 'rejected' : 'accepted')
    if (!isRejected || repeated === 'with a newer token') return undefined
  } else if (!isRejected) {
    tokens.accepted(orgId, token, use.sentAt)
    return undefined
  }
  if (!use.isRepeatable) {
    tokens.retire(orgId, token)
    observer.repeatSettled('refused')
    return undefined
  }
  const replacement = tokens.rejected(orgId, token)
  if (replacement === undefined) observer.repeatSettled('passed')
  return replacement
}

export interface RepeatTarget {
  /** The new token is here before the rejection has ended. Its connection is given up if it does not end soon. */
  rejectionIsLate(): void
  repeat(token: AccessToken): void
  repeatFailed(error: unknown): void
}

/** A longer rejection is not read to its end: its connection is closed. */
const MAX_REJECTION_BYTES = 64 * 1024

/**
 * Waits for three things, in any order: the rejection has been read, the new token is here, and the content of the request
 * has been received in full.
 */
export class Repeat {
  readonly #target: RepeatTarget
  #token: AccessToken | undefined
  #hasContent = false
  #hasRejectionEnded = false
  #rejectionBytes = 0

  constructor(target: RepeatTarget, replacement: Promise<AccessToken>, content: ClientContent | undefined) {
    this.#target = target
    replacement.then(
      (token) => {
        this.#token = token
        this.#goOn()
      },
      (error: unknown) => target.repeatFailed(error),
    )
    if (content === undefined) this.#hasContent = true
    else
      content.whenWhole(() => {
        this.#hasContent = true
        this.#goOn()
      })
  }

  /** Returns false once the rejection is too long to be read to its end. */
  discard(bytes: number): boolean {
    this.#rejectionBytes += bytes
    return this.#rejectionBytes <= MAX_REJECTION_BYTES
  }

  /** Its connection is free, or closed. */
  rejectionEnded(): void {
    this.#hasRejectionEnded = true
    this.#goOn()
  }

  #goOn(): void {
    const token = this.#token
    if (token === undefined || !this.#hasContent) return
    if (!this.#hasRejectionEnded) {
      this.#target.rejectionIsLate()
      return
    }
    this.#token = undefined
    this.#target.repeat(token)
  }
}
