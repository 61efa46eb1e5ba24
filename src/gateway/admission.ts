/**
 * Decides whether a request is admitted or refused. Pure and without I/O: one pass over the raw fields, then
 * the checks in the order in which the documentation lists the refusals.
 */

import {
  type Caller,
  type CallerRefusal,
  type Callers,
  matchesPath,
  matchesRoute,
  type Peer,
  type RoutePattern,
} from '../callers/callers.ts'
import type { Failure, RefusalCode } from '../errors.ts'
import { namedByConnection, withoutFields } from '../http1/field-list.ts'
import type { HostList } from '../http1/host.ts'
import type { RequestHead } from '../http1/request-parser.ts'
import { pathOf } from '../http1/target.ts'
import { faultOfOrgId, type OrgId, type OrgIdFault, parseOrgId } from '../org-id.ts'
import { type FieldRules, gatherFields, type RequestFindings } from './fields.ts'
import { hasEncodedControl, isForwardable } from './targets.ts'

/** Everything that the configuration says about admission. One request sees one set of rules from beginning to end. */
export interface AdmissionRules {
  readonly hosts: HostList
  readonly refuseForwarded: boolean
  /** Compares in constant time. Undefined if no caller key is configured. */
  readonly isCallerKey: ((value: string) => boolean) | undefined
  readonly callers: Callers | undefined
  readonly orgPattern: RegExp
  readonly sendCookies: boolean
  readonly fieldRules: FieldRules
  /** Empty: all. */
  readonly allowedOrgs: ReadonlySet<string>
  /** The Orgs that have a name. Undefined: they go by their ids. */
  readonly namedOrgs: { has(org: OrgId): boolean } | undefined
  /** Empty: all. */
  readonly allowedRoutes: readonly RoutePattern[]
  /** True if a service may read the path as the token endpoint. */
  readonly isTokenEndpoint: (path: string) => boolean
  readonly allowTokenEndpoint: boolean
  readonly appRoutes: readonly RoutePattern[]
  /** Put in front of every target: `''` or `/api`. */
  readonly targetPrefix: string
  /** Random name of this very instance. Its presence in `Via` is a loop; another instance on the way is none. */
  readonly instance: string
  /** Authority of the base URL, as it goes in `Host`. */
  readonly serviceHost: string
}

export interface Refusal extends Failure {
  readonly verdict: 'refused'
  readonly code: RefusalCode
  /** The Org that the request named, if that is why it was refused. */
  readonly orgId?: OrgId | undefined
  readonly caller?: Caller | undefined
  /** Why no caller was found, what is wrong with the org id, or with the request for a route. For the log, never for the answer. */
  readonly reason?: CallerRefusal | OrgIdFault | 'method override' | undefined
  /** For `explain`, which asks `admit` without a request: the setting that refuses, if another value of it could admit. `code` tells the step. */
  readonly setting?: RefusingSetting | undefined
}

export type RefusingSetting =
  | 'listen.hosts'
  | 'listen.refuseForwarded'
  | 'listen.callerKeyFile'
  | 'callers'
  | 'callers[].orgs'
  | 'callers[].tokens'
  | 'callers[].routes'
  | 'appRoutes'
  | 'routes.allow'
  | 'routes.allowTokenEndpoint'
  | 'orgs.allow'
  | 'orgs.ids'
  | 'orgs.pattern'

/** Its fields are those that go to the service, and only its credential is missing. */
export interface Admitted {
  readonly verdict: 'admitted'
  readonly method: string
  /** Undefined if the request goes as the bare App. */
  readonly orgId: OrgId | undefined
  /** Undefined if no callers are configured. */
  readonly caller: Caller | undefined
  /** Origin-form, with the prefix of the base URL. */
  readonly target: string
  /** `Host` of the request, for links; empty where it says nothing of how a client reaches the proxy. */
  readonly host: string
  /** As the client sent it, without the query. For the log. */
  readonly path: string
  /** Flat list of everything that goes to the service, with `Host`, `Via` and `X-Request-Id`. Only those with secrets are missing. */
  readonly fields: string[]
  readonly requestId: string
  /** As the client sent it. */
  readonly traceparent: string | undefined
  /** The declared length in octets. Undefined if none is declared. */
  readonly contentLength: number | undefined
  readonly hasContent: boolean
  readonly expectsContinue: boolean
  readonly isWebSocket: boolean
  /** It had a `Cookie`, and the service does not get it. */
  readonly dropsCookie: boolean
  /** Cookies of the service are to come back. */
  readonly sendsCookies: boolean
  /** The proxy answers instead of the service (RFC 9110 §7.6.2). */
  readonly isForProxy: boolean
}

/** `unverified`: it has a JWT that nobody has verified yet. Reception verifies it, and asks again with the result. */
export type Admission = Admitted | Refusal | { readonly verdict: 'unverified'; readonly token: string }

const REQUEST_ID = /^[\x21-\x7e]{1,128}$/
const HOPS = /^\d{1,9}$/
const WEBSOCKET_KEY = /^[A-Za-z0-9+/]{22}==$/

export function refuse(code: RefusalCode, setting?: RefusingSetting, reason?: Refusal['reason']): Refusal {
  return { verdict: 'refused', code, setting, reason }
}

/** `newRequestId` is called for an admitted request without a usable `X-Request-Id`. `verified`: the result, if there is one. */
export function admit(
  head: RequestHead,
  rules: AdmissionRules,
  newRequestId: () => string,
  peer: Peer = { callerSocket: undefined },
  verified?: Caller | CallerRefusal,
): Admission {
  const found = gatherFields(head.rawFields, rules.sendCookies, rules.fieldRules)
  const sender = senderOf(head, found, rules, peer, verified)
  if (sender !== undefined && 'verdict' in sender) return sender
  const admission = admitTarget(head, found, rules, newRequestId, sender)
  return admission.verdict === 'admitted' || sender === undefined ? admission : { ...admission, caller: sender }
}

/** Who has sent a request, by its head and its connection. Undefined where no callers are configured. */
export function senderOf(
  head: RequestHead,
  found: RequestFindings,
  rules: AdmissionRules,
  peer: Peer,
  verified?: Caller | CallerRefusal,
): Caller | undefined | Exclude<Admission, Admitted> {
  const early = checkMethod(head, found) ?? checkHost(found, rules) ?? checkSender(found, rules)
  if (early !== undefined) return early
  if (rules.callers === undefined) return undefined
  const { callerKey = '' } = found
  const caller = verified ?? rules.callers.identify(peer, keysIn(found), callerKey)
  if (caller === 'unverified') return { verdict: 'unverified', token: callerKey }
  // A 403 would say that the credential is wrong.
  if (caller === 'no key set') return refuse('caller_keys_unavailable', 'callers', caller)
  return typeof caller === 'string' ? refuse('caller_refused', 'callers', caller) : caller
}

function checkMethod({ method }: RequestHead, { expectation = '100-continue' }: RequestFindings): Refusal | undefined {
  if (method === 'CONNECT' || method === 'TRACE') return refuse('method_refused')
  return expectation.toLowerCase() === '100-continue' ? undefined : refuse('expectation_failed')
}

function checkHost({ host }: RequestFindings, rules: AdmissionRules): Refusal | undefined {
  if (host === undefined) return refuse('host_invalid')
  const verdict = rules.hosts.check(host)
  if (verdict === 'allowed') return undefined
  return verdict === 'refused' ? refuse('host_refused', 'listen.hosts') : refuse('host_invalid')
}

function checkSender(found: RequestFindings, rules: AdmissionRules): Refusal | undefined {
  // A web page sent it through a browser; preflights, too.
  if (found.origin !== undefined || (found.fetchSite ?? 'none') !== 'none') return refuse('browser_refused')
  // It came through another proxy.
  if (found.forwarded !== undefined && rules.refuseForwarded) {
    return refuse('forwarded_refused', 'listen.refuseForwarded')
  }
  if (rules.isCallerKey === undefined) return undefined
  const { callerKey } = found
  if (callerKey !== undefined && rules.isCallerKey(callerKey)) return undefined
  const reason = (['no credential', 'unknown key'] as const)[keysIn(found)] ?? 'several credentials'
  return refuse('caller_refused', 'listen.callerKeyFile', reason)
}

/** The number of keys and JWTs that were sent. None of them has a blank, so the second shows. */
function keysIn({ callerKey }: RequestFindings): number {
  return callerKey?.split(', ').length ?? 0
}

function admitTarget(
  head: RequestHead,
  found: RequestFindings,
  rules: AdmissionRules,
  newRequestId: () => string,
  caller?: Caller,
): Admitted | Refusal {
  const { method = '' } = head
  const target = originFormOf(head, rules.hosts)
  if (typeof target !== 'string') return target
  if (!isForwardable(target)) return refuse('target_invalid')
  const path = pathOf(target)
  const mayMint = rules.isTokenEndpoint(path)
  if (mayMint && !rules.allowTokenEndpoint) return refuse('token_endpoint_refused', 'routes.allowTokenEndpoint')
  if (hasEncodedControl(path)) return refuse('target_invalid')
  if (rules.allowedRoutes.length > 0 && !matchesRoute(rules.allowedRoutes, method, path)) {
    return refuse('route_refused', 'routes.allow')
  }
  // The App's own credential never goes to a path that could mint a token for the client.
  const isAppRoute = !mayMint && rules.appRoutes.length > 0 && matchesRoute(rules.appRoutes, method, path)
  if (caller?.mayUseRoute(method, path, isAppRoute) === false) return refuse('route_refused', 'callers[].routes')
  const checked = found.methodOverride === undefined ? undefined : routesChecked(path, rules, caller)
  if (checked !== undefined) return refuse('route_refused', checked, 'method override')
  const orgId = isAppRoute ? undefined : admitOrg(found, rules, caller)
  if (typeof orgId === 'object') return orgId
  if (found.imitation !== undefined || found.isInvalid) return refuse('field_invalid')
  if (found.via?.includes(rules.instance)) return refuse('proxy_loop_detected')
  const isWebSocket = asksForWebSocket(found)
  if (isWebSocket && !isValidHandshake(head, found)) return refuse('upgrade_invalid')
  const { requestId: given = '' } = found
  const requestId = REQUEST_ID.test(given) ? given : newRequestId()
  const hops = method === 'OPTIONS' && HOPS.test(found.maxForwards ?? '') ? Number(found.maxForwards) : undefined
  if (hops !== undefined) countDown(found.kept, hops)
  return {
    verdict: 'admitted',
    method,
    orgId,
    caller,
    target: rules.targetPrefix + target,
    host: rules.hosts.allowsAll ? '' : (found.host ?? ''),
    path,
    fields: fieldsForService(head, found, rules, requestId, isWebSocket),
    requestId,
    traceparent: found.traceparent,
    contentLength: head.contentLength,
    hasContent: declaresContent(head),
    expectsContinue: found.expectation !== undefined && head.minorVersion > 0,
    isWebSocket,
    dropsCookie: found.cookie !== undefined && !rules.sendCookies,
    sendsCookies: rules.sendCookies,
    isForProxy: hops === 0,
  }
}

/**
 * The setting whose routes a method override would get around: the service would carry out another method than the one that
 * was checked. Undefined if no method was.
 */
function routesChecked(path: string, rules: AdmissionRules, caller?: Caller): RefusingSetting | undefined {
  if (rules.allowedRoutes.length > 0) return 'routes.allow'
  if (caller?.hasRoutes === true) return 'callers[].routes'
  return rules.appRoutes.some((pattern) => matchesPath(pattern, path)) ? 'appRoutes' : undefined
}

/** `fields` has one `Max-Forwards`, whose value is `hops` (RFC 9110 §7.6.2). */
function countDown(fields: string[], hops: number): void {
  const at = fields.findIndex((name, i) => i % 2 === 0 && name.toLowerCase() === 'max-forwards')
  fields[at + 1] = String(hops - 1)
}

/** Of a target in absolute-form (RFC 9112 §3.2.2), only the path is used. Its authority has to pass the same check as `Host`. */
function originFormOf({ target: url }: RequestHead, hosts: HostList): string | Refusal {
  if (url.startsWith('/') || url === '*') return url
  const [, authority, rest = ''] = /^https?:\/\/([^/?#]*)(.*)$/is.exec(url) ?? []
  if (authority === undefined) return refuse('target_invalid')
  if (hosts.check(authority) !== 'allowed') return refuse('host_refused', 'listen.hosts')
  return rest.startsWith('/') ? rest : `/${rest}`
}

export function admitOrg(
  { orgId: value }: Pick<RequestFindings, 'orgId'>,
  rules: AdmissionRules,
  caller?: Caller,
): OrgId | Refusal {
  if (value === undefined || value === '') return refuse('org_id_missing')
  const orgId = parseOrgId(value, rules.orgPattern)
  if (orgId === undefined) return refuse('org_id_invalid', 'orgs.pattern', faultOfOrgId(value, rules.orgPattern))
  if (rules.allowedOrgs.size > 0 && !rules.allowedOrgs.has(orgId)) {
    return { ...refuse('org_not_allowed', 'orgs.allow'), orgId }
  }
  if (rules.namedOrgs?.has(orgId) === false) return { ...refuse('org_not_allowed', 'orgs.ids'), orgId }
  if (caller?.mayNameOrg(orgId) === false) return { ...refuse('org_not_allowed', 'callers[].orgs'), orgId }
  return orgId
}

function fieldsForService(
  { minorVersion }: RequestHead,
  found: RequestFindings,
  { serviceHost, instance }: AdmissionRules,
  requestId: string,
  isWebSocket: boolean,
): string[] {
  // Strip before we add ours: `Connection: authorization` must not remove our field (RFC 9110 §7.6.1).
  let stripped = namedByConnection(found.connection)
  const isOwnId = found.requestId !== requestId || stripped?.has('x-request-id') === true
  if (isOwnId && found.requestId !== undefined) stripped = new Set(stripped).add('x-request-id')
  const fields = stripped === undefined ? found.kept : withoutFields(found.kept, stripped)
  if (isWebSocket) fields.push(...found.ofHandshake)
  // With the version that was received (RFC 9110 §7.6.3).
  fields.push('host', serviceHost, 'via', `1.${minorVersion} org-access-proxy (${instance})`)
  if (isOwnId) fields.push('x-request-id', requestId)
  return fields
}

export function declaresContent({ isChunked, contentLength = 0 }: RequestHead): boolean {
  return isChunked || contentLength > 0
}

/** False for a request that offers other protocols only, or whose `Connection` does not name the offer. */
function asksForWebSocket({ upgrade, connection }: RequestFindings): boolean {
  if (upgrade === undefined || !/\bwebsocket\b/i.test(upgrade)) return false
  return namedByConnection(connection)?.has('upgrade') === true
}

/** RFC 6455 §4.1. A request with content is none. */
function isValidHandshake(head: RequestHead, found: RequestFindings): boolean {
  if (head.method !== 'GET' || head.minorVersion === 0) return false
  if (declaresContent(head)) return false
  const { upgrade = '', webSocketKey = '', webSocketVersion } = found
  return upgrade.toLowerCase() === 'websocket' && WEBSOCKET_KEY.test(webSocketKey) && webSocketVersion === '13'
}
