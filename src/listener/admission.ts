/**
 * Steps 1 to 8 of a request: from what Node's parser let through to *admitted* or *refused*. Pure and without I/O; one
 * pass over the raw fields, in the order in which the refusals are promised.
 */

import { METHODS } from 'node:http'
import type { RefusalCode } from '../errors.ts'
import type { AdmittedRequest } from '../gateway/admitted-request.ts'
import { withoutFields } from '../http/fields.ts'
import type { HostList } from '../http/host.ts'
import { type OrgId, parseOrgId } from '../http/org-id.ts'
import {
  isForwardable,
  isTokenEndpoint,
  matchesRoute,
  parseAbsoluteForm,
  pathOf,
  type RoutePattern,
} from '../http/target.ts'
import { type FieldFindings, gatherFields } from './field-findings.ts'

/** What is read of a request: `IncomingMessage` has it. */
export interface RequestHead {
  readonly method?: string | undefined
  readonly url?: string | undefined
  readonly httpVersionMajor: number
  readonly httpVersionMinor: number
  /** Flat list as received. */
  readonly rawHeaders: readonly string[]
}

export interface AdmissionOptions {
  readonly hosts: HostList
  readonly browserOrigins: readonly string[]
  readonly refusesForwarded: boolean
  /** Compares in constant time; undefined where no caller key is configured. */
  readonly isCallerKey: ((value: string) => boolean) | undefined
  readonly orgPattern: RegExp
  /** Empty: all. */
  readonly allowedOrgs: ReadonlySet<string>
  /** Empty: all. */
  readonly allowedRoutes: readonly RoutePattern[]
  readonly allowsTokenEndpoint: boolean
  readonly appRoutes: readonly RoutePattern[]
  /** Put in front of every target: `''` or `/api`. */
  readonly targetPrefix: string
  /** Authority of the base URL, as it goes in `Host`. */
  readonly originHost: string
  readonly newRequestId: () => string
}

export interface Refusal {
  readonly isAdmitted: false
  readonly code: RefusalCode
  /** Known where the request was refused for the Org that it named. */
  readonly orgId?: OrgId | undefined
}

/** A page that was let in asks what it may send (CORS): answered here, never forwarded. */
export interface Preflight {
  readonly isAdmitted: false
  readonly preflightOrigin: string
}

export type Admission = (AdmittedRequest & { readonly isAdmitted: true }) | Refusal | Preflight

const PSEUDONYM = 'org-access-proxy'
const VIA = `1.1 ${PSEUDONYM}`
const REQUEST_ID = /^[\x21-\x7e]{1,128}$/
const HTTP_METHODS: ReadonlySet<string> = new Set(METHODS)
const LENGTH = /^\d{1,15}$/
const WEBSOCKET_KEY = /^[A-Za-z0-9+/]{22}==$/

const refusals = new Map<RefusalCode, Refusal>()

function refuse(code: RefusalCode): Refusal {
  let refusal = refusals.get(code)
  if (refusal === undefined) {
    refusal = { isAdmitted: false, code }
    refusals.set(code, refusal)
  }
  return refusal
}

export function admit(head: RequestHead, options: AdmissionOptions): Admission {
  const found = gatherFields(head.rawHeaders)
  const method = head.method ?? ''
  return (
    checkFraming(head, found) ??
    checkMethod(method, found) ??
    checkHost(found, options) ??
    checkBrowser(method, found, options) ??
    checkCaller(found, options) ??
    admitTarget(head, method, found, options)
  )
}

/** Step 1: what the strict parser lets through and must not (RFC 9112 §6). */
function checkFraming(head: RequestHead, found: FieldFindings): Refusal | undefined {
  // The parser reads RTSP and ICE, too, and does not say so: methods that HTTP does not have give them away.
  if (head.httpVersionMajor !== 1 || !HTTP_METHODS.has(head.method ?? '')) return refuse('http_version_refused')
  if (found.lengths + found.codings > 1) return refuse('request_invalid')
  if (found.lengths === 1 && !LENGTH.test(found.length)) return refuse('request_invalid')
  if (found.codings === 1 && (found.coding.toLowerCase() !== 'chunked' || head.httpVersionMinor === 0)) {
    return refuse('request_invalid')
  }
  return undefined
}

function checkMethod(method: string, found: FieldFindings): Refusal | undefined {
  if (method === 'CONNECT' || method === 'TRACE') return refuse('method_refused')
  if (found.expectations > 1) return refuse('expectation_failed')
  if (found.expectations === 1 && found.expectation.toLowerCase() !== '100-continue')
    return refuse('expectation_failed')
  return undefined
}

function checkHost(found: FieldFindings, options: AdmissionOptions): Refusal | undefined {
  if (found.hosts !== 1) return refuse('host_invalid')
  switch (options.hosts.check(found.host)) {
    case 'allowed':
      return undefined
    case 'refused':
      return refuse('host_refused')
    case 'invalid':
      return refuse('host_invalid')
  }
}

/** Step 4, as far as pages are concerned. */
function checkBrowser(
  method: string,
  found: FieldFindings,
  options: AdmissionOptions,
): Refusal | Preflight | undefined {
  const { browserOrigin } = found
  if (browserOrigin === undefined) return found.isCrossSite ? refuse('browser_refused') : undefined
  if (!options.browserOrigins.includes(browserOrigin)) return refuse('browser_refused')
  if (method === 'OPTIONS' && found.isPreflight) return { isAdmitted: false, preflightOrigin: browserOrigin }
  return undefined
}

/** The rest of step 4, and step 5: another proxy, or one without the key. */
function checkCaller(found: FieldFindings, options: AdmissionOptions): Refusal | undefined {
  if (found.isForwarded && options.refusesForwarded) return refuse('forwarded_refused')
  if (options.isCallerKey === undefined) return undefined
  if (found.callerKeys !== 1 || !options.isCallerKey(found.callerKey)) return refuse('caller_refused')
  return undefined
}

/** Steps 6 to 8. */
function admitTarget(head: RequestHead, method: string, found: FieldFindings, options: AdmissionOptions): Admission {
  let target = head.url ?? ''
  if (!target.startsWith('/') && target !== '*') {
    const absolute = parseAbsoluteForm(target)
    if (absolute === undefined) return refuse('target_invalid')
    if (options.hosts.check(absolute.authority) !== 'allowed') return refuse('host_refused')
    target = absolute.originForm
  }
  if (!isForwardable(target)) return refuse('target_invalid')
  const path = pathOf(target)
  if (!options.allowsTokenEndpoint && isTokenEndpoint(path)) return refuse('token_endpoint_refused')
  if (options.allowedRoutes.length > 0 && !matchesRoute(options.allowedRoutes, method, path)) {
    return refuse('route_refused')
  }
  const isAppRoute = options.appRoutes.length > 0 && matchesRoute(options.appRoutes, method, path)
  const orgId = isAppRoute ? undefined : admitOrg(found, options)
  if (typeof orgId === 'object') return orgId
  if (found.hasImitation || found.hasBadValue) return refuse('field_invalid')
  if (found.hasLoop) return refuse('proxy_loop_detected')
  return assemble(head, method, target, path, orgId, found, options)
}

function admitOrg(found: FieldFindings, options: AdmissionOptions): OrgId | Refusal {
  if (found.orgIds === 0 || (found.orgIds === 1 && found.orgId === '')) return refuse('org_id_missing')
  const orgId = found.orgIds === 1 ? parseOrgId(found.orgId, options.orgPattern) : undefined
  if (orgId === undefined) return refuse('org_id_invalid')
  if (options.allowedOrgs.size > 0 && !options.allowedOrgs.has(orgId)) {
    return { isAdmitted: false, code: 'org_not_allowed', orgId }
  }
  return orgId
}

function assemble(
  head: RequestHead,
  method: string,
  target: string,
  path: string,
  orgId: OrgId | undefined,
  found: FieldFindings,
  options: AdmissionOptions,
): Admission {
  const isWebSocket = asksForWebSocket(found)
  const contentLength = found.lengths === 1 ? Number(found.length) : undefined
  const isChunked = found.codings === 1
  if (isWebSocket && !isValidHandshake(head, found, isChunked || (contentLength ?? 0) > 0)) {
    return refuse('upgrade_invalid')
  }
  const hasRequestId = found.requestIds === 1 && REQUEST_ID.test(found.requestId)
  const requestId = hasRequestId ? found.requestId : options.newRequestId()
  // Strip before we add ours: `Connection: authorization` must not remove our field (RFC 9110 §7.6.1).
  const stripped =
    hasRequestId || found.requestIds === 0 ? found.connection : [...(found.connection ?? []), 'x-request-id']
  const fields = stripped === undefined ? found.kept : withoutFields(found.kept, stripped)
  if (isWebSocket) fields.push(...found.websocket)
  fields.push('host', options.originHost, 'via', VIA)
  if (!hasRequestId || stripped?.includes('x-request-id') === true) fields.push('x-request-id', requestId)
  return {
    isAdmitted: true,
    method,
    orgId,
    target: options.targetPrefix === '' ? target : options.targetPrefix + target,
    path,
    fields,
    requestId,
    contentLength,
    isChunked,
    expectsContinue: found.expectations === 1 && head.httpVersionMinor > 0,
    mustClose: found.upgrades > 0 && !isWebSocket,
    isWebSocket,
  }
}

function asksForWebSocket(found: FieldFindings): boolean {
  return /\bwebsocket\b/i.test(found.upgrade) && found.connection?.includes('upgrade') === true
}

/** RFC 6455 §4.1. */
function isValidHandshake(head: RequestHead, found: FieldFindings, hasContent: boolean): boolean {
  if (head.method !== 'GET' || head.httpVersionMinor === 0 || hasContent) return false
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
