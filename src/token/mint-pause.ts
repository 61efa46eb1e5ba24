/**
 * When not to ask the token endpoint: while it fails, while it tells us to wait, while it rejects our credentials. At the
 * end of a pause one mint goes ahead as the probe; the others wait for its outcome.
 */

import type { TokenError, TokenErrorCode } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { MintNotSent } from './mint-not-sent.ts'
import type { TokenObserver } from './token-observer.ts'

export interface MintPauseOptions {
  readonly now: () => number
  readonly random: () => number
  readonly observer?: TokenObserver | undefined
}

/** `go`: nothing is known against it. `probe`: the one that finds out; its outcome has to be told. */
export type MintPass = 'go' | 'probe'

type PauseCode = Extract<
  TokenErrorCode,
  'token_endpoint_unavailable' | 'token_endpoint_rate_limited' | 'app_credentials_rejected'
>

interface Pause {
  readonly code: PauseCode
  readonly lengthMs: number
  readonly until: number
  /** The one org that all failures were met with, where there is one: the others go on. */
  readonly org: OrgId | undefined
  isProbing: boolean
}

/** Failures in a row after which the endpoint is not asked for a while. */
const MAX_FAILURES = 5
/** First and longest pause; each is twice the one before. The longest for failures decides how soon a recovery is seen. */
const LENGTHS_MS: Readonly<Record<PauseCode, readonly [first: number, longest: number]>> = {
  token_endpoint_unavailable: [250, 2_000],
  token_endpoint_rate_limited: [1_000, 30_000],
  app_credentials_rejected: [1_000, 60_000],
}

export class MintPause {
  readonly #options: MintPauseOptions
  #pause: Pause | undefined
  #failures = 0
  #failingOrg: OrgId | undefined
  /** The endpoint wants no call before this instant. */
  #limitedUntil = Number.NEGATIVE_INFINITY

  constructor(options: MintPauseOptions) {
    this.#options = options
  }

  /** @throws {MintNotSent} in a pause */
  admit(org: OrgId): MintPass {
    const pause = this.#pauseOf(org)
    if (pause === undefined) return 'go'
    if (pause.isProbing || this.#options.now() < pause.until) throw this.#refusal(pause)
    pause.isProbing = true
    return 'probe'
  }

  /** For who had a pass and has waited since. @throws {MintNotSent} in a pause */
  confirm(org: OrgId): void {
    const pause = this.#pauseOf(org)
    if (pause !== undefined) throw this.#refusal(pause)
  }

  /** True where failing mints are answered without waiting for their outcome. */
  get failsFast(): boolean {
    return this.#pause?.code === 'token_endpoint_unavailable'
  }

  /** Told to wait until then by the endpoint; in the past where it is not. */
  get limitedUntil(): number {
    return this.#limitedUntil
  }

  /** The endpoint has answered, be it with the refusal of an org. */
  succeeded(pass: MintPass): void {
    this.#failures = 0
    // A mint that was on its way shows that the endpoint works, but not that its limit is over.
    if (pass === 'probe' || this.failsFast) this.#resume()
  }

  /** Returns the error for all who wait, where a pause begins that concerns every org. */
  failed(org: OrgId, error: TokenError, pass: MintPass): TokenError | undefined {
    switch (error.code) {
      case 'org_access_refused':
        this.succeeded(pass)
        return undefined
      case 'token_endpoint_rate_limited':
        this.#limitedUntil = Math.max(this.#limitedUntil, this.#options.now() + (error.retryAfterSeconds ?? 0) * 1_000)
        return this.#begin('token_endpoint_rate_limited', undefined)
      case 'app_credentials_rejected':
        return this.#begin('app_credentials_rejected', undefined)
      case 'token_response_invalid':
      case 'token_endpoint_unavailable':
      case 'token_endpoint_timeout':
        this.#failingOrg = this.#failures === 0 || this.#failingOrg === org ? org : undefined
        this.#failures += 1
        if (pass === 'go' && (this.#failures < MAX_FAILURES || this.#pause !== undefined)) return undefined
        return this.#begin('token_endpoint_unavailable', this.#failingOrg)
    }
  }

  /** It was never sent. */
  abandon(pass: MintPass): void {
    if (pass === 'probe' && this.#pause !== undefined) this.#pause.isProbing = false
  }

  /** What was held against the old credentials is over; a limit is not. */
  credentialsChanged(): void {
    if (this.#pause?.code === 'app_credentials_rejected' && this.#options.now() >= this.#limitedUntil) this.#resume()
  }

  #resume(): void {
    this.#failures = 0
    if (this.#pause === undefined) return
    this.#pause = undefined
    this.#options.observer?.mintsResumed?.()
  }

  #pauseOf(org: OrgId): Pause | undefined {
    const pause = this.#pause
    return pause === undefined || pause.org === undefined || pause.org === org ? pause : undefined
  }

  #begin(code: PauseCode, org: OrgId | undefined): TokenError | undefined {
    const [firstMs, longestMs] = LENGTHS_MS[code]
    const { now, random, observer } = this.#options
    const before = this.#pause
    // Further answers of the same kind, to mints that were on their way, are no new event.
    const isKnown = before?.code === code && !before.isProbing && now() < before.until
    const grown = before?.code === code ? Math.min(before.lengthMs * 2, longestMs) : firstMs
    const lengthMs = isKnown ? before.lengthMs : grown
    const until = Math.max(now() + lengthMs * (0.75 + random() / 4), this.#limitedUntil, isKnown ? before.until : 0)
    this.#pause = { code, lengthMs, until, org, isProbing: false }
    if (!isKnown) observer?.mintsPaused?.(code, until - now())
    return org === undefined ? this.#refusal(this.#pause) : undefined
  }

  #refusal(pause: Pause): MintNotSent {
    const retryAfterSeconds = Math.max(1, Math.ceil((pause.until - this.#options.now()) / 1_000))
    switch (pause.code) {
      case 'token_endpoint_unavailable':
        return new MintNotSent(pause.code, 'not asked: it has failed again and again', { retryAfterSeconds })
      case 'token_endpoint_rate_limited':
        return new MintNotSent(pause.code, 'not asked: it wants to be left alone for now', { retryAfterSeconds })
      case 'app_credentials_rejected':
        return new MintNotSent(pause.code, 'not asked: it has rejected the App credentials')
    }
  }
}
