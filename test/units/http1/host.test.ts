import { expect, test } from 'vitest'
import { HostList, LOOPBACK_NAMES } from '../../../src/http1/host.ts'

// `test/attacks/dns-rebinding.test.ts` sends the names and spellings that matter.
test('further names are allowed in any case and with any port, also when they are looked up again', () => {
  const hosts = new HostList([...LOOPBACK_NAMES, 'api.internal'])
  for (let i = 0; i < 2; i++) expect(hosts.check('Api.Internal:80')).toBe('allowed')
  expect(hosts.check('api.internal.evil.com')).toBe('refused')
})

test.each([
  'localhost.',
  'LOCALHOST.:8080',
  'localhost:',
  '[0:0:0:0:0:0:0:1]',
  '[::0.0.0.1]:80',
  'proxy.ns.svc.cluster.local.',
  '[fd00:0:0::00A]',
])('another spelling of an allowed name is allowed: %s', (value) => {
  const hosts = new HostList([...LOOPBACK_NAMES, 'proxy.ns.svc.cluster.local', '[FD00::a]'])
  expect(hosts.check(value)).toBe('allowed')
})

test.each([
  ['localhost..', 'refused'],
  ['.', 'refused'],
  ['[::1].', 'invalid'],
  ['[::1', 'invalid'],
  ['[1::1::1]', 'refused'],
  ['[::2]', 'refused'],
  ['localhost::', 'invalid'],
  [':', 'invalid'],
])('what only looks like an allowed name is not: %s', (value, verdict) => {
  expect(new HostList(LOOPBACK_NAMES).check(value)).toBe(verdict)
})

test('a single * allows every well-formed name and nothing else', () => {
  const all = new HostList(['*'])
  expect(all.check('evil.example:1')).toBe('allowed')
  expect(all.check('a b')).toBe('invalid')
})
