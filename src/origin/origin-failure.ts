/** The one place where errors of sockets, TLS, resolver and undici become codes of ours. */

import { OriginError, type OriginErrorCode } from '../errors.ts'

const BY_CODE: Readonly<Record<string, OriginErrorCode>> = {
  ECONNREFUSED: 'connection_refused',
  EHOSTUNREACH: 'connection_refused',
  ENETUNREACH: 'connection_refused',
  EHOSTDOWN: 'connection_refused',
  ENETDOWN: 'connection_refused',
  EADDRNOTAVAIL: 'connection_refused',
  ENOENT: 'connection_refused',
  ECONNRESET: 'connection_terminated',
  EPIPE: 'connection_terminated',
  ECONNABORTED: 'connection_terminated',
  UND_ERR_SOCKET: 'connection_terminated',
  UND_ERR_CLOSED: 'connection_terminated',
  UND_ERR_DESTROYED: 'connection_terminated',
  ETIMEDOUT: 'connection_timeout',
  UND_ERR_CONNECT_TIMEOUT: 'connection_timeout',
  ENOTFOUND: 'dns_error',
  EAI_AGAIN: 'dns_error',
  EAI_FAIL: 'dns_error',
  EAI_NODATA: 'dns_error',
  EPROTO: 'tls_protocol_error',
  ERR_TLS_CERT_ALTNAME_INVALID: 'tls_certificate_error',
  UND_ERR_HEADERS_OVERFLOW: 'http_protocol_error',
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: 'http_protocol_error',
  UND_ERR_RES_EXCEEDED_MAX_SIZE: 'http_protocol_error',
  UND_ERR_HEADERS_TIMEOUT: 'http_response_timeout',
  UND_ERR_BODY_TIMEOUT: 'http_response_timeout',
}

/** Verification results of OpenSSL as Node names them. */
const CERTIFICATE = /^(?:CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|INVALID_CA|INVALID_PURPOSE|HOSTNAME_MISMATCH|CRL_)/

/** `error` as one of ours; undefined where it is not a failure of the origin. */
export function translateOriginError(error: unknown): OriginError | undefined {
  if (error instanceof OriginError) return error
  if (!(error instanceof Error)) return undefined
  const code = originErrorCode(error)
  return code === undefined ? undefined : new OriginError(code, error.message, { cause: error })
}

function originErrorCode(error: Error): OriginErrorCode | undefined {
  // Every address of the name failed: the first failure speaks for all (RFC 8305).
  if (error instanceof AggregateError && error.errors[0] instanceof Error) return originErrorCode(error.errors[0])
  // undici names the parser's complaint in the text alone.
  if (error.name === 'HTTPParserError') return 'http_protocol_error'
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  if (Object.hasOwn(BY_CODE, code)) return BY_CODE[code]
  if (CERTIFICATE.test(code)) return 'tls_certificate_error'
  if (code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_')) return 'tls_protocol_error'
  if (code.startsWith('HPE_') || code.startsWith('ERR_HTTP_') || code === 'ERR_INVALID_CHAR')
    return 'http_protocol_error'
  return undefined
}
