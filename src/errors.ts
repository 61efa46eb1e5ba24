/** Everything that this program can answer on its own: one row for each code. The documentation is compared with it. */

/** Who has to do something: the app that sent the request, the operator of the proxy, or the service. */
export type Fault = 'app' | 'proxy' | 'service'

interface ProblemEntry {
  readonly status: number
  /** Error type of `Proxy-Status` (RFC 9209 §2.3). */
  readonly proxyError: string
  readonly fault: Fault
  /** Says what to do. Never repeats anything of the request. */
  readonly detail: string
}

/** The request breaks a rule of HTTP, or of this proxy. */
const malformed = (status: number, detail: string): ProblemEntry => {
  return { status, proxyError: 'http_request_error', fault: 'app', detail }
}
/** The request could be carried out, and must not be. */
const denied = (status: number, detail: string): ProblemEntry => {
  return { status, proxyError: 'http_request_denied', fault: 'app', detail }
}
const ofProxy = (proxyError: string, status: number, detail: string): ProblemEntry => {
  return { status, proxyError, fault: 'proxy', detail }
}
const ofService = (proxyError: string, status: number, detail: string): ProblemEntry => {
  return { status, proxyError, fault: 'service', detail }
}

/** A request refused before any token is asked for. */
const REFUSALS = {
  remote_refused: denied(
    403,
    'The connection does not come from this machine. Call from the same host, or set listen.allowRemote to true.',
  ),
  request_invalid: malformed(400, 'Send one well-formed HTTP/1.1 request with one clear length.'),
  request_timeout: malformed(
    408,
    'Send head and content without long pauses; listen.headersTimeout and listen.idleTimeout are the limits.',
  ),
  request_head_too_large: malformed(
    431,
    'Keep the request line and all fields together within listen.maxHeadSize, and the fields to 1,000.',
  ),
  transfer_coding_refused: malformed(
    501,
    'Send content with a Content-Length, or with "Transfer-Encoding: chunked" alone.',
  ),
  http_version_refused: malformed(505, 'Use HTTP/1.1 (or HTTP/1.0 with a Host field).'),
  method_refused: denied(405, 'CONNECT and TRACE are never forwarded.'),
  expectation_failed: malformed(417, 'Only "Expect: 100-continue" is understood.'),
  host_invalid: malformed(400, 'Send exactly one Host field, such as "localhost:8080".'),
  host_refused: denied(421, 'Call the proxy as localhost, or add the name to listen.hosts.'),
  browser_refused: denied(403, 'Call the proxy from a service, without the fields Origin and Sec-Fetch-Site.'),
  forwarded_refused: denied(
    403,
    'The request came through another proxy. Call from the same host, or set listen.refuseForwarded to false.',
  ),
  caller_keys_unavailable: ofProxy(
    'destination_unavailable',
    503,
    'The key set that JWTs are verified with could not be fetched yet: repeat the request later.',
  ),
  caller_refused: denied(
    403,
    'Send the key or the JWT of a configured caller in exactly one X-Proxy-Key field, or use its socket or its certificate.',
  ),
  target_invalid: malformed(
    400,
    'Use an absolute path without dot segments, backslashes, fragments or broken percent-encoding.',
  ),
  token_endpoint_refused: denied(403, 'The proxy obtains tokens itself: call the API path you need with X-Org-Id.'),
  route_refused: denied(
    403,
    'Add "METHOD /path" to routes.allow, or to the routes of the caller, if it should be reachable. Where routes are checked, no field may override the method.',
  ),
  org_id_missing: malformed(400, 'Name the Org in exactly one X-Org-Id field; there is no default.'),
  org_id_invalid: malformed(
    400,
    'Send exactly one X-Org-Id field with one id that matches orgs.pattern. Ids are case-sensitive.',
  ),
  org_not_allowed: denied(
    403,
    'Add the id to orgs.allow, to orgs.ids, or to the orgs of the caller, whichever is set, if the proxy should act for it. Ids are case-sensitive.',
  ),
  field_invalid: malformed(
    400,
    'Spell protected field names with "-", not "_", use only visible characters in values, and send one Content-Type.',
  ),
  upgrade_invalid: malformed(
    400,
    'Send GET over HTTP/1.1 without content, "Upgrade: websocket" alone, a Sec-WebSocket-Key and version 13.',
  ),
  proxy_loop_detected: ofProxy(
    'proxy_loop_detected',
    508,
    'The request has passed this proxy before: check that baseUrl does not lead back to it.',
  ),
  draining: ofProxy('destination_unavailable', 503, 'Repeat the request on a new connection.'),
  overloaded: ofProxy('connection_limit_reached', 503, 'Repeat the request later.'),
}

/** There is no token for the request. */
export const TOKEN_PROBLEMS = {
  org_access_refused: denied(
    403,
    'Check the org id, which is case-sensitive, and that the Org has linked with this App.',
  ),
  app_credentials_rejected: ofProxy(
    'proxy_configuration_error',
    502,
    'Check appId and the App secret of the proxy. The client cannot correct this.',
  ),
  token_response_invalid: ofService(
    'http_protocol_error',
    502,
    'Check what the token endpoint answers, then baseUrl, tokens.endpoint and tokens.field. The client cannot correct this.',
  ),
  token_endpoint_unavailable: ofService(
    'destination_unavailable',
    503,
    'Repeat the request after the time in Retry-After.',
  ),
  token_endpoint_rate_limited: ofService(
    'destination_unavailable',
    503,
    'Repeat the request after the time in Retry-After.',
  ),
  token_endpoint_timeout: ofService(
    'http_response_timeout',
    504,
    'The token endpoint did not answer in time: repeat the request later. The limit is tokens.mintTimeout, unless another is named.',
  ),
}

/** What a minter may refuse, and its sidecar passes on. */
export const PASSED_ON = [
  'caller_refused',
  'caller_keys_unavailable',
  'route_refused',
  'org_id_invalid',
  'org_not_allowed',
] as const satisfies readonly (keyof typeof REFUSALS)[]

/** The exchange with the service failed; names of RFC 9209 §2.3. */
const ORIGIN_PROBLEMS = {
  connection_refused: ofService(
    'connection_refused',
    502,
    'Check that the service at baseUrl is running and reachable.',
  ),
  connection_terminated: ofService(
    'connection_terminated',
    502,
    'It is unknown whether the request was carried out: repeat it only if that is safe.',
  ),
  connection_timeout: ofService('connection_timeout', 504, 'Check that the service at baseUrl is reachable.'),
  dns_error: ofService('dns_error', 502, 'Check the host name in baseUrl and the DNS server.'),
  tls_certificate_error: ofService(
    'tls_certificate_error',
    502,
    'Check the certificate, the host of baseUrl and origin.caFile.',
  ),
  tls_protocol_error: ofService(
    'tls_protocol_error',
    502,
    'Check that the service at baseUrl speaks TLS 1.2 or newer on that port, and whether it asks for a certificate.',
  ),
  http_protocol_error: ofService(
    'http_protocol_error',
    502,
    'The response was malformed, or could be read in two ways, so the proxy dropped it.',
  ),
  http_response_incomplete: ofService(
    'http_response_incomplete',
    502,
    'It is unknown whether the request was carried out: repeat it only if that is safe.',
  ),
  http_response_timeout: ofService(
    'http_response_timeout',
    504,
    'It is unknown whether the request was carried out; origin.responseTimeout sets the limit.',
  ),
  http_upgrade_failed: ofService(
    'http_upgrade_failed',
    502,
    'The service switched to another protocol than WebSocket.',
  ),
}

export type RefusalCode = keyof typeof REFUSALS
export type TokenErrorCode = keyof typeof TOKEN_PROBLEMS | (typeof PASSED_ON)[number] | 'overloaded'
export type OriginErrorCode = keyof typeof ORIGIN_PROBLEMS | 'overloaded'
export type ErrorCode = RefusalCode | TokenErrorCode | OriginErrorCode | 'proxy_internal_error'

export const PROBLEMS: Readonly<Record<ErrorCode, ProblemEntry>> = {
  ...REFUSALS,
  ...TOKEN_PROBLEMS,
  ...ORIGIN_PROBLEMS,
  proxy_internal_error: ofProxy(
    'proxy_internal_error',
    500,
    'This is a fault of the proxy: report it with the requestId.',
  ),
}

/** What to do about a code that is of the minter of a sidecar, where that differs. */
const OF_MINTER: { readonly [C in TokenErrorCode]?: Pick<ProblemEntry, 'fault' | 'detail'> } = {
  caller_refused: {
    fault: 'proxy',
    detail:
      'The minter does not know this sidecar: check minter.keyFile, minter.jwtFile or minter.certFile here, and callers at the minter.',
  },
  caller_keys_unavailable: {
    fault: 'proxy',
    detail:
      'The minter has no key set for the JWT of minter.jwtFile: check jwks of callers at the minter, and repeat the request later.',
  },
  route_refused: {
    fault: 'proxy',
    detail:
      'The minter gives no token to a caller with routes: take them out of its callers there, or show another caller by minter.keyFile, minter.jwtFile or minter.certFile here.',
  },
  org_id_invalid: {
    fault: 'app',
    detail: 'Send an id that matches orgs.pattern at the minter, too. Ids are case-sensitive.',
  },
  org_not_allowed: {
    fault: 'app',
    detail:
      'At the minter, add the id to the orgs of this sidecar in callers, and to orgs.allow if that is set. Ids are case-sensitive.',
  },
  org_access_refused: {
    fault: 'app',
    detail: 'Check the org id, which is case-sensitive, and that the Org has linked with the App of the minter.',
  },
  app_credentials_rejected: {
    fault: 'proxy',
    detail: 'Check appId and the App secret at the minter. The client cannot correct this.',
  },
  token_response_invalid: {
    fault: 'service',
    detail:
      'At the minter, check what the token endpoint answers, then baseUrl, tokens.endpoint and tokens.field. The client cannot correct this.',
  },
  token_endpoint_rate_limited: {
    fault: 'service',
    detail:
      'Repeat the request after the time in Retry-After. At the minter, tokens.mintRate and the service set limits.',
  },
  token_endpoint_timeout: {
    fault: 'service',
    detail: 'Repeat the request later; tokens.mintTimeout at the minter sets the limit.',
  },
}

/** Whose fault it is, and what to do. The same object for the same facts. */
export function remedyOf(code: ErrorCode, isOfMinter: boolean | undefined): Pick<ProblemEntry, 'fault' | 'detail'> {
  return (isOfMinter && OF_MINTER[code as TokenErrorCode]) || PROBLEMS[code]
}

/** The summary of a problem type: its code in words. */
export function titleOf(code: string): string {
  const words = code.replaceAll('_', ' ').replace(/\b(?:dns|http|tls)\b/g, (acronym) => acronym.toUpperCase())
  return words.charAt(0).toUpperCase() + words.slice(1)
}

/** The reason of a `request_timeout` behind the head of the response. */
export const RESPONSE_NOT_READ = 'response_not_read'

/** Why a TLS handshake of a client failed. */
export const HANDSHAKE_FAILURES = [
  'plain_http',
  'no_shared_protocol',
  'certificate_not_trusted',
  'client_left',
  'too_slow',
  'too_large',
  'no_room',
  'other',
] as const

export type HandshakeFailureReason = (typeof HANDSHAKE_FAILURES)[number]

/** The limits that a request can meet, and what the answer says about each. */
export const LIMITS = {
  'listen.maxConnections': 'Too many connections were open: repeat the request later, or raise listen.maxConnections.',
  'listen.maxInFlight': 'As many requests are in flight as listen.maxInFlight allows.',
  'requests of one Org':
    'Of the requests in flight, this Org (or the App itself) has three quarters of listen.maxInFlight, the most for one.',
  'waiting requests': 'Half of the requests that listen.maxInFlight allows wait for tokens already.',
  'waiting requests of one Org':
    'A quarter of the requests that listen.maxInFlight allows wait for a token of this Org already.',
  'callers[].maxInFlight': 'As many requests of this caller are in flight as its maxInFlight allows.',
  'origin.connections': 'All origin.connections are busy.',
  'caller share': 'This caller has a quarter of listen.maxInFlight, the most for one caller of a minter.',
  'org share': 'This Org holds three quarters of origin.connections, the most for one Org.',
  'file descriptors': 'The process has no file descriptor or buffer left: raise its limit (ulimit -n).',
} as const

export type Limit = keyof typeof LIMITS

/** A failure to be answered. A plain value will do, so that a refusal costs no stack trace. */
export interface Failure {
  readonly code: ErrorCode
  /** The limit that was reached, if `code` is `overloaded`. */
  readonly limit?: Limit | undefined
  /** Whole seconds; sent as `Retry-After`. */
  readonly retryAfterSeconds?: number | undefined
  /** Status with which the token endpoint refused the org, or the call itself. */
  readonly tokenEndpointStatus?: number | undefined
  /** The minter of this sidecar has said so: the remedy lies there. */
  readonly isOfMinter?: boolean | undefined
  /** For the log: the rule that a response of the service broke, from the closed set of the parser. */
  readonly reason?: string | undefined
  /**
   * One sentence that names the cause. Of the configuration, it names settings and the URL of the token endpoint; of a reply, the
   * host of a redirect; of the request, nothing.
   */
  readonly hint?: string | undefined
  /** More sentences, for operators alone. They may hold words of the token endpoint, but no secret and no token. */
  readonly note?: string | undefined
}

/** The same, with the endpoint's own words: for the log and the status page, never for the client. */
export function causeForOperator({ note, ...failure }: Failure): string | undefined {
  const cause = causeOf(failure)
  return note === undefined ? cause : [cause, note].filter((text) => text !== undefined).join(' ')
}

/** One sentence that names the cause more closely than the code does, from a closed set. */
export function causeOf({ limit, hint }: Failure): string | undefined {
  return limit === undefined ? hint : LIMITS[limit]
}

/**
 * What a failed mint says about the next one. *failure*: the endpoint did not work, and may the next time. *refusal*: the Org is
 * refused, or the call itself, so a repeat would get the same. *limit*: there were too many calls. *credentials*: the App was not
 * accepted.
 */
export type Trouble = 'failure' | 'refusal' | 'limit' | 'credentials'

const TROUBLES: { readonly [C in TokenErrorCode]?: Trouble } = {
  org_access_refused: 'refusal',
  token_endpoint_rate_limited: 'limit',
  app_credentials_rejected: 'credentials',
}

export type TokenErrorOptions = ErrorOptions &
  Pick<Failure, 'limit' | 'retryAfterSeconds' | 'tokenEndpointStatus' | 'isOfMinter' | 'note'> & {
    /** Default: as the code says. */
    readonly trouble?: Trouble | undefined
  }

abstract class FailureError<Code extends ErrorCode> extends Error implements Failure {
  readonly code: Code
  readonly limit: Limit | undefined
  readonly retryAfterSeconds: number | undefined
  readonly tokenEndpointStatus: number | undefined
  readonly isOfMinter: boolean | undefined
  readonly hint: string | undefined
  readonly reason: string | undefined
  readonly note: string | undefined

  constructor(code: Code, message: string, options: TokenErrorOptions & Pick<Failure, 'hint' | 'reason'> = {}) {
    super(message, options)
    this.code = code
    this.limit = options.limit
    this.retryAfterSeconds = options.retryAfterSeconds
    this.tokenEndpointStatus = options.tokenEndpointStatus
    this.isOfMinter = options.isOfMinter
    this.hint = options.hint
    this.reason = options.reason
    this.note = options.note
  }
}

/** Thrown by everything that mints. The message is the hint, too: it never holds a secret, a token or the content of a response. */
export class TokenError extends FailureError<TokenErrorCode> {
  readonly trouble: Trouble

  constructor(code: TokenErrorCode, hint: string, options?: TokenErrorOptions) {
    const { stackTraceLimit } = Error
    Error.stackTraceLimit = 0 // nothing prints the stack, and a flood makes thousands of these in a second
    super(code, hint, { ...options, hint })
    Error.stackTraceLimit = stackTraceLimit
    this.trouble = options?.trouble ?? TROUBLES[code] ?? 'failure'
  }
}

/** An exchange with the service that gave no usable response. */
export class OriginError extends FailureError<OriginErrorCode> {}
