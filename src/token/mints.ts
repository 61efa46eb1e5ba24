/**
 * Makes the calls that bring tokens, in their turns, and repeats those that fail. A call that fails pauses its own Org alone. What
 * Orgs share is the pace, and whether the endpoint accepts the App.
 */

import * as clock from '../clock.ts'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../org-id.ts'
import { MintQueue } from './mint-queue.ts'
import type { Orgs } from './orgs.ts'
import { type AccessToken, isAhead, type MintOptions, type MintReason, type TokenSource } from './token-source.ts'

export interface MintsOptions {
  /** The wait of a request, all calls and the waits between them. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  /** Calls in any second. */
  readonly mintRate: number
}

/** After a failure, the call is repeated after these times. */
const REPEATS_MS = [150, 450] as const
/** Of `mintTimeout`: no call for a request begins later. */
const LATEST_CALL = 9 / 10
const LOWEST_PACE = 1 / 10
/** Readiness fails for so long after a 401. */
const REJECTED_MS = 60_000
/** The App counts as revoked `after` 401s to Orgs that had a token have come for so long, `until` none has come for so long. */
const REVOKED_MS = { after: 60_000, until: 300_000 } as const
const OVER_BUDGET = new TokenError(
  'token_endpoint_unavailable',
  'The proxy has used up its budget for mints: see tokens.mintRate and tokens.mintConcurrency.',
  { retryAfterSeconds: 5 },
)

export class Mints implements TokenSource {
  readonly #options: MintsOptions
  readonly #source: TokenSource
  readonly #orgs: () => Orgs
  readonly #queue: MintQueue
  /** A call since the start has succeeded, was refused otherwise, or was limited. */
  #isAppKnown = false
  /** The last 401 until then: the error of whoever waits in vain for a turn, which are few. */
  rejection: TokenError | undefined
  /** Set once two Orgs were answered 401 until then: so long the proxy is not ready; monotonic milliseconds. */
  #rejectedUntil = 0
  /** 401s for Orgs that had a token, since the last call that succeeded; monotonic milliseconds. */
  #ended: { readonly since: number; latest: number; readonly orgs: Set<OrgId> } | undefined
  /** The share of `mintRate` that is used. */
  pace = 1

  /** `orgs` is where the trouble of each Org is noted. */
  constructor(options: MintsOptions, source: TokenSource, orgs: () => Orgs) {
    this.#options = options
    this.#source = source
    this.#orgs = orgs
    const { mintConcurrency, mintRate } = options
    this.#queue = new MintQueue(() => {
      const rate = mintRate * this.pace
      // An endpoint that may know none of our secrets could lock the App out.
      if (this.rejection === undefined) return { places: mintConcurrency, rate, mostWaiting: Number.POSITIVE_INFINITY }
      return { places: 1, rate: Math.min(rate, 1), mostWaiting: this.isAppUnknown ? 1 : Number.POSITIVE_INFINITY }
    })
  }

  get calls() {
    return this.#queue.calls
  }

  async mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const orgs = this.#orgs()
    const refusal = orgs.peek(org)?.refusal
    if (refusal !== undefined) throw refusal
    const { mintTimeoutMs } = this.#options
    const { reason, awaitedBy } = options
    const startedAt = clock.runningTime()
    const restMs = (share = 1) => startedAt + mintTimeoutMs * share - clock.runningTime()
    for (let calls = 0, failure: TokenError | undefined; ; calls += 1) {
      const hasTime = isAhead(reason) && failure === undefined
      const isTroubled = orgs.peek(org)?.trouble !== undefined
      const longestMs = hasTime ? undefined : restMs(LATEST_CALL)
      const leave = await this.#queue.enter({ isTroubled, isAhead: isAhead(reason), awaitedBy, longestMs })
      if (leave === undefined) {
        if (failure !== undefined) this.#noteFailure(org, failure, options)
        throw failure ?? this.rejection ?? OVER_BUDGET
      }
      try {
        const withinMs = failure === undefined ? undefined : restMs()
        const token = await this.#source.mint(org, { ...options, withinMs })
        this.#noteAppKnown()
        this.#ended = undefined
        this.pace = Math.min(this.pace * 2, 1)
        orgs.peek(org)?.endTrouble()
        return token
      } catch (error) {
        if (!(error instanceof TokenError)) throw error
        failure = error
        const againMs = REPEATS_MS[calls] ?? Number.POSITIVE_INFINITY
        // A minter that tells when to ask again has repeated the call itself.
        const mayRepeat = error.trouble === 'failure' && error.retryAfterSeconds === undefined
        const isRepeated = mayRepeat && againMs < restMs(LATEST_CALL)
        this.#noteFailure(org, error, options, isRepeated)
        if (!isRepeated) throw error
      } finally {
        leave()
      }
      await clock.within(REPEATS_MS[calls] ?? 0)
    }
  }

  /** Begins a pause of the Org, unless the call is repeated. */
  #noteFailure(id: OrgId, error: TokenError, { reason, replaces }: MintOptions, isRepeated = false): void {
    const { trouble } = error
    if (error.code === 'app_credentials_rejected' && !this.#isAppKnown) this.#noteRejected(id, error, reason)
    if (trouble === 'credentials' && replaces !== undefined) this.#noteEnded(id)
    if (trouble === 'limit') this.pace = Math.max(this.pace / 2, LOWEST_PACE)
    // A failure says nothing about the App.
    if (trouble === 'refusal' || trouble === 'limit') this.#noteAppKnown()
    this.#orgs().noteTrouble(id, error, isRepeated)
  }

  #noteAppKnown(): void {
    this.#isAppKnown = true
    this.rejection = undefined
  }

  /**
   * From the second Org on, because one may not be linked. Only for a time: a proxy that is not ready gets no requests, and only a
   * request may show that another Org is linked. A 401 to a mint that the proxy repeats by itself (`warm`) does not prolong it.
   */
  #noteRejected(id: OrgId, error: TokenError, reason: MintReason | undefined): void {
    this.rejection = new TokenError(error.code, error.message, { ...error, retryAfterSeconds: 1 })
    const rejected = this.#orgs().troubled.filter((each) => each.error.trouble === 'credentials')
    const isAgain = reason === 'warm' && rejected.some(({ org }) => org === id)
    if (!isAgain && rejected.some(({ org }) => org !== id)) this.#rejectedUntil = clock.now() + REJECTED_MS
  }

  /** All calls since the start were answered 401, for two Orgs or more: whoever asks gets the error at once. One call a second tells when that ends. */
  get isAppUnknown(): boolean {
    return this.rejection !== undefined && this.#rejectedUntil > 0
  }

  /** The same, for readiness: 60 s at most, as requests may then show that another Org is linked. */
  get isAppRejected(): boolean {
    return this.isAppUnknown && clock.now() < this.#rejectedUntil
  }

  #noteEnded(org: OrgId): void {
    const now = clock.now()
    if (this.#ended !== undefined && now - this.#ended.latest > REVOKED_MS.until) this.#ended = undefined
    this.#ended ??= { since: now, latest: now, orgs: new Set() }
    this.#ended.latest = now
    if (this.#ended.orgs.size < 2) this.#ended.orgs.add(org)
  }

  /** The endpoint accepted the App, and no longer does: one Org alone may have been unlinked. */
  get isAppRevoked(): boolean {
    if (this.#ended === undefined || this.#ended.orgs.size < 2) return false
    const now = clock.now()
    const { since, latest } = this.#ended
    return now - since >= REVOKED_MS.after && now - latest <= REVOKED_MS.until
  }

  /** Ends all pauses and refusals; because of a changed secret, those that a 401 began. */
  resume(only?: 'credentials'): void {
    this.#orgs().endTroubles(only)
    this.#ended = undefined
    this.#rejectedUntil = 0
    if (only === undefined) this.pace = 1
  }
}
