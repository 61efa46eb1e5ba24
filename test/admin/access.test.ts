import { describe, expect, test } from 'vitest'
import { type AccessOptions, checkAccess } from '../../src/admin/admin-server.ts'
import { HostList, LOOPBACK_NAMES } from '../../src/http/host.ts'

const options: AccessOptions = {
  hosts: new HostList([...LOOPBACK_NAMES, 'ops.example']),
  refusesForwarded: true,
  allowsAnyHost: false,
}

function verdict(rawHeaders: string[], given: Partial<AccessOptions> = {}, httpVersionMajor = 1): string {
  return checkAccess({ httpVersionMajor, rawHeaders }, { ...options, ...given }) ?? 'let in'
}

const HOST = ['Host', 'localhost:9090']

describe('Host', () => {
  test.each([
    ['localhost:9090', 'let in'],
    ['LOCALHOST', 'let in'],
    ['127.0.0.1:1', 'let in'],
    ['[::1]:9090', 'let in'],
    ['ops.example:9090', 'let in'],
    ['evil.example', 'host_refused'],
    ['localhost.evil.example', 'host_refused'],
    ['localhost.', 'host_refused'],
    ['127.1', 'host_refused'],
    ['0.0.0.0:9090', 'host_refused'],
    ['', 'host_invalid'],
    ['a b', 'host_invalid'],
    ['localhost@evil.example', 'host_invalid'],
  ])('%j: %s', (host, expected) => {
    expect(verdict(['Host', host])).toBe(expected)
  })

  test('must be there exactly once', () => {
    expect(verdict([])).toBe('host_invalid')
    expect(verdict(['Host', 'localhost', 'host', 'localhost'])).toBe('host_invalid')
  })

  test('may be any name for probes from other machines', () => {
    expect(verdict(['Host', '10.42.0.7:9090'], { allowsAnyHost: true })).toBe('let in')
    expect(verdict([], { allowsAnyHost: true })).toBe('let in')
  })
})

describe('browsers', () => {
  test.each([
    ['an address typed in', ['Sec-Fetch-Site', 'none', 'Sec-Fetch-Mode', 'navigate'], 'let in'],
    ["the page's own calls", ['Sec-Fetch-Site', 'same-origin'], 'let in'],
    ["the page's own calls that are not GET", ['Origin', 'http://localhost:9090'], 'let in'],
    ['a client library that names a mode', ['Sec-Fetch-Mode', 'cors'], 'let in'],
    ['a page elsewhere', ['Sec-Fetch-Site', 'cross-site'], 'browser_refused'],
    ['a page on another port', ['Sec-Fetch-Site', 'same-site'], 'browser_refused'],
    ['two values', ['Sec-Fetch-Site', 'none', 'sec-fetch-site', 'cross-site'], 'browser_refused'],
    ['the same name on another port', ['Origin', 'http://localhost:3000'], 'browser_refused'],
    ['another name for this machine', ['Origin', 'http://127.0.0.1:9090'], 'browser_refused'],
    ['TLS in front of another page', ['Origin', 'https://localhost:9090'], 'browser_refused'],
    ['a sandboxed frame or a file', ['Origin', 'null'], 'browser_refused'],
    ['two origins', ['Origin', 'http://localhost:9090', 'Origin', 'http://evil.example'], 'browser_refused'],
  ])('%s: %s', (_, fields, expected) => {
    expect(verdict([...HOST, ...fields])).toBe(expected)
  })

  test('a page under a rebound name is refused', () => {
    expect(verdict(['Host', 'rebound.example', 'Sec-Fetch-Site', 'same-origin'])).toBe('host_refused')
  })
})

test('a request that came through another proxy is refused, unless listen.refuseForwarded is false', () => {
  for (const name of ['X-Forwarded-For', 'Forwarded', 'x-real-ip']) {
    expect(verdict([...HOST, name, '1.2.3.4'])).toBe('forwarded_refused')
    expect(verdict([...HOST, name, '1.2.3.4'], { refusesForwarded: false })).toBe('let in')
  }
})

test('other versions than HTTP/1 are refused', () => {
  expect(verdict(HOST, {}, 2)).toBe('http_version_refused')
  expect(verdict(HOST, {}, 0)).toBe('http_version_refused')
})
