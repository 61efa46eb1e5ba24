/**
 * Stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm of mints:
 * retries inside one deadline, a budget (`mint-queue.ts`), and pauses with one probe at their end (`mint-pauses.ts`).
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'
import { isProbe, type MintPass, MintPauses, mayHang } from './mint-pauses.ts'
import { MintQueue, type MintTurn } from './mint-queue.ts'
import type { TokenObserver } from './token-observer.ts'
import { MintGoesOn, MintNotSent, type MintOptions, type MintReason, type TokenSource } from './token-source.ts'

export interface MintGuardOptions {
  /** Whole mint: the wait for its turn, all attempts, the pauses between them. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  /** Per second. */
  readonly mintRate: number
  /**
   * The endpoint has rejected the credentials of a call made at that instant. Resolves with true if they have changed
   * since, so that the call is worth a repeat. Must not reject.
   */
  readonly recoverCredentials?: ((calledAt: number) => Promise<boolean>) | undefined
  /** The endpoint wants no call for any org before `untilMs` (monotonic). */
  readonly onLimited?: ((untilMs: number) => void) | undefined
  readonly observer?: TokenObserver | undefined
  readonly now?: () => number
  readonly random?: () => number
}

interface Call extends MintOptions {
  readonly org: OrgId
  readonly reason: MintReason
  readonly deadlineAt: number
}

const MAX_ATTEMPTS = 4
const FIRST_RETRY_MS = 200
/** While the endpoint hangs, a request gets its answer after this; its probe goes on. */
const FAST_ANSWER_MS = 80
/** A probe that gets no answer must not put off the discovery of a recovery. */
const PROBE_TIMEOUT_MS = 2_000
/** How long a call may keep a place that is only lent. */
const LENT_MS = 1_000
/** Whether most orgs fail is judged by the outcomes of this time, or of two mints that time out, whichever is longer. */
const MIN_WINDOW_MS = 10_000

export class MintGuard implements TokenSource {
  readonly #options: MintGuardOptions
  readonly #source: TokenSource
  readonly #queue: MintQueue
  readonly #pauses: MintPauses
  readonly #now: () => number
  readonly #random: () => number
  #recovery: Promise<boolean> | undefined

  constructor(options: MintGuardOptions, source: TokenSource) {
    this.#options = options
    this.#source = source
    const { now = () => performance.now(), random = Math.random, observer, onLimited } = options
    this.#now = now
    this.#random = random
    this.#queue = new MintQueue({ concurrency: options.mintConcurrency, ratePerSecond: options.mintRate, now })
    this.#pauses = new MintPauses({
      now,
      random,
      windowMs: Math.max(MIN_WINDOW_MS, 2 * options.mintTimeoutMs),
      onPaused: (code, pauseMs) => observer?.mintsPaused?.(code, pauseMs),
      onResumed: () => observer?.mintsResumed?.(),
      onLimited,
    })
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

  /** The credentials are other ones now. */
  credentialsChanged(): void {
    this.#pauses.credentialsChanged()
  }

  /** The token endpoint rejects the App, and not just one org. */
  get areCredentialsRejected(): boolean {
    return this.#pauses.areCredentialsRejected
  }

  /** The endpoint has answered 401, if only for one org, and has not accepted the App since. */
  get mayCredentialsBeWrong(): boolean {
    return this.#pauses.mayCredentialsBeWrong
  }

  /** No call for the org may be made before this instant, not even with other credentials. */
  limitedUntil(org: OrgId): number {
    return this.#pauses.limitedUntil(org)
  }

  /** Another proxy was told that no call may be made for any org before `until` (monotonic milliseconds of this process). */
  pauseUntil(until: number): void {
    this.#pauses.pauseUntil(until)
  }

  async #mint(call: Call): Promise<AccessToken> {
    for (let attempt = 1; ; attempt += 1) {
      const retryAt = this.#now() + FIRST_RETRY_MS * 2 ** (attempt - 1) * (0.5 + this.#random() / 2)
      const pass = this.#pauses.admit(call.org)
      try {
        return await (isProbe(pass) ? this.#probe(call, pass) : this.#call(call, pass))
      } catch (error) {
        const isWorthIt = error instanceof WorthRepeating
        const nextAt = isWorthIt ? this.#now() : retryAt
        const isOver = attempt >= MAX_ATTEMPTS || nextAt >= call.deadlineAt
        if (isOver || !(isWorthIt || mayPass(error, pass))) throw isWorthIt ? error.cause : error
        if (!isWorthIt) await passed(retryAt - this.#now())
      }
    }
  }

  /** The outcome applies to later mints, however long it takes. */
  async #probe(call: Call, pass: MintPass): Promise<AccessToken> {
    const deadlineAt = Math.min(call.deadlineAt, this.#now() + PROBE_TIMEOUT_MS)
    const outcome = this.#call({ ...call, deadlineAt }, pass)
    // An endpoint that answered its failures quickly is worth waiting for; one that hung probably hangs still.
    if (!mayHang(pass)) return outcome
    const token = await within(outcome, FAST_ANSWER_MS)
    if (token !== undefined) return token
    const message = 'it has failed repeatedly; one call probes it'
    throw new MintGoesOn('token_endpoint_unavailable', message, outcome, { retryAfterSeconds: 1 })
  }

  async #call(call: Call, pass: MintPass): Promise<AccessToken> {
    const { org, reason, requester, deadlineAt } = call
    const candidate = { isKnown: reason !== 'cold', hangs: this.#pauses.hangs(org), requester, deadlineAt }
    let calledAt = this.#now()
    let turn: MintTurn | undefined
    let token: AccessToken
    try {
      turn = await this.#queue.enter(candidate)
      this.#pauses.confirm(pass)
      calledAt = this.#now()
      const lentUntil = calledAt + LENT_MS
      token = await this.#source.mint(org, {
        ...call,
        deadlineAt: turn.isLent && !isProbe(pass) ? Math.min(deadlineAt, lentUntil) : deadlineAt,
      })
    } catch (error) {
      turn?.leave()
      throw await this.#settleFailure(error, { call, pass, calledAt, isLent: turn?.isLent ?? false })
    }
    turn.leave()
    this.#pauses.settle(pass)
    return token
  }

  /** Returns the error to throw. */
  async #settleFailure(error: unknown, context: FailedCall): Promise<unknown> {
    const { call, pass, calledAt, isLent } = context
    if (!(error instanceof TokenError) || error instanceof MintNotSent) {
      this.#pauses.abandon(pass)
      return error
    }
    if (error.code === 'token_endpoint_timeout' && isLent && !isProbe(pass) && this.#now() < call.deadlineAt) {
      this.#pauses.gaveWay(pass)
      return new WorthRepeating(error)
    }
    if (error.code === 'app_credentials_rejected' && (await this.#hasRecovered(calledAt, call.deadlineAt))) {
      this.#pauses.abandon(pass)
      this.#pauses.credentialsChanged()
      return new WorthRepeating(error)
    }
    const refusal = this.#pauses.settle(pass, error)
    if (refusal !== undefined) this.#queue.refuseAll(refusal)
    return error
  }

  async #hasRecovered(calledAt: number, deadlineAt: number): Promise<boolean> {
    const { recoverCredentials } = this.#options
    if (recoverCredentials === undefined) return false
    this.#recovery ??= recoverCredentials(calledAt).finally(() => {
      this.#recovery = undefined
    })
    return (await within(this.#recovery, deadlineAt - this.#now())) === true
  }
}

interface FailedCall {
  readonly call: Call
  readonly pass: MintPass
  readonly calledAt: number
  readonly isLent: boolean
}

/** The next attempt can be made at once. Never leaves the guard: `cause` is thrown if there is no next attempt. */
class WorthRepeating extends Error {
  constructor(cause: TokenError) {
    super('worth repeating', { cause })
  }
}

/** True if the call failed in a way that the next attempt may not meet. A probe is not repeated. */
function mayPass(error: unknown, pass: MintPass): boolean {
  const isPassing = error instanceof TokenError && error.code === 'token_endpoint_unavailable'
  return isPassing && !(error instanceof MintNotSent) && !isProbe(pass)
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
