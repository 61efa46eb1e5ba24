import { describe, expect, test } from 'vitest'
import {
  formatAddress,
  isLoopback,
  isReadableOnTheWay,
  parseAddress,
  parseBaseUrl,
  parseFleetStore,
  parseTracesEndpoint,
} from '../../../src/config/address.ts'
import { Unsuitable } from '../../../src/config/problem.ts'
import { duration, parseRoutePattern, parseTokenHeader, size } from '../../../src/config/types.ts'

describe('durations and sizes', () => {
  const [anyDuration, anySize] = [duration('1s', '0ms'), size('1MiB', '0B', '64MiB')]

  test.each([
    ['250ms', 250],
    ['30s', 30_000],
    ['90m', 5_400_000],
    ['1h', 3_600_000],
    ['0s', 0],
  ])('%s is %i ms', (text, expected) => {
    expect(anyDuration.parse(text)).toBe(expected)
  })

  test.each([
    ['512B', 512],
    ['64KiB', 65_536],
    ['1MiB', 1_048_576],
  ])('%s is %i bytes', (text, expected) => {
    expect(anySize.parse(text)).toBe(expected)
  })

  test.each([
    ...['', '10', 's', '10 s', ' 10s', '10S', '-1s', '+1s', '1.5s', '1e3s', '01s', '1h30m', '٣s', '9999999999s'],
    ...['64', '64K', '64KB', '64kib', '1.5MiB', '-1B', '1 B', '1GiB'],
  ])('%j is refused', (text) => {
    expect(anyDuration.safeParse(text).error?.issues[0]?.message).toMatch(/^is not a duration: write /)
    expect(anySize.safeParse(text).error?.issues[0]?.message).toMatch(/^is not a size: write /)
  })
})

describe('the field of the token', () => {
  test.each([
    ['Authorization: Bearer {token}', { name: 'authorization', before: 'Bearer ', after: '' }],
    ['X-Shopify-Access-Token:{token}', { name: 'x-shopify-access-token', before: '', after: '' }],
    ['authorization: Token token="{token}"', { name: 'authorization', before: 'Token token="', after: '"' }],
  ])('%s', (text, expected) => {
    expect(parseTokenHeader(text)).toEqual(expected)
  })

  test.each([
    ...['', 'X-Token', '{token}', 'X-Token: token', 'X-{token}: x', 'X-Token: {token}{token}', 'X Token: {token}'],
    ...['X-Token: {Token}', 'X-Token : {token}', ': {token}', 'X-Token: {token}\r\nX-Org-Id: a', 'X-Tök: {token}'],
    ...['X-Token: é{token}', 'X-Token: a\t{token}'],
  ])('%j is refused', (text) => {
    expect(() => parseTokenHeader(text)).toThrow(/^is not a field with \{token\} once in its value: write /)
  })

  test.each([
    ...[
      'Host',
      'Connection',
      'Transfer-Encoding',
      'Content-Length',
      'Keep-Alive',
      'TE',
      'Trailer',
      'Upgrade',
      'Expect',
    ],
    ...['X-Org-Id', 'X-Proxy-Key', 'Proxy-Authorization', 'Cookie', 'Via', 'X-Request-Id', 'X-Forwarded-For'],
    ...['Forwarded', 'X-Original-URL', 'Origin', 'X_Org_Id', 'Authorization_', 'Content-Type', 'traceparent'],
  ])('%s is taken', (name) => {
    expect(() => parseTokenHeader(`${name}: {token}`)).toThrow(/^names a field that the proxy reads, sets or removes/)
  })
})

describe('addresses', () => {
  test.each([
    ['localhost:8080', { kind: 'tcp', host: 'localhost', port: 8080 }],
    ['LOCALHOST:0', { kind: 'tcp', host: 'localhost', port: 0 }],
    ['0.0.0.0:65535', { kind: 'tcp', host: '0.0.0.0', port: 65535 }],
    ['[::1]:80', { kind: 'tcp', host: '::1', port: 80 }],
    ['proxy.example.com:80', { kind: 'tcp', host: 'proxy.example.com', port: 80 }],
    ['unix:/run/proxy.sock', { kind: 'unix', path: '/run/proxy.sock' }],
  ])('%s is parsed, and formatted in the same way', (text, expected) => {
    expect(parseAddress(text)).toEqual(expected)
    expect(formatAddress(parseAddress(text))).toBe(text.toLowerCase())
  })

  test.each([
    ...['', '8080', ':8080', '*:8080', 'localhost', 'localhost:', 'localhost:65536', 'localhost:-1', 'localhost:http'],
    ...['localhost: 80', '::1:80', '[::1]', '[127.0.0.1]:80', '[::g]:80', '127.1:80', '300.0.0.1:80', 'a..b:80'],
    ...[
      'http://localhost:80',
      'user@localhost:80',
      'unix:',
      'unix:proxy.sock',
      'unix:/run/',
      `unix:/${'x'.repeat(107)}`,
      `unix:/${'x'.repeat(97)}/p`,
    ],
  ])('%j is refused', (text) => {
    expect(() => parseAddress(text)).toThrow(Unsuitable)
  })

  test.each([
    ...['localhost', '127.0.0.1', '127.255.255.254', '::1', '0:0:0:0:0:0:0:1', '::ffff:127.0.0.1'].map(
      (host) => [host, true] as const,
    ),
    ...['0.0.0.0', '::', '10.0.0.1', '128.0.0.1', 'localhost.', 'localhost.example.com', '127.0.0.1.example.com'].map(
      (host) => [host, false] as const,
    ),
  ])('%s is this machine: %s', (host, expected) => {
    expect(isLoopback(host)).toBe(expected)
  })
})

describe('collectors', () => {
  test.each(['http://collector:4318/v1/traces', 'https://[::1]:4318/prefix/v1/traces'])('%s is accepted', (text) => {
    expect(parseTracesEndpoint(text).href).toBe(text)
  })

  test.each([
    ['http://collector:4318', /has no path/],
    ['http://collector:4318/', /has no path/],
    ['http://user:hunter2@collector:4318/v1/traces', /user name or password/],
    ['http://collector:4318/v1/traces?key=hunter2', /query or a fragment/],
    ['http://collector:4318/v1/traces#hunter2', /query or a fragment/],
    ['collector:4318/hunter2', /is not an http\(s\) URL/],
    ['http://collector:99999/hunter2', /is not an http\(s\) URL/],
    ['http://collector:4318/hun ter2', /blanks/],
    ['', /is not an http\(s\) URL/],
  ])('%j is refused, and not repeated', (text, problem) => {
    expect(() => parseTracesEndpoint(text)).toThrow(problem)
    expect(() => parseTracesEndpoint(text)).not.toThrow(/hunter2/)
  })
})

describe('base URLs', () => {
  test.each([
    ['https://api.example.com', 'https://api.example.com/'],
    ['https://api.example.com:8443/prefix', 'https://api.example.com:8443/prefix'],
    ['https://api.example.com/prefix/', 'https://api.example.com/prefix/'],
    ['HTTPS://API.example.com', 'https://api.example.com/'],
    ['http://[::1]:9080', 'http://[::1]:9080/'],
  ])('%s is accepted', (text, href) => {
    expect(parseBaseUrl(text).href).toBe(href)
  })

  test.each([
    ...['https://user:hunter2@api.example.com', 'https://hunter2@api.example.com', 'https://@api.example.com/hunter2'],
    ...['https://api.example.com?key=hunter2', 'https://api.example.com/?', 'https://api.example.com/hunter2#'],
    ...['ftp://api.example.com/hunter2', 'file:///hunter2', 'javascript:hunter2', 'api.example.com/hunter2'],
    ...['https:/api.example.com/hunter2', 'https:api.example.com/hunter2', 'https:///hunter2', ''],
    ...['https://api.example.com/../hunter2', 'https://api.example.com/%2e%2e/hunter2', 'https://a.example/a//hunter2'],
    ...['https://api.example.com/a\\hunter2', 'https://api.example.com\\hunter2', 'https://api.example.com/hunter2 '],
    ...[' https://api.example.com/hunter2', 'https://api.example.com/hunter2/ü', 'https://a.example:99999/hunter2'],
    ...['https://api.exa mple.com/hunter2', 'https://api.example.com/hunter2\n'],
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
    ...['', '/v2/things', 'GET', 'GET  /v2', 'get /v2', 'GET v2', 'GET /v2*', 'GET /v2/*/things', 'GET /v2/**'],
    ...['GET /v2/../x', 'GET /v2/%2e%2e/x', 'GET /v2?x=1', 'GET /v2#x', 'GET /v 2', 'GET /%zz'],
    ...['GET https://api.example.com/v2', 'TRACE /v2', 'CONNECT /v2'],
  ])('%j is refused', (text) => {
    expect(() => parseRoutePattern(text)).toThrow(Unsuitable)
  })
})

describe('the store of a fleet', () => {
  test.each([
    ['redis://localhost', { kind: 'tcp', host: 'localhost', port: 6379, tls: false, database: 0 }],
    ['redis://127.0.0.1:7000/3', { kind: 'tcp', host: '127.0.0.1', port: 7000, tls: false, database: 3 }],
    ['rediss://cache.internal:6380/', { kind: 'tcp', host: 'cache.internal', port: 6380, tls: true, database: 0 }],
    ['redis://[::1]:6379', { kind: 'tcp', host: '::1', port: 6379, tls: false, database: 0 }],
    ['redis+unix:///run/redis.sock', { kind: 'unix', path: '/run/redis.sock', database: 0 }],
  ])('%s', (text, expected) => {
    expect(parseFleetStore(text)).toEqual(expected)
  })

  test.each([
    ...['redis://user:hunter2@host', 'redis://:hunter2@host', 'rediss://hunter2@host', 'redis://@host'],
    ...['localhost:6379', 'http://localhost:6379', 'redis://', 'redis://host/name', 'redis://host?db=1'],
    ...['redis+unix://run/redis.sock', 'redis+unix:///', 'redis://host:0', 'redis://hunter2:66666666'],
  ])('%s is refused, and not repeated', (text) => {
    expect(() => parseFleetStore(text)).toThrow(/^(?!.*hunter2)/)
    expect(() => parseFleetStore(text)).toThrow(Unsuitable)
  })
})
