/**
 * The attack: an app calls the token endpoint through the proxy and gets the raw token, which it can use without any check.
 * Or it finds a spelling of the path that the origin understands and the proxy does not.
 */

import { describe, test } from 'vitest'
import { get, HOST, head, ORG, sentFor, startTable } from '../support/case-table.ts'

const table = await startTable()

/** `test/units/gateway/token-paths.test.ts` has every other one. */
const SPELLINGS = [
  '/v2/orgs/{org}/access',
  '/v2//orgs;a/{other}/%61ccess;b?x=1',
  'http://localhost/v2%5corgs%5c{other}%5caccess',
]

describe.each(['POST', 'GET', 'HEAD', 'PUT', 'OPTIONS', 'PURGE'])('%s', (method) => {
  const lines = method === 'POST' ? ['Content-Length: 0'] : []
  const sent = sentFor(SPELLINGS, (target) => head(`${method} ${target} HTTP/1.1`, HOST, ORG, ...lines))
  table.refuses(sent, 403, method === 'HEAD' ? undefined : 'token_endpoint_refused')
})

test.each([
  '/v2/orgs/{org}',
  '/v2/orgs/{org}/access/log',
  '/v2/orgs/{org}/access-logs',
  '/v2/x?next=/v2/orgs/a/access',
])('a path that only resembles the token endpoint is forwarded: %s', (target) =>
  table.run({ send: get(target, '{org}') }),
)

describe('with /v2/orgs/* in appRoutes, the token endpoint gets none of it', async () => {
  const app = await startTable({ appRoutes: 'POST /v2/orgs/*' }, { acceptsAnyToken: true })
  const post = (target: string) => head(`POST ${target} HTTP/1.1`, HOST, 'Content-Length: 0')
  app.refuses(sentFor(SPELLINGS, post), 403, 'token_endpoint_refused')
})

describe('with routes.allowTokenEndpoint', async () => {
  const open = await startTable({ 'routes.allowTokenEndpoint': 'true', appRoutes: 'POST /v2/orgs/*' })

  test('the token endpoint is forwarded, with the token of an Org', () =>
    open.run({
      send: head('POST /v2/orgs/{other}/access;x HTTP/1.1', HOST, ORG, 'Content-Length: 0'),
    }))

  test('it never gets Basic, not even as an App route', () =>
    open.run({
      send: head('POST /v2/orgs/{other}/access HTTP/1.1', HOST, 'Content-Length: 0'),
      status: 400,
      code: 'org_id_missing',
    }))
})

describe('with another tokens.endpoint, both are closed', async () => {
  const other = await startTable(
    { 'tokens.endpoint': 'GET /v2.1/tenants/{orgId}/tokens/new', 'tokens.field': 'token' },
    { acceptsAnyToken: true, script: () => ({ content: '{"token":"t"}' }) },
  )
  const targets = [
    '/v2.1/tenants/{other}/tokens/new',
    '/tenants/{other}/TOKENS/new.json?x=1',
    '/v2/orgs/{other}/access',
  ]
  other.refuses(
    sentFor(targets, (target) => get(target, '{org}')),
    403,
    'token_endpoint_refused',
  )
})
