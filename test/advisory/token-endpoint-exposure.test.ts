/**
 * The attack: an app asks the proxy for the token endpoint itself and gets the raw token, out of reach of every check;
 * or finds a spelling of that path which the origin understands and the proxy does not.
 */

import { afterAll, describe, test } from 'vitest'
import { get, HOST, head, ORG, startTable } from '../support/case-table.ts'

const table = await startTable()
afterAll(() => table[Symbol.asyncDispose]())

const SPELLINGS = [
  '/v2/orgs/{org}/access',
  '/v2/orgs/{other}/access',
  '//v2/orgs/{other}/access',
  '/v2//orgs///{other}//access',
  '/v2/%6frgs/{other}/access',
  '/v2/orgs/{other}/%61ccess',
  '/%76%32/orgs/{other}/access',
  '/v2/orgs/{other}/access/',
  '/v2/orgs/{other}/access//',
  '/v2/orgs/{other}/ACCESS',
  '/V2/ORGS/{other}/Access',
  '/v2/orgs/{other}/access?x=1',
  '/v2/orgs/{other}/access?',
  '/v2/orgs/{other}/access;a=b',
  '/v2;a/orgs;b/{other};c/access;d',
  '/v2/orgs/{other}%2faccess',
  '/v2%2Forgs/{other}/access',
  '/v2/orgs/{other}/access%2f',
  '/v2/orgs/a%2fb/access',
  '/v2/orgs/{other}/access%3bx',
  '/v2%5corgs%5c{other}%5caccess',
]

describe.each(['POST', 'GET', 'HEAD', 'PUT', 'OPTIONS', 'PURGE'])('T-PT-21 %s', (method) => {
  test.each(method === 'POST' ? SPELLINGS : SPELLINGS.slice(0, 2))('%s', (target) =>
    table.run({
      name: target,
      send: head(`${method} ${target} HTTP/1.1`, HOST, ORG, ...(method === 'POST' ? ['Content-Length: 0'] : [])),
      status: 403,
      ...(method === 'HEAD' ? {} : { code: 'token_endpoint_refused' }),
    }),
  )
})

test('T-PT-21 in absolute-form', () =>
  table.run({
    name: 'T-PT-21',
    send: head('POST http://localhost/v2/orgs/{other}/access HTTP/1.1', HOST, ORG, 'Content-Length: 0'),
    status: 403,
    code: 'token_endpoint_refused',
  }))

test.each([
  '/v2/orgs/{org}/accessories',
  '/v2/orgs/{org}',
  '/v2/orgs/{org}/access/log',
  '/v2/x?next=/v2/orgs/a/access',
])('T-PT-21 what only resembles it is forwarded: %s', async (target) => {
  const { org } = { org: target }
  await table.run({ name: org, send: get(target, '{org}'), status: 200, forwards: [`GET ${target}`] })
})
