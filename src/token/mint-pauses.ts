/**
 * Decides whether the token endpoint may be called for an org now.
 *
 * One org's trouble is its own: a 401, a 429 or repeated failures pause that org. All orgs are paused only if the trouble is
 * not one org's: a second org meets the same 401 or 429 and none succeeds in between, or most of the orgs that were heard of
 * lately fail. When a pause is over, one call goes ahead as the probe. Its outcome ends the pause or starts a longer one.
 *
 * Pure: it reads the clock that it is given, and starts no timer.
 */

import type { TokenError, TokenErrorCode } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { MintNotSent, type TokenObserver } from './token-source.ts'

interface MintPausesOptions {
  readonly now: () => number
  readonly random: () => number
  /** An outcome counts for this time in the decision whether most orgs fail. */
  readonly windowMs: number
  readonly observer?: TokenObserver | undefined
  /** The endpoint wants no call for any org before `untilMs`. */
  readonly onLimited?: ((untilMs: number) => void) | undefined
}

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
const TIMEOUT = 'token_endpoint_timeout'
type PauseCode = typeof REJECTED | typeof LIMITED | typeof DOWN

/** Replaced as a whole when it is extended, so that a pass names the very pause that its call probes. */
interface Pause {
  readonly code: PauseCode
  readonly lengthMs: number
  /** When the first of the pauses in a row began. */
  readonly since: number
  readonly until: number
  /** The call that began it got no answer in time. */
  readonly hangs: boolean
  /** Names the cause of the failure that began it. */
  readonly hint: string | undefined
  isProbing: boolean
  /** An org that has not failed was refused in this pause. */
  isAwaited: boolean
}

/** Describes the pauses to an operator. */
export interface MintPauseStatus {
  /** The pause of all orgs. It began `lastedMs` ago, and the next call may be made in `leftMs`. */
  readonly all:
    | {
        readonly code: TokenErrorCode
        readonly lastedMs: number
        readonly leftMs: number
        readonly hint: string | undefined
      }
    | undefined
  /** Orgs that are paused because of their own trouble. */
  readonly pausedOrgs: number
}

/** Leave for one call. Must be handed back to `settle`, `gaveWay` or `abandon`. */
export interface MintPass {
  readonly org: OrgId
  /** The pauses that are over and whose probe this call is. */
  readonly probes: readonly Pause[]
}

/** The failures of one org since its last success. */
interface Trouble {
  /** Failed calls in a row. */
  failures: number
  /** Its last call got no answer in time. */
  hangs: boolean
  pause: Pause | undefined
  /** The endpoint was down, a call for some org has succeeded since, and this org still fails: it fails by itself. */
  hasOutlivedOutage: boolean
}

/** Failures of one org in a row after which it is paused. */
const MAX_FAILURES = 5
/** At least so many orgs must fail, with so many failed calls among them, before the endpoint counts as down. */
const MIN_FAILING_ORGS = 3
const MIN_FAILED_CALLS = 5
/** First and longest pause; each is twice the one before. The longest for `DOWN` decides how soon a recovery is seen. */
const LENGTHS_MS: Readonly<Record<PauseCode, readonly [first: number, longest: number]>> = {
  [DOWN]: [250, 1_500],
  [LIMITED]: [1_000, 30_000],
  [REJECTED]: [1_000, 60_000],
}
/** For this share of a pause's length, only orgs that have not failed may probe it. See `probedFrom`. */
const HEAD_START_SHARE = 1 / 3
/** Memory is bounded: the org that was heard of least recently is forgotten. */
const MAX_TROUBLED_ORGS = 10_000
const MAX_HEARD_ORGS = 256

export class MintPauses {
  readonly #options: MintPausesOptions
  /** Pauses of all orgs, one for each reason, so that another failure does not end a limit. */
  readonly #all = new Map<PauseCode, Pause>()
  readonly #troubles = new Map<OrgId, Trouble>()
  /** The org that met a 401 or a 429 first since the last success. */
  readonly #witnesses = new Map<PauseCode, OrgId>()
  /** When the last call of an org ended; the latest at the end. */
  readonly #heardAt = new Map<OrgId, number>()

  constructor(options: MintPausesOptions) {
    this.#options = options
  }

  /** @throws {MintNotSent} in a pause */
  admit(org: OrgId): MintPass {
    const pauses = this.#pausesOf(org)
    const now = this.#options.now()
    const hasFailed = this.#troubles.has(org)
    const closed = pauses.filter((pause) => pause.isProbing || now < probedFrom(pause, hasFailed))
    if (!hasFailed) for (const pause of closed) pause.isAwaited = true
    this.#refuseIfAny(closed)
    for (const pause of pauses) pause.isProbing = true
    return { org, probes: pauses }
  }

  /** For a pass whose call had to wait. @throws {MintNotSent} if a pause has begun since */
  confirm(pass: MintPass): void {
    this.#refuseIfAny(this.#pausesOf(pass.org).filter((pause) => !pass.probes.includes(pause)))
  }

  /** The call was never made, or its outcome is no evidence. */
  abandon(pass: MintPass): void {
    for (const pause of pass.probes) pause.isProbing = false
  }

  /** The call was broken off early in favour of other orgs. */
  gaveWay(pass: MintPass): void {
    this.abandon(pass)
    this.#troubleOf(pass.org).hangs = true
  }

  /** The call has ended: with a token, or with `error`. Returns the error for all who wait if a pause of all orgs begins. */
  settle(pass: MintPass, error?: TokenError): MintNotSent | undefined {
    this.abandon(pass)
    const { org } = pass
    switch (error?.code) {
      case undefined:
      case 'org_access_refused': // proves the credentials, and that the endpoint works
        this.#witnesses.clear()
        this.#forgetTrouble(pass)
        this.#endForAll(pass, [REJECTED, LIMITED, DOWN])
        this.#hear(org)
        return undefined
      case REJECTED:
        this.#endForAll(pass, [LIMITED, DOWN])
        this.#hear(org)
        return this.#turnedAway(pass, error, REJECTED)
      case LIMITED:
        this.#endForAll(pass, [DOWN])
        this.#hear(org)
        return this.#turnedAway(pass, error, LIMITED)
      case 'token_response_invalid':
      case TIMEOUT:
      case DOWN:
        this.#hear(org)
        return this.#failed(pass, error)
    }
  }

  /** The App secret has changed. Pauses because of the old secret end; a limit stays. */
  credentialsChanged(): void {
    this.#witnesses.delete(REJECTED)
    for (const [org, { pause }] of this.#troubles) if (pause?.code === REJECTED) this.#troubles.delete(org)
    this.#drop([REJECTED])
  }

  /** Somebody else was told that no call may be made for any org before `until`. */
  pauseUntil(until: number): void {
    const before = this.#all.get(LIMITED)
    if (until <= Math.max(before?.until ?? 0, this.#options.now())) return
    const lengthMs = before?.lengthMs ?? LENGTHS_MS[LIMITED][0]
    this.#all.set(
      LIMITED,
      newPause({
        code: LIMITED,
        lengthMs,
        since: before?.since ?? this.#options.now(),
        until,
        hangs: false,
        hint: undefined,
      }),
    )
  }

  /** Ends all pauses and limits. */
  resume(): void {
    this.#troubles.clear()
    this.#witnesses.clear()
    this.#drop([...this.#all.keys()])
  }

  /** For an operator. */
  get status(): MintPauseStatus {
    const now = this.#options.now()
    const [last] = [...this.#all.values()].toSorted((a, b) => b.until - a.until)
    const all = last && {
      code: last.code,
      lastedMs: now - last.since,
      leftMs: Math.max(last.until - now, 0),
      hint: last.hint,
    }
    const orgs = Array.from(this.#troubles.values()).filter(({ pause }) => pause !== undefined && pause.until > now)
    return { all, pausedOrgs: orgs.length }
  }

  /** No call may be made for the org before this instant, whatever the credentials. In the past if there is no limit. */
  limitedUntil(org: OrgId): number {
    const limits = this.#pausesOf(org).filter((pause) => pause.code === LIMITED)
    return Math.max(Number.NEGATIVE_INFINITY, ...limits.map((pause) => pause.until))
  }

  /** True from the second org's 401 on, until the endpoint has accepted the App or the secret has changed. */
  get areCredentialsRejected(): boolean {
    return this.#all.has(REJECTED)
  }

  /** The org that met the first 401, until the endpoint has accepted the App or the secret has changed. */
  get rejectedOrg(): OrgId | undefined {
    return this.#witnesses.get(REJECTED)
  }

  /** The org's last call got no answer in time. */
  hangs(org: OrgId): boolean {
    return this.#troubles.get(org)?.hangs ?? false
  }

  #pausesOf(org: OrgId): readonly Pause[] {
    const own = this.#troubles.get(org)?.pause
    return own === undefined ? [...this.#all.values()] : [...this.#all.values(), own]
  }

  /** A 401 or a 429: one pauses the org, that of a second org pauses all. */
  #turnedAway(pass: MintPass, error: TokenError, code: typeof REJECTED | typeof LIMITED): MintNotSent | undefined {
    const { org } = pass
    const trouble = this.#troubleOf(org)
    trouble.failures = 0
    trouble.hangs = false
    trouble.pause = this.#nextPause(trouble.pause, pass, error, code)
    const witness = this.#witnesses.get(code)
    if (witness === undefined) this.#witnesses.set(code, org)
    const isSecond = witness !== undefined && witness !== org
    return isSecond || this.#all.has(code) ? this.#pauseAll(pass, error, code) : undefined
  }

  #failed(pass: MintPass, error: TokenError): MintNotSent | undefined {
    const trouble = this.#troubleOf(pass.org)
    trouble.failures += 1
    trouble.hangs = error.code === TIMEOUT
    if (trouble.failures >= MAX_FAILURES) trouble.pause = this.#nextPause(trouble.pause, pass, error, DOWN)
    const down = this.#all.get(DOWN)
    const isDown = down === undefined ? this.#doMostOrgsFail() : pass.probes.includes(down)
    return isDown ? this.#pauseAll(pass, error, DOWN) : undefined
  }

  #hear(org: OrgId): void {
    this.#heardAt.delete(org)
    this.#heardAt.set(org, this.#options.now())
    forgetOldest(this.#heardAt, MAX_HEARD_ORGS)
  }

  #doMostOrgsFail(): boolean {
    const since = this.#options.now() - this.#options.windowMs
    let orgs = 0
    let failingOrgs = 0
    let failedCalls = 0
    for (const [org, at] of this.#heardAt) {
      const trouble = this.#troubles.get(org)
      if (at < since || trouble?.hasOutlivedOutage) continue
      const failures = trouble?.failures ?? 0
      orgs += 1
      if (failures > 0) failingOrgs += 1
      failedCalls += failures
    }
    return failingOrgs >= MIN_FAILING_ORGS && failedCalls >= MIN_FAILED_CALLS && failingOrgs * 2 > orgs
  }

  #pauseAll(pass: MintPass, error: TokenError, code: PauseCode): MintNotSent | undefined {
    const before = this.#all.get(code)
    const pause = this.#nextPause(before, pass, error, code)
    if (pause === before) return undefined
    this.#all.set(code, pause)
    const { now, observer, onLimited } = this.#options
    observer?.mintsPaused?.(code, pause.until - now())
    if (code === LIMITED) onLimited?.(pause.until)
    return this.#refusal(pause)
  }

  /**
   * The pause that a call begins, after the pause `before`: twice as long if the call was the probe of that one. Calls that
   * were under way when a pause began leave it as it is, unless they were told of a later end.
   */
  #nextPause(before: Pause | undefined, pass: MintPass, error: TokenError, code: PauseCode): Pause {
    const now = this.#options.now()
    const [firstMs, longestMs] = LENGTHS_MS[code]
    const toldMs = code === LIMITED ? (error.retryAfterSeconds ?? 0) * 1_000 : 0
    let lengthMs = firstMs
    if (before?.code === code) {
      const isProbe = pass.probes.includes(before)
      if (!isProbe && (code !== LIMITED || now + toldMs <= before.until)) return before
      lengthMs = isProbe ? Math.min(before.lengthMs * 2, longestMs) : before.lengthMs
    }
    const until = now + (toldMs > 0 ? toldMs : lengthMs * (0.75 + this.#options.random() / 4))
    return newPause({
      code,
      lengthMs,
      since: before?.code === code ? before.since : now,
      until,
      hangs: error.code === TIMEOUT,
      hint: error.hint,
    })
  }

  /** Unless the org has met a 429 in another call, while this one was under way. */
  #forgetTrouble({ org, probes }: MintPass): void {
    const pause = this.#troubles.get(org)?.pause
    if (pause?.code !== LIMITED || probes.includes(pause)) this.#troubles.delete(org)
  }

  /** A limit ends only through its own probe: a call that began before the limit may still succeed. */
  #endForAll({ probes }: MintPass, codes: readonly PauseCode[]): void {
    const limit = this.#all.get(LIMITED)
    const hasProbedLimit = limit !== undefined && probes.includes(limit)
    this.#drop(codes.filter((code) => code !== LIMITED || hasProbedLimit))
  }

  #drop(codes: readonly PauseCode[]): void {
    const dropped = codes.filter((code) => this.#all.delete(code))
    if (dropped.includes(DOWN)) {
      this.#heardAt.clear()
      for (const trouble of this.#troubles.values()) trouble.hasOutlivedOutage = true
    }
    if (dropped.length > 0 && this.#all.size === 0) this.#options.observer?.mintsResumed?.()
  }

  #troubleOf(org: OrgId): Trouble {
    const none = { failures: 0, hangs: false, pause: undefined, hasOutlivedOutage: false }
    const trouble = this.#troubles.get(org) ?? none
    this.#troubles.delete(org)
    this.#troubles.set(org, trouble)
    forgetOldest(this.#troubles, MAX_TROUBLED_ORGS)
    return trouble
  }

  /** The pause that ends last speaks for all. */
  #refuseIfAny(pauses: readonly Pause[]): void {
    if (pauses.length > 0) throw this.#refusal(pauses.reduce((a, b) => (b.until > a.until ? b : a)))
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

function newPause(pause: Omit<Pause, 'isProbing' | 'isAwaited'>): Pause {
  return { ...pause, isProbing: false, isAwaited: false }
}

/**
 * The instant from which an org may probe the pause. Orgs that have not failed go first, if one of them has asked. Otherwise
 * failing orgs that ask often would make every probe, and keep up a pause for all that only they deserve. A limit ends at the
 * time that the endpoint named.
 */
function probedFrom({ code, until, lengthMs, isAwaited }: Pause, hasFailed: boolean): number {
  return hasFailed && isAwaited && code !== LIMITED ? until + lengthMs * HEAD_START_SHARE : until
}

/** True if the call probes a pause that began with a call that got no answer in time. */
export function mayHang(pass: MintPass): boolean {
  return pass.probes.some((pause) => pause.code === DOWN && pause.hangs)
}

/** True if the call is the probe of a failing endpoint or org. */
export function isProbe(pass: MintPass): boolean {
  return pass.probes.some((pause) => pause.code === DOWN)
}

function forgetOldest(map: Map<OrgId, unknown>, maxSize: number): void {
  if (map.size <= maxSize) return
  for (const org of map.keys()) {
    map.delete(org)
    return
  }
}
