import { describe, expect, test } from 'vitest'
import { tokenPathTest } from '../../../src/gateway/token-paths.ts'
import { pathOf } from '../../../src/http1/target.ts'
import { scaled } from '../../support/pace.ts'

describe('the token endpoint', () => {
  const isTokenEndpoint = tokenPathTest()

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
  const shows = (endpoint: string, target: string) => tokenPathTest(endpoint)(pathOf(target))

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
