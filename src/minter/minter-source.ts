/** A sidecar's source of tokens: asks the minter, as the caller that this sidecar is there. */

import * as clock from '../clock.ts'
import {
  type ErrorCode,
  OriginError,
  PASSED_ON,
  PROBLEMS,
  remedyOf,
  TOKEN_PROBLEMS,
  TokenError,
  type TokenErrorCode,
} from '../errors.ts'
import { fieldValue } from '../http1/field-list.ts'
import type { WholeResponse } from '../http1/response-parser.ts'
import type { OrgId } from '../org-id.ts'
import type { PartWarnings } from '../part.ts'
import { parseRetryAfter } from '../token/token-reply.ts'
import { AccessToken, type MintOptions, type SettledMint, type TokenSource } from '../token/token-source.ts'
import { tokenTarget } from './admission.ts'
import { type GivenToken, type MinterProblem, readAnswer } from './message.ts'

export interface MinterSourceOptions {
  /** The URL of the minter, as people read it. */
  readonly minter: string
  /** Name and value of the field that says who this sidecar is; empty if the connection says it. Read for each call. */
  readonly credential: () => readonly string[]
  /** Sends a request once, and reads all of the answer. Rejects with an `OriginError`. */
  readonly call: (target: string, fields: string[], content: Buffer, withinMs?: number) => Promise<WholeResponse>
  readonly observer: { minterAsked(mint: SettledMint): void }
}

/** Codes that mean the same from a minter as from the token endpoint, and its refusals. */
const CODES: ReadonlySet<unknown> = new Set([...Object.keys(TOKEN_PROBLEMS), ...PASSED_ON])
/** Of these codes, those that tell of this sidecar and not of the Org. */
const REFUSALS_OF_SIDECAR: readonly ErrorCode[] = ['caller_refused', 'caller_keys_unavailable', 'route_refused']
/** Ages are the greater of two clocks, in whole milliseconds. */
const ROUNDING_MS = 5

export class MinterSource implements TokenSource {
  readonly #options: MinterSourceOptions
  readonly #ids = new WeakMap<AccessToken, string>()
  /** Why the minter gave no usable answer to the last call; undefined if it did. */
  problem: string | undefined
  /** How the minter refused this sidecar itself, whatever the Org, at the last call. */
  refusal: ErrorCode | undefined

  constructor(options: MinterSourceOptions) {
    this.#options = options
  }

  warnings(): PartWarnings {
    const { problem, refusal: code } = this
    return {
      minter_lost:
        problem &&
        `No token can be had: the minter of this sidecar ${problem}. Tokens that are held go on working. Check minter.url, minter.caFile, and the minter.`,
      minter_refused:
        code &&
        `No token can be had: the minter answers ${PROBLEMS[code].status} ${code}. Tokens that are held go on working. ${remedyOf(code, true).detail}`,
    }
  }

  get isWell(): boolean {
    return this.problem === undefined && this.refusal === undefined
  }

  async mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const { minter, credential, call, observer } = this.#options
    const { reason = 'cold', requestId } = options
    const target = tokenTarget(org)
    const content = Buffer.from(JSON.stringify({ rejected: this.#rejectedId(options) }))
    const fields = ['accept', 'application/json', 'content-type', 'application/json', ...credential()]
    const startedAt = clock.now()
    const outcome = await call(target, fields, content, options.withinMs).then(
      (answer) => this.#read(answer, startedAt),
      (error: unknown) => this.#unreachable(error),
    )
    const error = outcome instanceof TokenError ? outcome : undefined
    const durationMs = clock.now() - startedAt
    observer.minterAsked({ org, method: 'POST', url: minter + target, reason, requestId, durationMs, error })
    if (outcome instanceof TokenError) throw outcome
    return outcome
  }

  #rejectedId({ reason, replaces }: MintOptions): string | undefined {
    return reason === 'rejected' && replaces !== undefined ? this.#ids.get(replaces) : undefined
  }

  #read({ status, fields, content }: WholeResponse, startedAt: number): AccessToken | TokenError {
    const answer = readAnswer(status, content)
    if (answer === undefined) return this.#lost(`answered ${status} without what a minter answers`)
    return 'token' in answer ? this.#tokenOf(answer, startedAt) : this.#refusal(answer, status, fields)
  }

  #tokenOf(given: GivenToken, startedAt: number): AccessToken {
    const now = clock.now()
    // Its age was true at some instant of the call, and is rounded; and no token may be used past its stated end.
    const mintedAt = now - Math.max(0, given.ageMs - ROUNDING_MS)
    const statedLifeMs = given.statedLifeMs ?? Number.POSITIVE_INFINITY
    const lifeMs = Math.max(0, statedLifeMs - (now - startedAt) - ROUNDING_MS)
    const token = new AccessToken(given.token, mintedAt, lifeMs)
    this.#ids.set(token, given.id)
    this.#found({})
    return token
  }

  #refusal({ code, tokenEndpointStatus }: MinterProblem, status: number, fields: readonly string[]): TokenError {
    const text = `answered ${status} ${code}`
    const isBusy = code === 'overloaded' || code === 'draining'
    if (!isBusy && !isPassedOn(code)) return this.#lost(text)
    this.#found({ refusal: REFUSALS_OF_SIDECAR.includes(code) ? code : undefined })
    // A minter that is busy may have room in a moment: the call is repeated as after a failure.
    const retryAfterSeconds = isBusy ? undefined : parseRetryAfter(fieldValue(fields, 'retry-after'), clock.day())
    const trouble = status < 500 || tokenEndpointStatus !== undefined ? 'refusal' : undefined
    const told = { retryAfterSeconds, tokenEndpointStatus, trouble, isOfMinter: true } as const
    return new TokenError(isBusy ? 'token_endpoint_unavailable' : code, this.#sentence(text), told)
  }

  #unreachable(error: unknown): TokenError {
    if (!(error instanceof OriginError)) throw error
    const { code, message, cause } = error
    const detail = cause instanceof Error && 'code' in cause ? cause.code : message
    const fault = code === 'tls_certificate_error' ? 'shows a certificate that is not trusted' : 'cannot be reached'
    return this.#lost(`${fault} (${detail})`)
  }

  #lost(problem: string): TokenError {
    this.#found({ problem })
    return new TokenError('token_endpoint_unavailable', this.#sentence(problem), { isOfMinter: true })
  }

  #sentence(problem: string): string {
    return `The minter at ${this.#options.minter} ${problem}.`
  }

  #found({ problem, refusal }: { readonly problem?: string; readonly refusal?: ErrorCode | undefined }): void {
    this.problem = problem
    this.refusal = refusal
  }
}

const isPassedOn = (code: ErrorCode): code is TokenErrorCode => CODES.has(code)
