/**
 * The attack: an Org id in two places or two lines, in a form that a later parser reads as another id, or as part of the path
 * of the mint. The request would then run with the token of another Org. So `X-Org-Id` is one line, its value is one opaque
 * word, and nothing else names an Org.
 */

import { describe, expect, test } from 'vitest'
import { type Case, HOST, head, sentFor, startTable } from '../support/case-table.ts'

const table = await startTable()

const GET = 'GET /v2/x HTTP/1.1'
const line = (value: string) => head(GET, HOST, `X-Org-Id: ${value}`)

describe('no id, or more than one', () => {
  table.refuses({ none: head(GET, HOST), empty: line(''), blanks: line('    ') }, 400, 'org_id_missing')
  const several = {
    two: head(GET, HOST, 'X-Org-Id: {org}', 'X-Org-Id: {other}'),
    'the same twice': head(GET, HOST, 'X-Org-Id: {org}', 'X-Org-Id: {org}'),
    'one of them empty': head(GET, HOST, 'X-Org-Id: {org}', 'X-Org-Id:'),
    'a list': line('{org}, {other}'),
    'a list without space': line('{org},{other}'),
    'in two cases of the name': head(GET, HOST, 'x-org-id: {org}', 'X-ORG-ID: {other}'),
  }
  table.refuses(several, 400, 'org_id_invalid')
})

describe('a value that is not a plain word', () => {
  const VALUES: readonly (readonly [string, readonly string[]])[] = [
    ['dots', ['.', '..', '...']],
    ['paths', ['{org}/../{other}', '{org}/access?x=', '{org}/{other}', '{org}\\{other}', '/{org}', '{org}/']],
    ['escapes', ['%2e%2e', '%2F', '{org}%00', '%41', '{org}%2Faccess', '%']],
    ['what ends or quotes a part of a URL', ['{org}?x=1', '{org}#f', '{org};v=1', '{org}"', '*']],
    ['white space', ['{org}\t{other}', '{org} {other}', '{org}  {other}']],
    ['beyond ASCII', ['{org}\xc3\xa9', '{org}e\xcc\x81', '\xef\xbc\xa1', '{org}\xe2\x80\x8b', '\xe2\x80\xae{org}']],
    ['long', ['a'.repeat(129), 'a'.repeat(4096), 'a'.repeat(15_000)]],
  ]
  describe.each(VALUES)('%s', (_, values) => {
    table.refuses(sentFor(values, line), 400, 'org_id_invalid')
  })
  const controls = ['{org}\x00', '{org}\x01', '{org}\x7f', '{org}\r{other}', '{org}\n{other}']
  table.refuses(sentFor(controls, line), 400, undefined, { closes: true })
})

describe('a plain word is an Org, whatever it means to other programs', () => {
  const WORDS = ['0', '-1', 'null', 'undefined', 'true', '__proto__', 'constructor']
  const SHAPES = ['{org}@evil', '{org}:80', '{org}~x', '{org}.x', '{org}+x', '{org}=', 'a'.repeat(128)]
  test.each([...WORDS, ...SHAPES])('%s', async (word) => {
    const before = table.service.tokens.mints.length
    await table.run({ orgs: [word], send: line(word) })
    expect(table.service.tokens.mints.length - before).toBe(1)
  })

  test('two cases of a letter are two Orgs', async () => {
    for (const word of ['case-a', 'CASE-A', 'Case-A']) {
      await table.run({ orgs: [word], send: line(word) })
      expect(table.service.tokens.mintsOf(word)).toHaveLength(1)
    }
  })
})

describe('only the field names an Org', () => {
  const forwarded = (name: string, target: string, ...lines: string[]): Case => ({
    name,
    send: head(`GET ${target} HTTP/1.1`, HOST, 'X-Org-Id: {org}', ...lines),
    also: ({ org, mints }) => expect(mints.map((mint) => mint.org)).toEqual([org]),
  })
  test.each<Case>([
    forwarded('the query', '/v2/x?org={other}&x-org-id={other}'),
    forwarded('a cookie', '/v2/x', 'Cookie: org={other}; x-org-id={other}'),
    forwarded('other fields', '/v2/x', 'X-Org: {other}', 'Org-Id: {other}', 'X-Tenant-Id: {other}'),
    forwarded('the path', '/v2/orgs/{other}/members'),
    forwarded('and the field itself ends here', '/v2/x'),
  ])('$name', (row) =>
    table.run({
      ...row,
      also: (seen) => {
        row.also?.(seen)
        expect(seen.requests[0]?.values('x-org-id')).toEqual([])
      },
    }),
  )
  test('the content', () =>
    table.run({
      send: `${head('POST /v2/x HTTP/1.1', HOST, 'X-Org-Id: {org}', 'Content-Length: {length}')}{"orgId":"{other}"}`,
      content: '{"orgId":"{other}"}',
    }))
})

describe('only some Orgs are served', async () => {
  const narrow = await startTable({ 'orgs.allow': 'probe, acme' })
  test('one of them', () => narrow.run({ orgs: ['acme'], send: line('acme') }))
  narrow.refuses(sentFor(['{org}', 'ACME', 'acme2', 'acm', 'acme.'], line), 403, 'org_not_allowed')
})
