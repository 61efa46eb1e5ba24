/**
 * Decides whether a request is admitted or refused. Pure and without I/O: one pass over the raw fields, then
 * the checks in the order in which the documentation lists the refusals.
 */

import { METHODS } from 'node:http'
import type { Caller, CallerRefusal, Callers, Peer } from '../callers/callers.ts'
import type { Failure, RefusalCode } from '../errors.ts'
import type { AdmittedRequest } from '../http/admitted-request.ts'
import { withoutFields } from '../http/fields.ts'
import type { HostList } from '../http/host.ts'
import { type OrgId, parseOrgId } from '../http/org-id.ts'
import { traceIdOf } from '../http/request-record.ts'
import {
  hasEncodedControl,
  isForwardable,
  isTokenEndpoint,
  matchesRoute,
  parseAbsoluteForm,
  pathOf,
  type RoutePattern,
} from '../http/target.ts'
import { type FieldFindings, gatherFields } from './field-findings.ts'

/** The part of Node's `IncomingMessage` that admission reads. */
export interface RequestHead {
  readonly method?: string | undefined
  readonly url?: string | undefined
  readonly httpVersionMajor: number
  readonly httpVersionMinor: number
  /** Flat list of names and values, as received. */
  readonly rawHeaders: readonly string[]
}

/** Everything that the configuration says about admission. One request sees one set of rules from beginning to end. */
export interface AdmissionRules {
  readonly hosts: HostList
  readonly refusesForwarded: boolean
  /** Compares in constant time. Undefined if no caller key is configured. */
  readonly isCallerKey: ((value: string) => boolean) | undefined
  /** Undefined if no callers are configured. */
  readonly callers: Callers | undefined
  readonly orgPattern: RegExp
  /** Empty: all. */
  readonly allowedOrgs: ReadonlySet<string>
  /** Empty: all. */
  readonly allowedRoutes: readonly RoutePattern[]
  readonly allowsTokenEndpoint: boolean
  readonly appRoutes: readonly RoutePattern[]
  /** Put in front of every target: `''` or `/api`. */
  readonly targetPrefix: string
  /** Random name of this very instance. Its presence in `Via` is a loop; another instance on the way is none. */
  readonly instance: string
  /** Authority of the base URL, as it goes in `Host`. */
  readonly originHost: string
}

export interface Refusal {
  readonly isAdmitted: false
  readonly code: RefusalCode
  /** The limit that was reached, if that is why. */
  readonly limit?: Failure['limit']
  /** The Org that the request named, if that is why it was refused. */
  readonly orgId?: OrgId | undefined
  /** The caller, if it was known by then. */
  readonly caller?: Caller | undefined
  /** Why no caller was found. For the log, never for the answer. */
  readonly reason?: CallerRefusal | undefined
}

/** The request has a JWT that nobody has verified yet. The listener verifies it, and asks again with the result. */
export interface Unverified {
  readonly isAdmitted: false
  readonly token: string
}

/** The facts about the sender of a request that are not in its head. In most cases the connection itself is passed. */
export interface Sender extends Peer {
  /** The result, if admission has asked for a verification. */
  readonly verified?: Caller | CallerRefusal | undefined
}

type AdmittedBy = AdmittedRequest & { readonly isAdmitted: true; readonly caller: Caller | undefined }

export type Admission = AdmittedBy | Refusal | Unverified

const REQUEST_ID = /^[\x21-\x7e]{1,128}$/
const HTTP_METHODS: ReadonlySet<string> = new Set(METHODS)
const LENGTH = /^\d{1,15}$/
const WEBSOCKET_KEY = /^[A-Za-z0-9+/]{22}==$/

function refuse(code: RefusalCode): Refusal {
  return { isAdmitted: false, code }
}

/** A request whose sender may ask for something. */
interface Candidate {
  readonly head: RequestHead
  readonly found: FieldFindings
  readonly rules: AdmissionRules
  readonly caller: Caller | undefined
}

/** `newRequestId` is called for an admitted request without a usable `X-Request-Id`. */
export function admit(
  head: RequestHead,
  rules: AdmissionRules,
  newRequestId: () => string,
  sender: Sender = ANYONE,
): Admission {
  const found = gatherFields(head.rawHeaders)
  const early =
    checkFraming(head, found) ??
    checkMethod(head, found) ??
    checkHost(found, rules) ??
    checkBrowser(found) ??
    checkForwarded(found, rules) ??
    checkKey(found, rules)
  if (early !== undefined) return early
  if (rules.callers === undefined) return admitTarget({ head, found, rules, caller: undefined }, newRequestId)
  const caller = sender.verified ?? rules.callers.identify(sender, found.callerKeys, found.callerKey)
  if (caller === 'unverified') return { isAdmitted: false, token: found.callerKey }
  if (typeof caller === 'string') return { isAdmitted: false, code: 'caller_refused', reason: caller }
  const admission = admitTarget({ head, found, rules, caller }, newRequestId)
  return admission.isAdmitted ? admission : { ...admission, caller }
}

const ANYONE: Sender = { callerSocket: undefined }

/** Refuses the framing that Node's strict parser lets through although RFC 9112 §6 does not. */
function checkFraming(head: RequestHead, found: FieldFindings): Refusal | undefined {
  // The parser also accepts requests of RTSP and ICE. Their methods are not among those of HTTP.
  if (head.httpVersionMajor !== 1 || !HTTP_METHODS.has(head.method ?? '')) return refuse('http_version_refused')
  if (found.lengths + found.codings > 1) return refuse('request_invalid')
  if (found.lengths === 1 && !LENGTH.test(found.length)) return refuse('request_invalid')
  if (found.codings === 1 && (found.coding.toLowerCase() !== 'chunked' || head.httpVersionMinor === 0)) {
    return refuse('request_invalid')
  }
  return undefined
}

function checkMethod({ method }: RequestHead, found: FieldFindings): Refusal | undefined {
  if (method === 'CONNECT' || method === 'TRACE') return refuse('method_refused')
  if (found.expectations > 1) return refuse('expectation_failed')
  if (found.expectations === 1 && found.expectation.toLowerCase() !== '100-continue')
    return refuse('expectation_failed')
  return undefined
}

function checkHost(found: FieldFindings, rules: AdmissionRules): Refusal | undefined {
  if (found.hosts !== 1) return refuse('host_invalid')
  switch (rules.hosts.check(found.host)) {
    case 'allowed':
      return undefined
    case 'refused':
      return refuse('host_refused')
    case 'invalid':
      return refuse('host_invalid')
  }
}

/** Refuses what a web page sent through a browser, preflights included. */
function checkBrowser(found: FieldFindings): Refusal | undefined {
  return found.isFromBrowser ? refuse('browser_refused') : undefined
}

/** Refuses requests that came through another proxy. */
function checkForwarded(found: FieldFindings, rules: AdmissionRules): Refusal | undefined {
  return found.isForwarded && rules.refusesForwarded ? refuse('forwarded_refused') : undefined
}

function checkKey(found: FieldFindings, rules: AdmissionRules): Refusal | undefined {
  if (rules.isCallerKey === undefined) return undefined
  if (found.callerKeys === 1 && rules.isCallerKey(found.callerKey)) return undefined
  const reason = (['no credential', 'unknown key'] as const)[found.callerKeys] ?? 'several credentials'
  return { isAdmitted: false, code: 'caller_refused', reason }
}

function admitTarget(candidate: Candidate, newRequestId: () => string): AdmittedBy | Refusal {
  const { head, found, rules, caller } = candidate
  const { method = '' } = head
  const target = originFormOf(head, rules.hosts)
  if (typeof target !== 'string') return target
  if (!isForwardable(target)) return refuse('target_invalid')
  const path = pathOf(target)
  const mayMint = isTokenEndpoint(path)
  if (mayMint && !rules.allowsTokenEndpoint) return refuse('token_endpoint_refused')
  if (hasEncodedControl(path)) return refuse('target_invalid')
  if (rules.allowedRoutes.length > 0 && !matchesRoute(rules.allowedRoutes, method, path)) return refuse('route_refused')
  // The App's own credential never goes to a path that could mint a token for the client.
  const isAppRoute = !mayMint && rules.appRoutes.length > 0 && matchesRoute(rules.appRoutes, method, path)
  if (caller !== undefined && !caller.mayUseRoute(method, path, isAppRoute)) return refuse('route_refused')
  const orgId = isAppRoute ? undefined : admitOrg(candidate)
  if (typeof orgId === 'object') return orgId
  if (found.hasImitation || found.hasBadValue) return refuse('field_invalid')
  if (found.via.includes(rules.instance)) return refuse('proxy_loop_detected')
  const isWebSocket = asksForWebSocket(found)
  if (isWebSocket && !isValidHandshake(head, found)) return refuse('upgrade_invalid')
  const requestId = hasUsableRequestId(found) ? found.requestId : newRequestId()
  return {
    isAdmitted: true,
    method,
    orgId,
    caller,
    target: rules.targetPrefix + target,
    path,
    fields: fieldsForOrigin(found, rules, requestId, isWebSocket),
    requestId,
    traceId: found.traceparent === '' ? undefined : traceIdOf(found.traceparent),
    contentLength: found.lengths === 1 ? Number(found.length) : undefined,
    isChunked: found.codings === 1,
    expectsContinue: found.expectations === 1 && head.httpVersionMinor > 0,
    isWebSocket,
  }
}

/** Of a target in absolute-form, only the path is used. Its authority has to pass the same check as `Host`. */
function originFormOf({ url = '' }: RequestHead, hosts: HostList): string | Refusal {
  if (url.startsWith('/') || url === '*') return url
  const absolute = parseAbsoluteForm(url)
  if (absolute === undefined) return refuse('target_invalid')
  return hosts.check(absolute.authority) === 'allowed' ? absolute.originForm : refuse('host_refused')
}

function admitOrg({ found, rules, caller }: Candidate): OrgId | Refusal {
  if (found.orgIds === 0 || (found.orgIds === 1 && found.orgId === '')) return refuse('org_id_missing')
  const orgId = found.orgIds === 1 ? parseOrgId(found.orgId, rules.orgPattern) : undefined
  if (orgId === undefined) return refuse('org_id_invalid')
  const isAllowed = rules.allowedOrgs.size === 0 || rules.allowedOrgs.has(orgId)
  if (!isAllowed || caller?.mayNameOrg(orgId) === false) {
    return { isAdmitted: false, code: 'org_not_allowed', orgId }
  }
  return orgId
}

function hasUsableRequestId(found: FieldFindings): boolean {
  return found.requestIds === 1 && REQUEST_ID.test(found.requestId)
}

function fieldsForOrigin(
  found: FieldFindings,
  { originHost, instance }: AdmissionRules,
  requestId: string,
  isWebSocket: boolean,
): string[] {
  const isOwnId = !hasUsableRequestId(found)
  let stripped = found.connection
  if (isOwnId && found.requestIds > 0) stripped = new Set(stripped).add('x-request-id')
  // Strip before we add ours: `Connection: authorization` must not remove our field (RFC 9110 §7.6.1).
  const fields = stripped === undefined ? found.kept : withoutFields(found.kept, stripped)
  if (isWebSocket) fields.push(...found.websocket)
  fields.push('host', originHost, 'via', `1.1 org-access-proxy (${instance})`) // RFC 9110 §7.6.3
  if (isOwnId || stripped?.has('x-request-id') === true) fields.push('x-request-id', requestId)
  return fields
}

/** False for a request that offers other protocols only, or whose `Connection` does not name the offer. */
export function offersWebSocket({ rawHeaders }: RequestHead): boolean {
  return asksForWebSocket(gatherFields(rawHeaders))
}

function asksForWebSocket(found: FieldFindings): boolean {
  return found.connection?.has('upgrade') === true && /\bwebsocket\b/i.test(found.upgrade)
}

/** RFC 6455 §4.1. A request with content is none. */
function isValidHandshake(head: RequestHead, found: FieldFindings): boolean {
  if (head.method !== 'GET' || head.httpVersionMinor === 0) return false
  if (found.codings === 1 || (found.lengths === 1 && Number(found.length) > 0)) return false
  if (found.upgrades !== 1 || found.upgrade.toLowerCase() !== 'websocket') return false
  return (
    hasOne(found.websocket, 'sec-websocket-key', WEBSOCKET_KEY) &&
    hasOne(found.websocket, 'sec-websocket-version', /^13$/)
  )
}

function hasOne(fields: readonly string[], name: string, shape: RegExp): boolean {
  const values = fields.filter((_, i) => i % 2 === 1 && fields[i - 1]?.toLowerCase() === name)
  return values.length === 1 && shape.test(values[0] ?? '')
}
