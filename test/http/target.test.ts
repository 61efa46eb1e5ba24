import { describe, expect, test } from 'vitest'
import { isForwardable, pathOf, tokenEndpointTest } from '../../src/http/target.ts'
import { scaled } from '../support/pace.ts'
import { fc } from '../support/properties.ts'

// `test/advisory/path-escape.test.ts` and `test/behaviour/targets.test.ts` send single ones.
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
  ])('%s is recognized in %s', (endpoint, target) => {
    expect(shows(endpoint, target)).toBe(true)
  })

  test.each([
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
