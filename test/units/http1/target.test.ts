import { describe, expect, test } from 'vitest'
import { isForwardable, linksThrough, pathOf, targetOfLocation, tokenEndpointTest } from '../../../src/http1/target.ts'
import { scaled } from '../../support/pace.ts'
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
    { numRuns: 5_000 },
  )
})

describe('the token endpoint', () => {
  const isTokenEndpoint = tokenEndpointTest()

  test.each([
    '/v2/orgs/b/access',
    '/v2/orgs/b/access/',
    '//v2//orgs/b/access',
    '/v2/%6frgs/b/access',
    '/V2/Orgs/b/ACCESS',
    '/v2/orgs/b/access?x',
    '/v2/orgs/b/access;a=b',
    '/v2/orgs/b/access%3bx',
    '/v2;x/orgs;y/b/access',
    '/v2/orgs/a%2Fb/access',
    '/v2%2Forgs%2Fb%2Faccess',
    '/v2/orgs/b/acces%73',
    '/v2/orgs/;x/access',
    '/v2/orgs/%3Bx/access',
    '/v2%2forgs/a%2fb/access',
    '/v2%2Forgs/a%252Fb/access',
    '/v2/orgs/;/x/access',
    '/;/v2/orgs/x/access',
    '/v2/;/orgs/;/x/;/access/;',
    '/v2/orgs/x/access/%3b',
    '/v2/orgs/x/access%0a',
    '/v2/orgs/x/access%00.html',
    '/v2/orgs/x/access%250A',
    '/v2/orgs/x/access%20',
    '/v2/orgs/x/access%20%09',
    '/v2/orgs/x/%20access',
    '/v2/orgs/x/access%e2%80%a8',
    '/v2/orgs/x/access%e2%80%8b',
    '/v2/orgs/x/acc%c2%adess',
    '/v2/orgs/x/access.json',
    '/v2/orgs/x/access.',
    '/v2/orgs/x/access.json;a',
    '/v2/orgs/x/%2561ccess',
    '/v2/%256frgs/x/access',
    '/orgs/x/access',
    '/v3/tenant/orgs/x/access',
    '/v2/orgs/orgs/access',
    '/v2/orgs/x/access%3fy',
    '/v2/orgs/x/access%253F/y/z',
    '/v2/orgs/x/access%23y',
    '/v2/orgs/x%3fy/access',
    '/v2/orgs/%2f/access',
    '/v2/orgs/%255c%2f/access',
    '/v2/org%c5%bf/x/acce%C5%BF%c5%bf',
    '/v2/orgs/x/acce%25c5%25bfs',
    '/v2/orgs/x/acce%c3%9f',
    '/v2/orgs/x/acce%e1%ba%9e',
    '/v2/orgs/x/%ef%bd%81ccess',
  ])('%s is recognized', (target) => {
    expect(isTokenEndpoint(pathOf(target))).toBe(true)
  })

  test.each([
    '/v2/orgs/b',
    '/v2/orgs/b/access/log',
    '/v2/orgs/access',
    '/v2/access',
    '/v2/orgs/b/accessories',
    '/v2/orgs/b/access-logs',
    '/v2/orgs/b/access/x',
    '/v2/orgs/b/access%20logs',
    '/v2/orgs/b/acce%c3%9fories',
    '/v2/orgs/b/files/a%2Fb/access',
    '/v2/orgs/b/groups/c/access',
    '/v2/orgs/',
    '/v2/orgs//access',
    '/a%2Fb/orgs/access',
    '/v2/orgs/x%3fy/files',
    '/access',
    '/%',
    '/v2/x?y=/v2/orgs/b/access',
  ])('%s is not the token endpoint', (target) => {
    expect(isTokenEndpoint(pathOf(target))).toBe(false)
  })
})

describe('a token endpoint of the configuration', () => {
  const shows = (endpoint: string, target: string) => tokenEndpointTest(endpoint)(pathOf(target))

  test.each([
    ['/v2.1/tenants/{orgId}/tokens/new', '/v2.1/tenants/b/tokens/new'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/v9/tenants/b/tokens/new/'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/prefix/Tenants/b/TOKENS;x//new;y'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/tenants/b%2fc/to%6bens%2fnew.json'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/tenants/b/to%e2%84%aaens/new%20'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/tenants/;/tokens/;x/new?y'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/tenants/b/tokens/%2fnew'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/v2/orgs/b/access'],
    ['/v3/{orgId}/signin/', '/v3/b/signin'],
    ['/v3/{orgId}/signin/', '/v3/b/s%c4%b1gn%c4%b0n'],
    ['/v3/{orgId}/staff/token', '/b/sta%ef%ac%80/token'],
    ['/{orgId}/token.json', '/any/b/token'],
    ['/{orgId}/token.json', '/b/token.xml'],
    ['/{orgId}/a.b:c', '/x/a.b:c'],
    ['/v2/oauth/token', '/v1/oauth/token'],
    ['/v2/oauth/token', '/prefix/OAUTH//to%6ben/'],
    ['/v2/oauth/token', '/oauth%2ftoken;x'],
    ['/v2/oauth/token', '/v2/orgs/b/access'],
  ])('%s is recognized in %s', (endpoint, target) => {
    expect(shows(endpoint, target)).toBe(true)
  })

  test.each([
    ['/v2/oauth/token', '/v2/token'],
    ['/v2/oauth/token', '/v2/oauth/tokens'],
    ['/v2/oauth/token', '/v2/oauth/token/x'],
    ['/v2/oauth/token', '/v2/oauth/x/token'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/v2.1/tenants/b/tokens'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/v2.1/tenants/b/tokens/news'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/v2.1/tenants/b/tokens/new/x'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/v2.1/tenants/b/other/new'],
    ['/v2.1/tenants/{orgId}/tokens/new', '/v2.1/tenants/tokens/new'],
    ['/{orgId}/token.json', '/token'],
    ['/{orgId}/a.b:c', '/x/axb:c'],
  ])('%s is not in %s', (endpoint, target) => {
    expect(shows(endpoint, target)).toBe(false)
  })

  test('a path of many segments without a name takes no longer than others', () => {
    const path = `/v2${'/;'.repeat(8_000)}/access`
    const startedAt = performance.now()
    for (let i = 0; i < 10; i++) expect(shows('/a/{orgId}/access', path)).toBe(false)
    expect(performance.now() - startedAt).toBeLessThan(scaled(200))
  })
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
      { numRuns: 20_000 },
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

test('a Location with a tab in its path stays as it is: without it, the path may climb', () => {
  expect(targetOfLocation('https://api.example.com/a/%2e\t%2e', new URL('https://api.example.com/a'))).toBeUndefined()
})
