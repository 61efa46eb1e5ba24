/**
 * Keeps the tokens of each org: gives them out to requests, gets new ones, and finds a way out of rejections.
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
import { type Choice, OrgTokens, type RequestKind, type TokenRules } from './org-tokens.ts'
import { RejectedStatuses } from './rejected-statuses.ts'
import { type Answer, kindOf, type RejectedRequest, type Rejection, type Step } from './rejection.ts'
import { ServiceHabits } from './service-habits.ts'
import type { AccessToken, MintOptions, MintReason, TokenObserver, TokenSource } from './token-source.ts'
import { type StartTimer, Turns } from './turns.ts'

export interface TokenCacheOptions extends TokenRules {
  /** Tokens kept; the least recently used is evicted. */
  readonly maxOrgs: number
  /** A refusal of an org is remembered for this time. */
  readonly refusalTtlMs: number
  /** How long a request waits for a mint. */
  readonly mintTimeoutMs: number
  /** Statuses of the service that say "this token is no longer good". */
  readonly rejectedStatuses: Iterable<number>
  readonly observer?: TokenObserver | undefined
  /** Monotonic milliseconds, the clock of the token source. */
  readonly now?: () => number
  readonly startTimer?: StartTimer
  readonly random?: () => number
}

export interface TokenLookup {
  readonly token: AccessToken
  readonly result: TokenResult
}

interface ObtainOptions extends Pick<MintOptions, 'requester' | 'requestId'> {
  readonly kind: RequestKind
}

/** Describes an org to an operator. Never contains a token. */
export interface OrgStatus {
  readonly org: string
  /**
   * `new`: not accepted yet. `fresh`: in use. `refreshing`: a new token is due. `rejected`: the service rejects it, and
   * there is no other yet. `refused`: the token endpoint gives no token for the org.
   */
  readonly state: 'new' | 'fresh' | 'refreshing' | 'rejected' | 'refused'
  readonly ageMs: number | undefined
  /** The age at which the token will probably end; undefined if nothing is known. */
  readonly lifetimeMs: number | undefined
  /** Mints after rejections that did not help: the service rejects requests whatever their token. */
  readonly uselessMints: number
  readonly lastRefusal: LastRefusal | undefined
}

interface LastRefusal {
  readonly tokenEndpointStatus: number | undefined
  readonly agoMs: number
}

interface Refusal {
  readonly error: TokenError
  readonly refusedAt: number
}

/** A refusal is forgotten after `refusalTtlMs`, but people should have the time to see it. */
const REFUSAL_SHOWN_MS = 5 * 60_000
/** Usual times of a mint, and the least time, before a request goes on with a token that may have ended. */
const PATIENCE = 4
const LEAST_PATIENCE_MS = 250

export class TokenCache {
  readonly #source: TokenSource
  readonly #options: TokenCacheOptions
  readonly #orgs: LRUCache<OrgId, OrgTokens>
  readonly #refusals: LRUCache<OrgId, Refusal>
  readonly #observer: TokenObserver
  readonly #now: () => number
  readonly #startTimer: StartTimer
  readonly #random: () => number
  readonly #habits: ServiceHabits
  readonly #mints = new Map<OrgId, Promise<AccessToken>>()
  readonly #turns = new Map<OrgId, Turns>()
  readonly #waits = new Set<Wait>()

  constructor(options: TokenCacheOptions, source: TokenSource) {
    const { maxOrgs, observer = {}, now = () => performance.now(), random = Math.random } = options
    this.#source = source
    this.#options = options
    this.#observer = observer
    this.#now = now
    this.#startTimer = options.startTimer ?? startTimer
    this.#random = random
    this.#orgs = new LRUCache({
      max: maxOrgs,
      dispose: (_, org, reason) => {
        if (reason === 'evict') observer.tokenEvicted?.(org)
        if (reason !== 'set') this.#turns.get(org)?.end()
      },
    })
    this.#refusals = new LRUCache({ max: maxOrgs })
    const statusLearned = (status: number) => observer.statusLearned?.(status)
    this.#habits = new ServiceHabits(new RejectedStatuses(options.rejectedStatuses, statusLearned))
  }

  // ---- before a request is sent

  /** A token to send now, or undefined if the request has to wait. Runs on every request, so it makes no promise. */
  get(org: OrgId, kind: RequestKind): TokenLookup | undefined {
    const tokens = this.#orgs.get(org)
    if (tokens === undefined) return undefined
    const now = this.#now()
    if (now < tokens.quietUntil && kind === 'repeatable') return { token: tokens.current, result: 'hit' }
    const choice = tokens.choose(kind, now)
    return 'token' in choice ? this.#give(org, choice) : undefined
  }

  /**
   * Waits for a token that the request can use. If a mint fails, a token that was not rejected serves: its end is a guess,
   * and the service is the judge.
   * @throws {TokenError}
   */
  async obtain(org: OrgId, options: ObtainOptions): Promise<TokenLookup> {
    let minted: TokenLookup | undefined
    for (;;) {
      const tokens = this.#orgs.get(org)
      const choice: Choice = tokens?.choose(options.kind, this.#now()) ?? { wait: 'mint', reason: 'cold' }
      if ('token' in choice) {
        const lookup = this.#give(org, choice)
        return minted === undefined ? lookup : { token: lookup.token, result: minted.result }
      }
      if (choice.wait === 'until') await this.#pause(choice.at - this.#now())
      else if (choice.wait === 'settled') {
        await this.#turn(org, options.kind === 'repeatable')
        const token = this.#orgs.peek(org)?.current
        if (token !== undefined && options.kind === 'repeatable') return { token, result: minted?.result ?? 'hit' }
      } else if (minted !== undefined) return minted
      else {
        minted = await this.#mintFor(org, choice.reason, options)
        if (options.kind === 'repeatable' || minted.result === 'stale') return minted
      }
    }
  }

  async #mintFor(org: OrgId, reason: MintReason, options: ObtainOptions): Promise<TokenLookup> {
    const result = this.#mints.has(org) ? 'joined' : 'miss'
    try {
      return { token: await this.#awaitMint(org, reason, options, this.#patienceMs(org, options.kind)), result }
    } catch (error) {
      const token = this.#fallBack(org, error)
      if (token === undefined) throw error
      return { token, result: 'stale' }
    }
  }

  /** A request that can be repeated waits little longer than usual if it can go on with a token that was not rejected. */
  #patienceMs(org: OrgId, kind: RequestKind): number {
    const { mintTimeoutMs } = this.#options
    const tokens = this.#orgs.peek(org)
    if (kind !== 'repeatable' || tokens === undefined || tokens.isDead) return mintTimeoutMs
    const { mintedAt, statedLifeMs } = tokens.current
    const patienceMs = Math.min(Math.max(PATIENCE * this.#habits.mintMs, LEAST_PATIENCE_MS), mintTimeoutMs)
    // Past the end that the token states, there is nothing to go on with.
    return this.#now() + patienceMs < mintedAt + statedLifeMs ? patienceMs : mintTimeoutMs
  }

  #give(org: OrgId, { token, result, ahead }: Extract<Choice, { token: AccessToken }>): TokenLookup {
    if (ahead === undefined) return { token, result }
    this.#mint(org, ahead)
    return { token, result: result === 'hit' ? 'refreshing' : result }
  }

  /** The present token, if it may still serve. */
  #fallBack(org: OrgId, error: unknown): AccessToken | undefined {
    const tokens = this.#orgs.peek(org)
    if (tokens === undefined || tokens.isDead) return undefined
    const { current } = tokens
    const ageMs = this.#now() - current.mintedAt
    const limitMs = isNoRefusal(error) ? current.statedLifeMs : (tokens.endMs ?? current.statedLifeMs)
    return ageMs < limitMs ? current : undefined
  }

  /** Mints before anybody asks. @throws {TokenError} */
  async warm(org: OrgId): Promise<void> {
    await this.#mint(org, 'warm')
  }

  // ---- after the service has answered

  /** True if a response with this status says that its token is good. */
  isAccepted(status: number): boolean {
    return this.#habits.statuses.meaningOf(status) === 'accepted'
  }

  isRejected(status: number): boolean {
    return this.#habits.statuses.meaningOf(status) === 'rejected'
  }

  /** The service accepted a request that was sent at `sentAt`. Runs on every request. */
  accepted(org: OrgId, token: AccessToken, sentAt: number, request: Pick<RejectedRequest, 'method' | 'path'>): void {
    const tokens = this.#orgs.peek(org)
    if (tokens === undefined) return
    if (tokens.noteAccepted(token, sentAt)) this.#turns.get(org)?.end()
    if (tokens.hasMarks) tokens.unmark(kindOf(request))
  }

  /**
   * Takes note of a response that says something else than `isAccepted`, or that answers a repeat. Resolves with the token
   * for the next repeat; undefined if the client gets the response. The promise rejects with a `TokenError` if there is no
   * token.
   */
  judge(rejection: Rejection, answer: Answer): Promise<AccessToken> | undefined {
    const { request } = rejection
    const tokens = this.#orgs.peek(request.org)
    const step = this.#weigh(rejection, answer, tokens)
    switch (step.step) {
      case 'pass':
        if (step.isAccepted === true) this.accepted(request.org, answer.token, answer.sentAt, request)
        if (step.kind !== undefined) this.#observer.tokenRejected?.(request.org, step.kind)
        return undefined
      case 'use':
        return Promise.resolve(step.token)
      case 'same':
        return this.#pause(step.delayMs).then(() => step.token)
      case 'wait':
        return this.#turn(request.org, true).then(() => this.#orgs.peek(request.org)?.current ?? step.token)
      case 'mint':
        return this.#awaitMint(request.org, 'rejected', request).catch((error: unknown) => {
          if (rejection.giveUpTrial()) return answer.token
          throw error
        })
    }
  }

  #weigh(rejection: Rejection, answer: Answer, tokens: OrgTokens | undefined): Step {
    if (tokens !== undefined) return rejection.next(answer, tokens, this.#now(), this.#random())
    return this.isRejected(answer.status) ? rejection.nextWithout(answer) : { step: 'pass' }
  }

  // ---- mints

  /** Joins the mint that is under way, or starts one, and waits for it no longer than the limit. */
  async #awaitMint(
    org: OrgId,
    reason: MintReason,
    options: Pick<MintOptions, 'requester' | 'requestId'>,
    patienceMs = this.#options.mintTimeoutMs,
  ): Promise<AccessToken> {
    const refusal = this.#refusals.get(org)
    if (refusal !== undefined && this.#stands(refusal)) throw refusal.error
    const limit = new Wait(patienceMs, this.#startTimer, this.#waits)
    try {
      const token = await Promise.race([this.#mint(org, reason, options), limit.over])
      if (token !== undefined) return token
    } finally {
      limit.end()
    }
    // Nobody waits again for a call that hangs, as long as there is a token that was not rejected.
    const tokens = this.#orgs.peek(org)
    const now = this.#now()
    if (tokens?.isPausingAt(now) === false) tokens.noteMintFailed(true, now, this.#random())
    throw new TokenError('token_endpoint_timeout', `no token within ${Math.round(patienceMs)} ms`)
  }

  #mint(
    org: OrgId,
    reason: MintReason,
    options: Pick<MintOptions, 'requester' | 'requestId'> = {},
  ): Promise<AccessToken> {
    const underway = this.#mints.get(org)
    if (underway !== undefined) return underway
    const { requester, requestId } = options
    const tokens = this.#orgs.peek(org)
    const startedAt = this.#now()
    const expectedLifeMs = tokens?.endMs
    const mint: Promise<AccessToken> = this.#source
      .mint(org, { reason, replaces: tokens?.current, expectedLifeMs, requester, requestId })
      .then(
        (token) => {
          this.#habits.mintTook(this.#now() - startedAt)
          return this.#isCurrent(org, mint) ? this.#take(org, token, reason) : token
        },
        (error: unknown) => {
          if (this.#isCurrent(org, mint)) this.#noteFailure(org, error)
          throw error
        },
      )
    this.#mints.set(org, mint)
    mint.catch(() => undefined) // each waiter handles the error; a mint may have no waiter
    return mint
  }

  /** Ends the mint. Returns false if it was forgotten meanwhile: then its result changes nothing here. */
  #isCurrent(org: OrgId, mint: Promise<AccessToken>): boolean {
    return this.#mints.get(org) === mint && this.#mints.delete(org)
  }

  /** Returns the token to give out: the present one if the endpoint gave the same again. */
  #take(org: OrgId, token: AccessToken, reason: MintReason): AccessToken {
    this.#refusals.delete(org)
    const tokens = this.#orgs.peek(org)
    if (tokens === undefined) {
      this.#orgs.set(org, new OrgTokens(org, token, this.#options, this.#habits, this.#random()))
      return token
    }
    const isNew = tokens.take(token, this.#now(), this.#random())
    if (reason === 'refresh') this.#habits.ahead[isNew ? 'helped' : 'failed']()
    if (isNew) this.#turns.get(org)?.end()
    return tokens.current
  }

  #noteFailure(org: OrgId, error: unknown): void {
    const now = this.#now()
    if (error instanceof TokenError && error.code === 'org_access_refused') {
      this.#refusals.set(org, { error, refusedAt: now })
      this.#observer.orgRefused?.(org, error)
    }
    this.#orgs.peek(org)?.noteMintFailed(isNoRefusal(error), now, this.#random())
  }

  // ---- waiting

  /** Resolves when a request may use the token that the service has never accepted. */
  #turn(org: OrgId, mayTry: boolean): Promise<void> {
    const tokens = this.#orgs.peek(org)
    if (tokens === undefined) return Promise.resolve()
    let turns = this.#turns.get(org)
    if (turns === undefined) {
      tokens.hasWaiting = true
      turns = new Turns(tokens.current.mintedAt + this.#options.settleTimeMs, this.#startTimer, () => {
        tokens.hasWaiting = false
        this.#turns.delete(org)
      })
      this.#turns.set(org, turns)
    }
    return turns.wait(mayTry, this.#now())
  }

  async #pause(delayMs: number): Promise<void> {
    if (delayMs > 0) await new Wait(delayMs, this.#startTimer, this.#waits).over
  }

  // ---- for operators

  /** Returns true if there was a token to forget. A mint that is under way serves those who wait, and is then forgotten. */
  purge(org: OrgId): boolean {
    this.#mints.delete(org)
    this.#refusals.delete(org)
    return this.#orgs.delete(org)
  }

  /** Returns how many tokens were forgotten. */
  purgeAll(): number {
    const { size } = this.#orgs
    this.#mints.clear()
    this.#refusals.clear()
    this.#orgs.clear()
    return size
  }

  /** Ends all waits, and forgets all tokens. */
  close(): void {
    for (const pause of this.#waits) pause.end()
    this.purgeAll()
  }

  get size(): number {
    return this.#orgs.size
  }

  /** The age at which most tokens die, or the assumed one. */
  get lifetimeMs(): number {
    return (this.#options.learns ? this.#habits.deaths.endMs : undefined) ?? this.#options.lifetimeMs
  }

  /** Statuses that turned out to end tokens, beside those of the configuration. */
  get learnedStatuses(): readonly number[] {
    return this.#habits.statuses.learned
  }

  /** Orgs for which the service accepts no token, not even a new one. */
  orgsWithRejectedTokens(): OrgId[] {
    return [...this.#orgs.values()].filter(({ isUseless }) => isUseless).map(({ org }) => org)
  }

  /** Orgs with a token, most recently used first. */
  knownOrgs(): OrgId[] {
    return [...this.#orgs.keys()]
  }

  /** Most recently used first; then the orgs that were refused in the last minutes, and have no token. */
  status(): readonly OrgStatus[] {
    const now = this.#now()
    const held = Array.from(this.#orgs.values(), (tokens) => ({
      org: tokens.org,
      state: tokens.stateAt(now),
      ageMs: now - tokens.current.mintedAt,
      lifetimeMs: tokens.endMs,
      uselessMints: tokens.uselessMints,
      lastRefusal: describeRefusal(this.#refusals.peek(tokens.org), now),
    }))
    const refusals = [...this.#refusals.entries()].filter(
      ([org, { refusedAt }]) => now - refusedAt < REFUSAL_SHOWN_MS && !this.#orgs.has(org),
    )
    const unknown = { ageMs: undefined, lifetimeMs: undefined, uselessMints: 0 }
    const refused = refusals.map(([org, refusal]) => ({
      org,
      state: 'refused' as const,
      ...unknown,
      lastRefusal: describeRefusal(refusal, now),
    }))
    return [...held, ...refused]
  }

  #stands(refusal: Refusal): boolean {
    return this.#now() - refusal.refusedAt < this.#options.refusalTtlMs
  }
}

function startTimer(run: () => void, delayMs: number): () => void {
  const timer = setTimeout(run, delayMs)
  return () => clearTimeout(timer)
}

/** One timer, and the promise of its end. It can be ended early. */
class Wait {
  readonly over: Promise<undefined>
  readonly #stopTimer: () => void
  readonly #underway: Set<Wait>
  #resolve: (value: undefined) => void = () => undefined

  constructor(delayMs: number, start: StartTimer, underway: Set<Wait>) {
    this.#underway = underway
    underway.add(this)
    this.over = new Promise((resolve) => {
      this.#resolve = resolve
    })
    this.#stopTimer = start(() => this.end(), delayMs)
  }

  end(): void {
    this.#stopTimer()
    this.#underway.delete(this)
    this.#resolve(undefined)
  }
}

/** All but a refusal of the org itself: the endpoint, its limits or our credentials may be well again in a moment. */
function isNoRefusal(error: unknown): boolean {
  return !(error instanceof TokenError) || error.code !== 'org_access_refused'
}

function describeRefusal(refusal: Refusal | undefined, now: number): LastRefusal | undefined {
  if (refusal === undefined) return undefined
  return { tokenEndpointStatus: refusal.error.tokenEndpointStatus, agoMs: now - refusal.refusedAt }
}
