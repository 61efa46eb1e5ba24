/** Every error of the network gets a code, and only errors of our own get none. */

import { describe, expect, test } from 'vitest'
import { OriginError } from '../../src/errors.ts'
import { translateOriginError } from '../../src/origin/origin-failure.ts'

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
    ['read', 'ETIMEDOUT', 'connection_timeout'],
    ['read', 'EHOSTUNREACH', 'connection_terminated'],
    ['write', 'EPIPE', 'connection_terminated'],
    ['write', 'ENOBUFS', 'overloaded'],
    ['getaddrinfo', 'ENOTFOUND', 'dns_error'],
    ['getaddrinfo', 'EAI_AGAIN', 'dns_error'],
  ])('of %s, %s, is %s', (syscall, code, expected) => {
    const error = systemError(code, syscall)
    expect(translateOriginError(error)).toMatchObject({ code: expected, message: error.message, cause: error })
  })

  test('of several addresses has the code of the first', () => {
    const errors = [systemError('EACCES', 'connect'), systemError('ETIMEDOUT', 'connect')]
    expect(translateOriginError(new AggregateError(errors))).toMatchObject({ code: 'connection_refused' })
  })
})

test('an error that has one of our codes is passed on', () => {
  const error = new OriginError('http_protocol_error', 'malformed')
  expect(translateOriginError(error)).toBe(error)
})

test.each([new TypeError('x is not a function'), 'text', undefined])('%s is not a failure of the origin', (error) => {
  expect(translateOriginError(error)).toBeUndefined()
})
