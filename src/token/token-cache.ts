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
import type { OrgId } from '../http/org-id.ts'
import type { TokenResult } from '../http/request-record.ts'
import { type Choice, OrgTokens, type RequestKind } from './org-tokens.ts'
import { ServiceHabits, type TokenRules } from './service-habits.ts'
import type { AccessToken, Asker, MintReason, TokenSource } from './token-source.ts'

export interface TokenCacheOptions extends TokenRules {
  /** Tokens kept; the least recently used is evicted. */
  readonly maxOrgs: number
  readonly refusalTtlMs: number
  readonly mintTimeoutMs: number
  /** Monotonic milliseconds, the clock of the token source. */
  readonly now?: () => number
  readonly wait?: typeof wait
  readonly random?: () => number
}

interface TokenLookup {
  readonly token: AccessToken
  readonly result: TokenResult
}

/** A request waits this and twice the time of the last mint before it goes on with a token that may have ended. */
const PATIENCE_MS = 250
/** A request that waits for a token that others try looks so often whether it works. */
const LOOK_MS = 50

export class TokenCache {
  readonly #source: TokenSource
  readonly #options: TokenCacheOptions
  /** Those that have a token. `get` counts as use, `peek` does not. */
  readonly orgs: LRUCache<OrgId, OrgTokens>
  readonly refusals: LRUCache<OrgId, TokenError>
  readonly now: () => number
  readonly wait: typeof wait
  readonly random: () => number
  readonly habits: ServiceHabits
  readonly #mints = new Map<OrgId, Promise<AccessToken>>()

  constructor(options: TokenCacheOptions, source: TokenSource) {
    const { maxOrgs, observer, now = () => performance.now(), random = Math.random } = options
    this.#source = source
    this.#options = options
    this.now = now
    this.wait = options.wait ?? wait
    this.random = random
    this.orgs = new LRUCache({
      max: maxOrgs,
      dispose: (_tokens, org, reason) => {
        if (reason === 'evict') observer?.tokenEvicted?.(org)
      },
    })
    this.refusals = new LRUCache({ max: maxOrgs, ttl: options.refusalTtlMs, ttlResolution: 0, perf: { now } })
    this.habits = new ServiceHabits(options)
  }

  // ---- for requests

  /** A token to send now, or undefined if the request has to wait. Runs on every request, so it makes no promise. */
  get(org: OrgId, kind: RequestKind): TokenLookup | undefined {
    const choice = this.orgs.get(org)?.choose(kind, this.now())
    return choice !== undefined && 'token' in choice ? this.#give(org, choice) : undefined
  }

  /**
   * Waits for a token that the request can use. If a mint fails, a token that was not rejected serves: its end is a guess,
   * and the service is the judge.
   * @throws {TokenError}
   */
  async obtain(org: OrgId, options: Asker & { readonly kind: RequestKind }): Promise<TokenLookup> {
    let waitsUntil: number | undefined
    for (let minted: TokenLookup | undefined; ; ) {
      const tokens = this.orgs.get(org)
      const choice: Choice = tokens?.choose(options.kind, this.now()) ?? { wait: 'mint', reason: 'cold' }
      if ('token' in choice) {
        const { token, result } = this.#give(org, choice)
        return { token, result: minted?.result ?? result }
      }
      if (choice.wait === 'until') {
        const now = this.now()
        waitsUntil ??= now + this.habits.longestWaitMs
        if (tokens !== undefined && now >= waitsUntil) return { token: tokens.current, result: 'hit' }
        await this.wait(Math.min(choice.at - now, LOOK_MS))
      } else if (minted !== undefined) return minted
      else {
        const result = this.#mints.has(org) ? 'joined' : 'miss'
        const mayGoOn = options.kind === 'repeatable' && tokens?.servesAt(this.now()) === true
        const patienceMs = mayGoOn ? PATIENCE_MS + 2 * this.habits.mintMs : undefined
        try {
          minted = { token: await this.awaitMint(org, choice.reason, options, patienceMs), result }
        } catch (error) {
          const present = this.orgs.peek(org)
          if (present?.servesAt(this.now()) === true) minted = { token: present.current, result: 'stale' }
          // The token that the request could have used was rejected or purged meanwhile: the request waits on.
          else if (!mayGoOn) throw error
        }
      }
    }
  }

  #give(org: OrgId, { token, result, behind }: Extract<Choice, { token: AccessToken }>): TokenLookup {
    if (behind === undefined || this.refusals.has(org)) return { token, result }
    this.mint(org, behind)
    return { token, result: result === 'hit' ? 'refreshing' : result }
  }

  // ---- mints

  /** Waits for the mint no longer than the limit, and not at all if the org was refused. @throws {TokenError} */
  async awaitMint(org: OrgId, reason: MintReason, asker: Asker, patienceMs = Number.POSITIVE_INFINITY) {
    const refusal = this.refusals.get(org)
    if (refusal !== undefined) throw refusal
    const token = await this.wait(Math.min(patienceMs, this.#options.mintTimeoutMs), this.mint(org, reason, asker))
    if (token !== undefined) return token
    // Nobody waits again for a call that hangs, as long as there is a token that was not rejected.
    const tokens = this.orgs.peek(org)
    const now = this.now()
    if (tokens?.isPausingAt(now) === false) tokens.noteMintFailed(now, this.random())
    throw new TokenError('token_endpoint_timeout', 'The request waited for a token for as long as it may.')
  }

  /** Joins the mint that is under way, or starts one. */
  mint(org: OrgId, reason: MintReason, { requester, requestId }: Asker = {}): Promise<AccessToken> {
    const underway = this.#mints.get(org)
    if (underway !== undefined) return underway
    const tokens = this.orgs.peek(org)
    const startedAt = this.now()
    const expectedLifeMs = known(tokens?.endMs)
    const { noteAgeAtDeath: onDeathTold } = this.habits.lifetimes
    // Ends the mint. Returns false if it was forgotten meanwhile: then its result changes nothing here.
    const end = () => this.#mints.get(org) === mint && this.#mints.delete(org)
    const mint: Promise<AccessToken> = this.#source
      .mint(org, { reason, replaces: tokens?.current, expectedLifeMs, onDeathTold, requester, requestId })
      .then(
        (token) => {
          this.habits.mintMs = this.now() - startedAt
          return end() ? this.take(org, token, reason) : token
        },
        (error: unknown) => {
          if (end()) {
            // After any other failure, the endpoint, its limits or our credentials may be well again in a moment.
            if (error instanceof TokenError && error.tokenEndpointStatus !== undefined) this.refusals.set(org, error)
            this.orgs.peek(org)?.noteMintFailed(this.now(), this.random())
          }
          throw error
        },
      )
    this.#mints.set(org, mint)
    mint.catch(() => undefined) // each waiter handles the error; a mint may have no waiter
    return mint
  }

  /** Returns the token to give out: the present one if the endpoint gave the same again. */
  take(org: OrgId, token: AccessToken, reason?: MintReason): AccessToken {
    this.refusals.delete(org)
    const tokens = this.orgs.peek(org)
    if (tokens === undefined) {
      this.orgs.set(org, new OrgTokens(token, this.habits, this.random()))
      return token
    }
    // Where all tokens end at one moment, one that is minted ahead of it ends with the others.
    const livesOn = token.statedLifeMs >= tokens.current.statedLifeMs / 2
    const isNew = tokens.take(token, this.now(), this.random())
    if (reason === 'refresh') this.habits.ahead.note(isNew && livesOn)
    return tokens.current
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
