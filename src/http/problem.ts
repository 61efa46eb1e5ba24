/** Renders the answers that the program gives by itself, problem details (RFC 9457) with a Proxy-Status (RFC 9209), from one table. */

import type { ErrorCode, Failure, Limit } from '../errors.ts'

interface ProblemEntry {
  readonly status: number
  readonly title: string
  /** Says what to do. Never repeats anything of the request. */
  readonly detail: string
  /** Error type of RFC 9209 §2.3. */
  readonly proxyError: string
}

const denied = 'http_request_denied'
const invalid = 'http_request_error'

/** One row for each code. Tests compare the documentation with it. */
export const PROBLEMS: Readonly<Record<ErrorCode, ProblemEntry>> = {
  remote_refused: {
    status: 403,
    title: 'Other machines are refused',
    detail:
      'The connection does not come from this machine. Call from the same host, or set listen.allowRemote to true.',
    proxyError: denied,
  },
  request_invalid: {
    status: 400,
    title: 'The request is not well-formed HTTP',
    detail: 'Send one well-formed HTTP/1.1 request with one clear length.',
    proxyError: invalid,
  },
  request_timeout: {
    status: 408,
    title: 'The request did not arrive in time',
    detail:
      'Send the head and the content without long pauses; listen.headersTimeout and listen.idleTimeout set the limits.',
    proxyError: 'http_request_error',
  },
  request_head_too_large: {
    status: 431,
    title: 'The request head is too large',
    detail: 'Keep the request line and all fields together under 16 KiB.',
    proxyError: invalid,
  },
  http_version_refused: {
    status: 505,
    title: 'HTTP version not supported',
    detail: 'Use HTTP/1.1 (or HTTP/1.0 with a Host field).',
    proxyError: invalid,
  },
  method_refused: {
    status: 405,
    title: 'Method not allowed',
    detail: 'CONNECT and TRACE are never forwarded.',
    proxyError: denied,
  },
  expectation_failed: {
    status: 417,
    title: 'Expectation failed',
    detail: 'Only "Expect: 100-continue" is understood.',
    proxyError: invalid,
  },
  host_invalid: {
    status: 400,
    title: 'Host field missing or invalid',
    detail: 'Send exactly one Host field, such as "localhost:8080".',
    proxyError: invalid,
  },
  host_refused: {
    status: 421,
    title: 'This host is not served here',
    detail: 'Call the proxy as localhost, or add the name to listen.hosts.',
    proxyError: denied,
  },
  browser_refused: {
    status: 403,
    title: 'Requests from browsers are refused',
    detail: 'Call the proxy from a service, without an Origin field.',
    proxyError: denied,
  },
  forwarded_refused: {
    status: 403,
    title: 'Forwarded requests are refused',
    detail: 'The request came through another proxy. Call from the same host, or set listen.refuseForwarded to false.',
    proxyError: denied,
  },
  caller_refused: {
    status: 403,
    title: 'The caller is not known',
    detail: 'Send the key or the JWT of a configured caller in exactly one X-Proxy-Key field, or use its own socket.',
    proxyError: denied,
  },
  target_invalid: {
    status: 400,
    title: 'The request target is refused',
    detail: 'Use an absolute path without dot segments, backslashes, fragments or broken percent-encoding.',
    proxyError: invalid,
  },
  token_endpoint_refused: {
    status: 403,
    title: 'The token endpoint is not reachable through the proxy',
    detail: 'The proxy obtains tokens itself: call the API path you need with X-Org-Id.',
    proxyError: denied,
  },
  route_refused: {
    status: 403,
    title: 'This route is not allowed',
    detail: 'Add "METHOD /path" to routes.allow, or to the routes of the caller, if it should be reachable.',
    proxyError: denied,
  },
  org_id_missing: {
    status: 400,
    title: 'X-Org-Id is missing',
    detail: 'Name the Org in exactly one X-Org-Id field; there is no default.',
    proxyError: invalid,
  },
  org_id_invalid: {
    status: 400,
    title: 'X-Org-Id is invalid',
    detail: 'Send exactly one X-Org-Id field with one id that matches orgs.pattern.',
    proxyError: invalid,
  },
  org_not_allowed: {
    status: 403,
    title: 'This Org is not allowed here',
    detail: 'Add the id to orgs.allow, or to the orgs of the caller, if the proxy should act for it.',
    proxyError: denied,
  },
  field_invalid: {
    status: 400,
    title: 'A field of the request is refused',
    detail: 'Spell protected field names with "-", not "_", and use only visible characters in values.',
    proxyError: invalid,
  },
  upgrade_invalid: {
    status: 400,
    title: 'The WebSocket handshake is invalid',
    detail: 'Send GET over HTTP/1.1 without content, "Upgrade: websocket" alone, a Sec-WebSocket-Key and version 13.',
    proxyError: invalid,
  },
  proxy_loop_detected: {
    status: 508,
    title: 'Loop detected',
    detail: 'The request has passed this proxy before: check that baseUrl does not lead back to it.',
    proxyError: 'proxy_loop_detected',
  },
  draining: {
    status: 503,
    title: 'The proxy is stopping',
    detail: 'Repeat the request on a new connection.',
    proxyError: 'destination_unavailable',
  },
  overloaded: {
    status: 503,
    title: 'The proxy has no room for the request',
    detail: 'Repeat the request later.',
    proxyError: 'connection_limit_reached',
  },
  org_access_refused: {
    status: 403,
    title: 'The service refuses access to this Org',
    detail: 'Check the org id, and that the Org has linked with this App.',
    proxyError: denied,
  },
  app_credentials_rejected: {
    status: 502,
    title: 'The service rejects the App credentials',
    detail: 'Check appId and the App secret of the proxy. The client cannot correct this.',
    proxyError: 'proxy_configuration_error',
  },
  token_response_invalid: {
    status: 502,
    title: 'The token endpoint gave no usable token',
    detail: 'Check that baseUrl is the address of the service. The client cannot correct this.',
    proxyError: 'http_protocol_error',
  },
  token_endpoint_unavailable: {
    status: 503,
    title: 'The token endpoint is unavailable',
    detail: 'Repeat the request after the time in Retry-After.',
    proxyError: 'destination_unavailable',
  },
  token_endpoint_rate_limited: {
    status: 503,
    title: 'The token endpoint limits its rate',
    detail: 'Repeat the request after the time in Retry-After.',
    proxyError: 'destination_unavailable',
  },
  token_endpoint_timeout: {
    status: 504,
    title: 'The token endpoint did not answer in time',
    detail: 'Repeat the request later; tokens.mintTimeout sets the limit.',
    proxyError: 'http_response_timeout',
  },
  connection_refused: {
    status: 502,
    title: 'The service refused the connection',
    detail: 'Check that the service at baseUrl is running and reachable.',
    proxyError: 'connection_refused',
  },
  connection_terminated: {
    status: 502,
    title: 'The service closed the connection without an answer',
    detail: 'It is unknown whether the request was carried out: repeat it only if that is safe.',
    proxyError: 'connection_terminated',
  },
  connection_timeout: {
    status: 504,
    title: 'No connection to the service in time',
    detail: 'Check that the service at baseUrl is reachable; origin.connectTimeout sets the limit.',
    proxyError: 'connection_timeout',
  },
  dns_error: {
    status: 502,
    title: 'The name of the service does not resolve',
    detail: 'Check the host name in baseUrl and the DNS server.',
    proxyError: 'dns_error',
  },
  tls_certificate_error: {
    status: 502,
    title: 'The certificate of the service is not trusted',
    detail: 'Check the certificate, the host of baseUrl and origin.caFile.',
    proxyError: 'tls_certificate_error',
  },
  tls_protocol_error: {
    status: 502,
    title: 'TLS with the service failed',
    detail: 'Check that the service at baseUrl speaks TLS on that port.',
    proxyError: 'tls_protocol_error',
  },
  http_protocol_error: {
    status: 502,
    title: 'The service did not answer in well-formed HTTP',
    detail: 'The response was malformed, or could be read in two ways, so the proxy dropped it.',
    proxyError: 'http_protocol_error',
  },
  http_response_incomplete: {
    status: 502,
    title: 'The response of the service broke off',
    detail: 'It is unknown whether the request was carried out: repeat it only if that is safe.',
    proxyError: 'http_response_incomplete',
  },
  http_response_timeout: {
    status: 504,
    title: 'The service did not answer in time',
    detail: 'It is unknown whether the request was carried out; origin.responseTimeout sets the limit.',
    proxyError: 'http_response_timeout',
  },
  http_upgrade_failed: {
    status: 502,
    title: 'The service did not complete the WebSocket handshake',
    detail: 'The service switched to another protocol than WebSocket.',
    proxyError: 'http_upgrade_failed',
  },
  proxy_internal_error: {
    status: 500,
    title: 'The proxy failed',
    detail: 'This is a fault of the proxy: report it with the requestId.',
    proxyError: 'proxy_internal_error',
  },
}

export interface RenderedProblem {
  readonly status: number
  /** Flat list, `content-length` included. */
  readonly fields: readonly string[]
  readonly content: string
}

const LIMITS: Readonly<Record<Limit, string>> = {
  'listen.maxConnections': 'Too many connections were open: repeat the request later, or raise listen.maxConnections.',
  'listen.maxInFlight': 'As many requests are in flight as listen.maxInFlight allows.',
  'callers[].maxInFlight': 'As many requests of this caller are in flight as its maxInFlight allows.',
  'origin.connections': 'All origin.connections are busy.',
  'org share': 'This Org holds three quarters of origin.connections, the most for one Org.',
  'file descriptors': 'The process has no file descriptor or buffer left: raise its limit (ulimit -n).',
}

/** One sentence that names the cause more closely than the code does, from a closed set. */
export function causeOf({ limit, hint }: Failure): string | undefined {
  return limit === undefined ? hint : LIMITS[limit]
}

function detailOf(failure: Failure): string {
  const cause = causeOf(failure)
  const { detail } = PROBLEMS[failure.code]
  return cause === undefined ? detail : `${cause} ${detail}`
}

export function renderProblem(failure: Failure, requestId: string): RenderedProblem {
  const entry = PROBLEMS[failure.code]
  const content = `${JSON.stringify({
    type: `urn:org-access-proxy:problem:${failure.code}`,
    title: entry.title,
    status: entry.status,
    detail: detailOf(failure),
    code: failure.code,
    requestId,
    ...(failure.tokenEndpointStatus === undefined ? {} : { tokenEndpointStatus: failure.tokenEndpointStatus }),
  })}\n`
  const fields = [
    'content-type',
    'application/problem+json',
    'content-length',
    String(Buffer.byteLength(content)),
    'cache-control',
    'no-store',
    'x-content-type-options',
    'nosniff',
    'proxy-status',
    `org-access-proxy; error=${entry.proxyError}; details="${failure.code}"`,
    'x-request-id',
    requestId,
  ]
  const retryAfterSeconds = failure.retryAfterSeconds ?? (entry.status === 503 ? 1 : undefined)
  if (retryAfterSeconds !== undefined) fields.push('retry-after', String(retryAfterSeconds))
  if (failure.code === 'method_refused') fields.push('allow', 'GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS')
  return { status: entry.status, fields, content }
}
