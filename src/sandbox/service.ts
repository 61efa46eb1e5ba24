/** The service under `/v2`: the token endpoint, the link endpoint, and everything that needs a bearer token. */

import { randomUUID } from 'node:crypto'
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http'
import { answerExample } from './example.ts'
import { commitFault, methodRefusal, pause, type Reply, refusal, type ServiceExchange, send } from './exchange.ts'
import type { Stats } from './stats.ts'
import type { SwitchBoard } from './switches.ts'
import type { TokenRegister } from './tokens.ts'

/** Your own answers: called for each request with a live token, except below `/v2/example/`. */
export type ServiceHandler = (request: IncomingMessage, response: ServerResponse, org: string) => void | Promise<void>

/** The state that the parts of one sandbox share. */
export interface SandboxState {
  readonly appId: string
  readonly switches: SwitchBoard
  readonly tokens: TokenRegister
  readonly stats: Stats
  readonly handler: ServiceHandler | undefined
}

const TOKEN_ENDPOINT = /^\/v2\/orgs\/([^/]+)\/access$/
/** An example: the service's real path for link URLs is not known. */
const LINK_ENDPOINT = '/v2/links'

export class Service {
  readonly #state: SandboxState

  constructor(state: SandboxState) {
    this.#state = state
  }

  answer(exchange: ServiceExchange): Promise<void> {
    const [, segment] = TOKEN_ENDPOINT.exec(exchange.path) ?? []
    if (segment !== undefined) return this.#answerMint(exchange, segment)
    if (exchange.path === LINK_ENDPOINT) return this.#answerLink(exchange)
    return this.#answerRequest(exchange)
  }

  async #answerMint({ request, response }: ServiceExchange, segment: string): Promise<void> {
    const { stats, switches } = this.#state
    const org = decoded(segment)
    if (org === undefined)
      return send(response, refusal(400, 'org_invalid', 'The org id has a broken percent-encoding.'))
    if (request.method !== 'POST') return send(response, methodRefusal('POST'))

    stats.mintStarted(org)
    response.once('close', () => stats.mintEnded(org))
    if (!(await pause(switches.values.mintLatencyMs, response))) return
    const fault = switches.mintFaults.next(org)
    if (fault !== undefined) return commitFault(fault, response)
    send(response, this.#mint(request, org))
  }

  #mint(request: IncomingMessage, org: string): Reply {
    const { stats, switches, tokens } = this.#state
    const { tokenFormat, tokenLifetimeMs, unlinkedStatus } = switches.values
    if (!this.#isApp(request)) return this.#appRefusal()
    if (!switches.isLinked(org)) {
      return refusal(unlinkedStatus, 'org_not_linked', 'This org has not linked with the App.')
    }
    stats.count(org, 'tokens')
    const orgAccessToken = tokens.issue(org, tokenLifetimeMs, tokenFormat)
    return { status: 200, value: { orgAccessToken }, fields: { 'cache-control': 'no-store' } }
  }

  async #answerLink({ request, response }: ServiceExchange): Promise<void> {
    const { switches } = this.#state
    if (!(await pause(switches.values.requestLatencyMs, response))) return
    const fault = switches.requestFaults.next(undefined)
    if (fault !== undefined) return commitFault(fault, response)
    send(response, this.#link(request))
  }

  #link(request: IncomingMessage): Reply {
    if (!this.#isApp(request)) return this.#appRefusal()
    if (request.method !== 'POST') return methodRefusal('POST')
    this.#state.stats.appRequestAccepted()
    return { status: 200, value: { linkUrl: `https://link.example/${randomUUID()}` } }
  }

  async #answerRequest(exchange: ServiceExchange): Promise<void> {
    const { handler, stats, switches, tokens } = this.#state
    const { request, response, path } = exchange
    const { state, org } = tokens.check(bearerTokenOf(request) ?? '')
    if (state === 'live') stats.count(org, 'requests')
    else stats.count(org, 'rejected')

    if (!(await pause(switches.values.requestLatencyMs, response))) return
    const fault = switches.requestFaults.next(org)
    if (fault !== undefined) return commitFault(fault, response)
    if (state !== 'live') return send(response, this.#tokenRefusal(state))
    if (handler !== undefined && !path.startsWith('/v2/example/')) return handler(request, response, org)
    return answerExample({ ...exchange, org })
  }

  #isApp(request: IncomingMessage): boolean {
    const given = appCredentialsOf(request)
    if (given === undefined || given.appId !== this.#state.appId) return false
    return this.#state.switches.secrets.includes(given.appSecret)
  }

  #appRefusal(): Reply {
    const status = this.#state.switches.values.badCredentialsStatus
    const message = 'This request needs the App id and its secret.'
    return refusal(status, 'app_credentials_wrong', message, challenge(status, 'Basic realm="sandbox"'))
  }

  #tokenRefusal(state: 'expired' | 'revoked' | 'unknown'): Reply {
    const status = this.#state.switches.values.expiredStatus
    const message = 'This request needs a live Org Access Token.'
    return refusal(status, `token_${state}`, message, challenge(status, 'Bearer error="invalid_token"'))
  }
}

/** A 401 must name a way to authenticate (RFC 9110 §15.5.2). */
function challenge(status: number, value: string): OutgoingHttpHeaders {
  return status === 401 ? { 'www-authenticate': value } : {}
}

function decoded(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment)
  } catch {
    return undefined
  }
}

/** Basic (RFC 7617) or Bearer (RFC 6750) credentials. */
const AUTHORIZATION = /^(basic|bearer) +([^\s]+)$/i

function bearerTokenOf(request: IncomingMessage): string | undefined {
  return credentialsOf(request, 'bearer')
}

function appCredentialsOf(request: IncomingMessage): { appId: string; appSecret: string } | undefined {
  const encoded = credentialsOf(request, 'basic')
  if (encoded === undefined) return undefined
  const pair = Buffer.from(encoded, 'base64').toString('utf8')
  const colonAt = pair.indexOf(':') // the secret may hold further colons
  if (colonAt === -1) return undefined
  return { appId: pair.slice(0, colonAt), appSecret: pair.slice(colonAt + 1) }
}

function credentialsOf(request: IncomingMessage, scheme: string): string | undefined {
  const [, given, credentials] = AUTHORIZATION.exec(request.headers.authorization ?? '') ?? []
  return given?.toLowerCase() === scheme ? credentials : undefined
}
