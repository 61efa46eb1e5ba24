/**
 * Decides whether the token endpoint may be called for an org now.
 *
 * One org's trouble is its own: a 401, a limit or a failure pauses that org, longer each time. All orgs are paused only if the
 * trouble is not one org's: a second org meets the same 401 or limit, or several orgs fail in a row, and no call succeeds in
 * between. When a pause is over, one call goes ahead as the probe. Its outcome ends the pause or starts a longer one; if that
 * takes longer than a call should, the next one goes ahead.
 *
 * Pure: it reads the clock that it is given, and starts no timer.
 */

import { LRUCache } from 'lru-cache'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { TokenObserver } from './token-source.ts'

export interface MintPausesOptions {
  readonly now: () => number
  readonly random: () => number
  readonly observer?: TokenObserver | undefined
  /** A pause of all begins: all who wait for a call wait in vain. */
  readonly refuseWaiting?: (error: TokenError) => void
}

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
type PauseCode = typeof REJECTED | typeof LIMITED | typeof DOWN

/** Of one org or of all. Replaced as a whole when a failure extends it, so that a pass names the very pause that its call probes. */
interface Pause {
  readonly code: PauseCode
  /** When the first of the calls began that failed in a row. */
  readonly since: number
  readonly lengthMs: number
  /** Names the cause of the failure that began it. */
  readonly hint: string
  /** The next call after this is the probe, and moves it on. */
  until: number
}

/** Leave for one call. Goes back to `ended` or `abandon`. */
export interface MintPass {
  readonly org: OrgId
  readonly admittedAt: number
  /** The pauses that are over and whose probe this call is. */
  readonly probes: readonly Pause[]
  /** These have been moved on to this instant. */
  readonly probesUntil: number
}

/**
 * Each pause is twice the one before; the longest decides how soon a recovery is seen. All orgs are paused after so many failed
 * calls of so many orgs in a row.
 */
const FAILURE = { firstMs: 150, longestMs: 800, calls: 12, orgs: 3 }
/** A 401, or a limit of unknown length. */
const REFUSAL = { firstMs: 1_000, longestMs: 4_000, calls: 2, orgs: 2 }
/** A call that hangs took the time of several. */
const CALLS_PER_HANG = 4
/** While calls of others have succeeded so lately, an org that failed before them fails by itself. */
const LATELY_MS = 10_000
/** So long after its pause, the trouble of an org that asks no more is forgotten. */
const REMEMBERED_MS = 5 * 60_000
const MAX_TROUBLED_ORGS = 10_000

export class MintPauses {
  readonly #options: MintPausesOptions
  readonly #orgs: LRUCache<OrgId, Pause>
  /**
   * The pauses of all, if there are any: of the orgs that have failed, and last of those that have not. While the endpoint is
   * down, each group probes it in turns of its own: otherwise failing orgs that ask often would make every probe, and keep up
   * a pause that only they deserve. In other trouble, one pause is for both.
   */
  #all: readonly Pause[] = []
  /** The orgs of the last calls that failed in each way, since the last success. */
  readonly #failed = new Map<PauseCode, readonly OrgId[]>()
  #succeededAt = Number.NEGATIVE_INFINITY

  constructor(options: MintPausesOptions) {
    this.#options = options
    this.#orgs = new LRUCache({ max: MAX_TROUBLED_ORGS, perf: options, ttlResolution: 0 })
  }

  /**
   * If the call is a probe, the next one may go ahead after `probeMs`, or when this one has ended.
   * @throws {TokenError} in a pause
   */
  admit(org: OrgId, probeMs: number): MintPass {
    const admittedAt = this.#options.now()
    const own = this.#orgs.peek(org)
    const ofAll = this.#all.at(own === undefined ? -1 : 0)
    const probes = [ofAll, own].filter((pause) => pause !== undefined).toSorted((a, b) => b.until - a.until)
    const [last] = probes
    if (last !== undefined && admittedAt < last.until) throw this.#refusal(last)
    const probesUntil = admittedAt + probeMs
    for (const pause of probes) pause.until = probesUntil
    return { org, admittedAt, probes, probesUntil }
  }

  /** The call was not made, or was not waited for: the next one may be the probe. */
  abandon({ admittedAt, probes, probesUntil }: MintPass): void {
    for (const pause of probes) if (pause.until === probesUntil) pause.until = admittedAt
  }

  /**
   * The call has ended: with a token, or with `error`. It may end twice: first because it hangs. A call that was broken off says
   * nothing about other orgs.
   */
  ended(pass: MintPass, error?: TokenError, isBrokenOff = false): undefined {
    // A refusal of the org proves the credentials, and that the endpoint works.
    if (error === undefined || error.code === 'org_access_refused') return this.#succeeded(pass)
    const code = error.code === REJECTED || error.code === LIMITED ? error.code : DOWN
    if (code !== DOWN && this.code === DOWN) this.#resumeAll() // the endpoint answers
    const now = this.#options.now()
    const next = (before?: Pause) => this.#next(before, pass, error, code)
    const own = next(this.#orgs.peek(pass.org))
    this.#orgs.set(pass.org, own, { ttl: own.until - now + REMEMBERED_MS })
    const isAlone = own.since < this.#succeededAt && now - this.#succeededAt <= LATELY_MS
    const isShared = !isBrokenOff && !isAlone && this.#isShared(pass.org, error, code)
    const isProbeOfAll = this.#all.some((pause) => pass.probes.includes(pause))
    if (!isShared && !isProbeOfAll) return
    const [first = next(), ...others] = this.#all.map(next)
    if (this.#all.length === 0 && code === DOWN) others.push({ ...first, until: now })
    if (this.#all[0] === first && this.#all[1] === others[0]) return
    this.#all = [first, ...others]
    this.#options.observer?.mintsPaused?.(code, Math.max(first.until - now, 0))
    this.#options.refuseWaiting?.(this.#refusal(first))
  }

  /** Ends all pauses; because of a changed App secret, only those that the old one caused. */
  resume(only?: PauseCode): void {
    for (const [org, { code }] of [...this.#orgs.entries()]) if (code === (only ?? code)) this.#orgs.delete(org)
    this.#failed.clear()
    if (this.code === (only ?? this.code)) this.#resumeAll()
  }

  /** The reason of the pause of all orgs, if there is one. */
  get code(): PauseCode | undefined {
    return this.#all[0]?.code
  }

  /** How long the org's own pause lasts from now. Undefined if its calls do not fail, or not in a way that may pass. */
  retryInMs(org: OrgId): number | undefined {
    const own = this.#orgs.peek(org)
    return own?.code === DOWN ? Math.max(0, own.until - this.#options.now()) : undefined
  }

  /**
   * The pause of all orgs; without one, the latest pause of a single org. The next call may be made after `leftMs`; `orgs` are
   * those whose own calls fail, the latest first.
   */
  get status() {
    // Between two pauses the trouble goes on, unless a success of another org shows that it may have passed.
    const troubled = Array.from(this.#orgs.entries()).filter(([, { until }]) => this.#succeededAt < until)
    const pause = this.#all[0] ?? troubled[0]?.[1]
    if (pause === undefined) return undefined
    const { code, until, hint } = pause
    const leftMs = Math.max(until - this.#options.now(), 0)
    return { code, leftMs, hint, isOfAll: this.code !== undefined, orgs: troubled.map(([org]) => org) }
  }

  #succeeded({ org, probes }: MintPass): undefined {
    this.#succeededAt = this.#options.now()
    this.#failed.clear()
    // A limit ends only through its own probe: a call that began before the limit may still succeed.
    const isOver = (pause: Pause | undefined) => pause?.code !== LIMITED || probes.includes(pause)
    if (isOver(this.#orgs.peek(org))) this.#orgs.delete(org)
    if (isOver(this.#all[0])) this.#resumeAll()
  }

  /** True if so many calls in a row failed in this way that it is no longer the trouble of one org. */
  #isShared(org: OrgId, error: TokenError, code: PauseCode): boolean {
    const { calls, orgs } = code === DOWN ? FAILURE : REFUSAL
    const weight = error.code === 'token_endpoint_timeout' ? CALLS_PER_HANG : 1
    const failed = [...(this.#failed.get(code) ?? []), ...Array<OrgId>(weight).fill(org)].slice(-calls)
    this.#failed.set(code, failed)
    return failed.length === calls && new Set(failed).size >= orgs
  }

  /**
   * The pause that a failed call begins, after the pause `before`: twice as long if the call was the probe of that one. Calls
   * that were under way when a pause began leave it as it is, unless they were told of a limit with a later end.
   */
  #next(before: Pause | undefined, { admittedAt, probes }: MintPass, error: TokenError, code: PauseCode): Pause {
    const now = this.#options.now()
    const { firstMs, longestMs } = code === DOWN ? FAILURE : REFUSAL
    const isProbe = before !== undefined && probes.includes(before)
    const lengthMs = isProbe && before.code === code ? Math.min(before.lengthMs * 2, longestMs) : firstMs
    const toldMs = code === LIMITED ? (error.retryAfterSeconds ?? 0) * 1_000 : 0
    const until = now + (toldMs > 0 ? toldMs : lengthMs * (0.5 + this.#options.random() / 2))
    if (before !== undefined && !isProbe && (code !== LIMITED || until <= before.until)) return before
    return { code, since: before?.since ?? admittedAt, until, lengthMs, hint: error.message }
  }

  #resumeAll(): void {
    if (this.#all.length > 0) this.#options.observer?.mintsResumed?.()
    this.#all = []
  }

  #refusal({ code, until, hint }: Pause): TokenError {
    const seconds = Math.max(1, Math.ceil((until - this.#options.now()) / 1_000))
    return new TokenError(code, hint, { retryAfterSeconds: code === REJECTED ? undefined : seconds })
  }
}
