/**
 * Calls the token endpoint, and says what the outcome means. Nothing of the client's request goes along. It follows no redirect:
 * the App key goes to one address only.
 */

import { causeOf, OriginError, TokenError, type TokenErrorCode, type TokenErrorOptions } from '../errors.ts'
import { fieldValue } from '../http1/fields.ts'
import type { EndpointAnswer } from '../http1/response-head.ts'
import { ORG_ID_SEGMENT, targetPrefix } from '../http1/target.ts'
import type { OrgId } from '../org-id.ts'
import type { AppCredentials, AppKey } from './app-credentials.ts'
import { answeredAt, limitSeconds, readTokenReply, tellsLimit } from './token-reply.ts'
import { AccessToken, type OnCall, type TokenObserver, type TokenSource } from './token-source.ts'

export interface TokenEndpointOptions {
  readonly baseUrl: URL
  /** `path` has `{orgId}` in the place of the org id. */
  readonly endpoint: { readonly method: string; readonly path: string }
  /** The names that lead to the token in the answer. */
  readonly field: readonly string[]
  readonly userAgent: string
  readonly credentials: AppCredentials
  /** Sends a request without content, once. `fields` are names and values in turn. Rejects with an `OriginError`. */
  readonly call: (
    request: { readonly method: string; readonly target: string; readonly fields: readonly string[] },
    onCall?: OnCall,
  ) => Promise<EndpointAnswer>
  /** Offers the secret of the file to the credentials. Must not reject. */
  readonly rereadSecret?: (() => Promise<void>) | undefined
  readonly observer: TokenObserver
}

type Endpoint = Pick<TokenEndpointOptions, 'baseUrl' | 'endpoint'>

/** As people read it: `POST https://api.example.com/v2/orgs/{orgId}/access`, or with the org id in its place. */
export function endpointText({ baseUrl, endpoint }: Endpoint, org?: OrgId): string {
  return `${endpoint.method} ${baseUrl.origin}${endpointTarget({ baseUrl, endpoint }, org)}`
}

export function endpointTarget({ baseUrl, endpoint }: Endpoint, org?: OrgId): string {
  const segment = org === undefined ? ORG_ID_SEGMENT : encodeURIComponent(org)
  return targetPrefix(baseUrl) + endpoint.path.split(ORG_ID_SEGMENT).join(segment)
}

export function tokenEndpoint(options: TokenEndpointOptions): TokenSource {
  const { baseUrl, endpoint, credentials, call, rereadSecret, observer } = options
  const accept = ['accept', 'application/json', 'accept-encoding', 'identity', 'user-agent', options.userAgent]
  const reader = new AnswerReader(options)
  return {
    /** One call; after a 401, one with any secret not yet tried: the file may have a new one by now. */
    async mint(org, { reason = 'cold', requestId } = {}, onCall) {
      const { method } = endpoint
      const target = endpointTarget(options, org)
      const tried = new Set<AppKey>()
      for (let { key } = credentials; ; ) {
        const fields = ['host', baseUrl.host, 'authorization', key.reveal(), ...accept]
        const startedAt = performance.now()
        const answer = call({ method, target, fields }, onCall)
        const outcome = await answer.then((got) => reader.read(got, org, startedAt, Date.now()), meaningOfFailure)
        const durationMs = performance.now() - startedAt
        const error = outcome instanceof TokenError ? outcome : undefined
        // An endpoint that refuses an org has accepted the App.
        if (error === undefined || error.code === 'org_access_refused') credentials.accepted(key)
        observer.mintSettled?.({ org, method, url: baseUrl.origin + target, reason, requestId, durationMs, error })
        if (!(outcome instanceof TokenError)) return outcome
        if (outcome.code !== 'app_credentials_rejected') throw outcome
        tried.add(key)
        await rereadSecret?.()
        const other = credentials.rejected(key)
        if (tried.has(other)) throw outcome
        key = other
      }
    },
  }
}

/** Statuses by which a server says that it has no such call. The token endpoint itself may mean the org by 404. */
const NO_SUCH_CALL: readonly number[] = [400, 404, 405, 411, 415]

/** What an answer means depends on whether a call has ever succeeded: if none has, the address may be wrong. */
export class AnswerReader {
  readonly #options: Endpoint & Pick<TokenEndpointOptions, 'field'>
  #hasSucceeded = false
  /** The first one; the second shows that it is not about one org. */
  #refusedOrg: OrgId | undefined

  constructor(options: Endpoint & Pick<TokenEndpointOptions, 'field'>) {
    this.#options = options
  }

  /** `startedAt` is when the call began (monotonic milliseconds); `wallNowMs` is the time of day. */
  read(answer: EndpointAnswer, org: OrgId, startedAt: number, wallNowMs: number): AccessToken | TokenError {
    const { status, fields, content } = answer
    const { field } = this.#options
    const nowMs = answeredAt(fields, wallNowMs)
    const failure = (code: TokenErrorCode, says: string, options?: TokenErrorOptions) =>
      new TokenError(code, `The token endpoint answered ${status}${says}.`, options)
    const url = endpointText(this.#options)
    if (status < 300) {
      try {
        const { token, statedLifeMs } = readTokenReply(content, field, nowMs)
        this.#hasSucceeded = true
        return new AccessToken(token, startedAt, statedLifeMs)
      } catch {
        return failure('token_response_invalid', ` without a usable ${field.join('.')} to ${url}`)
      }
    }
    if (status < 400) {
      const host = hostOf(fieldValue(fields, 'location'), this.#options.baseUrl)
      const says = ` to ${url}: a redirect${host}, which is not followed`
      return failure('token_response_invalid', says, { tokenEndpointStatus: status, trouble: 'refusal' })
    }
    if (status === 401) {
      const orElse = this.#hasSucceeded ? '' : ', or this is not its address: check baseUrl and tokens.endpoint'
      return failure('app_credentials_rejected', ` to ${url}: it rejects the App credentials${orElse}`)
    }
    if (status === 429 || ((status === 403 || status === 503) && tellsLimit(fields, nowMs))) {
      const retryAfterSeconds = limitSeconds(fields, nowMs)
      return failure('token_endpoint_rate_limited', ': it limits the rate of calls', { retryAfterSeconds })
    }
    if (status === 408 || status >= 500) return failure('token_endpoint_unavailable', '')
    if (!this.#hasSucceeded && NO_SUCH_CALL.includes(status)) {
      const what = status === 404 ? 'it knows no such path or Org' : 'it was not taken as a token request'
      return failure('token_response_invalid', ` to ${url}: ${what}`, {
        tokenEndpointStatus: status,
        trouble: 'refusal',
      })
    }
    return failure('org_access_refused', this.#refusesEvery(org), { tokenEndpointStatus: status, trouble: 'refusal' })
  }

  #refusesEvery(org: OrgId): string {
    if (this.#hasSucceeded) return ''
    this.#refusedOrg ??= org
    return this.#refusedOrg === org ? '' : `, as to every Org so far: check ${endpointText(this.#options)} and appId`
  }
}

/** Of a redirect, only the host is told: the rest may hold a secret. */
function hostOf(location: string, { href }: URL): string {
  return location !== '' && URL.canParse(location, href) ? ` to ${new URL(location, href).host}` : ''
}

/** Names the system's code, never what was sent or received. */
function meaningOfFailure(error: unknown): TokenError {
  if (!(error instanceof OriginError)) throw error
  const { code, message, cause } = error
  const detail = cause instanceof Error && 'code' in cause ? cause.code : message
  const hint = causeOf(error) ?? `The call of the token endpoint failed (${detail}).`
  const isBroken = code === 'http_protocol_error' || code === 'http_response_incomplete'
  const unavailable = code.endsWith('_timeout') ? 'token_endpoint_timeout' : 'token_endpoint_unavailable'
  return new TokenError(isBroken ? 'token_response_invalid' : unavailable, hint, { cause: error })
}
