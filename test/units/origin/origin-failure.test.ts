/** Every error of a connection gets a code, and a certificate's names its fault. */

import { describe, expect, test } from 'vitest'
import { OriginError } from '../../../src/errors.ts'
import { originError } from '../../../src/origin/origin-failure.ts'

function systemError(code: string, syscall: string): Error {
  return Object.assign(new Error(`${syscall} ${code}`), { code, syscall })
}

describe('an error of the system', () => {
  test.each([
    ['connect', 'EMFILE', 'overloaded'],
    ['connect', 'ENFILE', 'overloaded'],
    ['connect', 'ENOBUFS', 'overloaded'],
    ['connect', 'ENOMEM', 'overloaded'],
    ['getaddrinfo', 'EBUSY', 'overloaded'],
    ['connect', 'ECONNREFUSED', 'connection_refused'],
    ['connect', 'EHOSTUNREACH', 'connection_refused'],
    ['connect', 'ENETUNREACH', 'connection_refused'],
    ['connect', 'EACCES', 'connection_refused'],
    ['connect', 'EPERM', 'connection_refused'],
    ['connect', 'EADDRNOTAVAIL', 'connection_refused'],
    ['connect', 'ENOENT', 'connection_refused'],
    ['connect', 'ETIMEDOUT', 'connection_timeout'],
    ['connect', 'ECONNRESET', 'connection_terminated'],
    ['read', 'ECONNRESET', 'connection_terminated'],
    ['read', 'ETIMEDOUT', 'connection_terminated'],
    ['read', 'EHOSTUNREACH', 'connection_terminated'],
    ['write', 'EPIPE', 'connection_terminated'],
    ['write', 'ENOBUFS', 'overloaded'],
    ['getaddrinfo', 'ENOTFOUND', 'dns_error'],
    ['getaddrinfo', 'EAI_AGAIN', 'dns_error'],
  ])('of %s, %s, is %s', (syscall, code, expected) => {
    const error = systemError(code, syscall)
    expect(originError(error)).toMatchObject({ code: expected, message: error.message, cause: error })
  })
})

test('an error that has one of our codes is passed on', () => {
  const error = new OriginError('http_protocol_error', 'malformed')
  expect(originError(error)).toBe(error)
})

test.each([
  ['CERT_HAS_EXPIRED', 'it, or that of its CA, has expired'],
  ['CERT_NOT_YET_VALID', 'look at the clock'],
  ['ERR_TLS_CERT_ALTNAME_INVALID', 'another host'],
  ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'its issuer'],
  ['SELF_SIGNED_CERT_IN_CHAIN', 'its issuer'],
  ['CERT_REVOKED', 'CERT_REVOKED'],
])('a certificate with %s: %s', (code, words) => {
  const error = originError(Object.assign(new Error('of OpenSSL'), { code }))
  expect(error).toMatchObject({ code: 'tls_certificate_error', hint: expect.stringContaining(words) })
})

test.each([
  ['ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED', 'asks for a client certificate that it trusts; see origin.certFile'],
  ['ERR_SSL_TLSV1_ALERT_UNKNOWN_CA', 'asks for a client certificate that it trusts; see origin.certFile'],
  ['ERR_SSL_WRONG_VERSION_NUMBER', 'its answer is no TLS'],
  ['ERR_SSL_NO_PROTOCOLS_AVAILABLE', 'TLS with the service failed (ERR_SSL_NO_PROTOCOLS_AVAILABLE).'],
])('TLS that fails with %s: %s', (code, words) => {
  const error = originError(Object.assign(new Error('of OpenSSL'), { code }))
  expect(error).toMatchObject({ code: 'tls_protocol_error', hint: expect.stringContaining(words) })
})
