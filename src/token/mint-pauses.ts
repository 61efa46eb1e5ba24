/**
 * Decides whether the token endpoint may be called for an org now. A *mint* is one call of the token endpoint.
 *
 * An org's trouble is its own: a 401, a 429 or repeated failures pause that org. All orgs are paused only when the trouble
 * is shown not to be one org's: a second org meets the same 401 or 429 and none succeeds in between, or most of the orgs
 * that were heard of lately fail. When a pause is over, one call goes ahead as the probe; its outcome ends the pause or
 * starts a longer one. Pure: it reads the clock that it is given, and starts no timer.
 */

import type { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { MintNotSent } from './token-source.ts'

export interface MintPausesOptions {
  readonly now: () => number
  readonly random: () => number
  /** How long an outcome counts when it is judged whether most orgs fail. */
  readonly windowMs: number
  /** All orgs are paused, and for how long. */
  readonly onPaused?: ((code: PauseCode, pauseMs: number) => void) | undefined
  /** The last pause of all orgs has ended. */
  readonly onResumed?: (() => void) | undefined
  /** The endpoint wants no call for any org before `untilMs`. */
  readonly onLimited?: ((untilMs: number) => void) | undefined
}

const REJECTED = 'app_credentials_rejected'
const LIMITED = 'token_endpoint_rate_limited'
const DOWN = 'token_endpoint_unavailable'
export type PauseCode = typeof REJECTED | typeof LIMITED | typeof DOWN

/** Replaced as a whole when it is extended, so that a pass names the very pause that its call probes. */
interface Pause {
  readonly code: PauseCode
  readonly lengthMs: number
  readonly until: number
  /** The call that began it got no answer in time. */
  readonly hangs: boolean
  /** Names the cause of the failure that began it. */
  readonly hint: string | undefined
  isProbing: boolean
}

const NO_PAUSES: readonly Pause[] = []

/** Leave for one call. Must be handed back to `settle`, `gaveWay` or `abandon`. */
export interface MintPass {
  readonly org: OrgId
  /** The pauses that are over and whose probe this call is. */
  readonly probes: readonly Pause[]
}

/** What an org that does not succeed has met. Forgotten when it succeeds. */
interface Trouble {
  /** Failed calls in a row. */
  failures: number
  /** Its last call got no answer in time. */
  hangs: boolean
  pause: Pause | undefined
  /** The value of `#outages` when the trouble began. */
  readonly since: number
}

/** Failures of one org in a row after which it is paused. */
const MAX_FAILURES = 5
/** At least so many orgs must fail, with so many failed calls among them, before the endpoint counts as down. */
const MIN_FAILING_ORGS = 3
const MIN_FAILED_CALLS = 5
/** First and longest pause; each is twice the one before. The longest for `DOWN` decides how soon a recovery is seen. */
const LENGTHS_MS: Readonly<Record<PauseCode, readonly [first: number, longest: number]>> = {
  [DOWN]: [250, 2_000],
  [LIMITED]: [1_000, 30_000],
  [REJECTED]: [1_000, 60_000],
}
/** Memory is bounded: the org that was heard of least recently is forgotten. */
const MAX_TROUBLED_ORGS = 10_000
const MAX_HEARD_ORGS = 256

export class MintPauses {
  readonly #options: MintPausesOptions
  /** Pauses of all orgs, one for each reason: a limit is kept, whatever else goes wrong meanwhile. */
  readonly #all = new Map<PauseCode, Pause>()
  readonly #troubles = new Map<OrgId, Trouble>()
  /** The org that met a 401 or a 429 first since the last success. */
  readonly #witnesses = new Map<PauseCode, OrgId>()
  /** Failed calls in a row and time of the last call, by org; the latest at the end. */
  readonly #heard = new Map<OrgId, { readonly failures: number; readonly at: number }>()
  /** How often all orgs were paused as `DOWN` and one then succeeded. */
  #outages = 0

  constructor(options: MintPausesOptions) {
    this.#options = options
  }

  /** @throws {MintNotSent} in a pause */
  admit(org: OrgId): MintPass {
    const pauses = this.#pausesOf(org)
    const now = this.#options.now()
    this.#refuseIfStanding(pauses.filter((pause) => pause.isProbing || now < pause.until))
    for (const pause of pauses) pause.isProbing = true
    return { org, probes: pauses }
  }

  /** For a pass whose call had to wait. @throws {MintNotSent} if a pause has begun since */
  confirm(pass: MintPass): void {
    this.#refuseIfStanding(this.#pausesOf(pass.org).filter((pause) => !pass.probes.includes(pause)))
  }

  /** The call was never made, or says nothing. */
  abandon(pass: MintPass): void {
    for (const pause of pass.probes) pause.isProbing = false
  }

  /** The call was broken off early in favour of other orgs. */
  gaveWay(pass: MintPass): void {
    this.abandon(pass)
    this.#troubleOf(pass.org).hangs = true
  }

  /** Returns the error for all who wait if a pause of all orgs begins. */
  settle(pass: MintPass, error?: TokenError): MintNotSent | undefined {
    this.abandon(pass)
    const { org } = pass
    switch (error?.code) {
      case undefined:
      case 'org_access_refused': // proves the credentials, and that the endpoint works
        this.#witnesses.clear()
        this.#forgetTrouble(pass)
        this.#end(pass, [REJECTED, LIMITED, DOWN])
        this.#hear(org, 0)
        return undefined
      case REJECTED:
        this.#end(pass, [LIMITED, DOWN])
        this.#hear(org, 0)
        return this.#pauseOrgAndPerhapsAll(pass, REJECTED, 0)
      case LIMITED:
        this.#end(pass, [DOWN])
        this.#hear(org, 0)
        return this.#pauseOrgAndPerhapsAll(pass, LIMITED, (error?.retryAfterSeconds ?? 0) * 1_000)
      case 'token_response_invalid':
      case 'token_endpoint_timeout':
      case DOWN:
        return this.#failed(pass, error)
    }
  }

  /** The App secret is another one now. What was held against the old one is over; a limit is not. */
  credentialsChanged(): void {
    this.#witnesses.delete(REJECTED)
    for (const [org, { pause }] of this.#troubles) if (pause?.code === REJECTED) this.#troubles.delete(org)
    this.#drop([REJECTED])
  }

  /** Somebody else was told that no call may be made for any org before `until`. */
  pauseUntil(until: number): void {
    const before = this.#all.get(LIMITED)
    if (until <= Math.max(before?.until ?? 0, this.#options.now())) return
    this.#all.set(LIMITED, { ...newPause(LIMITED, before), until })
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

  /** True from the first 401, whichever org met it, until the endpoint has accepted the App or the secret has changed. */
  get mayCredentialsBeWrong(): boolean {
    return this.#witnesses.has(REJECTED)
  }

  /** The org's last call got no answer in time. */
  hangs(org: OrgId): boolean {
    return this.#troubles.get(org)?.hangs ?? false
  }

  #pausesOf(org: OrgId): readonly Pause[] {
    const own = this.#troubles.get(org)?.pause
    if (own === undefined && this.#all.size === 0) return NO_PAUSES
    return own === undefined ? [...this.#all.values()] : [...this.#all.values(), own]
  }

  #pauseOrgAndPerhapsAll(
    pass: MintPass,
    code: typeof REJECTED | typeof LIMITED,
    waitMs: number,
  ): MintNotSent | undefined {
    const { org } = pass
    const trouble = this.#troubleOf(org)
    trouble.hangs = false
    trouble.pause = this.#next(code, trouble.pause, pass, waitMs)
    const witness = this.#witnesses.get(code)
    if (witness === undefined) this.#witnesses.set(code, org)
    if (!this.#all.has(code) && (witness === undefined || witness === org)) return undefined
    return this.#pauseAll(code, pass, waitMs)
  }

  #failed(pass: MintPass, error: TokenError | undefined): MintNotSent | undefined {
    const { org } = pass
    const trouble = this.#troubleOf(org)
    trouble.failures += 1
    trouble.hangs = error?.code === 'token_endpoint_timeout'
    const isLimited = trouble.pause?.code === LIMITED && this.#options.now() < trouble.pause.until
    if (trouble.failures >= MAX_FAILURES && !isLimited) {
      trouble.pause = this.#next(DOWN, trouble.pause, pass, 0, error)
    }
    this.#hear(org, trouble.failures)
    const down = this.#all.get(DOWN)
    if (down === undefined ? !this.#doMostOrgsFail() : !pass.probes.includes(down)) return undefined
    return this.#pauseAll(DOWN, pass, 0, error)
  }

  #hear(org: OrgId, failures: number): void {
    this.#heard.delete(org)
    this.#heard.set(org, { failures, at: this.#options.now() })
    forgetOldest(this.#heard, MAX_HEARD_ORGS)
  }

  /** An org that has failed since before the last outage ended fails by itself: it does not count. */
  #doMostOrgsFail(): boolean {
    const since = this.#options.now() - this.#options.windowMs
    let orgs = 0
    let failingOrgs = 0
    let failedCalls = 0
    for (const [org, { failures, at }] of this.#heard) {
      if (at < since || (this.#troubles.get(org)?.since ?? this.#outages) < this.#outages) continue
      orgs += 1
      if (failures === 0) continue
      failingOrgs += 1
      failedCalls += failures
    }
    return failingOrgs >= MIN_FAILING_ORGS && failedCalls >= MIN_FAILED_CALLS && failingOrgs * 2 > orgs
  }

  #pauseAll(code: PauseCode, pass: MintPass, waitMs: number, error?: TokenError): MintNotSent | undefined {
    const before = this.#all.get(code)
    const pause = this.#next(code, before, pass, waitMs, error)
    if (pause === before) return undefined
    this.#all.set(code, pause)
    const { now, onPaused, onLimited } = this.#options
    onPaused?.(code, pause.until - now())
    if (code === LIMITED) onLimited?.(pause.until)
    return this.#refusal(pause)
  }

  /** The pause that follows `before`, or `before` itself: calls that were under way when it began do not lengthen it. */
  #next(code: PauseCode, before: Pause | undefined, pass: MintPass, waitMs: number, error?: TokenError): Pause {
    const { now, random } = this.#options
    const same = before?.code === code ? before : undefined
    const isFirst = same === undefined || pass.probes.includes(same)
    if (!isFirst && now() + waitMs <= same.until) return same
    if (!isFirst && code !== LIMITED) return same
    const hangs = error?.code === 'token_endpoint_timeout'
    const pause = { ...newPause(code, same, isFirst), hangs, hint: error?.hint }
    const lengthMs = waitMs > 0 ? waitMs : pause.lengthMs * (0.75 + random() / 4)
    return { ...pause, until: now() + lengthMs }
  }

  #forgetTrouble({ org, probes }: MintPass): void {
    const pause = this.#troubles.get(org)?.pause
    if (pause?.code === LIMITED && !probes.includes(pause)) return
    this.#troubles.delete(org)
  }

  /** Ends pauses of all orgs. A limit ends only through its own probe: a call that was under way before says nothing of it. */
  #end(pass: MintPass, codes: readonly PauseCode[]): void {
    this.#drop(
      codes.filter((code) => code !== LIMITED || pass.probes.some((pause) => pause === this.#all.get(LIMITED))),
    )
  }

  #drop(codes: readonly PauseCode[]): void {
    const dropped = codes.filter((code) => this.#all.delete(code))
    if (dropped.includes(DOWN)) {
      this.#outages += 1
      this.#heard.clear()
    }
    if (dropped.length > 0 && this.#all.size === 0) this.#options.onResumed?.()
  }

  #troubleOf(org: OrgId): Trouble {
    const trouble = this.#troubles.get(org) ?? { failures: 0, hangs: false, pause: undefined, since: this.#outages }
    this.#troubles.delete(org)
    this.#troubles.set(org, trouble)
    forgetOldest(this.#troubles, MAX_TROUBLED_ORGS)
    return trouble
  }

  #refuseIfStanding(pauses: readonly Pause[]): void {
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

/** True if the call probes a pause that began with a call that got no answer in time. */
export function mayHang(pass: MintPass): boolean {
  return pass.probes.some((pause) => pause.code === DOWN && pause.hangs)
}

/** True if the call is the probe of a failing endpoint or org. */
export function isProbe(pass: MintPass): boolean {
  return pass.probes.some((pause) => pause.code === DOWN)
}

function newPause(code: PauseCode, before: Pause | undefined, isLonger = false): Pause {
  const [firstMs, longestMs] = LENGTHS_MS[code]
  const beforeMs = before?.lengthMs ?? firstMs
  const lengthMs = before !== undefined && isLonger ? Math.min(beforeMs * 2, longestMs) : beforeMs
  return { code, lengthMs, until: Number.NEGATIVE_INFINITY, hangs: false, hint: undefined, isProbing: false }
}

function forgetOldest(map: Map<OrgId, unknown>, maxSize: number): void {
  if (map.size <= maxSize) return
  for (const org of map.keys()) {
    map.delete(org)
    return
  }
}
