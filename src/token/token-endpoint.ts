/** One call of the token endpoint, and what its outcome means. No retries here, no redirects, nothing of the client. */

import { performance } from 'node:perf_hooks'
import type { SecureContext } from 'node:tls'
import type { Dispatcher } from 'undici'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { newProxyAgent, Pool, type ProxyVariables } from '../undici.ts'
import { AccessToken } from './access-token.ts'
import type { AppCredentials } from './app-credentials.ts'
import { jwtRestMs } from './jwt-expiry.ts'
import { callTokenEndpoint, type MintRequest } from './mint-call.ts'
import { parseRetryAfter } from './retry-after.ts'
import { translateMintError } from './token-endpoint-failure.ts'
import type { TokenObserver } from './token-observer.ts'
import { readOrgAccessToken } from './token-response.ts'
import type { MintOptions, TokenSource } from './token-source.ts'

export interface TokenEndpointOptions {
  /** Only its origin is used. */
  readonly baseUrl: URL
  /** Put in front of the path. */
  readonly prefix: string
  readonly connections: number
  /** From the call to the last byte of the reply. */
  readonly timeoutMs: number
  readonly connectTimeoutMs?: number | undefined
  /** What is trusted in place of the CA certificates of the runtime. */
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
  readonly #pool: Dispatcher
  readonly #now: () => number

  constructor(options: TokenEndpointOptions, credentials: AppCredentials) {
    this.#options = options
    this.#credentials = credentials
    this.#pool = openPool(options)
    this.#now = options.now ?? (() => performance.now())
  }

  mint(org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    return this.mintAs(this.#credentials, org, options)
  }

  /** With other credentials than those in use. */
  async mintAs(credentials: AppCredentials, org: OrgId, options: MintOptions = {}): Promise<AccessToken> {
    const { reason = 'cold', deadlineAt = Number.POSITIVE_INFINITY } = options
    const { observer } = this.#options
    const startedAt = this.#now()
    try {
      const token = await this.#call(
        credentials,
        org,
        startedAt,
        Math.min(this.#options.timeoutMs, deadlineAt - startedAt),
      )
      observer?.mintSettled?.({ org, reason, outcome: 'ok', durationMs: this.#now() - startedAt })
      return token
    } catch (cause) {
      const error = translateMintError(cause)
      observer?.mintSettled?.({ org, reason, outcome: error.code, durationMs: this.#now() - startedAt, error })
      throw error
    }
  }

  async close(): Promise<void> {
    await this.#pool.destroy()
  }

  async #call(credentials: AppCredentials, org: OrgId, startedAt: number, timeoutMs: number): Promise<AccessToken> {
    const request: MintRequest = {
      origin: this.#options.baseUrl.origin,
      path: `${this.#options.prefix}/v2/orgs/${encodeURIComponent(org)}/access`,
      method: 'POST',
      headers: ['authorization', credentials.authorization()],
      body: null,
    }
    const { status, rawFields, content } = await callTokenEndpoint(this.#pool, request, timeoutMs)
    refuseUnlessOk(status, rawFields, this.#wallNow())
    return this.#readToken(content, startedAt, fieldValue(rawFields, 'date'))
  }

  #readToken(content: Buffer, startedAt: number, date: string | undefined): AccessToken {
    const token = readOrgAccessToken(content)
    if (token === undefined) throw new TokenError('token_response_invalid', 'no usable orgAccessToken in the reply')
    // The clock that a token is stamped by is best read where it was issued (RFC 9110 §6.6.1): ours may be wrong.
    const issuedAt = date === undefined ? Number.NaN : Date.parse(date)
    const restMs = jwtRestMs(token, Number.isNaN(issuedAt) ? this.#wallNow() : issuedAt)
    return new AccessToken(token, startedAt, restMs === undefined ? undefined : startedAt + restMs)
  }

  #wallNow(): number {
    return (this.#options.wallNow ?? Date.now)()
  }
}

/** Undefined where there is none, and where several contradict each other. */
function fieldValue(rawFields: readonly Buffer[], name: string): string | undefined {
  const isNamed = (field: Buffer) => field.length === name.length && field.toString('latin1').toLowerCase() === name
  const values = rawFields.filter((_, index) => index % 2 === 1 && isNamed(rawFields[index - 1] ?? Buffer.alloc(0)))
  return values.length === 1 ? values[0]?.toString('latin1') : undefined
}

/** @throws {TokenError} */
function refuseUnlessOk(status: number, rawFields: readonly Buffer[], wallNowMs: number): void {
  const message = `the token endpoint answered ${status}`
  if (status >= 200 && status <= 299) return
  if (status < 400) throw new TokenError('token_response_invalid', message)
  if (status === 401) throw new TokenError('app_credentials_rejected', message)
  if (status === 429) {
    const retryAfterSeconds = parseRetryAfter(fieldValue(rawFields, 'retry-after'), wallNowMs)
    throw new TokenError('token_endpoint_rate_limited', message, { retryAfterSeconds })
  }
  if (status === 408 || status >= 500) throw new TokenError('token_endpoint_unavailable', message)
  throw new TokenError('org_access_refused', message, { tokenEndpointStatus: status })
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
    // The call keeps its own deadline over all of it.
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
