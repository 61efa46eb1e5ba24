import { expect, test } from 'vitest'
import { cookieThrough } from '../../../src/gateway/cookies.ts'

const BASE = new URL('https://api.example.com/v1/api/')

test.each([
  ['a=b', 'a=b'],
  ['a=b; Domain=api.example.com; HttpOnly', 'a=b; HttpOnly'],
  ['a=b;domain=.EXAMPLE.com;Max-Age=5', 'a=b;Max-Age=5'],
  ['a="Domain=x"; Domain = example.com ', 'a="Domain=x"'],
  ['a=b; Domain=other.example; Domain=example.com', 'a=b'],
  ['a=b; Path=/v1/api', 'a=b; Path=/'],
  ['a=b; Path=/v1/api/', 'a=b; Path=/'],
  ['a=b; path=/v1/api/v2/x', 'a=b; Path=/v2/x'],
  ['a=b; Path=/v1', 'a=b; Path=/'],
  ['a=b; Path=/v1/', 'a=b; Path=/'],
  ['a=b; Path=/', 'a=b; Path=/'],
  ['a=b; Secure; SameSite=Lax', 'a=b; SameSite=Lax'],
])('a cookie of the service comes back to the proxy: %s', (cookie, expected) => {
  expect(cookieThrough(cookie, BASE, 'http')).toBe(expected)
})

test.each([
  'a=b; Domain=other.example',
  'a=b; Domain=ample.com',
  'a=b; Domain=x.api.example.com',
  'a=b; Domain=example.com; Domain=other.example',
  'a=b; Path=/v1/apis',
  'a=b; Path=/v2',
  'a=b; Path=',
  'Domain=example.com',
])('what is not for the service stays as it is: %s', (cookie) => {
  expect(cookieThrough(cookie, BASE, 'http')).toBe(cookie)
})

test('Secure stays where the listener speaks TLS', () => {
  expect(cookieThrough('a=b; Secure; Domain=example.com', BASE, 'https')).toBe('a=b; Secure')
})

test('a part of an address covers none', () => {
  expect(cookieThrough('a=b; Domain=0.0.1', new URL('http://127.0.0.1'), 'http')).toBe('a=b; Domain=0.0.1')
})
