/**
 * Decides whether the token endpoint may be called for an org now.
 *
 * One org's trouble is its own: a 401, a limit, or a mint that failed to its end pauses that org, longer each time. All orgs are
 * paused only if the trouble is not one org's: a second org meets the same 401 or limit and no call succeeds in between, or
 * several orgs fail in a row. When a pause is over, one call goes ahead as the probe. Its outcome ends the pause or starts a
 * longer one.
 *
 * Pure: it reads the clock that it is given, and starts no timer.
 */

import type { TokenError, TokenErrorCode } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { MintNotSent, type TokenObserver } from './token-source.ts'

interface MintPausesOptions {
  readonly now: () => number
  readonly random: () => number
  readonly observer?: TokenObserver | undefined
}

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
type PauseCode = typeof REJECTED | typeof LIMITED | typeof DOWN

/** Replaced as a whole when it is extended, so that a pass names the very pause that its call probes. */
interface Pause {
  readonly code: PauseCode
  /** When the first of the pauses in a row began. */
  readonly since: number
  readonly until: number
  readonly lengthMs: number
  /** Names the cause of the failure that began it. */
  readonly hint: string | undefined
  isProbing: boolean
}

/**
 * A pause of all orgs. While the endpoint is down, orgs that have not failed and orgs that have failed probe it in turns of
 * their own: otherwise failing orgs that ask often would make every probe, and keep up a pause that only they deserve.
 */
interface PauseOfAll {
  healthy: Pause
  failing: Pause
}

/** The trouble of one org since its last success. */
interface Trouble {
  pause: Pause | undefined
  /** The number of successes of other orgs when it last failed. */
  epoch: number
  /** How often it failed again after others had succeeded. */
  outlived: number
}

/** Leave for one call. Must be handed back to `settle` or `abandon`. */
export interface MintPass {
  readonly org: OrgId
  /** The pauses that are over and whose probe this call is. */
  readonly probes: readonly Pause[]
  /** The number of successes before the call. */
  readonly epoch: number
}

interface PauseStatus {
  readonly code: TokenErrorCode
  readonly lastedMs: number
  /** The next call may be made then. */
  readonly leftMs: number
  readonly hint: string | undefined
}

/** Describes the pauses to an operator. */
export interface MintPauseStatus {
  /** The pause of all orgs. */
  readonly all: PauseStatus | undefined
  /** Orgs whose own calls fail, the latest last, with the pause of the latest. */
  readonly single: (PauseStatus & { readonly orgs: readonly OrgId[] }) | undefined
}

/** So many orgs must fail, with so many calls, and none succeed in between, before the endpoint counts as down. */
const MIN_FAILING_ORGS = 3
const MIN_FAILED_CALLS = 12
/** A call that hangs took the time of many attempts. */
const CALLS_PER_HANG = 4
/** An org that fails again after so many successes of others fails by itself, and says nothing about the endpoint. */
const MAX_OUTLIVED = 2
/** First and longest pause; each is twice the one before. The longest decides how soon a recovery is seen. */
const LENGTHS_MS: Readonly<Record<PauseCode, readonly [first: number, longest: number]>> = {
  [DOWN]: [250, 1_500],
  [LIMITED]: [1_000, 30_000],
  [REJECTED]: [1_000, 4_000],
}
/** How long after its pause an org that asks no more is told. */
const TOLD_AFTER_MS = 5 * 60_000
/** Memory is bounded: the org that failed least recently is forgotten. */
const MAX_TROUBLED_ORGS = 10_000

export class MintPauses {
  readonly #options: MintPausesOptions
  #all: PauseOfAll | undefined
  readonly #troubles = new Map<OrgId, Trouble>()
  /** Since the last success: the first org that met a 401, or a limit. */
  readonly #witnesses = new Map<PauseCode, OrgId>()
  /** Since the last answer: the orgs that failed, and the number of their calls. */
  readonly #failingOrgs = new Set<OrgId>()
  #failedCalls = 0
  #successes = 0

  constructor(options: MintPausesOptions) {
    this.#options = options
  }

  /** @throws {MintNotSent} in a pause */
  admit(org: OrgId): MintPass {
    const trouble = this.#troubles.get(org)
    const ofAll = trouble === undefined ? this.#all?.healthy : this.#all?.failing
    const probes = [ofAll, trouble?.pause].filter((pause) => pause !== undefined)
    const now = this.#options.now()
    const [closed] = probes
      .filter((pause) => pause.isProbing || now < pause.until)
      .toSorted((a, b) => b.until - a.until)
    if (closed !== undefined) throw this.#refusal(closed)
    for (const pause of probes) pause.isProbing = true
    return { org, probes, epoch: this.#successes }
  }

  /** The call was never made, or its outcome is no evidence. */
  abandon({ probes }: MintPass): void {
    for (const pause of probes) pause.isProbing = false
  }

  /**
   * The call has ended: with a token, or with `error`. A call that counted as hanging may end once more, with a success.
   * Returns the error for all who wait if a pause of all orgs begins.
   */
  settle(pass: MintPass, error?: TokenError): MintNotSent | undefined {
    this.abandon(pass)
    switch (error?.code) {
      case undefined:
      case 'org_access_refused': // proves the credentials, and that the endpoint works
        this.#succeeded(pass)
        return undefined
      case REJECTED:
      case LIMITED:
        return this.#turnedAway(pass, error, error.code)
      case 'token_response_invalid':
      case 'token_endpoint_timeout':
      case DOWN:
        return this.#failed(pass, error)
    }
  }

  /** A mint has failed to its end, with all its attempts. The org is paused. */
  gaveUp(pass: MintPass, error: TokenError): void {
    const trouble = this.#troubleOf(pass.org)
    if (trouble.pause?.code !== LIMITED) trouble.pause = this.#nextPause(trouble.pause, pass, error, DOWN)
  }

  /** The App secret has changed. Pauses because of the old secret end; a limit stays. */
  credentialsChanged(): void {
    this.#witnesses.delete(REJECTED)
    for (const [org, { pause }] of this.#troubles) if (pause?.code === REJECTED) this.#troubles.delete(org)
    if (this.#all?.healthy.code === REJECTED) this.#resumeAll()
  }

  /** Ends all pauses and limits. */
  resume(): void {
    this.#troubles.clear()
    this.#forgetEvidence()
    this.#resumeAll()
  }

  /** The reason of the pause of all orgs, if there is one. */
  get code(): PauseCode | undefined {
    return this.#all?.healthy.code
  }

  /** The orgs that are paused because of a 401. */
  get rejectedOrgs(): readonly OrgId[] {
    return Array.from(this.#troubles).flatMap(([org, { pause }]) => (pause?.code === REJECTED ? [org] : []))
  }

  /** For an operator. */
  get status(): MintPauseStatus {
    const now = this.#options.now()
    const statusOf = ({ code, since, until, hint }: Pause) => {
      return { code, lastedMs: now - since, leftMs: Math.max(until - now, 0), hint }
    }
    // Between two pauses the trouble goes on, unless a success of another org shows that it may have passed.
    const lasts = ({ pause, epoch }: Trouble) =>
      pause !== undefined && now - pause.until < (epoch === this.#successes ? TOLD_AFTER_MS : 0)
    const troubles = Array.from(this.#troubles).filter(([, trouble]) => lasts(trouble))
    const latest = troubles.at(-1)?.[1].pause
    return {
      all: this.#all && statusOf(this.#all.failing),
      single: latest && { ...statusOf(latest), orgs: troubles.map(([org]) => org) },
    }
  }

  #succeeded({ org, probes }: MintPass): void {
    this.#successes += 1
    this.#forgetEvidence()
    // A limit ends only through its own probe: a call that began before the limit may still succeed.
    const hasProbed = (pause: Pause | undefined) =>
      pause !== undefined && (pause.code !== LIMITED || probes.includes(pause))
    const own = this.#troubles.get(org)?.pause
    if (own === undefined || hasProbed(own)) this.#troubles.delete(org)
    if (hasProbed(this.#all?.healthy)) this.#resumeAll()
  }

  /** A 401 or a limit: one pauses the org, that of a second org pauses all. */
  #turnedAway(pass: MintPass, error: TokenError, code: typeof REJECTED | typeof LIMITED): MintNotSent | undefined {
    this.#forgetFailures()
    if (this.#all?.healthy.code === DOWN) this.#resumeAll() // the endpoint answers
    const trouble = this.#troubleOf(pass.org)
    trouble.pause = this.#nextPause(trouble.pause, pass, error, code)
    const witness = this.#witnesses.get(code) ?? pass.org
    this.#witnesses.set(code, witness)
    const isPaused = this.#all?.healthy.code === code
    return isPaused || witness !== pass.org ? this.#pauseAll(pass, error, code) : undefined
  }

  #failed(pass: MintPass, error: TokenError): MintNotSent | undefined {
    const trouble = this.#troubleOf(pass.org)
    if (trouble.epoch !== this.#successes) trouble.outlived += 1
    trouble.epoch = this.#successes
    const probed = pass.probes.find((pause) => pause === this.#all?.healthy || pause === this.#all?.failing)
    if (probed !== undefined) return this.#pauseAll(pass, error, DOWN)
    // A call that failed while another succeeded says nothing about the endpoint, either.
    if (trouble.outlived >= MAX_OUTLIVED || pass.epoch !== this.#successes) return undefined
    this.#failedCalls += error.code === 'token_endpoint_timeout' ? CALLS_PER_HANG : 1
    if (this.#failingOrgs.size < MIN_FAILING_ORGS) this.#failingOrgs.add(pass.org)
    const isDown = this.#failingOrgs.size >= MIN_FAILING_ORGS && this.#failedCalls >= MIN_FAILED_CALLS
    return isDown && this.#all === undefined ? this.#pauseAll(pass, error, DOWN) : undefined
  }

  #pauseAll(pass: MintPass, error: TokenError, code: PauseCode): MintNotSent | undefined {
    const before = this.#all
    const now = this.#options.now()
    const isLimit = before?.healthy.code === LIMITED
    if (isLimit && code !== LIMITED && now < before.healthy.until) return undefined
    if (code === DOWN) {
      const first = this.#nextPause(undefined, pass, error, code)
      const healthy = before?.healthy.code === DOWN ? before.healthy : { ...first, until: now }
      const failing = before?.failing.code === DOWN ? before.failing : first
      const next = (pause: Pause) => (pass.probes.includes(pause) ? this.#nextPause(pause, pass, error, code) : pause)
      this.#all = { healthy: next(healthy), failing: next(failing) }
    } else {
      const next = this.#nextPause(before?.healthy, pass, error, code)
      if (next === before?.healthy) return undefined
      this.#all = { healthy: next, failing: next }
    }
    const { failing } = this.#all
    this.#options.observer?.mintsPaused?.(code, Math.max(failing.until - now, 0))
    return this.#refusal(failing)
  }

  /**
   * The pause that a call begins, after the pause `before`: twice as long if the call was the probe of that one. Calls that
   * were under way when a pause began leave it as it is, unless they were told of a later end.
   */
  #nextPause(before: Pause | undefined, pass: MintPass, error: TokenError, code: PauseCode): Pause {
    const now = this.#options.now()
    const [firstMs, longestMs] = LENGTHS_MS[code]
    const toldMs = code === LIMITED ? (error.retryAfterSeconds ?? 0) * 1_000 : 0
    const { hint } = error
    let [lengthMs, since] = [firstMs, now]
    if (before?.code === code) {
      const isProbe = pass.probes.includes(before)
      if (!isProbe && (code !== LIMITED || now + toldMs <= before.until)) return before
      lengthMs = isProbe ? Math.min(before.lengthMs * 2, longestMs) : before.lengthMs
      since = before.since
    }
    const until = now + (toldMs > 0 ? toldMs : lengthMs * (0.75 + this.#options.random() / 4))
    return { code, since, until, lengthMs, hint, isProbing: false }
  }

  #resumeAll(): void {
    if (this.#all === undefined) return
    this.#all = undefined
    this.#options.observer?.mintsResumed?.()
  }

  #forgetEvidence(): void {
    this.#witnesses.clear()
    this.#forgetFailures()
  }

  #forgetFailures(): void {
    this.#failingOrgs.clear()
    this.#failedCalls = 0
  }

  #troubleOf(org: OrgId): Trouble {
    const trouble = this.#troubles.get(org) ?? { pause: undefined, epoch: this.#successes, outlived: 0 }
    this.#troubles.delete(org)
    this.#troubles.set(org, trouble)
    if (this.#troubles.size > MAX_TROUBLED_ORGS) {
      const [oldest = org] = this.#troubles.keys()
      this.#troubles.delete(oldest)
    }
    return trouble
  }

  #refusal({ code, until, hint }: Pause): MintNotSent {
    const retryAfterSeconds = Math.max(1, Math.ceil((until - this.#options.now()) / 1_000))
    switch (code) {
      case DOWN:
        return new MintNotSent(code, 'not called: it has failed repeatedly', { retryAfterSeconds, hint })
      case LIMITED:
        return new MintNotSent(code, 'not called: it asked for no calls for some time', { retryAfterSeconds })
      case REJECTED:
        return new MintNotSent(code, 'not called: it rejects the App credentials')
    }
  }
}
