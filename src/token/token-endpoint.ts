/** Calls the token endpoint. Each mint is one call: nothing is retried here, redirects are not followed, and nothing of the client goes along. */

import { performance } from 'node:perf_hooks'
import type { SecureContext } from 'node:tls'
import type { Dispatcher } from 'undici'
import type { OrgId } from '../http/org-id.ts'
import { newProxyAgent, Pool, type ProxyVariables } from '../undici.ts'
import type { AccessToken } from './access-token.ts'
import type { AppCredentials } from './app-credentials.ts'
import { callTokenEndpoint, type MintRequest } from './mint-call.ts'
import type { TokenObserver } from './token-observer.ts'
import { readToken, translateMintError } from './token-reply.ts'
import type { MintOptions, TokenSource } from './token-source.ts'

export interface TokenEndpointOptions {
  /** Only its origin is used. */
  readonly baseUrl: URL
  /** Put in front of the path. */
  readonly prefix: string
  readonly connections: number
  /** From the start of the call to the last byte of the reply. */
  readonly timeoutMs: number
  readonly connectTimeoutMs?: number | undefined
  /** Replaces the CA certificates of the runtime. */
  readonly secureContext?: SecureContext | undefined
  readonly proxies?: ProxyVariables | undefined
  readonly observer?: TokenObserver | undefined
  readonly now?: () => number
  readonly wallNow?: () => number
}

const MAX_REPLY_HEAD_BYTES = 16 * 1024

export class TokenEndpoint implements TokenSource {
  readonly #options: TokenEndpointOptions
  readonly #credentials: AppCredentials
  #pool: Dispatcher
  readonly #now: () => number

  constructor(options: TokenEndpointOptions, credentials: AppCredentials) {
    this.#options = options
    this.#credentials = credentials
    this.#pool = openPool(options)
    this.#now = options.now ?? (() => performance.now())
  }

  /** Later calls trust these certificates, on connections of their own. Calls under way end as they began. */
  trust(secureContext: SecureContext | undefined): void {
    const former = this.#pool
    this.#pool = openPool({ ...this.#options, secureContext })
    former.close().catch(() => undefined)
  }

  mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    return this.mintAs(this.#credentials, org, options)
  }

  /** With other credentials than those in use. */
  async mintAs(credentials: AppCredentials, org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const { reason = 'cold', deadlineAt = Number.POSITIVE_INFINITY, requestId } = options
    const { observer, timeoutMs, baseUrl, prefix } = this.#options
    const path = `${prefix}/v2/orgs/${encodeURIComponent(org)}/access`
    const url = baseUrl.origin + path
    const startedAt = this.#now()
    const durationMs = () => this.#now() - startedAt
    try {
      const token = await this.#call(credentials, path, startedAt, Math.min(timeoutMs, deadlineAt - startedAt))
      observer?.mintSettled?.({ org, url, reason, outcome: 'ok', durationMs: durationMs() })
      return token
    } catch (cause) {
      const error = translateMintError(cause)
      observer?.mintSettled?.({ org, url, reason, requestId, outcome: error.code, durationMs: durationMs(), error })
      throw error
    }
  }

  async close(): Promise<void> {
    await this.#pool.destroy()
  }

  async #call(credentials: AppCredentials, path: string, startedAt: number, timeoutMs: number): Promise<AccessToken> {
    const request: MintRequest = {
      origin: this.#options.baseUrl.origin,
      path,
      method: 'POST',
      headers: ['authorization', credentials.authorization()],
      body: null,
    }
    const reply = await callTokenEndpoint(this.#pool, request, timeoutMs)
    return readToken(reply, startedAt, (this.#options.wallNow ?? Date.now)())
  }
}

function openPool({
  baseUrl,
  connections,
  connectTimeoutMs,
  secureContext,
  proxies,
}: TokenEndpointOptions): Dispatcher {
  const options = {
    connections,
    pipelining: 1,
    allowH2: false,
    // The call has one deadline of its own.
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: MAX_REPLY_HEAD_BYTES,
    connect: {
      rejectUnauthorized: true,
      ...(connectTimeoutMs === undefined ? {} : { timeout: connectTimeoutMs }),
      ...(secureContext && { secureContext }),
    },
  }
  return proxies === undefined ? new Pool(baseUrl.origin, options) : newProxyAgent(proxies, options)
}
