/** The proxy's tokens in front of a service that answers as the test says, with a virtual clock. */

import { TokenError, type TokenErrorCode } from '../../../../src/errors.ts'
import type { OrgId } from '../../../../src/org-id.ts'
import { Orgs, type OrgsOptions } from '../../../../src/token/orgs.ts'
import type { RejectionOutcome } from '../../../../src/token/request-token.ts'
import { AccessToken } from '../../../../src/token/token-source.ts'
import { ORGS_OPTIONS } from '../../../support/orgs-options.ts'
import { throughOrgs, World } from './simulation.ts'

export const ACME = 'acme' as OrgId
export const SETTLE_MS = 5_000
const SETTLED_MS = SETTLE_MS + 1_000
const ROUND_TRIP_MS = 4
const MINT_MS = 20

/** `isLarge`: its content is not kept. */
export interface RequestLine {
  readonly method?: string
  readonly path?: string
  readonly isLarge?: boolean
  readonly org?: OrgId
}

export interface Sent {
  readonly at: number
  /** The number of the token's mint; the first is 1. */
  readonly token: number
  readonly ageMs: number
  readonly method: string
  readonly path: string
  /** Until the end that the token states. */
  readonly endsInMs: number
  /** What the service answered. */
  status: number
}

export type Answer = number | { readonly status: number; readonly challenge: string }

/** The proxy's tokens in front of a service that answers as the test says. */
export class Stage {
  readonly world = new World()
  readonly sent: Sent[] = []
  readonly outcomes: RejectionOutcome[] = []
  readonly orgs: Orgs
  readonly #numbers = new Map<AccessToken, number>()
  mints = 0
  mintMs = MINT_MS
  roundTripMs = (_path: string) => ROUND_TRIP_MS
  /** The endpoint gives this name for the next tokens. */
  name: string | undefined
  endpointFails: TokenErrorCode | undefined
  statedLifeMs: number | undefined
  /** The machine slept, and its monotonic clock stood still. */
  sleptMs = 0
  answer: (sent: Sent) => Answer = () => 200

  constructor(options: Partial<OrgsOptions> = {}) {
    this.orgs = new Orgs(
      {
        ...ORGS_OPTIONS,
        settleTimeMs: SETTLE_MS,
        clock: { ...this.world.clock, day: () => this.world.now() + this.sleptMs },
        ...options,
      },
      { mint: () => this.#mint() },
    )
  }

  async #mint(): Promise<AccessToken> {
    const askedAt = this.world.now()
    this.mints += 1
    const number = this.mints
    await this.world.sleep(this.mintMs)
    if (this.endpointFails) throw new TokenError(this.endpointFails, 'scripted')
    const now = this.world.now()
    const lifeMs = this.statedLifeMs && this.statedLifeMs - (now - askedAt)
    const token = new AccessToken(this.name ?? `token-${number}`, now, lifeMs, now + this.sleptMs)
    this.#numbers.set(token, number)
    return token
  }

  /** Sends a request. Resolves with the status that its client sees, or the code of our own failure. */
  async request(line: RequestLine = {}, onSent?: (sent: Sent) => void): Promise<number | string> {
    const { method = 'GET', path = '/v2/things', isLarge = false, org = ACME } = line
    const send = async (token: AccessToken) => {
      const day = this.world.now() + this.sleptMs
      const roundTripMs = this.roundTripMs(path)
      await this.world.sleep(roundTripMs / 2)
      const number = this.#numbers.get(token) ?? 0
      const now = this.world.now()
      const endsInMs = token.mintedDayAt + token.statedLifeMs - day
      const sent = { at: now, token: number, ageMs: now - token.mintedAt, method, path, endsInMs, status: 0 }
      this.sent.push(sent)
      onSent?.(sent)
      const answer = this.answer(sent)
      sent.status = typeof answer === 'number' ? answer : answer.status
      await this.world.sleep(roundTripMs / 2)
      return typeof answer === 'number' ? { status: answer } : answer
    }
    const note = (outcome: RejectionOutcome | undefined) => {
      if (outcome !== undefined) this.outcomes.push(outcome)
    }
    const isSafe = method === 'GET' || method === 'HEAD'
    const repeatability = { isKept: !isLarge, staysKept: !isLarge, isSafe }
    return throughOrgs(this.orgs, org, repeatability, send, note).catch((error: unknown) =>
      error instanceof TokenError ? error.code : String(error),
    )
  }

  /** Lets time pass until the request has ended. */
  async outcome(request: Promise<number | string>): Promise<{ status: number | string; tookMs: number }> {
    const startedAt = this.world.now()
    const ended = request.then((status) => ({ status, tookMs: this.world.now() - startedAt }))
    let isOver = false
    ended.then(() => (isOver = true))
    for (let waitedMs = 0; !isOver && waitedMs < 60_000; waitedMs += 50) await this.pass(50)
    if (!isOver) throw new Error('the request has not ended after a minute')
    return ended
  }

  async send(line?: RequestLine) {
    return this.outcome(this.request(line))
  }

  /** The status that each of `count` requests in turn gets. */
  async statuses(count: number, line?: RequestLine): Promise<(number | string)[]> {
    const seen: (number | string)[] = []
    for (let i = 0; i < count; i += 1) seen.push((await this.send(line)).status)
    return seen
  }

  /** What was sent while `work` ran. */
  async sentBy(work: () => Promise<unknown>): Promise<readonly Sent[]> {
    const before = this.sent.length
    await work()
    return this.sent.slice(before)
  }

  async pass(delayMs: number): Promise<void> {
    await this.world.runUntil(this.world.now() + delayMs)
  }

  /** A token that the service has accepted, and that is old enough to be known everywhere. */
  static async settled(options?: Partial<OrgsOptions>): Promise<Stage> {
    const stage = new Stage(options)
    await stage.send()
    await stage.pass(SETTLED_MS)
    await stage.send()
    return stage
  }
}
