/** The service under `/v2`: the token endpoint, the link endpoint, and everything that needs a bearer token. */

import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { answerExample } from './example.ts'
import { commitFault, type Exchange, pause, type Reply, refusal, send } from './exchange.ts'
import type { Stats } from './stats.ts'
import type { SwitchBoard } from './switches.ts'
import type { TokenRegister } from './tokens.ts'

/** Your own answers: called for each request with a live token, except below `/v2/example/`. */
export type ServiceHandler = (request: IncomingMessage, response: ServerResponse, org: string) => void | Promise<void>

/** The state of one sandbox. */
export interface Service {
  readonly appId: string
  readonly switches: SwitchBoard
  readonly tokens: TokenRegister
  readonly stats: Stats
  readonly handler: ServiceHandler | undefined
}

const TOKEN_ENDPOINT = /^\/v2\/orgs\/([^/]+)\/access$/
/** An example: the service's real path for link URLs is not known. */
const LINK_ENDPOINT = '/v2/links'

export function answerService(service: Service, exchange: Exchange): Promise<void> {
  const [, segment] = TOKEN_ENDPOINT.exec(exchange.path) ?? []
  if (segment !== undefined) return answerMint(service, exchange, segment)
  if (exchange.path === LINK_ENDPOINT) return answerLink(service, exchange)
  return answerRequest(service, exchange)
}

async function answerMint(service: Service, { request, response }: Exchange, segment: string): Promise<void> {
  const { stats, switches } = service
  const org = decoded(segment)
  if (org === undefined) return send(response, refusal(400, 'org_invalid', 'The org id has a broken percent-encoding.'))
  if (request.method !== 'POST') return send(response, postOnly)

  stats.count(org, 'mints')
  if (!(await pause(switches.values.mintLatencyMs, response))) return
  const fault = switches.takeFault('mintFaults', org)
  if (fault !== undefined) return commitFault(fault, response)
  send(response, mint(service, request, org))
}

function mint(service: Service, request: IncomingMessage, org: string): Reply {
  const { stats, switches, tokens } = service
  if (!isApp(service, request)) return appRefusal(service)
  if (!switches.isLinked(org)) {
    return refusal(switches.values.unlinkedStatus, 'org_not_linked', 'This org has not linked with the App.')
  }
  stats.count(org, 'tokens')
  const orgAccessToken = tokens.issue(org, switches.values)
  return { status: 200, value: { orgAccessToken }, fields: { 'cache-control': 'no-store' } }
}

async function answerLink(service: Service, { request, response }: Exchange): Promise<void> {
  const { stats, switches } = service
  if (!(await pause(switches.values.requestLatencyMs, response))) return
  const fault = switches.takeFault('requestFaults')
  if (fault !== undefined) return commitFault(fault, response)
  if (!isApp(service, request)) return send(response, appRefusal(service))
  if (request.method !== 'POST') return send(response, postOnly)
  stats.appRequests += 1
  send(response, { status: 200, value: { linkUrl: `https://link.example/${randomUUID()}` } })
}

async function answerRequest({ handler, stats, switches, tokens }: Service, exchange: Exchange): Promise<void> {
  const { request, response, path } = exchange
  const { state, org } = tokens.check(credentialsOf(request, 'bearer') ?? '')
  stats.count(org, state === 'live' ? 'requests' : 'rejected')

  const { requestLatencyMs, expiredStatus } = switches.values
  if (!(await pause(requestLatencyMs, response))) return
  const fault = switches.takeFault('requestFaults', org)
  if (fault !== undefined) return commitFault(fault, response)
  if (state !== 'live') {
    const message = 'This request needs a live Org Access Token.'
    return send(response, authRefusal(expiredStatus, `token_${state}`, message, 'Bearer error="invalid_token"'))
  }
  if (handler !== undefined && !path.startsWith('/v2/example/')) return handler(request, response, org)
  return answerExample(exchange, org)
}

const postOnly = refusal(405, 'method_not_allowed', 'Use POST.', { allow: 'POST' })

function appRefusal({ switches }: Service): Reply {
  const message = 'This request needs the App id and its secret.'
  return authRefusal(switches.values.badCredentialsStatus, 'app_credentials_wrong', message, 'Basic realm="sandbox"')
}

/** A 401 must name a way to authenticate (RFC 9110 §15.5.2). */
function authRefusal(status: number, error: string, message: string, challenge: string): Reply {
  return refusal(status, error, message, status === 401 ? { 'www-authenticate': challenge } : {})
}

function decoded(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment)
  } catch {
    return undefined
  }
}

function isApp({ appId, switches }: Service, request: IncomingMessage): boolean {
  const pair = Buffer.from(credentialsOf(request, 'basic') ?? '', 'base64').toString('utf8')
  return switches.secrets.some((secret) => pair === `${appId}:${secret}`)
}

/** Basic (RFC 7617) or Bearer (RFC 6750) credentials. */
function credentialsOf(request: IncomingMessage, scheme: 'basic' | 'bearer'): string | undefined {
  const [, given, credentials] = /^(basic|bearer) +(\S+)$/i.exec(request.headers.authorization ?? '') ?? []
  return given?.toLowerCase() === scheme ? credentials : undefined
}
