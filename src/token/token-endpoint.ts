/**
 * Calls the token endpoint, and says what the outcome means. Nothing of the client's request goes along. It follows no redirect:
 * the App key goes to one address only.
 */

import * as clock from '../clock.ts'
import { causeOf, OriginError, TokenError, type TokenErrorCode, type TokenErrorOptions } from '../errors.ts'
import { fieldValue } from '../http1/field-list.ts'
import type { WholeResponse } from '../http1/response-parser.ts'
import { pathOf } from '../http1/target.ts'
import type { OrgId } from '../org-id.ts'
import { holdsSecret, type Secret } from '../secret.ts'
import type { AppCredentials } from './app-credentials.ts'
import type { AppKey } from './app-key.ts'
import { type AskedWith, noteOn } from './refusal-note.ts'
import {
  answeredAt,
  limitSeconds,
  memberOf,
  NoUsableToken,
  readJson,
  readTokenReply,
  tellsLimit,
} from './token-reply.ts'
import {
  endpointBase,
  endpointText,
  endpointUrl,
  idAtEndpoint,
  type TokenRequest,
  type TokenRequestSettings,
  tokenRequest,
} from './token-request.ts'
import { AccessToken, type TokenObserver, type TokenSource } from './token-source.ts'

export interface TokenEndpointOptions extends TokenRequestSettings {
  /** The names that lead to the token in the answer. */
  readonly field: readonly string[]
  readonly userAgent: string
  readonly credentials: AppCredentials
  /** The longest time of a mint, whichever secrets it tries. */
  readonly timeoutMs: number
  /** Sends a request, once. Rejects with an `OriginError`. */
  readonly call: (request: TokenRequest, timeoutMs: number) => Promise<WholeResponse>
  /** Offers the secret of the file to the credentials. Must not reject. */
  readonly rereadSecret?: (() => Promise<void>) | undefined
  readonly observer: TokenObserver
}

export function tokenEndpoint(options: TokenEndpointOptions): TokenSource {
  const { credentials, timeoutMs, call, rereadSecret, observer } = options
  const reader = new AnswerReader(options)
  return {
    /** One call; after a 401, one with the other secret: the file may have a new one by now. */
    async mint(org, { reason = 'cold', requestId, replaces, withinMs = timeoutMs } = {}) {
      const { method } = options.endpoint
      const id = idAtEndpoint(org, options)
      if (id === undefined)
        throw new TokenError('org_access_refused', 'orgs.ids has lost the Org.', { trouble: 'refusal' })
      const url = endpointUrl(options, id)
      const until = clock.runningTime() + Math.min(timeoutMs, withinMs)
      const tried: AppKey[] = []
      for (let { key } = credentials; ; ) {
        const proof = await key.prove(url)
        const startedAt = clock.now()
        const request = tokenRequest(options, id, proof, options.userAgent)
        let status: number | undefined
        const outcome = await call(request, until - clock.runningTime()).then(
          (answer) => {
            status = answer.status
            const headers = Object.values(options.secretHeaders ?? {}).map(({ content }) => content)
            const secrets = [...credentials.secrets, proof, ...headers, ...(replaces === undefined ? [] : [replaces])]
            return reader.read(answer, org, clock.now() - startedAt, clock.day(), { key, secrets })
          },
          (error: unknown) => reader.meaningOfFailure(error),
        )
        const durationMs = clock.now() - startedAt
        let error = outcome instanceof TokenError ? outcome : undefined
        let other: AppKey | undefined
        if (error?.trouble === 'credentials') {
          credentials.rejected(key)
          tried.push(key)
          await rereadSecret?.()
          if (clock.runningTime() < until) other = credentials.next(tried)
          if (other === undefined && replaces === undefined && credentials.wereAccepted)
            error = notLinked(status, error)
        } else if (error === undefined || error.code === 'org_access_refused') {
          credentials.accepted(key) // an endpoint that refuses an org has accepted the App
        }
        observer.mintSettled?.({ org, method, url: pathOf(url), reason, requestId, durationMs, error })
        if (!(outcome instanceof TokenError)) return outcome
        if (other === undefined) throw error
        key = other
      }
    },
  }
}

/** The App was accepted before, and some services answer 401 for an Org that has not linked with it. */
function notLinked(tokenEndpointStatus: number | undefined, { note }: TokenError): TokenError {
  const says = `The token endpoint answered ${tokenEndpointStatus}: the Org is not linked, or the App secret is no longer accepted.`
  return new TokenError('org_access_refused', says, { tokenEndpointStatus, trouble: 'credentials', note })
}

/** A proxy like this one gives no token to its clients. */
const REFUSED_BY_PROXY = 'org-access-proxy; error=http_request_denied; details="token_endpoint_refused"'

/** Statuses by which a server says that it has no such call. The token endpoint itself may mean the org by 404. */
const NO_SUCH_CALL: readonly number[] = [400, 404, 405, 411, 415]

/** What an answer means depends on whether a call has ever succeeded: if none has, the address may be wrong. */
type Asked = Pick<TokenEndpointOptions, 'baseUrl' | 'endpoint' | 'field'>

export class AnswerReader {
  readonly #options: Asked
  #hasSucceeded = false
  /** The first one; the second shows that it is not about one org. */
  #refusedOrg: OrgId | undefined

  constructor(options: Asked) {
    this.#options = options
  }

  /** `tookMs` is the time of the call, which has ended now; `wallNowMs` is the time of day. */
  read(
    answer: WholeResponse,
    org: OrgId,
    tookMs: number,
    wallNowMs: number,
    asked?: AskedWith,
  ): AccessToken | TokenError {
    const { status, fields, content } = answer
    const { field } = this.#options
    const nowMs = answeredAt(fields, wallNowMs)
    const failure = (code: TokenErrorCode, says: string, options?: TokenErrorOptions) =>
      new TokenError(code, `The token endpoint answered ${status}${says}.`, {
        note: asked && noteOn(answer, wallNowMs, asked),
        ...options,
      })
    const refusal = { tokenEndpointStatus: status, trouble: 'refusal' } as const
    const url = endpointText(this.#options)
    if (status < 300) {
      try {
        const { token, statedLifeMs } = readTokenReply(answer, field, nowMs)
        this.#hasSucceeded = true
        // The life may have begun with the call: no end is late.
        return new AccessToken(token, clock.now(), Math.max(statedLifeMs - tookMs, 0))
      } catch (error) {
        if (!(error instanceof NoUsableToken)) throw error
        return failure('token_response_invalid', ` without a usable ${field.join('.')} to ${url}: ${error.message}`)
      }
    }
    if (status < 400) {
      const host = hostOf(fieldValue(fields, 'location'), endpointBase(this.#options), asked?.secrets)
      return failure('token_response_invalid', ` to ${url}: a redirect${host}, which is not followed`, refusal)
    }
    if (fieldValue(fields, 'proxy-status').includes(REFUSED_BY_PROXY)) {
      const says =
        'that is the answer of an org-access-proxy, not of the service: correct baseUrl, which leads to a proxy'
      return failure('token_response_invalid', ` to ${url}: ${says}`, refusal)
    }
    // RFC 6749 §5.2
    if (status === 401 || (status === 400 && memberOf(readJson(content), 'error') === 'invalid_client')) {
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

  /** Names the system's code, never what was sent or received. */
  meaningOfFailure(error: unknown): TokenError {
    if (!(error instanceof OriginError)) throw error
    const { code, message, cause } = error
    const detail = cause instanceof Error && 'code' in cause ? cause.code : message
    const told = causeOf(error) ?? `The call of the token endpoint failed (${detail}).`
    // Of another host than the service, a message must name it.
    const isElsewhere = this.#options.endpoint.base !== undefined
    const hint = isElsewhere ? `${endpointText(this.#options)}: ${told.replaceAll('baseUrl', 'tokens.endpoint')}` : told
    const isBroken = code === 'http_protocol_error' || code === 'http_response_incomplete'
    const unavailable = code.endsWith('_timeout') ? 'token_endpoint_timeout' : 'token_endpoint_unavailable'
    return new TokenError(isBroken ? 'token_response_invalid' : unavailable, hint, { cause: error })
  }

  #refusesEvery(org: OrgId): string {
    if (this.#hasSucceeded) return ''
    this.#refusedOrg ??= org
    return this.#refusedOrg === org ? '' : `, as to every Org so far: check ${endpointText(this.#options)} and appId`
  }
}

/** Of a redirect, only the host is told: the rest may hold a secret. */
function hostOf(location: string, { href }: URL, secrets: readonly Secret[] = []): string {
  if (location === '' || !URL.canParse(location, href)) return ''
  const { host } = new URL(location, href)
  return holdsSecret(host, secrets) ? '' : ` to ${host}`
}
