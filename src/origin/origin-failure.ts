/** Turns errors of sockets, TLS, the resolver and the tunnel into error codes of this program. */

import { OriginError, type OriginErrorCode } from '../errors.ts'

const BY_CODE: Readonly<Record<string, OriginErrorCode>> = {
  // This machine has no descriptor, buffer or memory left. The service is not to blame, and the next request may succeed.
  EMFILE: 'overloaded',
  ENFILE: 'overloaded',
  ENOBUFS: 'overloaded',
  ENOMEM: 'overloaded',
  EBUSY: 'overloaded', // of the resolver, when it cannot open its files
  ETIMEDOUT: 'connection_timeout',
  // TLS that the peer ends during its handshake has this code, but no system call.
  ECONNRESET: 'connection_terminated',
  EPROTO: 'tls_protocol_error',
  ERR_TLS_CERT_ALTNAME_INVALID: 'tls_certificate_error',
  UND_ERR_CONNECT_TIMEOUT: 'connection_timeout',
  UND_ERR_SOCKET: 'connection_terminated',
  UND_ERR_CLOSED: 'connection_terminated',
  UND_ERR_DESTROYED: 'connection_terminated',
  UND_ERR_HEADERS_OVERFLOW: 'http_protocol_error',
  UND_ERR_HEADERS_TIMEOUT: 'http_response_timeout',
}

/** Verification results of OpenSSL, as Node names them. */
const CERTIFICATE = /^(?:CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|INVALID_CA|INVALID_PURPOSE|HOSTNAME_MISMATCH|CRL_)/

/** Returns `error` as one of ours, or undefined if it is not a failure of the network or the origin. */
export function translateOriginError(error: unknown): OriginError | undefined {
  if (error instanceof OriginError) return error
  if (!(error instanceof Error)) return undefined
  const code = originErrorCode(error)
  return code === undefined ? undefined : new OriginError(code, error.message, { cause: error })
}

function originErrorCode(error: Error): OriginErrorCode | undefined {
  // Every address of the name failed. The first failure speaks for all (RFC 8305).
  if (error instanceof AggregateError && error.errors[0] instanceof Error) return originErrorCode(error.errors[0])
  // undici puts the reason into the text alone.
  if (error.name === 'HTTPParserError') return 'http_protocol_error'
  const code = 'code' in error && typeof error.code === 'string' ? error.code : ''
  if (Object.hasOwn(BY_CODE, code)) return BY_CODE[code]
  if (CERTIFICATE.test(code)) return 'tls_certificate_error'
  if (code.startsWith('ERR_SSL_') || code.startsWith('ERR_TLS_')) return 'tls_protocol_error'
  if (code.startsWith('HPE_') || code.startsWith('ERR_HTTP_') || code === 'ERR_INVALID_CHAR')
    return 'http_protocol_error'
  return 'syscall' in error ? failedCall(error.syscall) : undefined
}

/** Covers every other error of the system by what was tried: refused routes and permissions included. */
function failedCall(call: unknown): OriginErrorCode {
  if (call === 'getaddrinfo') return 'dns_error'
  return call === 'connect' ? 'connection_refused' : 'connection_terminated'
}
