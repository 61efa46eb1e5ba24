/**
 * The way of one request to its tokens: takes the first one, or waits for it; after each answer, decides by the rules of
 * docs/tokens.md whether it is sent again, and with which token.
 *
 * `take` with a token at hand, and `judge` of a success, run for every request: they make no promise.
 */

import assert from 'node:assert/strict'
import { joinedValue } from '../http1/field-list.ts'
import type { ReceivedResponse } from '../http1/response-parser.ts'
import type { OrgId } from '../org-id.ts'
import { type Cause, COLD, type Org, type Repeatability, type Wait } from './org.ts'
import type { Orgs } from './orgs.ts'
import type { AccessToken, MintReason } from './token-source.ts'

/**
 * The source of a request's token. `hit`: it was there. `miss`: from a mint. `joined`: from a mint that was already under way.
 * `refreshing`: it was there, and a mint for later requests was started. `stale`: it was there, because the mint that the request
 * waited for failed. `replayed`: the request was repeated after a rejection.
 */
export type TokenResult = 'hit' | 'miss' | 'joined' | 'refreshing' | 'stale' | 'replayed'

/**
 * What became of a request whose token was rejected. `repeated`: it was accepted in the end. `not_kept`: it could not be sent
 * again. `useless`: it caused a mint, which did not help. `passed`: its client got the rejection.
 */
export const REJECTION_OUTCOMES = ['repeated', 'passed', 'not_kept', 'useless'] as const
export type RejectionOutcome = (typeof REJECTION_OUTCOMES)[number]

/** The request. Whether it may be sent again is asked each time: more content may have come than is kept. */
export interface TokenUser extends Repeatability {
  readonly record: {
    readonly requestId?: string | undefined
    token: TokenResult | 'none'
    rejection: RejectionOutcome | undefined
    /** A rejection was to be followed by a repeat. */
    isRepeated: boolean
  }
  readonly isOver: boolean
  /** Whose share of the mints it takes. */
  readonly requester?: object | undefined
}

const FIRST_REPEAT_MS = 50
const REPEAT_SHARE = 1 / 4
const MOMENT_MS = 5_000
const MOST_REJECTIONS = 25
const NONE: readonly AccessToken[] = []

export class RequestToken {
  readonly #orgs: Orgs
  readonly #id: OrgId
  readonly #fields: { withToken(token: AccessToken): string }
  readonly #user: TokenUser
  /** The Org, as it last had a token: it may have been purged meanwhile. */
  #org: Org | undefined
  #current: AccessToken | undefined
  /** When it was sent last; monotonic milliseconds. */
  #sentAt = 0
  /** Set while it waits for a token to begin with. */
  #obtaining: Promise<void> | undefined
  /** Gives its place back. */
  #leave: (() => void) | undefined
  /** It has waited so long for mints, in running time. */
  #mintedMs = 0
  /** All waits for young tokens end then, whatever tokens follow. */
  #waitsUntil = Number.POSITIVE_INFINITY
  #rejected = NONE
  #rejections = 0
  /** Rule 5 has been used. */
  #hasRetried = false
  /** Of its mint. It causes one. */
  #cause: Cause | undefined

  constructor(orgs: Orgs, id: OrgId, fields: { withToken(token: AccessToken): string }, user: TokenUser) {
    this.#orgs = orgs
    this.#id = id
    this.#fields = fields
    this.#user = user
  }

  // ---- the first one

  /** Gets one to begin with. Undefined if it is here at once. The promise rejects with a `TokenError` if there is none. */
  take(): Promise<void> | undefined {
    this.#org = this.#orgs.get(this.#id)
    const given = this.#org && this.#ask(this.#org)
    if (given === undefined || 'wait' in given) return this.#obtain()
    this.#current = given
    return undefined
  }

  /** The lines of the fields with secrets, to be sent at once. A promise if the token has ended meanwhile, and the next is awaited. */
  authorize(): string | Promise<string> {
    const token = this.#current
    assert(token !== undefined)
    const mayEnd = token.statedLifeMs < Number.POSITIVE_INFINITY
    // Nothing is sent past its stated end.
    const { now, day } = this.#orgs.clock
    const hasEnded = mayEnd && token.hasEndedAt(now(), day())
    return hasEnded ? this.#obtain().then(() => this.#show()) : this.#show()
  }

  #show(): string {
    assert(this.#current !== undefined)
    this.#sentAt = this.#orgs.clock.now()
    return this.#fields.withToken(this.#current)
  }

  #ask(org: Org): AccessToken | Wait {
    const given = org.tokenFor(this.#user)
    if (!('wait' in given)) this.#user.record.token = this.#orgs.renewIfDue(org) ? 'refreshing' : 'hit'
    return given
  }

  /** Waits in one of the places for that. Whoever asks meanwhile waits for the same token: a request may get another connection. */
  #obtain(): Promise<void> {
    this.#obtaining ??= this.#obtainInPlace().finally(() => {
      this.#obtaining = undefined
    })
    return this.#obtaining
  }

  async #obtainInPlace(): Promise<void> {
    this.#leave = this.#orgs.enter(this.#id)
    this.#current = await this.#await().finally(this.#leave)
  }

  async #await(): Promise<AccessToken> {
    for (;;) {
      const org = this.#find()
      const given = org === undefined ? COLD : this.#ask(org)
      if (!('wait' in given)) return given
      if (given.wait === 'mint') return await this.#mintFirst(given.reason, org)
      const { clock, rules } = this.#orgs
      const now = clock.now()
      this.#waitsUntil = Math.min(this.#waitsUntil, now + rules.settleTimeMs)
      if (org?.current !== undefined && now >= this.#waitsUntil) return org.current
      await clock.within(Math.min(given.at, this.#waitsUntil) - now)
    }
  }

  /** If the mint fails, a token that was not rejected serves. */
  async #mintFirst(reason: MintReason, org: Org | undefined): Promise<AccessToken> {
    const { record } = this.#user
    if (reason === 'rejected' && org !== undefined) this.#cause = org.causeMint(0)
    const result = this.#orgs.peek(this.#id)?.mint === undefined ? 'miss' : 'joined'
    try {
      const token = await this.#mint(reason)
      record.token = result
      return token
    } catch (error) {
      this.#releaseCause()
      const token = org?.tokenInPlaceOfMint(this.#user)
      if (token === undefined) throw error
      record.token = 'stale'
      return token
    }
  }

  /** All mints that a request waits for take at most `mintTimeout`. */
  async #mint(reason: MintReason): Promise<AccessToken> {
    const orgs = this.#orgs
    const user = this.#user
    const { runningTime } = orgs.clock
    const waiter = { requester: user.requester, requestId: user.record.requestId, hasLeft: () => user.isOver }
    const startedAt = runningTime()
    try {
      return await orgs.awaitMint(this.#id, reason, waiter, Math.max(orgs.mintTimeoutMs - this.#mintedMs, 0))
    } finally {
      this.#mintedMs += runningTime() - startedAt
      this.#find()
    }
  }

  /** Undefined if the Org has no token now. */
  #find(): Org | undefined {
    const org = this.#orgs.get(this.#id)
    this.#org = org ?? this.#org
    return org
  }

  // ---- the next one, after an answer

  /** Undefined if the client gets the answer. Otherwise resolves when a repeat can be authorized. */
  judge({ status, rawFields }: Pick<ReceivedResponse, 'status' | 'rawFields'>): Promise<void> | undefined {
    const token = this.#current
    assert(token !== undefined)
    if (status >= 200 && status <= 299 && this.#rejected === NONE && this.#cause === undefined) {
      this.#org?.noteAccepted(token, this.#sentAt)
      return undefined
    }
    this.#find()
    const org = this.#org
    if (org === undefined) return undefined
    const next = this.#next(org, token, status, joinedValue(rawFields, 'www-authenticate')) // RFC 9110 §11.6.1
    if (next === undefined) return undefined
    this.#user.record.isRepeated = true
    return Promise.resolve(next).then((given) => {
      this.#current = given
    })
  }

  /** The token for a repeat, or a promise of it. Undefined: the client gets the answer. */
  #next(
    org: Org,
    token: AccessToken,
    status: number,
    challenge: string,
  ): Promise<AccessToken> | AccessToken | undefined {
    const { isKept, isSafe } = this.#user
    const { current } = org
    const meaning = org.meaningOf(status, challenge, this.#user)
    if (meaning === 'accepted') return this.#accept(org, token)
    if (meaning === 'neither') return this.#pass(org, status)
    if (token === current && !this.#rejected.includes(token)) org.addToRow(meaning === 'rejected')
    if (meaning === 'other') return this.#judgeRow(org, token, status)
    this.#noteRejected(token)
    org.noteRejected(token)
    this.#rejections += 1
    if (this.#rejections === MOST_REJECTIONS) return this.#pass(org, status)
    const wasYoung = org.wasYoung(token, this.#sentAt)
    if (!isKept || (status !== 401 && !isSafe)) {
      if (token === current && !wasYoung) org.noteDoubt(status === 401 ? 'not kept' : 'not safe') // rule 7
      return this.#pass(org, status, 'not_kept')
    }
    if (current !== undefined && !this.#rejected.includes(current)) return current // rule 3
    if (org.hasEnded) return this.#mintForRepeat('expired') // rule 2
    if (org.isYoung) return this.#repeatWhileYoung(org, status) // rule 4
    if (wasYoung) return current
    if (!this.#hasRetried && org.acceptedAt >= 0 && this.#orgs.clock.now() - org.acceptedAt < MOMENT_MS) {
      this.#hasRetried = true
      return current // rule 5
    }
    return this.#causeMint(org, token, status) // rule 6
  }

  #accept(org: Org, token: AccessToken): undefined {
    org.noteAccepted(token, this.#sentAt)
    if (this.#rejected !== NONE) this.#user.record.rejection = 'repeated'
    const before = org.learnedStatus
    org.endCause(this.#cause, 'helped')
    const { learnedStatus } = org
    if (learnedStatus !== undefined && learnedStatus !== before)
      this.#orgs.observer?.statusLearned?.(learnedStatus, this.#id)
  }

  /** The client gets the answer. */
  #pass(org: Org, status: number, outcome: RejectionOutcome = 'passed'): undefined {
    const wasCause = org.endCause(this.#cause, 'useless')
    if (this.#rejected !== NONE) this.#user.record.rejection = wasCause ? 'useless' : outcome
    if (this.#rejected.length > 1 && this.#user.isSafe) org.forgetStatus(status)
  }

  #noteRejected(token: AccessToken): void {
    if (!this.#rejected.includes(token)) this.#rejected = [...this.#rejected, token]
  }

  /** Rule 4: the former token; or the same one, later. */
  #repeatWhileYoung(org: Org, status: number) {
    const { former, ageMs } = org
    if (former !== undefined && !this.#rejected.includes(former)) return former
    const { clock, rules } = this.#orgs
    const now = clock.now()
    this.#waitsUntil = Math.min(this.#waitsUntil, now + rules.settleTimeMs)
    if (now >= this.#waitsUntil) return this.#pass(org, status)
    const pauseMs = Math.min(Math.max(FIRST_REPEAT_MS, ageMs * REPEAT_SHARE), rules.settleTimeMs - ageMs)
    return clock.within(pauseMs).then(() => this.#await())
  }

  /** Rule 8: a row of other answers rejects the token. */
  #judgeRow(org: Org, token: AccessToken, status: number) {
    if (!org.hasLongRow || token !== org.current || org.isYoung) return this.#pass(org, status)
    if (this.#user.isKept && this.#user.isSafe) return this.#causeMint(org, token, status, token)
    if (org.mayMint) org.noteDoubt('row', status)
    return this.#pass(org, status)
  }

  /** Rule 6. If the mint fails, the request is repeated with `ifItFails`, or gets the error. */
  #causeMint(org: Org, token: AccessToken, status: number, ifItFails?: AccessToken) {
    if (this.#cause !== undefined || !org.mayMint) return this.#pass(org, status)
    this.#noteRejected(token)
    this.#cause = org.causeMint(status)
    return this.#mintForRepeat('rejected', ifItFails)
  }

  async #mintForRepeat(reason: MintReason, ifItFails?: AccessToken): Promise<AccessToken> {
    const token = await this.#mint(reason).catch((error: unknown) => {
      this.#org?.endCause(this.#cause, 'unknown')
      if (ifItFails === undefined) throw error
      return ifItFails
    })
    // From another replica, or through a minter. It may be dead, too, so this was not the mint.
    const isOlder = this.#cause !== undefined && token.mintedAt < this.#cause.at
    if (isOlder && !this.#rejected.includes(token)) this.#releaseCause()
    return token
  }

  // ---- the end

  #releaseCause(): void {
    this.#org?.endCause(this.#cause, 'unknown')
    this.#cause = undefined
  }

  /** The request is over: it was answered, has failed, or its client has left. It gives back whatever it holds. */
  end(): void {
    this.#leave?.()
    this.#org?.endCause(this.#cause, 'useless')
  }
}
