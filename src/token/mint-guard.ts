/**
 * Stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm of mints.
 *
 * A mint is admitted unless there is a pause, waits for its turn in the budget, and calls the endpoint. If the call fails in a
 * way that may pass, the mint goes the same way again while its time lasts.
 *
 * One org's trouble is its own: a 401, a limit or a failure pauses that org, longer each time. All orgs are paused only if the
 * trouble is not one org's: a second org meets the same 401 or limit, or several orgs fail in a row, and no call succeeds in
 * between. When that pause is over, one call goes ahead as the probe. Its outcome ends the pause or starts a longer one.
 *
 * A call that takes too long has failed, but may go on, late, beside the next call for its org: that one notices when the
 * endpoint is back, and the late one brings its token if the endpoint has only become slow.
 */

import { performance } from 'node:perf_hooks'
import { LRUCache } from 'lru-cache'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { type MintBudget, MintQueue } from './mint-queue.ts'
import type { AccessToken, MintOptions, TokenObserver, TokenSource } from './token-source.ts'

export interface MintGuardOptions extends MintBudget {
  readonly observer?: TokenObserver
  readonly now?: () => number
  readonly random?: () => number
}

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
type PauseCode = typeof REJECTED | typeof LIMITED | typeof DOWN

/** Of one org or of all. */
interface Pause {
  readonly code: PauseCode
  /** When the first of the calls began that failed in a row. */
  readonly since: number
  readonly lengthMs: number
  /** Names the cause of the failure that began it. */
  readonly hint: string
  /** Calls that were admitted later are probes of a pause of all. */
  readonly beganAt: number
  /** A probe moves it on: if that brings no outcome, the next one goes ahead. */
  until: number
}

interface Call {
  readonly org: OrgId
  /** The last call for the org took too long, or the calls for all fail. */
  readonly isTroubled: boolean
  readonly admittedAt: number
  readonly startedAt: number
  /** It took too long, and nobody waits for it. */
  isLate: boolean
  readonly breakOff: AbortController
  resolve(token: AccessToken): void
  reject(error: unknown): void
}

/**
 * Each pause is twice the one before; the longest decides how soon a recovery is seen. All orgs are paused after so many failed
 * calls of so many orgs in a row.
 */
const FAILURE = { firstMs: 150, longestMs: 800, calls: 12, orgs: 3 }
/** A 401, or a limit of unknown length. */
const REFUSAL = { firstMs: 1_000, longestMs: 4_000, calls: 2, orgs: 2 }
/**
 * While the endpoint is down for all, orgs probe it so much after the end of the pause: otherwise those that always fail, or
 * unknown ones, would make every probe if they ask often, and keep up a pause that only they deserve.
 */
const PROBES_AFTER_MS = { known: -800, new: 0, failing: 400 }
/** While calls of others have succeeded so lately, an org that failed before them fails by itself. */
const LATELY_MS = 10_000
/** So long after its pause, the trouble of an org that asks no more is forgotten. */
const REMEMBERED_MS = 5 * 60_000
const MAX_TROUBLED_ORGS = 10_000
/** A call takes too long after so many times the usual time, but not before this share of the time for a mint. */
const HANGS = { factor: 4, leastShare: 1 }
/** The same if others need its place, or if the last call for its org took too long, or the calls for all fail. */
const SLOW = { factor: 3 / 2, leastShare: 2 / 5 }
/** Of the time for a mint: the usual time, until the first answer tells. */
const FIRST_USUAL_SHARE = 1 / 2
/** Calls that take too long may hold this share of the places while others wait. */
const LATE_SHARE_OF_PLACES = 1 / 4
/** Of the time for a mint: a retry begins only if so much is left, and so often the age of a call is looked at. */
const LEAST_SHARE = 1 / 50
const TOOK_TOO_LONG = 'The token endpoint takes calls, but does not answer in time.'

export class MintGuard implements TokenSource {
  readonly #options: MintGuardOptions
  readonly #source: TokenSource
  readonly #now: () => number
  readonly #queue: MintQueue
  /** Under way, the oldest first. */
  readonly #calls = new Set<Call>()
  readonly #pauses: LRUCache<OrgId, Pause>
  #pauseOfAll: Pause | undefined
  /** The orgs of the last calls that failed in each way, since the last success. */
  readonly #failed = new Map<PauseCode, readonly OrgId[]>()
  #succeededAt = Number.NEGATIVE_INFINITY
  /** Tokens that came late, for the next mint. */
  readonly #lateTokens: LRUCache<OrgId, AccessToken>
  /** The call that began last of those that were answered: others may be slow by themselves. */
  #answered: { readonly startedAt: number; readonly tookMs: number }
  #timer: NodeJS.Timeout | undefined

  constructor(options: MintGuardOptions, source: TokenSource) {
    const { mintTimeoutMs, now = () => performance.now() } = options
    const bounds = { max: MAX_TROUBLED_ORGS, ttl: REMEMBERED_MS, ttlResolution: 0, perf: { now } }
    this.#options = options
    this.#source = source
    this.#now = now
    this.#queue = new MintQueue(options, now)
    this.#pauses = new LRUCache(bounds)
    this.#lateTokens = new LRUCache(bounds)
    this.#answered = { startedAt: Number.NEGATIVE_INFINITY, tookMs: mintTimeoutMs * FIRST_USUAL_SHARE }
  }

  /** @throws {TokenError} */
  async mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const late = this.#lateTokens.get(org)
    if (late !== undefined && this.#lateTokens.delete(org)) return late
    const { mintTimeoutMs } = this.#options
    const deadlineAt = this.#now() + mintTimeoutMs
    const wasWell = !this.#pauses.has(org)
    for (;;) {
      const startedAt = this.#now()
      try {
        return await this.#call(org, options)
      } catch (error) {
        const pause = this.#pauses.peek(org)
        // A call that outlasts the requests would give them a timeout in place of this error.
        const callMs = Math.max(this.#now() - startedAt, mintTimeoutMs * LEAST_SHARE)
        const mayPass = pause?.code === DOWN && pause.until + callMs < deadlineAt
        // A probe is not repeated: its failure has begun the next pause.
        if (!wasWell || !mayPass || this.#pauseOfAll !== undefined) throw error
        await sleep(pause.until - this.#now())
      }
    }
  }

  async #call(org: OrgId, options: MintOptions): Promise<AccessToken> {
    const { reason = 'cold', requester } = options
    const isKnown = reason !== 'cold'
    const admittedAt = this.#now()
    const isTroubled = this.#admit(org, isKnown)
    const leave = await this.#queue.enter(isKnown, requester, isTroubled)
    // After a stall of this process, answers that are there already are read before the immediate runs.
    const look = () => setImmediate(() => this.#lookAtCalls())
    this.#timer ??= setInterval(look, this.#options.mintTimeoutMs * LEAST_SHARE)
    return await new Promise((resolve, reject) => {
      const [startedAt, breakOff] = [this.#now(), new AbortController()]
      const call = { org, isTroubled, admittedAt, startedAt, isLate: false, breakOff, resolve, reject }
      this.#calls.add(call)
      this.#source
        .mint(org, { ...options, signal: breakOff.signal })
        .then(this.#succeeded.bind(this, call), this.#fails.bind(this, call))
        .finally(() => {
          this.#calls.delete(call)
          leave()
        })
    })
  }

  /** Returns true if the last call for the org took too long, or the calls for all fail. @throws {TokenError} in a pause */
  #admit(org: OrgId, isKnown: boolean): boolean {
    const now = this.#now()
    const own = this.#pauses.peek(org)
    const all = this.#pauseOfAll
    const group = own !== undefined ? 'failing' : isKnown ? 'known' : 'new'
    const afterMs = all?.code === DOWN ? PROBES_AFTER_MS[group] : 0
    if (own !== undefined && now < own.until) throw refusal(own, now)
    if (all !== undefined && now < all.until + afterMs) throw refusal(all, now)
    if (all !== undefined) all.until = now + this.#limitMs(SLOW)
    return own?.hint === TOOK_TOO_LONG || all !== undefined
  }

  /** The oldest of the calls that take too long go on: if the endpoint has become slow, they are the first to show it. */
  #lookAtCalls(): void {
    const lateCalls = Math.floor(this.#options.mintConcurrency * LATE_SHARE_OF_PLACES)
    for (const [older, call] of [...this.#calls].entries()) {
      const isInTheWay = older >= lateCalls && this.#queue.isShortOfPlaces
      const isBrief = isInTheWay || call.isTroubled
      const limitMs = isInTheWay && call.isTroubled ? 0 : this.#limitMs(isBrief ? SLOW : HANGS)
      if (call.isLate && isInTheWay) call.breakOff.abort()
      if (call.isLate || this.#now() - call.startedAt < limitMs) continue
      const goesOn = older < Math.max(1, lateCalls) && !this.#callsOf(call.org).some(({ isLate }) => isLate)
      const code = isBrief ? DOWN : 'token_endpoint_timeout'
      const error = new TokenError(code, TOOK_TOO_LONG)
      this.#fails(call, error, isInTheWay)
      call.isLate = true
      if (!goesOn) call.breakOff.abort()
    }
    if (this.#calls.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** What an answer tells counts for the calls under way, too. */
  #limitMs({ factor, leastShare }: typeof SLOW): number {
    return Math.max(this.#options.mintTimeoutMs * leastShare, this.#answered.tookMs * factor)
  }

  #callsOf(org: OrgId): Call[] {
    return [...this.#calls].filter((call) => call.org === org)
  }

  #succeeded(call: Call, token: AccessToken): void {
    const { org, startedAt } = call
    if (startedAt > this.#answered.startedAt) this.#answered = { startedAt, tookMs: this.#now() - startedAt }
    this.#noteWell(call)
    const calls = this.#callsOf(org)
    if (calls.every(({ isLate }) => isLate)) this.#lateTokens.set(org, token)
    for (const each of calls) {
      each.resolve(token)
      each.isLate = true
      if (each !== call) each.breakOff.abort()
    }
  }

  #noteWell(call: Call): void {
    this.#succeededAt = this.#now()
    this.#failed.clear()
    this.#pauses.delete(call.org)
    // A call that began before a limit may still succeed.
    if (this.code !== LIMITED || this.#isProbe(call)) this.#resumeAll()
  }

  /** A call that was in the way of others says nothing about their orgs. */
  #fails(call: Call, error: unknown, isInTheWay = false): void {
    call.reject(error)
    if (call.isLate || !(error instanceof TokenError)) return
    // The refusal of an org proves the credentials, and that the endpoint works.
    if (error.code === 'org_access_refused') this.#noteWell(call)
    else this.#pause(call, error, isInTheWay)
  }

  #pause(call: Call, error: TokenError, isInTheWay: boolean): void {
    const { random = Math.random, observer } = this.#options
    const code = error.code === REJECTED || error.code === LIMITED ? error.code : DOWN
    if (code !== DOWN && this.code === DOWN) this.#resumeAll() // the endpoint answers
    const all = this.#pauseOfAll
    const isProbe = this.#isProbe(call)
    const before = isProbe ? all : this.#pauses.peek(call.org)
    const { firstMs, longestMs } = code === DOWN ? FAILURE : REFUSAL
    const lengthMs = before?.code === code ? Math.min(before.lengthMs * 2, longestMs) : firstMs
    const toldMs = code === LIMITED ? (error.retryAfterSeconds ?? 0) * 1_000 : 0
    const now = this.#now()
    const until = now + (toldMs > 0 ? toldMs : lengthMs * (0.5 + random() / 2))
    const since = before?.since ?? call.admittedAt
    const pause: Pause = { code, since, lengthMs, hint: error.message, beganAt: now, until }
    this.#pauses.set(call.org, pause, { ttl: until - now + REMEMBERED_MS })
    const isAlone = since < this.#succeededAt && now - this.#succeededAt <= LATELY_MS
    const isShared = !isInTheWay && !isAlone && this.#isShared(call.org, code)
    // Calls that were under way when the pause of all began leave it as it is, unless they are told of a limit with a later end.
    const isLater = code === LIMITED && all?.code === LIMITED && until > all.until
    if (!isProbe && !isLater && (all !== undefined || !isShared)) return
    this.#pauseOfAll = { ...pause }
    observer?.mintsPaused?.(code, until - now)
    this.#queue.refuseAll(refusal(pause, now))
  }

  #isProbe(call: Call): boolean {
    return this.#pauseOfAll !== undefined && call.admittedAt > this.#pauseOfAll.beganAt
  }

  /** True if so many calls in a row failed in this way that it is no longer the trouble of one org. */
  #isShared(org: OrgId, code: PauseCode): boolean {
    const { calls, orgs } = code === DOWN ? FAILURE : REFUSAL
    const failed = [...(this.#failed.get(code) ?? []), org].slice(-calls)
    this.#failed.set(code, failed)
    return failed.length === calls && new Set(failed).size >= orgs
  }

  #resumeAll(): void {
    if (this.#pauseOfAll !== undefined) this.#options.observer?.mintsResumed?.()
    this.#pauseOfAll = undefined
  }

  /** Ends all pauses; because of a changed App secret, only those that the old one caused. */
  resume(only?: PauseCode): void {
    for (const [org, { code }] of [...this.#pauses.entries()]) if (code === (only ?? code)) this.#pauses.delete(org)
    this.#failed.clear()
    if (this.code === (only ?? this.code)) this.#resumeAll()
  }

  /** The reason of the pause of all orgs, if there is one. */
  get code(): PauseCode | undefined {
    return this.#pauseOfAll?.code
  }

  /**
   * The pause of all orgs; without one, the latest pause of a single org. The next call may be made after `leftMs`; `orgs` are
   * those whose own calls fail, the latest first.
   */
  get status() {
    // Between two pauses the trouble goes on, unless a success of another org shows that it may have passed.
    const troubled = Array.from(this.#pauses.entries()).filter(([, { until }]) => this.#succeededAt < until)
    const pause = this.#pauseOfAll ?? troubled[0]?.[1]
    if (pause === undefined) return undefined
    const { code, until, hint } = pause
    const leftMs = Math.max(until - this.#now(), 0)
    return { code, leftMs, hint, isOfAll: this.code !== undefined, orgs: troubled.map(([org]) => org) }
  }
}

function refusal({ code, until, hint }: Pause, now: number): TokenError {
  const seconds = Math.max(1, Math.ceil((until - now) / 1_000))
  return new TokenError(code, hint, { retryAfterSeconds: code === REJECTED ? undefined : seconds })
}

/** Does not keep the process alive. A timer may be early by a part of a millisecond. */
function sleep(delayMs: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.ceil(delayMs) + 1).unref())
}
