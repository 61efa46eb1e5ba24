/**
 * Calls the token endpoint. Each mint is one call: nothing is repeated here, redirects are not followed, and nothing of the
 * client's request goes along.
 */

import { performance } from 'node:perf_hooks'
import type { SecureContext } from 'node:tls'
import type { Dispatcher } from 'undici'
import { TokenError } from '../errors.ts'
import type { OrgId } from '../http/org-id.ts'
import { newProxyAgent, Pool, type ProxyVariables } from '../undici.ts'
import type { AppCredentials } from './app-credentials.ts'
import { type MintReply, readToken, translateMintError } from './token-reply.ts'
import type { AccessToken, MintOptions, TokenObserver, TokenSource } from './token-source.ts'

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
const MAX_REPLY_BYTES = 64 * 1024
/** If the content of a refusal is read within this time, its connection can be used again. */
const READ_AWAY_MS = 1_000

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
    const reply = await new Promise<MintReply>((resolve, reject) => {
      // One object literal: when `body` was added to a copy of the rest, V8 made a hidden class for each mint, and undici's
      // lookups were slow.
      const request: Dispatcher.DispatchOptions = {
        origin: this.#options.baseUrl.origin,
        path,
        method: 'POST',
        headers: ['authorization', credentials.authorization()],
        body: null,
      }
      this.#pool.dispatch(request, new MintCall(resolve, reject, timeoutMs))
    })
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

/**
 * One call: one deadline for all of it, and a bounded reply. It is one object without streams and signals, because thousands
 * of orgs may need their tokens at once. Rejects with a `TokenError` of its own, or with an error of undici.
 */
class MintCall implements Dispatcher.DispatchHandler {
  readonly #resolve: (reply: MintReply) => void
  readonly #reject: (error: Error) => void
  #timer: NodeJS.Timeout
  #abort: ((error?: Error) => void) | undefined
  #abortReason: Error | undefined
  #status = 0
  #rawFields: readonly Buffer[] = []
  readonly #chunks: Buffer[] = []
  #bytes = 0

  constructor(resolve: (reply: MintReply) => void, reject: (error: Error) => void, timeoutMs: number) {
    this.#resolve = resolve
    this.#reject = reject
    this.#timer = this.#abortAfter(timeoutMs)
  }

  onConnect(abort: (error?: Error) => void): void {
    this.#abort = abort
    if (this.#abortReason !== undefined) abort(this.#abortReason)
  }

  onHeaders(status: number, rawFields: Buffer[]): boolean {
    if (status === 101) this.#breakOff(new TokenError('token_response_invalid', 'it changed the protocol'))
    if (status < 200) return true
    this.#status = status
    this.#rawFields = rawFields
    if (!this.#isSuccess) {
      this.#settle()
      clearTimeout(this.#timer)
      this.#timer = this.#abortAfter(READ_AWAY_MS)
    }
    return true
  }

  onData(chunk: Buffer): boolean {
    this.#bytes += chunk.length
    if (this.#bytes > MAX_REPLY_BYTES) {
      this.#breakOff(new TokenError('token_response_invalid', 'the reply is too large'))
    } else if (this.#isSuccess) this.#chunks.push(chunk)
    return true
  }

  onComplete(): void {
    clearTimeout(this.#timer)
    this.#settle()
  }

  onError(error: Error): void {
    clearTimeout(this.#timer)
    this.#reject(
      this.#isSuccess ? new TokenError('token_response_invalid', 'the reply was cut off', { cause: error }) : error,
    )
  }

  get #isSuccess(): boolean {
    return this.#status >= 200 && this.#status <= 299
  }

  #settle(): void {
    this.#resolve({ status: this.#status, rawFields: this.#rawFields, content: Buffer.concat(this.#chunks) })
  }

  #abortAfter(delayMs: number): NodeJS.Timeout {
    // After a stall of this process the answer may be there already: it is read before the immediate runs.
    const expire = () =>
      setImmediate(() => this.#breakOff(new TokenError('token_endpoint_timeout', 'no answer in time')))
    return setTimeout(expire, Math.max(delayMs, 0))
  }

  /** Rejects at once. The exchange ends now, or as soon as it leaves the queue of a full pool. */
  #breakOff(reason: TokenError): void {
    clearTimeout(this.#timer)
    this.#abortReason = reason
    this.#reject(reason)
    this.#abort?.(reason)
  }
}
