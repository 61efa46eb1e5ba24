/**
 * Keeps the tokens of each org, gives them out to requests, and gets new ones.
 *
 * At most one mint per org runs at a time, and all who need it wait for it. A request that leaves does not end the mint, and a
 * mint that fails does not end the process. Refused orgs are kept apart from tokens, so that a flood of unknown orgs evicts no
 * token.
 */

import { performance } from 'node:perf_hooks'
import { LRUCache } from 'lru-cache'
import { TokenError } from '../errors.ts'
import { copyOfOrgId, type OrgId } from '../org-id.ts'
import { type Choice, OrgTokens, type RequestKind } from './org-tokens.ts'
import { ServiceFacts, type TokenRules } from './service-facts.ts'
import type { AccessToken, Asker, MintReason, TokenObserver, TokenSource } from './token-source.ts'

export interface TokenCacheOptions extends TokenRules {
  /** Tokens kept; the least recently used is evicted. */
  readonly maxOrgs: number
  readonly refusalTtlMs: number
  readonly mintTimeoutMs: number
  readonly observer?: TokenObserver | undefined
  /** Monotonic milliseconds, the clock of the token source. */
  readonly now?: () => number
  /** The time of day in milliseconds. */
  readonly day?: () => number
  readonly wait?: typeof wait
  readonly random?: () => number
}

/**
 * The source of a request's token. `hit`: from the cache. `miss`: from a mint. `joined`: from a mint that was already under way.
 * `refreshing`: from the cache, and a mint for later requests was started. `stale`: from the cache past its assumed end,
 * because mints fail. `replayed`: the request was repeated after a rejection.
 */
export type TokenResult = 'hit' | 'miss' | 'joined' | 'refreshing' | 'stale' | 'replayed'

export interface TokenLookup {
  readonly token: AccessToken
  readonly result: TokenResult
}

/** A request that waits. */
export interface Waiter extends Asker {
  readonly kind: RequestKind
  /** Its client has left, so it takes no turn. */
  readonly hasLeft?: () => boolean
  /** When it takes the token as it is. If undefined, after one settle time. */
  readonly until?: number | undefined
}

/** A request that waits for a token that others try looks so often whether it is accepted. */
const LOOK_MS = 50

export class TokenCache {
  readonly #source: TokenSource
  readonly #options: TokenCacheOptions
  /** Those that have a token. `get` counts as use, `peek` does not. */
  readonly orgs: LRUCache<OrgId, OrgTokens>
  readonly refusals: LRUCache<OrgId, TokenError>
  readonly now: () => number
  readonly day: () => number
  readonly wait: typeof wait
  readonly service: ServiceFacts
  readonly #random: () => number
  readonly #mints = new Map<OrgId, Promise<AccessToken>>()

  constructor(options: TokenCacheOptions, source: TokenSource) {
    const { maxOrgs, observer, now = () => performance.now() } = options
    this.#source = source
    this.#options = options
    this.now = now
    this.day = options.day ?? Date.now
    this.wait = options.wait ?? wait
    this.#random = options.random ?? Math.random
    this.orgs = new LRUCache({
      max: maxOrgs,
      dispose: (_tokens, org, reason) => {
        if (reason === 'evict') observer?.tokenEvicted?.(org)
      },
    })
    this.refusals = new LRUCache({ max: maxOrgs, ttl: options.refusalTtlMs, ttlResolution: 0, perf: { now } })
    this.service = new ServiceFacts(options, (status) => observer?.statusLearned?.(status))
  }

  // ---- for requests

  /** A token to send now, or undefined if the request has to wait. Runs on every request, so it makes no promise. */
  get(org: OrgId, kind: RequestKind): TokenLookup | undefined {
    const tokens = this.orgs.get(org)
    if (tokens === undefined) return undefined
    const choice = tokens.choose(kind, this.now(), tokens.needsDay ? this.day() : 0)
    return 'token' in choice ? this.#give(org, choice) : undefined
  }

  /** T2: the token has come to its stated end since `since`, a monotonic time. */
  hasEndedSince(org: OrgId, token: AccessToken, since: number): boolean {
    if (token.statedLifeMs === Number.POSITIVE_INFINITY) return false
    const [now, day] = [this.now(), this.day()]
    const tokens = this.orgs.peek(org)
    const hasEnded = (agoMs: number) => tokens?.hasEndedAt(now - agoMs, day - agoMs, token) ?? true
    return hasEnded(0) && !hasEnded(now - since)
  }

  /**
   * Waits for a token that the request can use. If a mint fails, a token that was not rejected serves: the service is the judge.
   * @throws {TokenError}
   */
  async obtain(org: OrgId, waiter: Waiter): Promise<TokenLookup> {
    const until = waiter.until ?? this.now() + this.service.rules.settleTimeMs
    for (let minted: TokenLookup | undefined; ; ) {
      const tokens = this.orgs.get(org)
      if (tokens !== undefined && waiter.hasLeft?.() === true) return { token: tokens.current, result: 'hit' }
      const choice: Choice = tokens?.choose(waiter.kind, this.now(), this.day()) ?? { wait: 'mint', reason: 'cold' }
      if ('token' in choice) {
        const { token, result } = this.#give(org, choice)
        return { token, result: minted?.result ?? result }
      }
      if (choice.wait === 'until') {
        if (tokens !== undefined && this.now() >= until) return { token: tokens.current, result: 'hit' }
        await this.wait(Math.min(choice.at - this.now(), LOOK_MS))
      } else if (minted !== undefined) return minted
      else minted = await this.#mintFor(org, choice.reason, waiter)
    }
  }

  async #mintFor(org: OrgId, reason: MintReason, waiter: Waiter): Promise<TokenLookup> {
    const result = this.#mints.has(org) ? 'joined' : 'miss'
    try {
      return { token: await this.awaitMint(org, reason, waiter), result }
    } catch (error) {
      const tokens = this.orgs.peek(org)
      // T5: only a token that was rejected, or is past its stated end, is of no use.
      const serves = tokens !== undefined && !tokens.isBeingReplaced && !tokens.hasEndedAt(this.now(), this.day())
      if (!serves) throw error
      return { token: tokens.current, result: 'stale' }
    }
  }

  #give(org: OrgId, choice: Extract<Choice, { token: AccessToken }>): TokenLookup {
    const { token, result, behind } = choice
    if (behind === undefined || this.refusals.has(org)) return choice
    this.mint(org, behind)
    return { token, result: result === 'hit' ? 'refreshing' : result }
  }

  // ---- mints

  /** Waits for the mint no longer than a share of `mintTimeout`, and not at all if the org was refused. @throws {TokenError} */
  async awaitMint(org: OrgId, reason: MintReason, asker: Asker, share = 1): Promise<AccessToken> {
    const refusal = this.refusals.get(org)
    if (refusal !== undefined) throw refusal
    const token = await this.wait(this.#options.mintTimeoutMs * share, this.mint(org, reason, asker))
    if (token !== undefined) return token
    // Nobody else waits for a call that hangs, as long as there is a token that was not rejected.
    this.orgs.peek(org)?.noteMintFailed(this.now())
    throw new TokenError('token_endpoint_timeout', 'The request waited for a token for as long as it may.')
  }

  isMinting(org: OrgId): boolean {
    return this.#mints.has(org)
  }

  /** Joins the mint that is under way, or starts one. */
  mint(ofRequest: OrgId, reason: MintReason, { requester, requestId }: Asker = {}): Promise<AccessToken> {
    const underway = this.#mints.get(ofRequest)
    if (underway !== undefined) return underway
    const org = copyOfOrgId(ofRequest)
    const tokens = this.orgs.peek(org)
    // Ends the mint. Returns false if it was purged meanwhile: then its result changes nothing here.
    const end = () => this.#mints.get(org) === mint && this.#mints.delete(org)
    const mint: Promise<AccessToken> = this.#source
      .mint(org, { reason, replaces: tokens?.current, knownLifeMs: tokens?.lives.knownMs, requester, requestId })
      .then(
        (token) => (end() ? this.#take(org, token, reason) : token),
        (error: unknown) => {
          if (end()) {
            // After any other failure, the endpoint, its limits or our credentials may be well again in a moment.
            if (error instanceof TokenError && error.trouble === 'refusal') this.refusals.set(org, error)
            this.orgs.peek(org)?.noteMintFailed(this.now())
          }
          throw error
        },
      )
    this.#mints.set(org, mint)
    mint.catch(() => undefined) // each waiter handles the error; a mint may have no waiter
    return mint
  }

  /** Returns the token to give out: the present one if the endpoint gave the same again. */
  #take(org: OrgId, token: AccessToken, reason: MintReason): AccessToken {
    this.refusals.delete(org)
    const lot = Math.floor(this.#random() * 1_000)
    const tokens = this.orgs.peek(org)
    if (tokens === undefined) this.orgs.set(org, new OrgTokens(token, this.service, lot))
    else tokens.take(token, reason, this.now(), this.day(), lot)
    return tokens?.current ?? token
  }

  // ---- for operators

  /**
   * Forgets what is known of one org, or of all. Returns those that had a token. A mint that is under way serves those who
   * wait, and is then forgotten.
   */
  purge(only?: OrgId): OrgId[] {
    const all = [this.orgs, this.refusals, this.#mints]
    const orgs = only === undefined ? all.flatMap((each) => [...each.keys()]) : [only]
    return orgs.filter((org) => {
      this.#mints.delete(org)
      this.refusals.delete(org)
      return this.orgs.delete(org)
    })
  }
}

/**
 * Resolves after the delay, or settles like `sooner` if that comes first. Does not keep the process alive: no request waits any
 * more then.
 */
function wait<T>(delayMs: number, sooner?: Promise<T>): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, delayMs, undefined).unref()
    sooner?.finally(() => clearTimeout(timer)).then(resolve, reject)
  })
}

/** In place of `Infinity`, which JSON has not. */
export function known(ageMs: number | undefined): number | undefined {
  return ageMs === Number.POSITIVE_INFINITY ? undefined : ageMs
}
