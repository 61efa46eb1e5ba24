import { expect, test } from 'vitest'
import { HostList, LOOPBACK_NAMES } from '../../../src/http1/host.ts'

// `test/attacks/dns-rebinding.test.ts` sends the names and spellings that matter.
test('further names are allowed in any case and with any port, also when they are looked up again', () => {
  const hosts = new HostList([...LOOPBACK_NAMES, 'api.internal'])
  for (let i = 0; i < 2; i++) expect(hosts.check('Api.Internal:80')).toBe('allowed')
  expect(hosts.check('api.internal.evil.com')).toBe('refused')
})

test('a single * allows every well-formed name and nothing else', () => {
  const all = new HostList(['*'])
  expect(all.check('evil.example:1')).toBe('allowed')
  expect(all.check('a b')).toBe('invalid')
})
