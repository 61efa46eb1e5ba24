import { expect, test } from 'vitest'
import { checkAccess } from '../../src/admin/admin-server.ts'
import { HostList, LOOPBACK_NAMES } from '../../src/http/host.ts'

const rules = {
  hosts: new HostList([...LOOPBACK_NAMES, 'ops.example']),
  refusesForwarded: true,
  allowsAnyHost: false,
}

/** Fields by name, each with one value or several. */
function verdict(fields: Record<string, string | string[]>, given = {}, httpVersionMajor = 1): string {
  const headersDistinct = Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, [value].flat()]))
  return checkAccess({ httpVersionMajor, headersDistinct }, { ...rules, ...given }) ?? 'let in'
}

const host = 'localhost:9090'

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
  [['localhost', 'localhost'], 'host_invalid'],
])('Host %j: %s', (value, expected) => {
  expect(verdict({ host: value })).toBe(expected)
})

test('Host must be there, and may be any name for probes from other machines', () => {
  expect(verdict({})).toBe('host_invalid')
  expect(verdict({ host: '10.42.0.7:9090' }, { allowsAnyHost: true })).toBe('let in')
  expect(verdict({}, { allowsAnyHost: true })).toBe('let in')
})

test.each([
  ['an address typed in', { 'sec-fetch-site': 'none', 'sec-fetch-mode': 'navigate' }, 'let in'],
  ["the page's own calls", { 'sec-fetch-site': 'same-origin' }, 'let in'],
  ["the page's own calls that are not GET", { origin: 'http://localhost:9090' }, 'let in'],
  ['a client library that names a mode', { 'sec-fetch-mode': 'cors' }, 'let in'],
  ['a page elsewhere', { 'sec-fetch-site': 'cross-site' }, 'browser_refused'],
  ['a page on another port', { 'sec-fetch-site': 'same-site' }, 'browser_refused'],
  ['two values', { 'sec-fetch-site': ['none', 'cross-site'] }, 'browser_refused'],
  ['the same name on another port', { origin: 'http://localhost:3000' }, 'browser_refused'],
  ['another name for this machine', { origin: 'http://127.0.0.1:9090' }, 'browser_refused'],
  ['TLS in front of another page', { origin: 'https://localhost:9090' }, 'browser_refused'],
  ['a sandboxed frame or a file', { origin: 'null' }, 'browser_refused'],
  ['two origins', { origin: ['http://localhost:9090', 'http://evil.example'] }, 'browser_refused'],
  ['a page under a rebound name', { host: 'rebound.example', 'sec-fetch-site': 'same-origin' }, 'host_refused'],
])('%s: %s', (_, fields, expected) => {
  expect(verdict({ host, ...fields })).toBe(expected)
})

test.each(['x-forwarded-for', 'forwarded', 'x-real-ip'])(
  '%s is refused, unless listen.refuseForwarded is false',
  (name) => {
    expect(verdict({ host, [name]: '1.2.3.4' })).toBe('forwarded_refused')
    expect(verdict({ host, [name]: '1.2.3.4' }, { refusesForwarded: false })).toBe('let in')
  },
)

test.each([0, 2])('HTTP version %i is refused', (version) => {
  expect(verdict({ host }, {}, version)).toBe('http_version_refused')
})
