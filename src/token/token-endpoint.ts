/**
 * Calls the token endpoint. Redirects are not followed, and nothing of the client's request goes along. A call is repeated only
 * with the other secret of the App, after a 401.
 */

import { performance } from 'node:perf_hooks'
import { TokenError } from '../errors.ts'
import type { EndpointAnswer } from '../http/response-head.ts'
import { targetPrefix } from '../http/target.ts'
import type { AppCredentials, AppKey } from './app-credentials.ts'
import { meaningOf, meaningOfFailure } from './token-reply.ts'
import type { TokenObserver, TokenSource } from './token-source.ts'

export interface TokenEndpointOptions {
  readonly baseUrl: URL
  readonly credentials: AppCredentials
  /** Sends a POST without content, once. `fields` are names and values in turn. Rejects with an `OriginError`. */
  readonly call: (target: string, fields: readonly string[], signal?: AbortSignal) => Promise<EndpointAnswer>
  /** Offers the secret of the file to the credentials. Must not reject. */
  readonly rereadSecret?: (() => Promise<void>) | undefined
  readonly observer: TokenObserver
}

export function tokenEndpoint(options: TokenEndpointOptions): TokenSource {
  const { baseUrl, credentials, call, rereadSecret, observer } = options
  return {
    /** One call, and after a 401 another one with each other secret: the file may have a new one by now. */
    async mint(org, { reason = 'cold', requestId, signal } = {}) {
      const target = `${targetPrefix(baseUrl)}/v2/orgs/${encodeURIComponent(org)}/access`
      const tried = new Set<AppKey>()
      for (let { key } = credentials; ; ) {
        const fields = ['host', baseUrl.host, 'authorization', key.reveal(), 'accept-encoding', 'identity']
        const startedAt = performance.now()
        const answer = call(target, fields, signal)
        const outcome = await answer.then((got) => meaningOf(got, startedAt, Date.now()), meaningOfFailure)
        const durationMs = performance.now() - startedAt
        const error = outcome instanceof TokenError ? outcome : undefined
        // A refusal of the org is none of the App.
        if (error === undefined || error.code === 'org_access_refused') credentials.accepted(key)
        observer.mintSettled?.({ org, url: baseUrl.origin + target, reason, requestId, durationMs, error })
        if (!(outcome instanceof TokenError)) return outcome
        if (outcome.code !== 'app_credentials_rejected') throw outcome
        tried.add(key)
        await rereadSecret?.()
        const other = credentials.rejected(key)
        if (other === undefined || tried.has(other)) throw outcome
        key = other
      }
    },
  }
}
