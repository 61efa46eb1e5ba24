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
import { answeredAt, limitSeconds, memberOf, parseReply, readTokenReply, tellsLimit } from './token-reply.ts'
import { AccessToken, type OnCall, type TokenObserver, type TokenSource } from './token-source.ts'

export interface TokenEndpointOptions {
  readonly baseUrl: URL
  /** `path` has `{orgId}` in the place of the org id. */
  readonly endpoint: { readonly method: string; readonly path: string }
  /** The names that lead to the token in the answer. */
  readonly field: readonly string[]
  readonly userAgent: string
  readonly credentials: AppCredentials
  /** The longest time of a mint, whichever secrets it tries. */
  readonly timeoutMs: number
  /** Sends a request without content, once. `fields` are names and values in turn. Rejects with an `OriginError`. */
  readonly call: (
    request: { readonly method: string; readonly target: string; readonly fields: readonly string[] },
    timeoutMs: number,
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
  const { baseUrl, endpoint, credentials, timeoutMs, call, rereadSecret, observer } = options
  const accept = ['accept', 'application/json', 'accept-encoding', 'identity', 'user-agent', options.userAgent]
  const reader = new AnswerReader(options)
  return {
    /** One call; after a 401, one with the other secret: the file may have a new one by now. */
    async mint(org, { reason = 'cold', requestId, replaces } = {}, onCall) {
      const { method } = endpoint
      const target = endpointTarget(options, org)
      const until = performance.now() + timeoutMs
      const tried: AppKey[] = []
      for (let { key } = credentials; ; ) {
        const fields = ['host', baseUrl.host, 'authorization', key.reveal(), ...accept]
        const startedAt = performance.now()
        let status: number | undefined
        const outcome = await call({ method, target, fields }, until - startedAt, onCall).then((answer) => {
          status = answer.status
          return reader.read(answer, org, startedAt, Date.now())
        }, meaningOfFailure)
        const durationMs = performance.now() - startedAt
        let error = outcome instanceof TokenError ? outcome : undefined
        let other: AppKey | undefined
        if (error?.trouble === 'credentials') {
          credentials.rejectedByEndpoint(key)
          tried.push(key)
          await rereadSecret?.()
          if (performance.now() < until) other = credentials.next(tried)
          if (other === undefined && replaces === undefined && credentials.wereAccepted) error = notLinked(status)
        } else if (error === undefined || error.code === 'org_access_refused') {
          credentials.accepted(key) // an endpoint that refuses an org has accepted the App
        }
        const url = baseUrl.origin + target
        observer.mintSettled?.({ org, method, url, reason, requestId, durationMs, error })
        if (!(outcome instanceof TokenError)) return outcome
        if (other === undefined) throw error
        key = other
      }
    },
  }
}

/** The App was accepted before, and some services answer 401 for an Org that has not linked with it. */
function notLinked(tokenEndpointStatus: number | undefined): TokenError {
  const says = `The token endpoint answered ${tokenEndpointStatus}: the Org is not linked, or the App secret is no longer accepted.`
  return new TokenError('org_access_refused', says, { tokenEndpointStatus, trouble: 'credentials' })
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
    const refusal = { tokenEndpointStatus: status, trouble: 'refusal' } as const
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
      return failure('token_response_invalid', ` to ${url}: a redirect${host}, which is not followed`, refusal)
    }
    if (status === 401 || (status === 400 && errorIn(content) === 'invalid_client')) {
      const orElse = this.#hasSucceeded ? '' : ', or this is not its address: check baseUrl and tokens.endpoint'
      return failure('app_credentials_rejected', ` to ${url}: it rejects the App credentials${orElse}`)
    }
    if (status === 429 || ((status === 403 || status === 503) && tellsLimit(fields, nowMs))) {
      const retryAfterSeconds = limitSeconds(fields, nowMs)
      return failure('token_endpoint_rate_limited', ': it limits the rate of calls', { retryAfterSeconds })
    }
    if (status === 408 || status >= 500) return failure('token_endpoint_unavailable', '')
    if (!this.#hasSucceeded && NO_SUCH_CALL.includes(status)) {
      const what = status === 404 ? 'it knows no such Org or path' : 'it was not taken as a token request'
      return failure('token_response_invalid', ` to ${url}: ${what}`, refusal)
    }
    return failure('org_access_refused', this.#refusesEvery(org), refusal)
  }

  #refusesEvery(org: OrgId): string {
    if (this.#hasSucceeded) return ''
    this.#refusedOrg ??= org
    return this.#refusedOrg === org ? '' : `, as to every Org so far: check ${endpointText(this.#options)} and appId`
  }
}

/** The code of an OAuth 2.0 error (RFC 6749 §5.2). */
function errorIn(content: Buffer): unknown {
  try {
    return memberOf(parseReply(content).value, 'error')
  } catch {
    return undefined
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
