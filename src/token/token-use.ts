/** The way of one request to its tokens: waits for the first one and, after each answer, does what the rules say. */

import type { OrgId } from '../org-id.ts'
import type { OrgTokens, Repeatability, ServiceAnswer } from './org-tokens.ts'
import { Repeats } from './repeats.ts'
import type { TokenCache, TokenLookup, Waiter } from './token-cache.ts'
import type { AccessToken, MintReason } from './token-source.ts'

export interface RequestWithToken extends Waiter {
  readonly org: OrgId
  /** Asked each time: more content may have come than is kept. */
  readonly repeatability: Repeatability
}

export class TokenUse {
  readonly #cache: TokenCache
  readonly #request: RequestWithToken
  readonly #repeats: Repeats
  /** What is left of the time for mints. */
  #leftMs: number
  /** For tokens to be no longer young: others may follow. */
  #waitsUntil = Number.POSITIVE_INFINITY
  /** Set while it waits for a token to begin with. */
  #obtaining: Promise<TokenLookup> | undefined
  /** Gives its place back. */
  #leave: (() => void) | undefined
  /** Those of the Org, also if they were purged meanwhile. */
  #tokens: OrgTokens | undefined

  constructor(cache: TokenCache, request: RequestWithToken, tokens?: OrgTokens) {
    this.#cache = cache
    this.#request = request
    this.#tokens = tokens
    this.#repeats = new Repeats(cache.rules.settleTimeMs)
    this.#leftMs = cache.mintTimeoutMs
  }

  /** Set at the end if a token was rejected. */
  get outcome() {
    return this.#repeats.outcome
  }

  /**
   * Waits for a token to begin with, in one of the places for that. Whoever asks meanwhile waits for the same one: a request may get
   * another connection. @throws {TokenError}
   */
  obtain(): Promise<TokenLookup> {
    this.#obtaining ??= this.#obtainInPlace().finally(() => {
      this.#obtaining = undefined
    })
    return this.#obtaining
  }

  async #obtainInPlace(): Promise<TokenLookup> {
    this.#leave = this.#cache.waiting.enter(this.#request.org)
    return await this.#obtain().finally(this.#leave)
  }

  /** If a mint fails, a token that was not rejected serves. */
  async #obtain(): Promise<TokenLookup> {
    const cache = this.#cache
    const { org } = this.#request
    for (;;) {
      const tokens = this.#find()
      const found =
        tokens === undefined
          ? ({ wait: 'mint', reason: 'cold' } as const)
          : cache.get(org, tokens, this.#request.repeatability)
      if ('token' in found) return found
      if (found.wait === 'mint') return await this.#mintFirst(found.reason, tokens)
      const now = cache.now()
      this.#waitsUntil = Math.min(this.#waitsUntil, now + cache.rules.settleTimeMs)
      if (tokens !== undefined && now >= this.#waitsUntil) return { token: tokens.current, result: 'hit' }
      await cache.wait(Math.min(found.at, this.#waitsUntil) - now)
    }
  }

  async #mintFirst(reason: MintReason, tokens: OrgTokens | undefined): Promise<TokenLookup> {
    const cache = this.#cache
    const { org } = this.#request
    if (reason === 'rejected' && tokens !== undefined) this.#repeats.causeMint(tokens, cache.now())
    const result = cache.isMinting(org) ? 'joined' : 'miss'
    try {
      return { token: await this.#mint(reason), result }
    } catch (error) {
      if (tokens !== undefined) this.#repeats.releaseCause(tokens)
      const serves =
        tokens !== undefined && !cache.hasEnded(tokens.current) && !tokens.wasRejectedFor(this.#request.repeatability)
      if (!serves) throw error
      return { token: tokens.current, result: 'stale' }
    }
  }

  /** All mints that a request waits for take at most `mintTimeout`. */
  async #mint(reason: MintReason): Promise<AccessToken> {
    const cache = this.#cache
    const startedAt = cache.now()
    try {
      return await cache.awaitMint(this.#request.org, reason, this.#request, Math.max(this.#leftMs, 0))
    } finally {
      this.#leftMs -= cache.now() - startedAt
      this.#find()
    }
  }

  #find(): OrgTokens | undefined {
    this.#tokens = this.#cache.orgs.get(this.#request.org) ?? this.#tokens
    return this.#cache.orgs.peek(this.#request.org)
  }

  /**
   * Undefined: the client gets the answer. Otherwise resolves with the token for the repeat, or rejects with a `TokenError`.
   * `sentAt` is in monotonic milliseconds.
   */
  judge(answer: Pick<ServiceAnswer, 'token' | 'sentAt' | 'status' | 'challenge'>): Promise<AccessToken> | undefined {
    const cache = this.#cache
    this.#find()
    const tokens = this.#tokens
    if (tokens === undefined) return undefined
    const { isKept, isSafe } = this.#request.repeatability
    const learnedBefore = tokens.learnedStatus
    const next = this.#repeats.judge(tokens, { ...answer, isKept, isSafe }, cache.now(), cache.day())
    const { learnedStatus } = tokens
    if (learnedStatus !== undefined && learnedStatus !== learnedBefore) {
      cache.observer?.statusLearned?.(learnedStatus, this.#request.org)
    }
    if (next === undefined) return undefined
    if ('token' in next) return Promise.resolve(next.token)
    if ('pauseMs' in next) return cache.wait(next.pauseMs).then(() => this.#obtain().then(({ token }) => token))
    return this.#mintForRepeat(next.mint, next.ifItFails, answer.token, tokens)
  }

  async #mintForRepeat(
    reason: MintReason,
    ifItFails: 'error' | 'answer',
    rejected: AccessToken,
    tokens: OrgTokens,
  ): Promise<AccessToken> {
    const token = await this.#mint(reason).catch((error: unknown) => {
      this.#repeats.releaseCause(tokens)
      if (ifItFails === 'error') throw error
      return rejected
    })
    this.#repeats.take(tokens, token)
    return token
  }

  /** The request is over. */
  end(): void {
    this.#leave?.()
    if (this.#tokens !== undefined) this.#repeats.end(this.#tokens, this.#cache.now())
  }
}
