/** Judges the token of a request by the response, and waits for the repeat after a rejection (RFC 9110 §15.5.2). */

import type { GatewayObserver, RepeatOutcome } from '../http/request-record.ts'
import type { AppKey } from '../token/app-credentials.ts'
import type { Answer, Rejection } from '../token/rejection.ts'
import type { TokenCache } from '../token/token-cache.ts'
import type { AccessToken } from '../token/token-source.ts'
import type { ClientContent } from './client-content.ts'

export interface JudgeContext {
  readonly tokens: TokenCache
  readonly observer: GatewayObserver
}

/**
 * Tells the cache what a response says about its token. Returns a promise of the token for a repeat; undefined if the response
 * goes to the client.
 */
export function judgeToken(
  { tokens, observer }: JudgeContext,
  rejection: Rejection,
  rejected: Answer,
): Promise<AccessToken> | undefined {
  const token = tokens.judge(rejection, rejected)
  if (token === undefined) {
    const outcome = repeatOutcome(rejection, tokens.isRejected(rejected.status))
    if (outcome !== undefined) observer.repeatSettled(outcome)
  }
  return token
}

function repeatOutcome(rejection: Rejection, isRejected: boolean): RepeatOutcome | undefined {
  if (rejection.isRepeated) return isRejected ? 'rejected' : 'accepted'
  if (!isRejected) return undefined
  return rejection.request.isRepeatable ? 'passed' : 'refused'
}

export interface RepeatTarget {
  /** The new token is here before the rejection has ended. Its connection is given up if it does not end soon. */
  rejectionIsLate(): void
  repeat(token: AccessToken | AppKey): void
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
  #token: AccessToken | AppKey | undefined
  #hasContent = false
  #hasRejectionEnded = false
  #rejectionBytes = 0

  constructor(target: RepeatTarget, replacement: Promise<AccessToken | AppKey>, content: ClientContent | undefined) {
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
