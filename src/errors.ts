/** Everything that this program can answer on its own, as one closed set of codes. */

/** A request refused before any token is asked for. */
export type RefusalCode =
  | 'remote_refused'
  | 'request_invalid'
  | 'request_timeout'
  | 'request_head_too_large'
  | 'http_version_refused'
  | 'method_refused'
  | 'expectation_failed'
  | 'host_invalid'
  | 'host_refused'
  | 'browser_refused'
  | 'forwarded_refused'
  | 'caller_refused'
  | 'target_invalid'
  | 'token_endpoint_refused'
  | 'route_refused'
  | 'org_id_missing'
  | 'org_id_invalid'
  | 'org_not_allowed'
  | 'field_invalid'
  | 'upgrade_invalid'
  | 'proxy_loop_detected'
  | 'draining'
  | 'overloaded'

/** There is no token for the request. */
export type TokenErrorCode =
  | 'org_access_refused'
  | 'app_credentials_rejected'
  | 'token_response_invalid'
  | 'token_endpoint_unavailable'
  | 'token_endpoint_rate_limited'
  | 'token_endpoint_timeout'

/** The exchange with the origin failed; names of RFC 9209 §2.3. */
export type OriginErrorCode =
  | 'connection_refused'
  | 'connection_terminated'
  | 'connection_timeout'
  | 'dns_error'
  | 'tls_certificate_error'
  | 'tls_protocol_error'
  | 'http_protocol_error'
  | 'http_response_incomplete'
  | 'http_response_timeout'
  | 'http_upgrade_failed'
  | 'overloaded'

export type ErrorCode = RefusalCode | TokenErrorCode | OriginErrorCode | 'proxy_internal_error'

/** A limit that a request met: a setting, or what its name says. */
export type Limit =
  | 'listen.maxConnections'
  | 'listen.maxInFlight'
  | 'callers[].maxInFlight'
  | 'origin.connections'
  | 'org share'
  | 'file descriptors'

/** A failure to be answered. A plain value will do, so that a refusal costs no stack trace. */
export interface Failure {
  readonly code: ErrorCode
  /** The limit that was reached, if `code` is `overloaded`. */
  readonly limit?: Limit | undefined
  /** Whole seconds; sent as `Retry-After`. */
  readonly retryAfterSeconds?: number | undefined
  /** Status with which the token endpoint refused the org. */
  readonly tokenEndpointStatus?: number | undefined
  /** One sentence that names the cause, from a closed set: nothing of the request, the reply or the configuration. */
  readonly hint?: string | undefined
}

export interface TokenErrorOptions extends ErrorOptions {
  readonly hint?: string | undefined
  readonly retryAfterSeconds?: number | undefined
  readonly tokenEndpointStatus?: number | undefined
}

/** Thrown by everything that mints. The message is for the log: it never holds a secret, a token or a response body. */
export class TokenError extends Error implements Failure {
  override readonly name = 'TokenError'
  readonly code: TokenErrorCode
  readonly retryAfterSeconds: number | undefined
  readonly tokenEndpointStatus: number | undefined
  readonly hint: string | undefined

  constructor(code: TokenErrorCode, message: string, options: TokenErrorOptions = {}) {
    super(message, options)
    this.code = code
    this.retryAfterSeconds = options.retryAfterSeconds
    this.tokenEndpointStatus = options.tokenEndpointStatus
    this.hint = options.hint
  }
}

export interface OriginErrorOptions extends ErrorOptions {
  readonly hint?: string | undefined
}

/** An exchange with the origin that gave no usable response. `overloaded`: the machine had no file descriptor or buffer left. */
export class OriginError extends Error implements Failure {
  override readonly name = 'OriginError'
  readonly code: OriginErrorCode
  readonly hint: string | undefined

  constructor(code: OriginErrorCode, message: string, options: OriginErrorOptions = {}) {
    super(message, options)
    this.code = code
    this.hint = options.hint
  }

  get limit(): Limit | undefined {
    return this.code === 'overloaded' ? 'file descriptors' : undefined
  }
}
