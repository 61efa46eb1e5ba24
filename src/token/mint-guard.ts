/**
 * Stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm of mints.
 *
 * The way of a mint: `MintPauses` admits it, unless its org or all orgs are paused; `MintQueue` gives it a turn in the budget;
 * the endpoint is called; the outcome goes back to `MintPauses`. If the call failed in a way that may pass, the mint goes the
 * same way again while the time for a mint lasts. A call that has begun goes on for longer than any request waits: its token
 * serves the next one. While it hangs, short calls beside it notice when the endpoint is back.
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { type MintPass, MintPauses, type MintPausesOptions } from './mint-pauses.ts'
import { MintQueue } from './mint-queue.ts'
import type { AccessToken, MintOptions, TokenSource } from './token-source.ts'

export interface MintGuardOptions extends Partial<MintPausesOptions> {
  /** The wait for a turn, all attempts, and the waits between them. The last call may take longer. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  readonly mintRate: number
}

/** After these, the next call may bring a token. */
const PASSING: readonly string[] = ['token_endpoint_unavailable', 'token_endpoint_timeout', 'token_response_invalid']
const NO_ANSWER = 'The token endpoint takes calls, but does not answer in time.'
/** A retry begins only if this share of the time for a mint is left, and as much time as the last call took. */
const LEAST_TIME_FOR_RETRY = 1 / 20
/** A call may take so many times as long as the slowest answer took lately before it counts as slow. */
const SLOW_FACTOR = 2
/** With each quicker answer, the longest time that an answer took counts for this much less. */
const SLOWEST_DECAY = 15 / 16
/** The least time after which a call counts as slow, as a share of the time for a mint. */
const SLOW_SHARE = 1 / 5
/** The same before the first answer. */
const UNKNOWN_SLOW_SHARE = 3 / 5
/** Calls that are slow may hold this share of the places. */
const SLOW_SHARE_OF_PLACES = 1 / 4
/** Between two calls beside one that hangs, in times that a call takes until it is slow: they hold few places. */
const PAUSE_BESIDE = 3

export class MintGuard implements TokenSource {
  readonly pauses: MintPauses
  readonly #options: MintGuardOptions
  readonly #source: TokenSource
  readonly #queue: MintQueue
  readonly #now: () => number
  /** What breaks off each call that is under way, and when the call began. The oldest first. */
  readonly #calls = new Map<AbortController, number>()
  /** The time of the slowest answer lately. Undefined before the first one. */
  #slowestMs: number | undefined

  constructor(options: MintGuardOptions, source: TokenSource) {
    const { now = () => performance.now(), random = Math.random, observer } = options
    this.#options = options
    this.#source = source
    this.#now = now
    this.#queue = new MintQueue(options.mintConcurrency, options.mintRate, now)
    this.pauses = new MintPauses({ now, random, observer })
  }

  /**
   * `hanging`: another call for the org.
   * @throws {TokenError} `MintNotSent` if no call was made
   */
  async mint(org: OrgId, options: MintOptions = {}, hanging?: AbortController): Promise<AccessToken> {
    const { mintTimeoutMs } = this.#options
    const { reason = 'cold', requester } = options
    const deadlineAt = this.#now() + mintTimeoutMs
    const first = this.pauses.admit(org)
    for (let pass = first; ; pass = this.pauses.admit(org)) {
      const turn = this.#queue.enter(reason !== 'cold', deadlineAt, requester)
      this.#makeRoom()
      const leave = await turn.catch((error: unknown) => {
        this.pauses.abandon(pass)
        throw error
      })
      const startedAt = this.#now()
      try {
        return await this.#call(pass, options, hanging)
      } catch (error) {
        // A probe is not repeated: its failure has begun the next pause.
        const mayPass = error instanceof TokenError && PASSING.includes(error.code)
        const mayRepeat = mayPass && first.probes.length === 0 && this.pauses.code === undefined
        // A call that outlasts the requests would give them a timeout in place of this error.
        const callMs = Math.max(this.#now() - startedAt, mintTimeoutMs * LEAST_TIME_FOR_RETRY)
        if (!mayRepeat || this.#now() + this.pauses.leftMs(org) + callMs >= deadlineAt) throw error
      } finally {
        leave()
      }
      await sleep(this.pauses.leftMs(org))
    }
  }

  async #call(pass: MintPass, options: MintOptions, hanging?: AbortController): Promise<AccessToken> {
    const { mintTimeoutMs } = this.#options
    const startedAt = this.#now()
    const call = new AbortController()
    hanging?.signal.addEventListener('abort', () => call.abort())
    const slowMs = this.#slowMs
    const patienceMs = this.#slowestMs === undefined ? mintTimeoutMs * SLOW_FACTOR : mintTimeoutMs
    // A probe that hangs puts off the discovery of a recovery.
    const hangsMs = pass.isProbeOfAll ? slowMs : Math.max(patienceMs, slowMs)
    // After a stall of this process, answers that are there already are read before the immediate runs.
    const after = (delayMs: number, act: () => void) =>
      setTimeout(() => setImmediate(() => this.#calls.has(call) && act()), delayMs)
    const slow = after(slowMs, () => {
      if (hanging !== undefined) call.abort()
      this.#makeRoom()
    })
    let hangs: NodeJS.Timeout | undefined
    const beside = new Promise<AccessToken>((resolve, reject) => {
      hangs = after(hangsMs, () => {
        this.#failed(pass, new TokenError('token_endpoint_timeout', NO_ANSWER, { hint: NO_ANSWER }))
        this.#mintBeside(call, pass.org, options, slowMs * PAUSE_BESIDE).then(resolve, reject)
      })
    })
    this.#calls.set(call, startedAt)
    try {
      const answer = this.#source.mint(pass.org, { ...options, signal: call.signal })
      return await Promise.race([answer.then((token) => this.#succeeded(pass, startedAt, token)), beside])
    } catch (error) {
      const { aborted } = call.signal
      const failure = aborted ? new TokenError('token_endpoint_unavailable', NO_ANSWER, { hint: NO_ANSWER }) : error
      const isNeeded = hanging?.signal.aborted !== true
      if (failure instanceof TokenError && isNeeded) this.#failed(pass, failure, aborted)
      else this.pauses.abandon(pass)
      throw failure
    } finally {
      clearTimeout(slow)
      clearTimeout(hangs)
      this.#calls.delete(call)
      call.abort() // also the one beside it, or the one that hangs
    }
  }

  /** While a call hangs, makes others for its org, one at a time, until one brings a token, or the org is refused. */
  async #mintBeside(hanging: AbortController, org: OrgId, options: MintOptions, pauseMs: number): Promise<AccessToken> {
    for (;;) {
      await sleep(pauseMs)
      if (hanging.signal.aborted) return new Promise(() => undefined)
      try {
        return await this.mint(org, options, hanging)
      } catch (error) {
        // Else the endpoint still hangs, or the org has no leave for a call.
        if (error instanceof TokenError && error.code === 'org_access_refused') throw error
      }
    }
  }

  #succeeded(pass: MintPass, startedAt: number, token: AccessToken): AccessToken {
    this.#slowestMs = Math.max(this.#now() - startedAt, (this.#slowestMs ?? 0) * SLOWEST_DECAY)
    const wasPaused = this.pauses.code !== undefined
    this.pauses.settle(pass)
    // The endpoint is back. What it has not answered until now, it will not answer.
    if (wasPaused && this.pauses.code === undefined) this.#breakOffSlow(0)
    return token
  }

  #failed(pass: MintPass, error: TokenError, isBrokenOff = false): void {
    const refusal = this.pauses.settle(pass, error, isBrokenOff)
    if (refusal === undefined) return
    this.#queue.refuseAll(refusal)
    this.#makeRoom()
  }

  /**
   * Breaks off calls that are slow, if they keep others out, or if requests should not wait for them in a pause. The oldest go
   * on: if the endpoint has become slow, they are the first to show it.
   */
  #makeRoom(): void {
    const isPaused = this.pauses.code !== undefined
    if (!isPaused && !this.#queue.isShortOfPlaces) return
    this.#breakOffSlow(isPaused ? 1 : Math.max(1, Math.floor(this.#options.mintConcurrency * SLOW_SHARE_OF_PLACES)))
  }

  /** All but the oldest, as many as `kept`. */
  #breakOffSlow(kept: number): void {
    const latest = this.#now() - this.#slowMs
    const slow = Array.from(this.#calls).filter(([, startedAt]) => startedAt <= latest)
    for (const [call] of slow.slice(kept)) call.abort()
  }

  /** A call that has no answer after this time is slow. What an answer tells counts for the calls under way, too. */
  get #slowMs(): number {
    const { mintTimeoutMs } = this.#options
    if (this.#slowestMs === undefined) return mintTimeoutMs * UNKNOWN_SLOW_SHARE
    return Math.max(mintTimeoutMs * SLOW_SHARE, this.#slowestMs * SLOW_FACTOR)
  }
}

/** Does not keep the process alive. A timer may be early by a part of a millisecond. */
function sleep(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.ceil(delayMs) + 1).unref())
}
