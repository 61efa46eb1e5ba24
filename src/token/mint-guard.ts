/**
 * Stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm of mints.
 *
 * The way of a mint: `MintPauses` admits it, unless its org or all orgs are paused; `MintQueue` gives it a turn in the budget;
 * the endpoint is called; the outcome goes back to `MintPauses`. If the call failed in a way that may pass, the mint goes the
 * same way again while the time for a mint lasts.
 *
 * A call goes on for longer than any request waits: its token serves the next one. After some time it is *slow*, and is broken
 * off if it is in the way. Later it *hangs*: that is a failure, and brief calls beside it notice when the endpoint is back.
 */

import { performance } from 'node:perf_hooks'
import { TokenError, type TokenErrorCode } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { MintPauses, type MintPausesOptions } from './mint-pauses.ts'
import { MintQueue } from './mint-queue.ts'
import { AccessToken, type MintOptions, type TokenSource } from './token-source.ts'

export interface MintGuardOptions extends Partial<MintPausesOptions> {
  /** The wait for a turn, all attempts, and the waits between them. The last call may take longer. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  readonly mintRate: number
  /** The process stops: nothing is repeated any more. */
  readonly stopped?: AbortSignal
}

/** A call is slow after this share of the time for a mint, or so many times as long as the slowest answer took lately. */
const SLOW = { share: 1 / 5, shareBeforeFirstAnswer: 3 / 5, factor: 2 }
/** With each quicker answer, the longest time that an answer took counts for this much less. */
const SLOWEST_DECAY = 15 / 16
/** Calls that are slow may hold this share of the places. */
const SLOW_SHARE_OF_PLACES = 1 / 4
/** Of the time for a mint: the pause between two calls beside one that hangs. */
const PAUSE_BESIDE_SHARE = 2 / 5
/** Of the time for a mint: a retry begins only if so much is left, and so often the age of a call is looked at. */
const LEAST_SHARE = 1 / 50

export class MintGuard implements TokenSource {
  readonly pauses: MintPauses
  readonly #options: MintGuardOptions
  readonly #source: TokenSource
  readonly #queue: MintQueue
  readonly #now: () => number
  /** One for each call that is under way, the oldest first: does what its age asks for. */
  readonly #calls = new Set<(isInTheWay: boolean) => void>()
  #timer: NodeJS.Timeout | undefined
  /** The time of the slowest answer lately. Undefined before the first one. */
  #slowestMs: number | undefined
  /** When the latest of the calls began that were answered. */
  #latestAnswered = Number.NEGATIVE_INFINITY

  constructor(options: MintGuardOptions, source: TokenSource) {
    const { now = () => performance.now(), random = Math.random, observer } = options
    this.#options = options
    this.#source = source
    this.#now = now
    this.#queue = new MintQueue(options.mintConcurrency, options.mintRate, now)
    const refuseWaiting = (error: TokenError) => this.#queue.refuseAll(error)
    this.pauses = new MintPauses({ now, random, observer, refuseWaiting })
  }

  /**
   * `hanging`: this mint goes on beside a call that hangs, and ends with it. It makes brief calls, one after the other, until one
   * brings a token or the endpoint answers otherwise.
   * @throws {TokenError}
   */
  async mint(org: OrgId, options: MintOptions = {}, hanging?: AbortSignal): Promise<AccessToken> {
    const { mintTimeoutMs, stopped } = this.#options
    const deadlineAt = this.#now() + mintTimeoutMs
    const wasWell = this.pauses.retryInMs(org) === undefined
    for (;;) {
      const startedAt = this.#now()
      try {
        return await this.#call(org, options, hanging)
      } catch (error) {
        const retryInMs = this.pauses.retryInMs(org)
        if (retryInMs === undefined || stopped?.aborted) throw error
        // A call that outlasts the requests would give them a timeout in place of this error.
        const callMs = Math.max(this.#now() - startedAt, mintTimeoutMs * LEAST_SHARE)
        const hasTime = this.#now() + retryInMs + callMs < deadlineAt
        // A probe is not repeated: its failure has begun the next pause.
        const mayRepeat = wasWell && hasTime && this.pauses.code === undefined
        if (!mayRepeat && hanging === undefined) throw error
        await sleep(hanging === undefined ? retryInMs : mintTimeoutMs * PAUSE_BESIDE_SHARE)
        hanging?.throwIfAborted()
      }
    }
  }

  async #call(org: OrgId, options: MintOptions, hanging?: AbortSignal): Promise<AccessToken> {
    const { mintTimeoutMs } = this.#options
    const { reason = 'cold', requester } = options
    const pass = this.pauses.admit(org, this.#slowMs)
    const isTroubled = pass.probes.length > 0
    const turn = this.#queue.enter(reason !== 'cold', mintTimeoutMs, requester, isTroubled)
    const leave = await turn.catch((error: unknown) => {
      this.pauses.abandon(pass)
      throw error
    })
    const startedAt = this.#now()
    const call = new AbortController()
    const { signal } = call
    hanging?.addEventListener('abort', () => call.abort(hanging.reason))
    let beside: AbortController | undefined
    const look = (isInTheWay: boolean) => {
      const ageMs = this.#now() - startedAt
      if (ageMs < this.#slowMs) return
      // Before the first answer, nobody knows what is usual.
      const patienceMs = mintTimeoutMs * (this.#slowestMs === undefined ? SLOW.factor : 1)
      if (hanging !== undefined || isInTheWay) call.abort(noAnswer('token_endpoint_unavailable'))
      else if (beside === undefined && (isTroubled || ageMs >= patienceMs)) {
        beside = new AbortController()
        this.pauses.ended(pass, noAnswer('token_endpoint_timeout'))
        const end = (outcome: unknown) => call.abort(outcome)
        this.mint(org, options, beside.signal).then(end, end)
      }
    }
    this.#calls.add(look)
    // After a stall of this process, answers that are there already are read before the immediate runs.
    this.#timer ??= setInterval(() => setImmediate(() => this.#lookAtCalls()), mintTimeoutMs * LEAST_SHARE)
    try {
      hanging?.throwIfAborted()
      const token = await this.#source.mint(org, { ...options, signal })
      const tookMs = this.#now() - startedAt
      // Calls that began later have been answered: only this org is so slow.
      const isOwn = tookMs > mintTimeoutMs && startedAt < this.#latestAnswered
      if (!isOwn) this.#slowestMs = Math.max(tookMs, (this.#slowestMs ?? 0) * SLOWEST_DECAY)
      this.#latestAnswered = Math.max(this.#latestAnswered, startedAt)
      this.pauses.ended(pass)
      return token
    } catch (error) {
      const outcome: unknown = signal.aborted ? signal.reason : error
      if (outcome instanceof AccessToken) return outcome
      if (outcome instanceof TokenError) this.pauses.ended(pass, outcome, signal.aborted)
      else this.pauses.abandon(pass)
      throw outcome
    } finally {
      this.#calls.delete(look)
      leave()
      beside?.abort()
    }
  }

  /**
   * A slow call is in the way if others need its place, or if requests should not wait for it in a pause. The oldest go on: if
   * the endpoint has become slow, they are the first to show it.
   */
  #lookAtCalls(): void {
    const isPaused = this.pauses.code !== undefined
    const kept = isPaused ? 1 : Math.max(1, Math.floor(this.#options.mintConcurrency * SLOW_SHARE_OF_PLACES))
    const isTight = isPaused || this.#queue.isShortOfPlaces
    for (const [older, look] of [...this.#calls].entries()) look(isTight && older >= kept)
    if (this.#calls.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** What an answer tells counts for the calls under way, too. */
  get #slowMs(): number {
    const { mintTimeoutMs } = this.#options
    if (this.#slowestMs === undefined) return mintTimeoutMs * SLOW.shareBeforeFirstAnswer
    return Math.max(mintTimeoutMs * SLOW.share, this.#slowestMs * SLOW.factor)
  }
}

function noAnswer(code: TokenErrorCode): TokenError {
  return new TokenError(code, 'The token endpoint takes calls, but does not answer in time.')
}

/** Does not keep the process alive. A timer may be early by a part of a millisecond. */
function sleep(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.ceil(delayMs) + 1).unref())
}
