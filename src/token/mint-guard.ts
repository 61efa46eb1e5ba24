/**
 * Stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm of mints.
 *
 * The way of a mint: `MintPauses` admits it, unless its org or all orgs are paused; `MintQueue` gives it a turn in the budget;
 * the endpoint is called; the outcome goes back to `MintPauses`. If the call failed in a way that may pass, the mint goes the
 * same way again while the time for a mint lasts. A call that has begun goes on for longer than any request waits: its token
 * serves the next one.
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { type MintPass, MintPauses } from './mint-pauses.ts'
import { type LeaveQueue, MintQueue } from './mint-queue.ts'
import {
  type AccessToken,
  MintGoesOn,
  MintNotSent,
  type MintOptions,
  type MintReason,
  type TokenObserver,
  type TokenSource,
} from './token-source.ts'

export interface MintGuardOptions {
  /** The wait for a turn, all attempts, and the waits between them. The last call may take longer. */
  readonly mintTimeoutMs: number
  readonly mintConcurrency: number
  /** Per second. */
  readonly mintRate: number
  readonly observer?: TokenObserver | undefined
  readonly now?: () => number
  readonly random?: () => number
}

/** What a mint and its calls have in common. */
interface Mint extends MintOptions {
  readonly org: OrgId
  readonly reason: MintReason
  readonly deadlineAt: number
  /** Ends the wait of all requests for this mint; the mint goes on. */
  letGo: () => void
  hasLetGo: boolean
}

/** A call that is under way. */
interface Call {
  readonly mint: Mint
  readonly pass: MintPass
  readonly broken: AbortController
  /** Unanswered for longer than answers take. */
  isSlow: boolean
  /** Counted as failed already, because it took too long. */
  isHanging: boolean
  timer: NodeJS.Timeout | undefined
}

const NO_ANSWER = 'The token endpoint takes calls, but does not answer in time.'
const FIRST_RETRY_MS = 150
const LONGEST_RETRY_MS = 800
/** A retry begins only if this share of the time for a mint is left, and as much time as the last call took. */
const LEAST_TIME_FOR_RETRY = 1 / 20
/** A call may take so many times as long as the slowest answer took lately before it counts as slow. */
const SLOW_FACTOR = 2
/** With each quicker answer, the longest time that an answer took counts for this much less. */
const SLOWEST_DECAY = 15 / 16
/** The least time after which a call counts as slow, as a share of the time for a mint. */
const SLOW_SHARE = 1 / 5
/** A probe that hangs puts off the discovery of a recovery. */
const PROBE_HANGS_MS = 2_000
/** While others wait for a place, calls that are slow may hold this share of the places. */
const SLOW_SHARE_OF_PLACES = 1 / 4
/** The same before the first answer: the endpoint may be slow for all. */
const UNKNOWN_SHARE_OF_PLACES = 7 / 8

export class MintGuard implements TokenSource {
  readonly pauses: MintPauses
  readonly #options: MintGuardOptions
  readonly #source: TokenSource
  readonly #queue: MintQueue
  readonly #now: () => number
  readonly #random: () => number
  /** The oldest first. */
  readonly #calls = new Set<Call>()
  /** The time of the slowest answer lately. Undefined before the first one. */
  #slowestMs: number | undefined
  #isClosed = false

  constructor(options: MintGuardOptions, source: TokenSource) {
    const { now = () => performance.now(), random = Math.random, observer } = options
    this.#options = options
    this.#source = source
    this.#now = now
    this.#random = random
    this.#queue = new MintQueue({ concurrency: options.mintConcurrency, ratePerSecond: options.mintRate, now })
    this.pauses = new MintPauses({ now, random, observer })
  }

  /** @throws {TokenError} `MintNotSent` if no call was made, `MintGoesOn` if the token may come later */
  mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const { reason = 'cold', replaces, requester, requestId } = options
    const deadlineAt = this.#now() + this.#options.mintTimeoutMs
    return new Promise((resolve, reject) => {
      // No spread: V8 makes a hash table of it, and a flood makes thousands of these calls in a second.
      const mint: Mint = {
        org,
        reason,
        replaces,
        requester,
        requestId,
        deadlineAt,
        letGo: () => {
          mint.hasLetGo = true
          const message = 'the call goes on, but nobody waits for it: the token endpoint does not answer'
          const details = { retryAfterSeconds: 1, hint: NO_ANSWER }
          reject(new MintGoesOn('token_endpoint_unavailable', message, whole, details))
        },
        hasLetGo: false,
      }
      const whole = this.#mint(mint)
      whole.then(resolve, (error: unknown) => {
        if (error instanceof MintNotSent) this.#options.observer?.mintRefused?.(org, reason, error)
        reject(error)
      })
    })
  }

  /** Ends all pauses and limits at once. */
  resume(): void {
    this.pauses.resume()
  }

  /** Failed calls are not repeated any more. */
  close(): void {
    this.#isClosed = true
  }

  async #mint(mint: Mint): Promise<AccessToken> {
    for (let attempt = 1; ; attempt += 1) {
      const startedAt = this.#now()
      const pass = this.pauses.admit(mint.org)
      const leave = await this.#enter(mint, pass)
      const calledAt = this.#now()
      try {
        return await this.#call(mint, pass, leave)
      } catch (error) {
        if (!(error instanceof TokenError) || !isPassing(error)) throw error
        const backoffMs = Math.min(FIRST_RETRY_MS * 2 ** (attempt - 1), LONGEST_RETRY_MS) * (0.5 + this.#random() / 2)
        const waitMs = Math.max(startedAt + backoffMs - this.#now(), 0)
        // A probe is not repeated: its failure has begun the next pause.
        const isLast = pass.probes.length > 0 || mint.hasLetGo || this.#isClosed
        // A call that outlasts the requests would give them a timeout in place of this error.
        const needsMs = waitMs + Math.max(this.#now() - calledAt, this.#options.mintTimeoutMs * LEAST_TIME_FOR_RETRY)
        if (isLast || this.#now() + needsMs >= mint.deadlineAt) {
          this.pauses.gaveUp(pass, error)
          throw error
        }
        await new Promise((resolve) => setTimeout(resolve, waitMs))
      }
    }
  }

  async #enter({ reason, requester, deadlineAt }: Mint, pass: MintPass): Promise<LeaveQueue> {
    const isProbe = pass.probes.length > 0
    try {
      const turn = this.#queue.enter({ isKnown: reason !== 'cold', isProbe, requester, deadlineAt })
      this.#makeRoom()
      return await turn
    } catch (error) {
      this.pauses.abandon(pass)
      throw error
    }
  }

  async #call(mint: Mint, pass: MintPass, leave: LeaveQueue): Promise<AccessToken> {
    const call: Call = { mint, pass, broken: new AbortController(), isSlow: false, isHanging: false, timer: undefined }
    const { org, reason, replaces, requestId } = mint
    const { mintTimeoutMs } = this.#options
    const isProbe = pass.probes.length > 0
    const startedAt = this.#now()
    const enoughMs = (this.#slowestMs ?? 0) * SLOW_FACTOR
    const patienceMs = this.#slowestMs === undefined ? mintTimeoutMs * SLOW_FACTOR : mintTimeoutMs
    const hangsMs = Math.max(isProbe ? Math.min(PROBE_HANGS_MS, mintTimeoutMs) : patienceMs, enoughMs)
    const slowMs = Math.min(Math.max(mintTimeoutMs * SLOW_SHARE, enoughMs), hangsMs)
    call.timer = after(slowMs, () => {
      this.#noteSlow(call)
      call.timer = after(hangsMs - slowMs, () => this.#noteHanging(call))
    })
    this.#calls.add(call)
    try {
      const token = await this.#source.mint(org, { reason, replaces, requestId, signal: call.broken.signal })
      this.#slowestMs = Math.max(this.#now() - startedAt, (this.#slowestMs ?? 0) * SLOWEST_DECAY)
      this.pauses.settle(pass)
      return token
    } catch (error) {
      const isEvidence = error instanceof TokenError && !(error instanceof MintNotSent) && !call.broken.signal.aborted
      if (!isEvidence) this.pauses.abandon(pass)
      else if (!call.isHanging || !isPassing(error)) this.#settleFailed(pass, error)
      throw error
    } finally {
      clearTimeout(call.timer)
      this.#calls.delete(call)
      leave() // last: the next call must not begin before a pause that this one began
    }
  }

  #noteSlow(call: Call): void {
    if (!this.#calls.has(call)) return
    call.isSlow = true
    if (call.pass.probes.length > 0 || this.pauses.code !== undefined) call.mint.letGo()
    this.#makeRoom()
  }

  #noteHanging(call: Call): void {
    if (!this.#calls.has(call)) return
    call.isHanging = true
    this.#settleFailed(call.pass, new TokenError('token_endpoint_timeout', NO_ANSWER, { hint: NO_ANSWER }))
  }

  #settleFailed(pass: MintPass, error: TokenError): void {
    const refusal = this.pauses.settle(pass, error)
    if (refusal === undefined) return
    this.#queue.refuseAll(refusal)
    for (const call of this.#calls) if (call.isSlow) call.mint.letGo()
  }

  /** Calls that hang must not keep all others out. The oldest go on: if the endpoint has become slow, they are the first to show it. */
  #makeRoom(): void {
    if (!this.#queue.isShortOfPlaces) return
    const slow = Array.from(this.#calls).filter((call) => call.isSlow)
    const share = this.#slowestMs === undefined ? UNKNOWN_SHARE_OF_PLACES : SLOW_SHARE_OF_PLACES
    const places = Math.max(1, Math.floor(this.#options.mintConcurrency * share))
    for (const call of slow.slice(places)) call.broken.abort()
  }
}

/** The next call may bring a token. */
function isPassing({ code }: TokenError): boolean {
  return code === 'token_endpoint_unavailable' || code === 'token_endpoint_timeout' || code === 'token_response_invalid'
}

/** After a stall of this process, answers that are there already are read before the immediate runs. */
function after(delayMs: number, act: () => void): NodeJS.Timeout {
  return setTimeout(() => setImmediate(act), delayMs)
}
