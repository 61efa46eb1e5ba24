import { describe, expect, test } from 'vitest'
import { HostList, LOOPBACK_NAMES } from '../../src/http/host.ts'

describe('Host', () => {
  const hosts = new HostList([...LOOPBACK_NAMES, 'api.internal'])

  test.each(['localhost', 'localhost:8080', '127.0.0.1:1', '[::1]:8080', '[::1]', 'LOCALHOST', 'Api.Internal:80'])(
    '%s',
    (host) => {
      expect(hosts.check(host)).toBe('allowed')
      expect(hosts.check(host)).toBe('allowed')
    },
  )

  test.each([
    'evil.example',
    'evil.example:8080',
    '127.0.0.1.evil.com',
    'localhost.evil.com',
    'evillocalhost:1',
    '127.1',
    '0x7f.1',
    '0.0.0.0',
    'localhost.',
    '[::2]',
  ])('%s is refused', (host) => {
    expect(hosts.check(host)).toBe('refused')
  })

  test.each(['', ' ', 'a, b', '127.0.0.1@evil', 'a/b?c', 'a b', 'localhost:', 'localhost:x', 'localhost:80:80', '::1'])(
    '%j is invalid',
    (host) => {
      expect(hosts.check(host)).toBe('invalid')
    },
  )

  test('a single * allows every well-formed name and nothing else', () => {
    const all = new HostList(['*'])
    expect(all.check('evil.example:1')).toBe('allowed')
    expect(all.check('a b')).toBe('invalid')
  })
})
