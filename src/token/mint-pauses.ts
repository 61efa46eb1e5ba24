/**
 * Decides whether the token endpoint may be called for an org now.
 *
 * One org's trouble is its own: a 401, a limit or a failure pauses that org, longer each time. All orgs are paused only if the
 * trouble is not one org's: a second org meets the same 401 or limit, or several orgs fail in a row, and no call succeeds in
 * between. When a pause is over, one call goes ahead as the probe. Its outcome ends the pause or starts a longer one.
 *
 * Pure: it reads the clock that it is given, and starts no timer.
 */

import { LRUCache } from 'lru-cache'
import type { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { MintNotSent, type TokenObserver } from './token-source.ts'

export interface MintPausesOptions {
  readonly now: () => number
  readonly random: () => number
  readonly observer?: TokenObserver | undefined
}

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
type PauseCode = typeof REJECTED | typeof LIMITED | typeof DOWN

/** Of one org or of all. Replaced as a whole when it is extended, so that a pass names the very pause that its call probes. */
interface Pause {
  readonly code: PauseCode
  /** When the trouble began: the first of the pauses in a row. */
  readonly since: number
  readonly until: number
  readonly lengthMs: number
  /** Names the cause of the failure that began it. */
  readonly hint: string | undefined
  isProbing: boolean
}

/** Leave for one call. Must be handed back to `settle` or `abandon`. */
export interface MintPass {
  readonly org: OrgId
  readonly admittedAt: number
  /** The pauses that are over and whose probe this call is. */
  readonly probes: readonly Pause[]
  /** All orgs wait for the outcome. */
  readonly isProbeOfAll: boolean
}

/** Each pause is twice the one before. The longest decides how soon a recovery is seen. */
const SHORT_MS = { first: 150, longest: 800 }
/** After a 401, or a limit of unknown length. */
const LONG_MS = { first: 1_000, longest: 4_000 }
/** All orgs are paused after so many failed calls of so many orgs in a row; a call that hangs took the time of several. */
const FAILED_CALLS = 12
const FAILED_ORGS = 3
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
   * The pause of all, for orgs that have failed and for those that have not. While the endpoint is down, each group probes it in
   * turns of its own: otherwise failing orgs that ask often would make every probe, and keep up a pause that only they deserve.
   */
  #all: { readonly ofFailing: Pause; readonly ofHealthy: Pause } | undefined
  /** The orgs of the last calls that failed in each way, since the last success. */
  readonly #failed = new Map<PauseCode, readonly OrgId[]>()
  #succeededAt = Number.NEGATIVE_INFINITY

  constructor(options: MintPausesOptions) {
    this.#options = options
    this.#orgs = new LRUCache({ max: MAX_TROUBLED_ORGS, perf: options, ttlResolution: 0 })
  }

  /** @throws {MintNotSent} in a pause */
  admit(org: OrgId): MintPass {
    const now = this.#options.now()
    const own = this.#orgs.peek(org)
    const ofAll = own === undefined ? this.#all?.ofHealthy : this.#all?.ofFailing
    const probes = [ofAll, own].filter((pause) => pause !== undefined).toSorted((a, b) => b.until - a.until)
    const closed = probes.find((pause) => pause.isProbing || now < pause.until)
    if (closed !== undefined) throw this.#refusal(closed)
    for (const pause of probes) pause.isProbing = true
    return { org, admittedAt: now, probes, isProbeOfAll: ofAll !== undefined }
  }

  /** The call was never made, or its outcome is no evidence. */
  abandon({ probes }: MintPass): void {
    for (const pause of probes) pause.isProbing = false
  }

  /**
   * The call has ended: with a token, or with `error`. A call that counted as hanging may end once more. A call
   * that was broken off says nothing about other orgs. Returns the error for all who wait if a pause of all orgs begins.
   */
  settle(pass: MintPass, error?: TokenError, isBrokenOff = false): MintNotSent | undefined {
    this.abandon(pass)
    // A refusal of the org proves the credentials, and that the endpoint works.
    if (error === undefined || error.code === 'org_access_refused') return this.#succeeded(pass)
    const code = error.code === REJECTED || error.code === LIMITED ? error.code : DOWN
    if (code !== DOWN && this.code === DOWN) this.#resumeAll() // the endpoint answers
    const now = this.#options.now()
    const own = this.#next(this.#orgs.peek(pass.org), pass, error, code)
    this.#orgs.set(pass.org, own, { ttl: own.until - now + REMEMBERED_MS })
    const isOwn = pass.admittedAt < this.#succeededAt || own.since < this.#succeededAt
    const isEvidence = !isBrokenOff && (!isOwn || now - this.#succeededAt > LATELY_MS)
    const isShared = isEvidence && this.#isShared(pass.org, error, code)
    const hasProbedAll = pass.isProbeOfAll && this.#all !== undefined
    return isShared || hasProbedAll ? this.#pauseAll(pass, error, code) : undefined
  }

  /** The App secret has changed. Pauses because of the old secret end; a limit stays. */
  credentialsChanged(): void {
    this.#failed.delete(REJECTED)
    for (const [org, { code }] of [...this.#orgs.entries()]) if (code === REJECTED) this.#orgs.delete(org)
    if (this.code === REJECTED) this.#resumeAll()
  }

  resume(): void {
    this.#orgs.clear()
    this.#failed.clear()
    this.#resumeAll()
  }

  /** The reason of the pause of all orgs, if there is one. */
  get code(): PauseCode | undefined {
    return this.#all?.ofFailing.code
  }

  /** How long the org's own pause lasts from now. */
  leftMs(org: OrgId): number {
    return Math.max(0, (this.#orgs.peek(org)?.until ?? 0) - this.#options.now())
  }

  /**
   * The pause of all orgs; without one, the latest pause of a single org. The next call may be made after `leftMs`; `orgs` are
   * those whose own calls fail, the latest first.
   */
  get status() {
    const now = this.#options.now()
    // Between two pauses the trouble goes on, unless a success of another org shows that it may have passed.
    const lasts = ({ until }: Pause) => now < until || this.#succeededAt < until
    const troubled = Array.from(this.#orgs.entries()).filter(([, pause]) => lasts(pause))
    const pause = this.#all?.ofFailing ?? troubled[0]?.[1]
    if (pause === undefined) return undefined
    const { code, until, hint } = pause
    const orgs = troubled.map(([org]) => org)
    return { code, leftMs: Math.max(until - now, 0), hint, isOfAll: this.#all !== undefined, orgs }
  }

  #succeeded({ org, probes }: MintPass): undefined {
    this.#succeededAt = this.#options.now()
    this.#failed.clear()
    // A limit ends only through its own probe: a call that began before the limit may still succeed.
    const isOver = (pause: Pause | undefined) => pause?.code !== LIMITED || probes.includes(pause)
    if (isOver(this.#orgs.peek(org))) this.#orgs.delete(org)
    if (isOver(this.#all?.ofFailing)) this.#resumeAll()
  }

  /** True if so many calls in a row failed in this way that it is no longer the trouble of one org. */
  #isShared(org: OrgId, error: TokenError, code: PauseCode): boolean {
    const weight = error.code === 'token_endpoint_timeout' ? CALLS_PER_HANG : 1
    const orgs = [...(this.#failed.get(code) ?? []), ...Array<OrgId>(weight).fill(org)].slice(-FAILED_CALLS)
    this.#failed.set(code, orgs)
    const distinct = new Set(orgs).size
    return code === DOWN ? orgs.length === FAILED_CALLS && distinct >= FAILED_ORGS : distinct > 1
  }

  #pauseAll(pass: MintPass, error: TokenError, code: PauseCode): MintNotSent | undefined {
    const before = this.#all
    const ofFailing = this.#next(before?.ofFailing, pass, error, code)
    let ofHealthy = ofFailing
    if (before === undefined && code === DOWN) ofHealthy = { ...ofFailing, until: this.#options.now() }
    else if (before?.ofHealthy !== before?.ofFailing) ofHealthy = this.#next(before?.ofHealthy, pass, error, code)
    if (before?.ofFailing === ofFailing && before.ofHealthy === ofHealthy) return undefined
    this.#all = { ofFailing, ofHealthy }
    this.#options.observer?.mintsPaused?.(code, Math.max(ofFailing.until - this.#options.now(), 0))
    return this.#refusal(ofFailing)
  }

  /**
   * The pause that a failed call begins, after the pause `before`: twice as long if the call was the probe of that one. Calls
   * that were under way when a pause began leave it as it is, unless they were told of a limit with a later end.
   */
  #next(before: Pause | undefined, { probes }: MintPass, error: TokenError, code: PauseCode): Pause {
    const now = this.#options.now()
    const { first, longest } = code === DOWN ? SHORT_MS : LONG_MS
    const isProbe = before !== undefined && probes.includes(before)
    const lengthMs = isProbe && before.code === code ? Math.min(before.lengthMs * 2, longest) : first
    const toldMs = code === LIMITED ? (error.retryAfterSeconds ?? 0) * 1_000 : 0
    const until = now + (toldMs > 0 ? toldMs : lengthMs * (0.5 + this.#options.random() / 2))
    if (before !== undefined && !isProbe && (code !== LIMITED || until <= before.until)) return before
    return { code, since: before?.since ?? now, until, lengthMs, hint: error.hint, isProbing: false }
  }

  #resumeAll(): void {
    if (this.#all !== undefined) this.#options.observer?.mintsResumed?.()
    this.#all = undefined
  }

  #refusal({ code, until, hint }: Pause): MintNotSent {
    const seconds = Math.max(1, Math.ceil((until - this.#options.now()) / 1_000))
    return new MintNotSent(code, 'not called, in a pause', {
      retryAfterSeconds: code === REJECTED ? undefined : seconds,
      hint,
    })
  }
}
