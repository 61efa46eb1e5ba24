/**
 * Calls the token endpoint. Redirects are not followed, and nothing of the client's request goes along. A call is repeated only
 * with the other secret of the App, after a 401.
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import type { EndpointAnswer } from '../http/response-head.ts'
import { targetPrefix } from '../http/target.ts'
import type { AppCredentials, AppKey } from './app-credentials.ts'
import { readToken, translateMintError } from './token-reply.ts'
import type { AccessToken, MintOptions, TokenObserver, TokenSource } from './token-source.ts'

export interface TokenEndpointOptions {
  readonly baseUrl: URL
  /** Sends a POST without content, once. `fields` are names and values in turn. Rejects with an `OriginError`. */
  readonly call: (target: string, fields: readonly string[], signal?: AbortSignal) => Promise<EndpointAnswer>
  /** Offers the secret of the file to the credentials. Must not reject. */
  readonly rereadSecret?: (() => Promise<void>) | undefined
  readonly observer?: TokenObserver | undefined
}

export class TokenEndpoint implements TokenSource {
  readonly #options: TokenEndpointOptions
  readonly #credentials: AppCredentials

  constructor(options: TokenEndpointOptions, credentials: AppCredentials) {
    this.#options = options
    this.#credentials = credentials
  }

  /** One call, and after a 401 another one with each other secret: the file may have a new one by now. */
  async mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const tried = new Set<AppKey>()
    for (let key = this.#credentials.key; ; ) {
      try {
        return await this.#mintAs(key, org, options)
      } catch (error) {
        if (!(error instanceof TokenError) || error.code !== 'app_credentials_rejected') throw error
        tried.add(key)
        await this.#options.rereadSecret?.()
        const other = this.#credentials.rejected(key)
        if (other === undefined || tried.has(other)) throw error
        key = other
      }
    }
  }

  async #mintAs(key: AppKey, org: OrgId, options: MintOptions): Promise<AccessToken> {
    const { reason = 'cold', requestId, signal } = options
    const { observer, baseUrl } = this.#options
    const target = `${targetPrefix(baseUrl)}/v2/orgs/${encodeURIComponent(org)}/access`
    const url = baseUrl.origin + target
    const fields = ['host', baseUrl.host, 'authorization', key.reveal(), 'accept-encoding', 'identity']
    const startedAt = performance.now()
    const durationMs = () => performance.now() - startedAt
    try {
      const reply = await this.#options.call(target, fields, signal)
      const token = readToken(reply, startedAt, Date.now())
      this.#credentials.accepted(key)
      observer?.mintSettled?.({ org, url, reason, outcome: 'ok', durationMs: durationMs() })
      return token
    } catch (cause) {
      const error = translateMintError(cause)
      if (error.code === 'org_access_refused') this.#credentials.accepted(key) // a refusal of the org, not of the App
      observer?.mintSettled?.({ org, url, reason, requestId, outcome: error.code, durationMs: durationMs(), error })
      throw error
    }
  }
}
