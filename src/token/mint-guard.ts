/**
 * What stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm:
 * retries inside one deadline, a budget, pauses with one probe at their end.
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { AccessToken } from './access-token.ts'
import { MintBudget } from './mint-budget.ts'
import { MintNotSent } from './mint-not-sent.ts'
import { type MintPass, MintPause } from './mint-pause.ts'
import type { TokenObserver } from './token-observer.ts'
import type { MintOptions, MintReason, TokenSource } from './token-source.ts'

export interface MintGuardOptions {
  /** Whole mint: waiting for its turn, all attempts, the pauses between. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  /** Per second. */
  readonly mintRate: number
  /**
   * The endpoint has rejected the credentials of a call made at that instant. Resolves with true where they have changed
   * since, so that the call is worth a repeat. Must not reject.
   */
  readonly recoverCredentials?: ((calledAt: number) => Promise<boolean>) | undefined
  readonly observer?: TokenObserver | undefined
  readonly now?: () => number
  readonly random?: () => number
}

interface Call {
  readonly org: OrgId
  readonly reason: MintReason
  readonly deadlineAt: number
}

const MAX_ATTEMPTS = 4
const FIRST_RETRY_MS = 200
/** While failing fast, a request is answered after this, whatever its probe is waiting for. */
const FAST_ANSWER_MS = 80
/** A probe that hangs must not put off the discovery that the endpoint is well again. */
const PROBE_TIMEOUT_MS = 2_000

export class MintGuard implements TokenSource {
  readonly #options: MintGuardOptions
  readonly #source: TokenSource
  readonly #budget: MintBudget
  readonly #pause: MintPause
  readonly #now: () => number
  readonly #random: () => number
  #recovery: Promise<boolean> | undefined

  constructor(options: MintGuardOptions, source: TokenSource) {
    this.#options = options
    this.#source = source
    this.#now = options.now ?? (() => performance.now())
    this.#random = options.random ?? Math.random
    const { mintConcurrency: concurrency, mintRate: ratePerSecond, observer } = options
    this.#budget = new MintBudget({ concurrency, ratePerSecond, now: this.#now })
    this.#pause = new MintPause({ now: this.#now, random: this.#random, observer })
  }

  async mint(org: OrgId, { reason = 'cold' }: MintOptions = {}): Promise<AccessToken> {
    try {
      return await this.#mint({ org, reason, deadlineAt: this.#now() + this.#options.mintTimeoutMs })
    } catch (error) {
      if (error instanceof MintNotSent) this.#options.observer?.mintRefused?.(org, reason, error)
      throw error
    }
  }

  /** The credentials are other ones now. */
  credentialsChanged(): void {
    this.#pause.credentialsChanged()
  }

  /** No call may be made before this instant, not even with other credentials. */
  get limitedUntil(): number {
    return this.#pause.limitedUntil
  }

  async #mint(call: Call): Promise<AccessToken> {
    for (let attempt = 1; ; attempt += 1) {
      if (this.#recovery !== undefined) await within(this.#recovery, call.deadlineAt - this.#now())
      const pass = this.#pause.admit(call.org)
      const retryAt = this.#now() + FIRST_RETRY_MS * 2 ** (attempt - 1) * (0.5 + this.#random() / 2)
      try {
        const token = await (pass === 'probe' && this.#pause.failsFast ? this.#probe(call) : this.#send(call, pass))
        if (token !== undefined) return token
      } catch (error) {
        const isPassing = error instanceof TokenError && error.code === 'token_endpoint_unavailable'
        if (!isPassing || error instanceof MintNotSent || pass === 'probe') throw error
        if (attempt >= MAX_ATTEMPTS || retryAt >= call.deadlineAt) throw error
        await passed(retryAt - this.#now())
      }
    }
  }

  /** The answer comes at once, the outcome when it comes: it decides for those after. */
  async #probe(call: Call): Promise<AccessToken | undefined> {
    const deadlineAt = Math.min(call.deadlineAt, this.#now() + PROBE_TIMEOUT_MS)
    const outcome = this.#send({ ...call, deadlineAt }, 'probe')
    outcome.catch(() => undefined) // it may come after the answer
    const token = await within(outcome, FAST_ANSWER_MS)
    if (token !== undefined) return token
    throw new MintNotSent('token_endpoint_unavailable', 'it has failed again and again', { retryAfterSeconds: 1 })
  }

  /** Undefined where the credentials were rejected, but have changed meanwhile. */
  async #send(call: Call, pass: MintPass): Promise<AccessToken | undefined> {
    const lane = call.reason === 'cold' ? 'cold' : 'known'
    let calledAt = this.#now()
    try {
      await this.#budget.enter(lane, call.deadlineAt)
      try {
        if (pass === 'go') this.#pause.confirm(call.org)
        calledAt = this.#now()
        const token = await this.#source.mint(call.org, call)
        this.#pause.succeeded(pass)
        return token
      } finally {
        this.#budget.leave(lane)
      }
    } catch (error) {
      if (error instanceof MintNotSent) this.#pause.abandon(pass)
      else if (isRejection(error) && (await this.#hasRecovered(calledAt, call.deadlineAt, pass))) return undefined
      else this.#noteFailure(call.org, error, pass)
      throw error
    }
  }

  /** While it is being found out, no mint is sent: it would use the credentials that were rejected. */
  async #hasRecovered(calledAt: number, deadlineAt: number, pass: MintPass): Promise<boolean> {
    const { recoverCredentials } = this.#options
    if (recoverCredentials === undefined) return false
    this.#recovery ??= recoverCredentials(calledAt).finally(() => {
      this.#recovery = undefined
    })
    if ((await within(this.#recovery, deadlineAt - this.#now())) !== true) return false
    this.#pause.succeeded(pass) // it answers, and with these credentials it will say something else
    this.#pause.credentialsChanged()
    return true
  }

  #noteFailure(org: OrgId, error: unknown, pass: MintPass): void {
    if (!(error instanceof TokenError)) {
      this.#pause.abandon(pass)
      return
    }
    const refusal = this.#pause.failed(org, error, pass)
    if (refusal !== undefined) this.#budget.refuseAll(refusal)
  }
}

function isRejection(error: unknown): boolean {
  return error instanceof TokenError && error.code === 'app_credentials_rejected'
}

function passed(delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, Math.max(delayMs, 0))
  })
}

/** The result, or undefined where it is not there in time. */
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
