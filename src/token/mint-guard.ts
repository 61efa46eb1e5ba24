/**
 * Stands between the cache and the token endpoint, so that neither trouble there nor a flood here becomes a storm of mints.
 *
 * A mint is admitted unless there is a pause, waits for its turn in the budget, and calls the endpoint. After a failure that may
 * pass, it begins again while its time lasts. A failure pauses its org, longer each time. All orgs are paused if several met the
 * same trouble since the last success. Then one call is the probe: its outcome ends the pause or starts a longer one.
 *
 * A call may take twice `mintTimeout`, so that its token serves the next request. While another org waits for its place, it may
 * take `mintTimeout`. Then it is broken off, and counts as a failure.
 */

import { LRUCache } from 'lru-cache'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../org-id.ts'
import { LONGEST_WAIT_SHARE, type MintBudget, MintQueue } from './mint-queue.ts'
import type { AccessToken, MintOptions, TokenObserver, TokenSource } from './token-source.ts'

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'

const CODES = { credentials: REJECTED, limit: LIMITED, failure: DOWN, refusal: undefined } as const

interface Pause {
  readonly code: typeof REJECTED | typeof LIMITED | typeof DOWN
  readonly cause: TokenError
  readonly failuresInARow: number
  /** When the first failed call began. If that was before the last success, the trouble is the org's own. */
  readonly beganAt: number
  /** When the last failed. A call begun later, in a pause of all orgs, is a probe. */
  readonly failedAt: number
  readonly until: number
}

interface Call {
  readonly org: OrgId
  readonly startedAt: number
  /** It is a probe, or the last call for its org took too long: it has less time, so that a recovery is seen soon. */
  readonly isTroubled: boolean
  /** Its outcome is known. */
  isOver: boolean
  breakOff?: () => void
  readonly resolve: (token: AccessToken) => void
  readonly reject: (error: unknown) => void
}

/** Each pause is twice as long as the one before. All orgs are paused once so many calls of so many orgs have failed in a row. */
const FAILURE = { firstMs: 150, longestMs: 800, calls: 12, orgs: 3 }
/** A 401, or a limit of unknown length. */
const REFUSAL = { firstMs: 1_000, longestMs: 4_000, calls: 2, orgs: 2 }
/** The longest call, as a share of `mintTimeout`: alone, and while another org waits for its place. */
const LIMITS = { usual: [2, 1], troubled: [1 / 2, 0] } as const
const LOOK_EVERY_MS = 50
const HANGS = new TokenError(DOWN, 'The token endpoint takes calls, but does not answer in time.')

export class MintGuard implements TokenSource {
  readonly #source: TokenSource
  readonly #observer: TokenObserver
  readonly #queue: MintQueue
  /** Under way, the oldest first. */
  readonly #calls: Call[] = []
  /** The trouble of an org that asks no more is forgotten, later than the longest pause ends. */
  readonly #pauses = new LRUCache<OrgId, Pause>({ ttl: 10 * 60_000, max: 10_000, ttlResolution: 0 })
  pauseOfAll: Pause | undefined
  #succeededAt = Number.NEGATIVE_INFINITY
  // After a stall of this process, answers that are there already are read before the immediate runs.
  readonly #timer = setTimeout(() => setImmediate(() => this.#lookAtCalls()), LOOK_EVERY_MS).unref()

  constructor(budget: MintBudget, source: TokenSource, observer: TokenObserver = {}) {
    this.#source = source
    this.#observer = observer
    this.#queue = new MintQueue(budget)
  }

  async mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    // An org that was in trouble before gets one call.
    const lastAt = this.#pauses.has(org) ? 0 : performance.now() + this.#queue.budget.mintTimeoutMs * LONGEST_WAIT_SHARE
    for (;;) {
      try {
        return await this.#call(org, options)
      } catch (error) {
        const pause = this.#pauses.peek(org)
        const restMs = (pause?.until ?? 0) - performance.now()
        // A probe is not repeated: its failure has begun the next pause. A lack of budget begins none.
        if (pause?.code !== DOWN || restMs <= 0 || pause.until > lastAt || this.pauseOfAll !== undefined) throw error
        // A timer may be early by a part of a millisecond.
        await new Promise((resolve) => setTimeout(resolve, Math.ceil(restMs) + 1).unref())
      }
    }
  }

  async #call(org: OrgId, options: MintOptions): Promise<AccessToken> {
    const isKnown = options.reason !== undefined && options.reason !== 'cold'
    const own = this.#pauses.peek(org)
    const all = this.pauseOfAll
    if (own !== undefined && performance.now() < own.until) throw refusal(own)
    if (all !== undefined) {
      // Orgs that had a token go ahead, because unknown ones may fail for ever, and each failed probe makes the pause longer.
      const aheadMs = all.code === DOWN && isKnown && own === undefined ? FAILURE.longestMs : 0
      if (performance.now() < all.until - aheadMs) throw refusal(all)
      // If the probe brings no outcome by then, the next one goes ahead.
      const until = performance.now() + this.#queue.budget.mintTimeoutMs * LIMITS.troubled[0]
      this.pauseOfAll = { ...all, until }
    }
    const isTroubled = all !== undefined || own?.cause === HANGS
    await this.#queue.enter(isKnown, options.requester, isTroubled)
    return await new Promise((resolve, reject) => {
      const call: Call = { org, startedAt: performance.now(), isTroubled, isOver: false, resolve, reject }
      if (this.#calls.push(call) === 1) this.#timer.refresh()
      this.#source
        .mint(org, options, (breakOff) => (call.breakOff = breakOff))
        .then(this.#answered.bind(this, call), this.#failed.bind(this, call))
        .finally(() => {
          this.#calls.splice(this.#calls.indexOf(call), 1)
          this.#queue.leave()
        })
    })
  }

  /** Breaks off the calls that take too long, the oldest first. */
  #lookAtCalls(): void {
    let { missingPlaces } = this.#queue
    for (const call of [...this.#calls]) {
      const [alone, inTheWay] = call.isTroubled ? LIMITS.troubled : LIMITS.usual
      const isInTheWay = missingPlaces > 0
      const limitMs = this.#queue.budget.mintTimeoutMs * (isInTheWay ? inTheWay : alone)
      if (performance.now() - call.startedAt < limitMs) continue
      if (isInTheWay) missingPlaces -= 1
      this.#failed(call, HANGS, isInTheWay)
      call.breakOff?.()
    }
    if (this.#calls.length > 0) this.#timer.refresh()
  }

  /** The endpoint works, and has accepted the App: also if it refuses the org, and there is no token. */
  #answered(call: Call, token?: AccessToken): void {
    call.isOver = true
    this.#succeededAt = performance.now()
    this.#pauses.delete(call.org)
    // A call that began before a limit may still succeed.
    if (this.pauseOfAll?.code !== LIMITED || call.startedAt > this.pauseOfAll.failedAt) this.#resumeAll()
    if (token !== undefined) call.resolve(token)
  }

  /** A call that was in the way of others says nothing about other orgs. */
  #failed(call: Call, cause: unknown, isInTheWay = false): void {
    if (call.isOver) return
    call.isOver = true
    call.reject(cause)
    if (!(cause instanceof TokenError)) return
    if (cause.trouble === 'refusal') {
      this.#answered(call)
      return
    }
    const code: Pause['code'] = CODES[cause.trouble] ?? DOWN
    const isProbe = this.pauseOfAll !== undefined && call.startedAt > this.pauseOfAll.failedAt
    // An endpoint that answers a probe in another way is no longer in the same trouble.
    if (isProbe && this.pauseOfAll?.code !== code) this.#resumeAll()
    const all = this.pauseOfAll
    const own = this.#pauses.peek(call.org)
    const before = isProbe ? all : own
    const failuresInARow = before?.code === code ? before.failuresInARow + 1 : 1
    const { firstMs, longestMs, calls, orgs } = code === DOWN ? FAILURE : REFUSAL
    const toldMs = code === LIMITED ? (cause.retryAfterSeconds ?? 0) * 1_000 : 0
    const lengthMs = toldMs || Math.min(firstMs * 2 ** (failuresInARow - 1), longestMs) * (0.5 + Math.random() / 2)
    const beganAt = own?.beganAt ?? (isInTheWay ? Number.NEGATIVE_INFINITY : call.startedAt)
    const failedAt = performance.now()
    const pause = { code, cause, failuresInARow, beganAt, failedAt, until: failedAt + lengthMs }
    this.#pauses.set(call.org, pause)
    const alike: Pause[] = []
    // The orgs that failed last come first, and there may be ten thousand.
    for (const each of this.#pauses.values()) {
      if (each.failedAt < this.#succeededAt || alike.length === calls) break
      if (each.code === code && each.beganAt > this.#succeededAt) alike.push(each)
    }
    const isShared = alike.length >= orgs && alike.reduce((sum, each) => sum + each.failuresInARow, 0) >= calls
    // Calls that were under way when the pause began leave it as it is, unless they are told of a limit with a later end.
    const isLater = code === LIMITED && all?.code === LIMITED && pause.until > all.until
    if (all === undefined ? !isShared : !isProbe && !isLater) return
    this.pauseOfAll = pause
    this.#observer.mintsPaused?.(code, lengthMs)
    this.#queue.refuseAll(refusal(pause))
  }

  #resumeAll(): void {
    if (this.pauseOfAll !== undefined) this.#observer.mintsResumed?.()
    this.pauseOfAll = undefined
  }

  /** Ends all pauses; because of a changed App secret, only those that the old one caused. */
  resume(only?: Pause['code']): void {
    for (const [org, { code }] of [...this.#pauses.entries()]) if (code === (only ?? code)) this.#pauses.delete(org)
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

/** With the code of the trouble that caused the pause. */
function refusal({ code, until, cause }: Pause): TokenError {
  const seconds = Math.max(1, Math.ceil((until - performance.now()) / 1_000))
  const retryAfterSeconds = code === REJECTED ? undefined : seconds
  const { tokenEndpointStatus, trouble, isOfMinter } = cause
  return new TokenError(cause.code, cause.message, { retryAfterSeconds, tokenEndpointStatus, trouble, isOfMinter })
}
