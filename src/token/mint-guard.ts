/**
 * Stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm of mints.
 *
 * A mint is admitted unless there is a pause, waits for its turn in the budget, and calls the endpoint. If the call fails in a
 * way that may pass, the mint goes the same way again while its time lasts. A failure pauses its org, longer each time. All
 * orgs are paused if several of them met the same trouble since the last success. When that pause is over, one call goes ahead
 * as the probe: its outcome ends the pause or starts a longer one.
 *
 * A call that takes too long has failed, but may go on, late, beside the next call for its org: that one notices when the
 * endpoint is back, and the late one brings its token if the endpoint has only become slow.
 */

import { LRUCache } from 'lru-cache'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { LONGEST_WAIT_SHARE, type MintBudget, MintQueue } from './mint-queue.ts'
import type { AccessToken, MintOptions, TokenObserver, TokenSource } from './token-source.ts'

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
type PauseCode = typeof REJECTED | typeof LIMITED | typeof DOWN

/** Of one org or of all. */
interface Pause {
  readonly code: PauseCode
  readonly cause: TokenError
  /** So many calls failed in a row. */
  readonly failures: number
  readonly until: number
  /** Of a pause of all: outcomes count from now on. Before, they are those of calls that were under way when it began. */
  readonly isProbed?: boolean
}

interface Call {
  readonly org: OrgId
  readonly startedAt: number
  /** It may hold its place for long: it is a probe, or the last call for its org took too long. */
  readonly isTroubled: boolean
  /** It took too long, and nobody waits for it. */
  isLate: boolean
  breakOff?: () => void
  resolve(token: AccessToken): void
  reject(error: unknown): void
}

/** Each pause is twice the one before. All orgs are paused after so many failures of so many orgs since the last success. */
const FAILURE = { firstMs: 150, longestMs: 800, calls: 12, orgs: 3 }
/** A 401, or a limit of unknown length. */
const REFUSAL = { firstMs: 1_000, longestMs: 4_000, calls: 2, orgs: 2 }
/** So long after its pause, the trouble of an org that asks no more is forgotten. */
const REMEMBERED = { ttl: 5 * 60_000, max: 10_000, ttlResolution: 0 }
/**
 * A call takes too long after `mintTimeout` times one of these factors, but not before the first of them times the usual
 * duration. The factor of troubled calls decides how soon a recovery is seen.
 */
const LIMITS = { usual: 3 / 2, inTheWay: 2 / 3, troubled: 1 / 2 }
/** Calls that take too long may hold this share of the places while others wait. */
const LATE_SHARE_OF_PLACES = 1 / 4
/** So often the age of the calls is looked at. */
const LOOK_MS = 50
const HANGS = new TokenError(DOWN, 'The token endpoint takes calls, but does not answer in time.')

export class MintGuard implements TokenSource {
  readonly #budget: MintBudget
  readonly #source: TokenSource
  readonly #observer: TokenObserver
  readonly #queue: MintQueue
  /** Under way, the oldest first. */
  readonly #calls: Call[] = []
  readonly #pauses = new LRUCache<OrgId, Pause>(REMEMBERED)
  /** Pauses of orgs that were well at the last success. */
  readonly #begun = new Map<OrgId, Pause>()
  pauseOfAll: Pause | undefined
  /** Tokens that came late, for the next mint. */
  readonly #lateTokens = new LRUCache<OrgId, AccessToken>(REMEMBERED)
  #succeededAt = Number.NEGATIVE_INFINITY
  #usualMs = 0
  #timer: NodeJS.Timeout | undefined

  constructor(budget: MintBudget, source: TokenSource, observer: TokenObserver = {}) {
    this.#budget = budget
    this.#source = source
    this.#observer = observer
    this.#queue = new MintQueue(budget)
  }

  /** @throws {TokenError} */
  async mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const late = this.#lateTokens.get(org)
    this.#lateTokens.delete(org)
    if (late !== undefined && performance.now() - late.mintedAt < late.statedLifeMs) return late
    const lastAt = performance.now() + this.#budget.mintTimeoutMs * LONGEST_WAIT_SHARE
    const wasWell = !this.#pauses.has(org)
    for (;;) {
      try {
        return await this.#call(org, options)
      } catch (error) {
        const pause = wasWell ? this.#pauses.peek(org) : undefined
        const restMs = (pause?.until ?? 0) - performance.now()
        // A probe is not repeated: its failure has begun the next pause. A lack of budget has begun none.
        if (pause?.code !== DOWN || restMs <= 0 || pause.until > lastAt || this.pauseOfAll !== undefined) throw error
        // A timer may be early by a part of a millisecond.
        await new Promise((resolve) => setTimeout(resolve, Math.ceil(restMs) + 1).unref())
      }
    }
  }

  async #call(org: OrgId, options: MintOptions): Promise<AccessToken> {
    const { reason = 'cold', requester } = options
    const isKnown = reason !== 'cold'
    const isTroubled = this.#admit(org, isKnown)
    const leave = await this.#queue.enter(isKnown, requester, isTroubled)
    // After a stall of this process, answers that are there already are read before the immediate runs.
    this.#timer ??= setInterval(() => setImmediate(() => this.#lookAtCalls()), LOOK_MS)
    return await new Promise((resolve, reject) => {
      const call: Call = { org, startedAt: performance.now(), isTroubled, isLate: false, resolve, reject }
      this.#calls.push(call)
      this.#source
        .mint(org, options, (breakOff) => (call.breakOff = breakOff))
        .then(this.#succeeded.bind(this, call), this.#failed.bind(this, call))
        .finally(() => {
          this.#calls.splice(this.#calls.indexOf(call), 1)
          leave()
        })
    })
  }

  /** Returns true if the call may hold its place for long. @throws {TokenError} in a pause */
  #admit(org: OrgId, isKnown: boolean): boolean {
    const now = performance.now()
    const own = this.#pauses.peek(org)
    const all = this.pauseOfAll
    if (own !== undefined && now < own.until) throw refusal(own, now)
    if (all === undefined) return own?.cause === HANGS
    // Orgs that had a token go ahead: unknown ones that always fail would make every probe, and keep up a pause of their own.
    const aheadMs = all.code === DOWN && isKnown && own === undefined ? FAILURE.longestMs : 0
    if (now < all.until - aheadMs) throw refusal(all, now)
    // If the probe brings no outcome by then, the next one goes ahead.
    this.pauseOfAll = { ...all, isProbed: true, until: now + this.#limitMs(LIMITS.troubled) }
    return true
  }

  /** The oldest of the calls that take too long go on: if the endpoint has become slow, they are the first to show it. */
  #lookAtCalls(): void {
    const mayHang = Math.floor(this.#budget.mintConcurrency * LATE_SHARE_OF_PLACES)
    for (const [older, call] of [...this.#calls].entries()) {
      const isInTheWay = older >= mayHang && this.#queue.isShortOfPlaces
      const share = call.isTroubled ? LIMITS.troubled : isInTheWay ? LIMITS.inTheWay : LIMITS.usual
      const limitMs = isInTheWay && call.isTroubled ? 0 : this.#limitMs(share)
      if (performance.now() - call.startedAt < limitMs) continue
      this.#failed(call, HANGS, isInTheWay)
      call.isLate = true
      const first = this.#calls.find(({ org }) => org === call.org)
      if (isInTheWay || older >= Math.max(1, mayHang) || call !== first) call.breakOff?.()
    }
    if (this.#calls.length > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Forgets the token that came late for one org, or those for all. */
  forget(org?: OrgId): void {
    if (org === undefined) this.#lateTokens.clear()
    else this.#lateTokens.delete(org)
  }

  /** What an answer tells counts for the calls under way, too. */
  #limitMs(share: number): number {
    return Math.max(this.#budget.mintTimeoutMs * share, this.#usualMs * LIMITS.usual)
  }

  #succeeded(call: Call, token: AccessToken): void {
    // If another call was quicker, this one may be slow by itself.
    if (call.startedAt >= this.#succeededAt) this.#usualMs = performance.now() - call.startedAt
    this.#noteWell(call)
    const calls = this.#calls.filter(({ org }) => org === call.org)
    if (calls.every(({ isLate }) => isLate)) this.#lateTokens.set(call.org, token)
    for (const each of calls) {
      each.resolve(token)
      each.isLate = true
      if (each !== call) each.breakOff?.()
    }
  }

  #noteWell(call: Call): void {
    this.#succeededAt = performance.now()
    // An empty map would get a new table, too.
    if (this.#begun.size > 0) this.#begun.clear()
    this.#pauses.delete(call.org)
    // A call that began before a limit may still succeed.
    if (this.pauseOfAll?.code !== LIMITED || this.pauseOfAll.isProbed) this.#resumeAll()
  }

  /** A call that was in the way of others says nothing about their orgs. */
  #failed(call: Call, cause: unknown, isInTheWay = false): void {
    call.reject(cause)
    if (call.isLate || !(cause instanceof TokenError)) return
    // The refusal of an org proves the credentials, and that the endpoint works.
    if (cause.code === 'org_access_refused') {
      this.#noteWell(call)
      return
    }
    const code: PauseCode = cause.code === REJECTED || cause.code === LIMITED ? cause.code : DOWN
    // An endpoint that answers a probe in another way is no longer in the same trouble.
    if (this.pauseOfAll?.isProbed && this.pauseOfAll.code !== code) this.#resumeAll()
    const all = this.pauseOfAll
    const own = this.#pauses.peek(call.org)
    const before = all?.isProbed ? all : own
    const failures = before?.code === code ? before.failures + 1 : 1
    const { firstMs, longestMs } = code === DOWN ? FAILURE : REFUSAL
    const toldMs = code === LIMITED ? (cause.retryAfterSeconds ?? 0) * 1_000 : 0
    const lengthMs = toldMs || Math.min(firstMs * 2 ** (failures - 1), longestMs) * (0.5 + Math.random() / 2)
    const now = performance.now()
    const pause = { code, cause, failures, until: now + lengthMs }
    this.#pauses.set(call.org, pause, { ttl: lengthMs + REMEMBERED.ttl })
    if (all === undefined && (own === undefined || this.#begun.has(call.org))) this.#begun.set(call.org, pause)
    // Calls that were under way when the pause began leave it as it is, unless they are told of a limit with a later end.
    const isLater = code === LIMITED && all?.code === LIMITED && pause.until > all.until
    if (all === undefined ? isInTheWay || !this.#isShared(code) : !all.isProbed && !isLater) return
    this.pauseOfAll = pause
    this.#observer.mintsPaused?.(code, lengthMs)
    this.#queue.refuseAll(refusal(pause, now))
  }

  /** True if so many calls failed in this way since the last success that it is no longer the trouble of one org. */
  #isShared(code: PauseCode): boolean {
    const { calls, orgs } = code === DOWN ? FAILURE : REFUSAL
    const pauses = [...this.#begun.values()].filter((each) => each.code === code)
    return pauses.length >= orgs && pauses.reduce((sum, { failures }) => sum + failures, 0) >= calls
  }

  #resumeAll(): void {
    if (this.pauseOfAll !== undefined) this.#observer.mintsResumed?.()
    this.pauseOfAll = undefined
  }

  /** Ends all pauses; because of a changed App secret, only those that the old one caused. */
  resume(only?: PauseCode): void {
    for (const [org, { code }] of [...this.#pauses.entries()]) if (code === (only ?? code)) this.#pauses.delete(org)
    this.#begun.clear()
    if (this.pauseOfAll?.code === (only ?? this.pauseOfAll?.code)) this.#resumeAll()
  }

  /** The pause of all orgs; without one, the latest pause of a single org. `orgs` are those whose own calls fail. */
  get status() {
    // Between two pauses the trouble goes on, unless a success of another org shows that it may have passed.
    const troubled = Array.from(this.#pauses.entries()).filter(([, { until }]) => this.#succeededAt < until)
    const pause = this.pauseOfAll ?? troubled[0]?.[1]
    if (pause === undefined) return undefined
    const leftMs = Math.max(pause.until - performance.now(), 0)
    return { ...pause, leftMs, isOfAll: pause === this.pauseOfAll, orgs: troubled.map(([org]) => org) }
  }
}

function refusal({ code, until, cause }: Pause, now: number): TokenError {
  const seconds = Math.max(1, Math.ceil((until - now) / 1_000))
  return new TokenError(code, cause.message, { retryAfterSeconds: code === REJECTED ? undefined : seconds })
}
