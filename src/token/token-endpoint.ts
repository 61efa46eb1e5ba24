/**
 * Calls the token endpoint. Each mint is one call: nothing is repeated here, redirects are not followed, and nothing of the
 * client's request goes along.
 */

import { performance } from 'node:perf_hooks'
import type { OrgId } from '../http/org-id.ts'
import type { AppCredentials } from './app-credentials.ts'
import { type MintReply, readToken, translateMintError } from './token-reply.ts'
import type { AccessToken, MintOptions, TokenObserver, TokenSource } from './token-source.ts'

/** The request of a mint. It has no content. */
interface MintRequest {
  readonly method: 'POST'
  /** Origin-form. */
  readonly target: string
  /** Names and values in turn. */
  readonly fields: readonly string[]
}

export interface TokenEndpointOptions {
  /** Only its origin is used. */
  readonly baseUrl: URL
  /** Put in front of the path. */
  readonly prefix: string
  /** From the start of the call to the last byte of the reply. */
  readonly timeoutMs: number
  /** Sends the request, once. Rejects with an `OriginError`. */
  readonly call: (request: MintRequest, timeoutMs: number) => Promise<MintReply>
  readonly observer?: TokenObserver | undefined
  readonly now?: () => number
  readonly wallNow?: () => number
}

export class TokenEndpoint implements TokenSource {
  readonly #options: TokenEndpointOptions
  readonly #credentials: AppCredentials
  readonly #now: () => number

  constructor(options: TokenEndpointOptions, credentials: AppCredentials) {
    this.#options = options
    this.#credentials = credentials
    this.#now = options.now ?? (() => performance.now())
  }

  mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    return this.mintAs(this.#credentials, org, options)
  }

  /** With other credentials than those in use. */
  async mintAs(credentials: AppCredentials, org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const { reason = 'cold', deadlineAt = Number.POSITIVE_INFINITY, requestId } = options
    const { observer, timeoutMs, baseUrl, prefix } = this.#options
    const target = `${prefix}/v2/orgs/${encodeURIComponent(org)}/access`
    const url = baseUrl.origin + target
    const startedAt = this.#now()
    const durationMs = () => this.#now() - startedAt
    try {
      const token = await this.#call(credentials, target, startedAt, Math.min(timeoutMs, deadlineAt - startedAt))
      observer?.mintSettled?.({ org, url, reason, outcome: 'ok', durationMs: durationMs() })
      return token
    } catch (cause) {
      const error = translateMintError(cause)
      observer?.mintSettled?.({ org, url, reason, requestId, outcome: error.code, durationMs: durationMs(), error })
      throw error
    }
  }

  async #call(credentials: AppCredentials, target: string, startedAt: number, timeoutMs: number): Promise<AccessToken> {
    const fields = ['host', this.#options.baseUrl.host, 'authorization', credentials.authorization()]
    const reply = await this.#options.call({ method: 'POST', target, fields }, timeoutMs)
    return readToken(reply, startedAt, (this.#options.wallNow ?? Date.now)())
  }
}
