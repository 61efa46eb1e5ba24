/** A sidecar's source of tokens: asks the minter, as the caller that this sidecar is there. */

import { OriginError, PASSED_ON, PROBLEMS, TOKEN_PROBLEMS, TokenError, type TokenErrorCode } from '../errors.ts'
import type { EndpointAnswer } from '../http1/response-head.ts'
import type { OrgId } from '../org-id.ts'
import type { Secret } from '../secret.ts'
import { aheadAgeMs } from '../token/lives.ts'
import { fieldValue, memberOf, parseRetryAfter } from '../token/token-reply.ts'
import {
  AccessToken,
  type MintOptions,
  type OnCall,
  type TokenObserver,
  type TokenSource,
} from '../token/token-source.ts'
import { readGivenToken, tokenTarget } from './message.ts'

export interface MinterSourceOptions {
  /** The URL of the minter, as people read it. */
  readonly minter: string
  /** For `Host`. */
  readonly host: string
  readonly userAgent: string
  /** A key or a JWT for `X-Proxy-Key`; undefined if the connection says who this sidecar is. Read for each call. */
  readonly key: () => Secret | undefined
  /** Sends a request once, and reads all of the answer. Rejects with an `OriginError`. */
  readonly call: (request: MinterRequest, onCall?: OnCall) => Promise<EndpointAnswer>
  readonly observer: Pick<TokenObserver, 'mintSettled'> & {
    /** The minter gives no usable answer. The first time in a row. */
    minterLost(reason: string): void
    minterBack(): void
  }
}

export interface MinterRequest {
  readonly method: string
  readonly target: string
  readonly fields: readonly string[]
  readonly content: Buffer
  /** What was left of a minter that went away would take all the time of a request. */
  readonly needsNewConnection: boolean
}

/** Ages come from two clocks, and in whole milliseconds. */
const ROUNDING_MS = 5
/** Codes that mean the same from a minter as from the token endpoint, and its refusals. */
const CODES: ReadonlySet<unknown> = new Set([...Object.keys(TOKEN_PROBLEMS), ...PASSED_ON])

export class MinterSource implements TokenSource {
  readonly #options: MinterSourceOptions
  /** For `rejected`. */
  readonly #ids = new WeakMap<AccessToken, string>()
  /** Why the minter gave no usable answer to the last call; undefined if it did. */
  problem: string | undefined
  /** A token of it was had. */
  hasGiven = false

  constructor(options: MinterSourceOptions) {
    this.#options = options
  }

  async mint(org: OrgId, options: MintOptions = {}, onCall?: OnCall): Promise<AccessToken> {
    const { minter, host, userAgent, key, call, observer } = this.#options
    const { reason = 'cold', requestId } = options
    const target = tokenTarget(org)
    const credential = key()
    const fields = [
      'host',
      host,
      'accept',
      'application/json',
      'user-agent',
      userAgent,
      'content-type',
      'application/json',
    ]
    if (credential !== undefined) fields.push('x-proxy-key', credential.reveal())
    const content = Buffer.from(JSON.stringify({ rejected: this.#rejectedId(options) }))
    const startedAt = performance.now()
    const needsNewConnection = this.problem !== undefined
    const outcome = await call({ method: 'POST', target, fields, content, needsNewConnection }, onCall).then(
      (answer) => this.#read(answer, startedAt),
      (error: unknown) => this.#unreachable(error),
    )
    const error = outcome instanceof TokenError ? outcome : undefined
    const durationMs = performance.now() - startedAt
    observer.mintSettled?.({ org, url: minter + target, reason, requestId, durationMs, error })
    if (outcome instanceof TokenError) throw outcome
    return outcome
  }

  /** A token that has ended as far as this sidecar has learned counts as rejected, because the minter cannot know. */
  #rejectedId({ reason, replaces }: MintOptions): string | undefined {
    if (replaces === undefined) return undefined
    const lifeMs = Math.min(replaces.statedLifeMs, replaces.knownLifeMs)
    const isToldEnd = performance.now() - replaces.mintedAt >= aheadAgeMs(lifeMs, 0)
    const isEnd = reason === 'refresh' || reason === 'expired'
    return reason === 'rejected' || (isEnd && !isToldEnd) ? this.#ids.get(replaces) : undefined
  }

  #read({ status, fields, content }: EndpointAnswer, startedAt: number): AccessToken | TokenError {
    try {
      if (status !== 200) return this.#refusal(status, fields, JSON.parse(content.toString()))
      const { id, token: text, ageMs, statedLifeMs, knownLifeMs } = readGivenToken(content)
      const now = performance.now()
      // Its age was true at some instant of the call. A token that was minted for this call must look so (R6), and no token may
      // be used past its stated end.
      const mintedAt = ageMs < now - startedAt + ROUNDING_MS ? Math.max(startedAt, now - ageMs) : now - ageMs
      const lifeMs = statedLifeMs === null ? undefined : Math.max(0, statedLifeMs - (now - startedAt))
      const token = new AccessToken(text, mintedAt, lifeMs, knownLifeMs ?? undefined)
      this.#ids.set(token, id)
      this.hasGiven = true
      this.#found(undefined)
      return token
    } catch {
      return this.#lost(`answered ${status} without what a minter answers`)
    }
  }

  /** @throws if it is no problem of a minter */
  #refusal(status: number, fields: readonly string[], problem: unknown): TokenError {
    const code = memberOf(problem, 'code') as TokenErrorCode
    const told = memberOf(problem, 'tokenEndpointStatus')
    const retryAfterSeconds = parseRetryAfter(fieldValue(fields, 'retry-after'), Date.now())
    if (!CODES.has(code) || PROBLEMS[code].status !== status) {
      if (memberOf(problem, 'code') === undefined) throw new TypeError('no problem')
      return this.#lost(`answered ${status} ${String(memberOf(problem, 'code')).slice(0, 40)}`)
    }
    this.#found(undefined)
    const isRefused = status === 403 || status === 400
    const tokenEndpointStatus =
      typeof told === 'number' && told >= 300 && told <= 599 ? told : isRefused ? status : undefined
    return new TokenError(code, this.#text(`answered ${status} ${code}`), { retryAfterSeconds, tokenEndpointStatus })
  }

  #unreachable(error: unknown): TokenError {
    if (!(error instanceof OriginError)) throw error
    const { code, message, cause } = error
    const detail = cause instanceof Error && 'code' in cause ? cause.code : message
    const isStranger = code === 'tls_certificate_error'
    return this.#lost(
      `${isStranger ? 'shows a certificate that is not trusted' : 'cannot be reached'} (${detail})`,
      error,
    )
  }

  #lost(problem: string, cause?: unknown): TokenError {
    this.#found(problem)
    return new TokenError('token_endpoint_unavailable', this.#text(problem), { cause })
  }

  #text(problem: string): string {
    return `The minter at ${this.#options.minter} ${problem}.`
  }

  #found(problem: string | undefined): void {
    const { observer } = this.#options
    const before = this.problem
    this.problem = problem
    if (before === undefined && problem !== undefined) observer.minterLost(problem)
    if (before !== undefined && problem === undefined) observer.minterBack()
  }
}
