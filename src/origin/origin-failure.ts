/** Turns errors of sockets, TLS, the resolver and the tunnel into error codes of this program. Each is translated once, where it arises. */

import { OriginError, type OriginErrorCode } from '../errors.ts'

const BY_CODE: Readonly<Record<string, OriginErrorCode>> = {
  // This machine has no descriptor, buffer or memory left. The service is not to blame, and the next request may succeed.
  EMFILE: 'overloaded',
  ENFILE: 'overloaded',
  ENOBUFS: 'overloaded',
  ENOMEM: 'overloaded',
  EBUSY: 'overloaded', // of the resolver, when it cannot open its files
  // TLS that the peer ends during its handshake has this code, but no system call.
  ECONNRESET: 'connection_terminated',
  EPROTO: 'tls_protocol_error',
}

const UNKNOWN_ISSUER = 'its issuer is not among the trusted ones; origin.caFile adds one'

/** The fault of a certificate, by the code of OpenSSL or Node. */
const CERTIFICATE_FAULTS: Readonly<Record<string, string>> = {
  CERT_HAS_EXPIRED: 'it, or that of its CA, has expired, or the clock of this machine is wrong',
  CERT_NOT_YET_VALID: 'it is not valid yet: look at the clock of this machine',
  ERR_TLS_CERT_ALTNAME_INVALID: 'it is for another host than the one in baseUrl',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'it is self-signed; origin.caFile can add it',
  SELF_SIGNED_CERT_IN_CHAIN: UNKNOWN_ISSUER,
  UNABLE_TO_GET_ISSUER_CERT: UNKNOWN_ISSUER,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNKNOWN_ISSUER,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNKNOWN_ISSUER,
}
/** Verification results of OpenSSL, as Node names them, and of Node's own look at the names. */
const CERTIFICATE = /^(?:CERT_|ERR_TLS_CERT_|UNABLE_TO_|SELF_SIGNED|DEPTH_ZERO|INVALID_|HOSTNAME_MISMATCH|CRL_)/

/** Returns `error`, which arose on a connection to the service, as one of ours. */
export function originError(error: Error): OriginError {
  if (error instanceof OriginError) return error
  const cause = error instanceof AggregateError ? mostTelling(error) : error
  const { code: systemCode = '', syscall }: NodeJS.ErrnoException = cause
  const code = originErrorCode(systemCode, syscall)
  const limit = code === 'overloaded' ? 'file descriptors' : undefined
  return new OriginError(code, cause.message, { cause, limit, hint: hintFor(code, systemCode) })
}

const UNANSWERED: readonly string[] = ['ENETUNREACH', 'EHOSTUNREACH', 'ETIMEDOUT']

/** Of the failures of several addresses, the first where somebody answered: a whole family may be unreachable from here. */
function mostTelling({ errors }: { readonly errors: readonly NodeJS.ErrnoException[] }): NodeJS.ErrnoException {
  return errors.find(({ code = '' }) => !UNANSWERED.includes(code)) ?? errors[0] ?? new Error('no connection')
}

function originErrorCode(systemCode: string, syscall: string | undefined): OriginErrorCode {
  const known = BY_CODE[systemCode]
  if (known !== undefined) return known
  if (CERTIFICATE.test(systemCode)) return 'tls_certificate_error'
  if (systemCode.startsWith('ERR_SSL_') || systemCode.startsWith('ERR_TLS_')) return 'tls_protocol_error'
  if (syscall === 'getaddrinfo') return 'dns_error'
  if (syscall === 'connect' && systemCode === 'ETIMEDOUT') return 'connection_timeout'
  // Covers every other error of the system by what was tried: refused routes and permissions included.
  return syscall === 'connect' ? 'connection_refused' : 'connection_terminated'
}

/** One sentence from a closed set, with the code of the system at most. */
function hintFor(code: OriginErrorCode, systemCode: string): string | undefined {
  const fault = CERTIFICATE_FAULTS[systemCode] ?? 'its verification failed'
  if (code === 'tls_certificate_error')
    return `The proxy does not trust the certificate of the service: ${fault} (${systemCode}).`
  if (code === 'dns_error') return `The host name of baseUrl does not resolve (${systemCode}).`
  if (code === 'connection_timeout') return `The address of the service does not answer (${systemCode}).`
  if (code === 'tls_protocol_error') return `TLS with the service failed${alertText(systemCode)} (${systemCode}).`
  return undefined
}

/** The commonest causes, which nobody reads from the code alone. */
function alertText(systemCode: string): string {
  if (/ALERT_.*(?:CERTIFICATE|UNKNOWN_CA)/.test(systemCode))
    return ': it asks for a client certificate that it trusts; see origin.certFile'
  return /WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG/.test(systemCode) ? ': its answer is no TLS' : ''
}
