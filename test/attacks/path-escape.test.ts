/**
 * The attack: a path that the proxy reads as below the prefix, or as a permitted route, and the origin as another one: dot
 * segments plain, encoded, beside encoded slashes, or before `;` as servlet containers read them; backslashes; fragments
 * (CVE-2021-32779). And broken escapes, which end programs that decode them.
 */

import { describe } from 'vitest'
import { get, HOST, head, ORG, sentFor, startTable } from '../support/case-table.ts'

const table = await startTable()

const REFUSED: readonly (readonly [string, readonly string[]])[] = [
  ['backslashes', ['/\\evil.com/', '/\\\\evil', '/v2\\x', '/v2/..\\admin']],
  ['dot segments', ['/v2/../../admin', '/v2/./x', '/..', '/.', '/v2/..', '/v2/.', '/../', '/v2/..?a=b', '//../x']],
  ['encoded dot segments', ['/v2/%2e%2e/x', '/v2/%2E./x', '/v2/.%2e/x', '/v2/%2e/x', '/%2e%2e', '/v2/%2E%2E?x']],
  [
    'dot segments beside what ends a segment elsewhere',
    [
      '/v2/..;/admin',
      '/v2/%2e%2e%3b/admin',
      '/v2/%2f..%2fadmin',
      '/v2/%5c..%5cadmin',
      '/v2/a%5C..',
      '/v2/public/%252e%252e/admin',
      '/v2/a%255c..',
      '/v2/..%3fx',
    ],
  ],
  ['encoded controls', ['/v2/x%00', '/v2/%0d%0aX/y', '/%1F', '/v2/a%1fb', '/v2/x%7f/y', '/%7F']],
  ['broken escapes', ['/a%zz', '/a%', '/a%1', '/a%1/x', '/%', '/a%%41', '/a%u0041']],
  ['fragments', ['/a#frag', '/#', '/a?b#frag', '/v2/x#/../admin']],
]
const line = (target: string) => get(target, '{org}')
describe.each(REFUSED)('%s', (_, targets) => {
  table.refuses(sentFor(targets, line), 400, 'target_invalid')
})

describe('no path', () => {
  const asterisk = (method: string) => head(`${method} * HTTP/1.1`, HOST, ORG)
  table.refuses(sentFor(['OPTIONS', 'GET', 'POST'], asterisk), 400, 'target_invalid')
})
