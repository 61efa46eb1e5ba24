import { describe, expect, test } from 'vitest'
import { formatAddress, isLoopback, isReadableOnTheWay, parseAddress, parseBaseUrl } from '../../src/config/address.ts'
import { parseRoutePattern, Unsuitable } from '../../src/config/types.ts'

describe('addresses', () => {
  test.each([
    ['localhost:8080', { kind: 'tcp', host: 'localhost', port: 8080 }],
    ['LOCALHOST:0', { kind: 'tcp', host: 'localhost', port: 0 }],
    ['127.0.0.1:65535', { kind: 'tcp', host: '127.0.0.1', port: 65535 }],
    ['0.0.0.0:80', { kind: 'tcp', host: '0.0.0.0', port: 80 }],
    ['[::1]:80', { kind: 'tcp', host: '::1', port: 80 }],
    ['proxy.example.com:80', { kind: 'tcp', host: 'proxy.example.com', port: 80 }],
    ['unix:/run/proxy.sock', { kind: 'unix', path: '/run/proxy.sock' }],
  ])('%s is parsed, and formatted in the same way', (text, expected) => {
    expect(parseAddress(text)).toEqual(expected)
    expect(formatAddress(parseAddress(text))).toBe(text.toLowerCase())
  })

  test.each([
    '',
    '8080',
    ':8080',
    '*:8080',
    'localhost',
    'localhost:',
    'localhost:65536',
    'localhost:-1',
    'localhost:http',
    'localhost: 80',
    '::1:80',
    '[::1]',
    '[127.0.0.1]:80',
    '[::g]:80',
    '127.1:80',
    '300.0.0.1:80',
    'a..b:80',
    'http://localhost:80',
    'user@localhost:80',
    'unix:',
    'unix:proxy.sock',
    'unix:/run/',
    `unix:/${'x'.repeat(103)}`,
  ])('%j is refused', (text) => {
    expect(() => parseAddress(text)).toThrow(Unsuitable)
  })

  test.each(['localhost', '127.0.0.1', '127.255.255.254', '::1', '0:0:0:0:0:0:0:1', '::ffff:127.0.0.1'])(
    '%s is this machine',
    (host) => {
      expect(isLoopback(host)).toBe(true)
    },
  )

  test.each(['0.0.0.0', '::', '10.0.0.1', '128.0.0.1', 'localhost.', 'localhost.example.com', '127.0.0.1.example.com'])(
    '%s may be another machine',
    (host) => {
      expect(isLoopback(host)).toBe(false)
    },
  )
})

describe('base URLs', () => {
  test.each([
    ['https://api.example.com', 'https://api.example.com/'],
    ['https://api.example.com/', 'https://api.example.com/'],
    ['https://api.example.com:8443/prefix', 'https://api.example.com:8443/prefix'],
    ['https://api.example.com/prefix/', 'https://api.example.com/prefix/'],
    ['HTTPS://API.example.com', 'https://api.example.com/'],
    ['http://[::1]:9080', 'http://[::1]:9080/'],
  ])('%s is accepted', (text, href) => {
    expect(parseBaseUrl(text).href).toBe(href)
  })

  // The words in these must never appear in a message.
  test.each([
    'https://user:hunter2@api.example.com',
    'https://hunter2@api.example.com',
    'https://@api.example.com/hunter2',
    'https://api.example.com?key=hunter2',
    'https://api.example.com/?',
    'https://api.example.com/hunter2#',
    'https://api.example.com#hunter2',
    'ftp://api.example.com/hunter2',
    'file:///hunter2',
    'javascript:hunter2',
    'api.example.com/hunter2',
    'https:/api.example.com/hunter2',
    'https:api.example.com/hunter2',
    'https:///hunter2',
    'https://api.example.com/../hunter2',
    'https://api.example.com/%2e%2e/hunter2',
    'https://api.example.com/a//hunter2',
    'https://api.example.com/a\\hunter2',
    'https://api.example.com\\hunter2',
    'https://api.example.com/hunter2 ',
    ' https://api.example.com/hunter2',
    'https://api.example.com/hunter2/ü',
    'https://api.example.com:99999/hunter2',
    'https://api.exa mple.com/hunter2',
    'https://api.example.com/hunter2\n',
    '',
  ])('%j is refused, and not repeated', (text) => {
    let message = ''
    try {
      parseBaseUrl(text)
    } catch (error) {
      expect(error).toBeInstanceOf(Unsuitable)
      message = String(error)
    }
    expect(message).not.toBe('')
    expect(message).not.toContain('hunter2')
  })

  test.each([
    ['https://api.example.com', false],
    ['http://localhost:9080', false],
    ['http://127.0.0.1', false],
    ['http://127.1', false],
    ['http://[::1]', false],
    ['http://api.example.com', true],
    ['http://10.0.0.1', true],
    ['http://localhost.example.com', true],
  ])('%s can be read on the way: %s', (text, expected) => {
    expect(isReadableOnTheWay(parseBaseUrl(text))).toBe(expected)
  })
})

describe('routes', () => {
  test.each([
    ['GET /v2/things', { method: 'GET', path: '/v2/things', isPrefix: false }],
    ['* /v2/things/*', { method: '*', path: '/v2/things/', isPrefix: true }],
    ['PURGE /*', { method: 'PURGE', path: '/', isPrefix: true }],
    ['VERSION-CONTROL /a%2Fb', { method: 'VERSION-CONTROL', path: '/a%2Fb', isPrefix: false }],
  ])('%s is parsed', (text, expected) => {
    expect(parseRoutePattern(text)).toEqual(expected)
  })

  test.each([
    '',
    '/v2/things',
    'GET',
    'GET  /v2',
    'get /v2',
    'GET v2',
    'GET /v2*',
    'GET /v2/*/things',
    'GET /v2/**',
    'GET /v2/../x',
    'GET /v2/%2e%2e/x',
    'GET /v2?x=1',
    'GET /v2#x',
    'GET /v 2',
    'GET /%zz',
    'GET https://api.example.com/v2',
    'TRACE /v2',
    'CONNECT /v2',
  ])('%j is refused', (text) => {
    expect(() => parseRoutePattern(text)).toThrow(Unsuitable)
  })
})
