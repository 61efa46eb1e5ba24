/**
 * Stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm of mints.
 *
 * The way of a mint: `MintPauses` admits it, unless its org or all orgs are paused; `MintQueue` gives it a turn in the budget;
 * the endpoint is called; the outcome goes back to `MintPauses`. If the call failed in a way that may pass, the mint goes the
 * same way again, all within one deadline.
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { isProbe, type MintPass, MintPauses, mayHang } from './mint-pauses.ts'
import { MintQueue, type MintTurn } from './mint-queue.ts'
import {
  AccessToken,
  MintGoesOn,
  MintNotSent,
  type MintOptions,
  type MintReason,
  type TokenObserver,
  type TokenSource,
} from './token-source.ts'

export interface MintGuardOptions {
  /** Whole mint: the wait for its turn, all attempts, the pauses between them. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  /** Per second. */
  readonly mintRate: number
  /**
   * The endpoint has rejected the credentials of a call made at that instant. Resolves with true if they have changed
   * since, so that the call is worth a repeat: `pauses.credentialsChanged` was called then. Must not reject.
   */
  readonly recoverCredentials?: ((calledAt: number) => Promise<boolean>) | undefined
  /** The endpoint wants no call for any org before `untilMs` (monotonic). */
  readonly onLimited?: ((untilMs: number) => void) | undefined
  readonly observer?: TokenObserver | undefined
  readonly now?: () => number
  readonly random?: () => number
}

interface Mint extends MintOptions {
  readonly org: OrgId
  readonly reason: MintReason
  readonly deadlineAt: number
}

/** A call that brought no token. */
interface FailedCall {
  readonly error: unknown
  /** When the mint may make its next call. `later`: after a pause that grows with each attempt. */
  readonly next: 'at once' | 'later' | 'never'
}

const MAX_ATTEMPTS = 4
const FIRST_RETRY_MS = 200
/** While the endpoint hangs, a request gets its answer after this; its probe goes on. */
const FAST_ANSWER_MS = 80
/** A probe without an answer puts off the discovery of a recovery. It gets more time only if the endpoint has been slow before. */
const PROBE_TIMEOUT_MS = 2_000
/** The outcomes of this time, or of two mints that time out if that is longer, decide whether most orgs fail. */
const MIN_WINDOW_MS = 10_000
/** A call may always have this many times as long as answers take. So an endpoint that is slow to answer all orgs gets no call twice. */
const ENOUGH_FACTOR = 2
/** The time that a call may keep a lent place, as a share of the time for a mint. */
const LENT_SHARE = 1 / 5
/** With each quicker answer, the longest time that an answer took counts for this much less. */
const SLOWEST_DECAY = 15 / 16

export class MintGuard implements TokenSource {
  /** Knows whether the endpoint may be called and rejects the App. Is told of changed credentials and of limits. */
  readonly pauses: MintPauses
  readonly #options: MintGuardOptions
  readonly #source: TokenSource
  readonly #queue: MintQueue
  readonly #now: () => number
  readonly #random: () => number
  #recovery: Promise<boolean> | undefined
  /** The time of the slowest answer lately. */
  #slowestMs = 0

  constructor(options: MintGuardOptions, source: TokenSource) {
    this.#options = options
    this.#source = source
    const { now = () => performance.now(), random = Math.random, observer, onLimited } = options
    this.#now = now
    this.#random = random
    this.#queue = new MintQueue({ concurrency: options.mintConcurrency, ratePerSecond: options.mintRate, now })
    const windowMs = Math.max(MIN_WINDOW_MS, 2 * options.mintTimeoutMs)
    this.pauses = new MintPauses({ now, random, windowMs, observer, onLimited })
  }

  /** @throws {TokenError} `MintNotSent` if no call was made, `MintGoesOn` if the token may come later */
  async mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const { reason = 'cold', replaces, requester, requestId, deadlineAt = Number.POSITIVE_INFINITY } = options
    try {
      const latest = this.#now() + this.#options.mintTimeoutMs
      // No spread: V8 makes a hash table of it, and a flood makes thousands of these calls in a second.
      return await this.#mint({ org, reason, replaces, requester, requestId, deadlineAt: Math.min(deadlineAt, latest) })
    } catch (error) {
      if (error instanceof MintNotSent) this.#options.observer?.mintRefused?.(org, reason, error)
      throw error
    }
  }

  /** Ends all pauses and limits at once. */
  resume(): void {
    this.pauses.resume()
  }

  async #mint(mint: Mint): Promise<AccessToken> {
    for (let attempt = 1; ; attempt += 1) {
      const startedAt = this.#now()
      const pass = this.pauses.admit(mint.org)
      const result = await (isProbe(pass) ? this.#probe(mint, pass) : this.#call(mint, pass))
      if (result instanceof AccessToken) return result
      const backoffMs = FIRST_RETRY_MS * 2 ** (attempt - 1) * (0.5 + this.#random() / 2)
      const nextAt = result.next === 'later' ? startedAt + backoffMs : this.#now()
      if (result.next === 'never' || attempt === MAX_ATTEMPTS || nextAt >= mint.deadlineAt) throw result.error
      if (result.next === 'later') await passed(nextAt - this.#now())
    }
  }

  /** One call that finds out whether the trouble is over. It has little time: others are refused while it is under way. */
  async #probe(mint: Mint, pass: MintPass): Promise<AccessToken | FailedCall> {
    const deadlineAt = Math.min(mint.deadlineAt, this.#now() + Math.max(PROBE_TIMEOUT_MS, this.#enoughMs))
    const outcome = this.#call({ ...mint, deadlineAt }, pass)
    // An endpoint that answered its failures quickly is worth waiting for; one that hung probably hangs still.
    if (!mayHang(pass)) return outcome
    const early = await within(outcome, FAST_ANSWER_MS)
    if (early !== undefined) return early
    const late = outcome.then((result) => {
      if (result instanceof AccessToken) return result
      throw result.error
    })
    late.catch(() => undefined) // `MintPauses` knows of the failure already
    const message = 'it has failed repeatedly; one call probes it'
    throw new MintGoesOn('token_endpoint_unavailable', message, late, { retryAfterSeconds: 1 })
  }

  async #call(mint: Mint, pass: MintPass): Promise<AccessToken | FailedCall> {
    const { org, reason, requester } = mint
    const hangs = this.pauses.hangs(org)
    // All other orgs are refused while a probe waits for its turn. One that probably hangs is not worth that.
    const waitUntil = hangs && isProbe(pass) ? this.#now() : mint.deadlineAt
    let turn: MintTurn | undefined
    try {
      turn = await this.#queue.enter({ isKnown: reason !== 'cold', hangs, requester, deadlineAt: waitUntil })
      this.pauses.confirm(pass)
    } catch (error) {
      turn?.leave()
      this.pauses.abandon(pass)
      return { error, next: 'never' }
    }
    const calledAt = this.#now()
    const lentUntil = turn.isLent && !isProbe(pass) ? calledAt + this.#lentMs : Number.POSITIVE_INFINITY
    const deadlineAt = Math.min(mint.deadlineAt, lentUntil)
    const result = await this.#source.mint(org, { ...mint, deadlineAt }).catch((error: unknown) => ({ error }))
    turn.leave()
    if (result instanceof AccessToken) {
      this.#slowestMs = Math.max(this.#now() - calledAt, this.#slowestMs * SLOWEST_DECAY)
      this.pauses.settle(pass)
      return result
    }
    const { error } = result
    if (!(error instanceof TokenError) || error instanceof MintNotSent) {
      this.pauses.abandon(pass)
      return { error, next: 'never' }
    }
    if (error.code === 'token_endpoint_timeout' && deadlineAt < mint.deadlineAt) {
      this.pauses.gaveWay(pass)
      return { error, next: 'at once' }
    }
    if (error.code === 'app_credentials_rejected' && (await this.#haveCredentialsChanged(calledAt, mint.deadlineAt))) {
      this.pauses.abandon(pass)
      return { error, next: 'at once' }
    }
    const refusal = this.pauses.settle(pass, error)
    if (refusal !== undefined) this.#queue.refuseAll(refusal)
    // A probe is not repeated: its failure has begun the next pause.
    return { error, next: error.code === 'token_endpoint_unavailable' && !isProbe(pass) ? 'later' : 'never' }
  }

  get #lentMs(): number {
    return Math.max(this.#options.mintTimeoutMs * LENT_SHARE, this.#enoughMs)
  }

  /** Enough for an answer, as long as answers take lately. */
  get #enoughMs(): number {
    return this.#slowestMs * ENOUGH_FACTOR
  }

  async #haveCredentialsChanged(calledAt: number, deadlineAt: number): Promise<boolean> {
    const { recoverCredentials } = this.#options
    if (recoverCredentials === undefined) return false
    this.#recovery ??= recoverCredentials(calledAt).finally(() => {
      this.#recovery = undefined
    })
    return (await within(this.#recovery, deadlineAt - this.#now())) === true
  }
}

function passed(delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, Math.max(delayMs, 0))
  })
}

/** The result, or undefined if it is not there in time. */
async function within<T>(result: Promise<T>, limitMs: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined
  const limit = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), Math.max(limitMs, 0))
  })
  try {
    return await Promise.race([result, limit])
  } finally {
    clearTimeout(timer)
  }
}
