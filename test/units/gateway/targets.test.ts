import { describe, expect, test } from 'vitest'
import { isForwardable, linksThrough, targetOfLocation } from '../../../src/gateway/targets.ts'
import { pathOf } from '../../../src/http1/target.ts'
import { fc } from '../../support/properties.ts'

// `test/attacks/path-escape.test.ts` and `test/program/behaviour/targets.test.ts` send single ones.
test('a forwarded target stays below any prefix, however a server resolves it', () => {
  const PIECES = 'a . .. %2e %252e %252f %253b %2E %2f %5c / // ; ;x % %41 ? # \\ ~'.split(' ')
  const piece = fc.constantFrom(...PIECES)
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const target = `/${pieces.join('')}`
      if (!isForwardable(target)) return
      const resolved = new URL(`http://h/prefix${target}`)
      expect(resolved.host).toBe('h')
      expect(resolved.pathname.startsWith('/prefix/')).toBe(true)
      // Checks the same for servers that decode first, once or twice.
      let decoded = pathOf(target)
      for (const _ of ['once', 'twice']) {
        decoded = decoded.replaceAll(/%([0-9a-f]{2})/gi, (_, hex: string) =>
          String.fromCharCode(Number.parseInt(hex, 16)),
        )
        const resolved = decoded.replaceAll('\\', '/').replaceAll(/;[^/]*/g, '')
        expect(resolved.split('/')).not.toContain('..')
      }
    }),
    { numRuns: 2_000 },
  )
})

describe('a location below the base URL becomes a target of the proxy', () => {
  test.each<[string, string, string]>([
    ['https://api.example/', 'https://api.example/v2/x?y=z#f', '/v2/x?y=z#f'],
    ['https://api.example/', 'HTTPS://API.Example:443/v2/x', '/v2/x'],
    ['https://api.example/', '//api.example/v2/x', '/v2/x'],
    ['https://api.example/', '//api.example.:/v2/x', '/v2/x'],
    ['https://api.example./', 'https://api.example/v2/x', '/v2/x'],
    ['https://api.example/', 'https://api.example', '/'],
    ['https://api.example/', 'https://api.example?a', '/?a'],
    ['http://[::1]:8080/', 'http://[::1]:8080/v2/%2F//', '/v2/%2F//'],
    ['https://api.example/a/b', 'https://api.example/a/b/v2/x', '/v2/x'],
    ['https://api.example/a/b/', 'https://api.example/a/b', '/'],
    ['https://api.example/a/b', 'https://api.example/a/b#f', '/#f'],
    ['https://api.example/a/b', '/a/b/v2/x?y', '/v2/x?y'],
  ])('%s: %s', (baseUrl, location, target) => {
    expect(targetOfLocation(location, new URL(baseUrl))).toBe(target)
  })

  test.each<[string, string]>([
    ['another host', 'https://evil.example/a/v2/x'],
    ['another scheme', 'http://api.example/a/v2/x'],
    ['another port', 'https://api.example:8443/a/v2/x'],
    ['a user', 'https://me@api.example/a/v2/x'],
    ['a host that begins alike', 'https://api.example.evil/a/v2/x'],
    ['a host behind a backslash', 'https://api.example\\@evil.example/a/x'],
    ['another path', 'https://api.example/b'],
    ['a path that begins alike', '/ab/v2/x'],
    ['a path that leads out', 'https://api.example/a/../b'],
    ['an encoded one', '/a/%2e%2e/b'],
    ['what would name a host', 'https://api.example/a//evil.example/'],
    ['the same with a backslash', '/a/\\evil.example'],
    ['the same with a tab', '/a/\t/evil.example'],
    ['a path that climbs without its tab', 'https://api.example/a/%2e\t%2e'],
    ['a path that the proxy completes', '/v2/x'],
    ['a relative path', 'x/y'],
    ['a query', '?x'],
    ['nothing', ''],
    ['no URL of the web', 'mailto:a@api.example'],
  ])('but not %s: %s', (_, location) => {
    expect(targetOfLocation(location, new URL('https://api.example/a'))).toBeUndefined()
  })

  test('whatever it is, a client stays at the proxy, and the service gets the same', () => {
    const pieces = fc.constantFrom(
      'https:',
      '//',
      '/',
      'api.example',
      'evil',
      '/a',
      '..',
      '%2e',
      '?',
      '#',
      '@',
      ':',
      '443',
      '\\',
      '\t',
      'x',
    )
    const baseUrl = new URL('https://api.example/a')
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 10 }), (parts) => {
        const location = parts.join('')
        const target = targetOfLocation(location, baseUrl)
        if (target === undefined) return
        const reached = new URL(target, 'https://proxy.example/v2/')
        expect(reached.host).toBe('proxy.example')
        const meant = new URL(location, 'https://api.example/a/v2/')
        expect(`/a${reached.pathname}${reached.search}`).toBe(meant.pathname.replace(/^\/a$/, '/a/') + meant.search)
        expect(meant.host).toBe('api.example')
      }),
      { numRuns: 5_000 },
    )
  })
})

describe('the targets of a Link field below the base URL become URLs of the proxy', () => {
  const A = 'https://api.example/a'
  const P = 'http://localhost:8080'
  test.each<[string, string]>([
    [`<${A}/v2/x?page=2>; rel="next", <${A}/v2/x>;rel=last`, `<${P}/v2/x?page=2>; rel="next", <${P}/v2/x>;rel=last`],
    [`<HTTPS://API.example:443/a>; title*=UTF-8''x`, `<${P}/>; title*=UTF-8''x`],
    ['<//api.example/a/v2/x#f>', `<${P}/v2/x#f>`],
    [`<${A}/x>; title="a, <${A}/y>; \\" >" ;, ,<${A}/z>`, `<${P}/x>; title="a, <${A}/y>; \\" >" ;, ,<${P}/z>`],
    [`<${A}/x>; type=text/html; anchor="${A}", `, `<${P}/x>; type=text/html; anchor="${A}", `],
    [`<https://evil.example/x>, <${A}/x>`, `<https://evil.example/x>, <${P}/x>`],
  ])('%s', (field, expected) => {
    expect(linksThrough(P, field, new URL(A))).toBe(expected)
    expect(linksThrough('', field, new URL(A))).toBe(expected.replaceAll(P, ''))
  })

  test.each([
    '</a/v2/x>; rel=next',
    '<x>',
    '<?page=2>',
    `<${A}/../b>`,
    `<${A}-b/x>`,
    `<${A}/x`,
    `${A}/x; rel=next`,
    `<${A}/x> rel=next`,
    `<${A}/x>; rel="next`,
    `<${A}/x>, y`,
    `<<${A}/x>>`,
    '',
  ])('but not %s', (field) => {
    expect(linksThrough(P, field, new URL(A))).toBe(field)
  })
})
