/**
 * For arbitrary rules, credentials and requests: a request is admitted exactly if the rules allow it, and no credential of a
 * caller is forwarded. The oracle below interprets the rules in the simplest way.
 */

import { expect, test } from 'vitest'
import type { CallerRule, OrgRule, RoutePattern } from '../../../src/callers/callers.ts'
import { admit } from '../../../src/gateway/admission.ts'
import { headOf, RULES } from '../../support/admission-rules.ts'
import { fc } from '../../support/properties.ts'
import { byKey, makeCallers, rule } from './make-callers.ts'

const KEYS = ['key-of-a', 'key-of-b', 'key-of-c', 'key-of-d']
const SOCKETS = ['/run/a.sock', '/run/b.sock']
const ORGS = ['acme', 'acme-1', 'acm', 'globex', 'a']
const PATHS = ['/v2/x', '/v2/x/1', '/v2/y', '/v2']
const METHODS = ['GET', 'POST']

const orgRule: fc.Arbitrary<OrgRule> = fc.record({
  id: fc.constantFrom('', 'a', 'acme', 'acme-', 'globex'),
  isPrefix: fc.boolean(),
})

const route: fc.Arbitrary<RoutePattern> = fc
  .record({
    method: fc.constantFrom('*', ...METHODS),
    path: fc.constantFrom('/v2/x', '/v2/x/', '/v2/'),
    isPrefix: fc.boolean(),
  })
  .map((pattern) => ({ ...pattern, isPrefix: pattern.isPrefix && pattern.path.endsWith('/') }))

/** Each credential belongs to at most one caller, as the configuration requires. */
const rules: fc.Arbitrary<CallerRule[]> = fc
  .record({
    keys: fc.subarray(KEYS),
    sockets: fc.subarray(SOCKETS),
    more: fc.array(
      fc.record({ orgs: fc.array(orgRule, { maxLength: 3 }), routes: fc.array(route, { maxLength: 2 }) }),
      { minLength: 6, maxLength: 6 },
    ),
  })
  .map(({ keys, sockets, more }) =>
    [
      ...keys.map((key): Partial<CallerRule> => byKey(key)),
      ...sockets.map((socket): Partial<CallerRule> => ({ socket })),
    ].map((credential, index) => rule(`caller-${index}`, credential, more[index] ?? {})),
  )

const sent = fc.record({
  socket: fc.option(fc.constantFrom(...SOCKETS, '/run/other.sock'), { nil: undefined }),
  keys: fc.array(fc.constantFrom(...KEYS, 'key-of-nobody', ''), { maxLength: 2 }),
  org: fc.constantFrom(...ORGS),
  method: fc.constantFrom(...METHODS),
  path: fc.constantFrom(...PATHS),
  keyName: fc.constantFrom('X-Proxy-Key', 'x-proxy-key', 'X-PROXY-KEY'),
})

function ownerOf(
  all: readonly CallerRule[],
  socket: string | undefined,
  keys: readonly string[],
): CallerRule | undefined {
  return all.find((each) => {
    if (each.socket !== undefined) return each.socket === socket && keys.length === 0
    return socket === undefined && keys.length === 1 && each.keyFiles?.[0]?.content.reveal() === keys[0]
  })
}

function mayName({ orgs }: CallerRule, org: string): boolean {
  return orgs.some(({ id, isPrefix }) => (isPrefix ? org.slice(0, id.length) === id : id === org))
}

function mayUse({ routes }: CallerRule, method: string, path: string): boolean {
  if (routes.length === 0) return true
  return routes.some(
    (pattern) =>
      (pattern.method === '*' || pattern.method === method) &&
      (pattern.isPrefix ? path.slice(0, pattern.path.length) === pattern.path : path === pattern.path),
  )
}

test('a request is admitted exactly if the rules of its caller allow it, and its credential is not forwarded', () => {
  fc.assert(
    fc.property(rules, sent, (all, { socket, keys, org, method, path, keyName }) => {
      const callers = makeCallers(all)
      const admissionRules = { ...RULES, callers, orgPattern: /^[a-z0-9-]+$/, appRoutes: [] }
      const fields = ['Host', 'localhost', 'X-Org-Id', org, ...keys.flatMap((key) => [keyName, key])]
      const head = headOf(method, path, fields)
      const admission = admit(head, admissionRules, () => 'request-id', { callerSocket: socket })
      const owner = ownerOf(all, socket, keys)
      const expected =
        owner === undefined
          ? 'caller_refused'
          : !mayUse(owner, method, path)
            ? 'route_refused'
            : !mayName(owner, org)
              ? 'org_not_allowed'
              : owner.name
      if (admission.verdict === 'admitted') {
        expect(admission.caller?.name).toBe(expected)
        expect(admission.fields.join('\n')).not.toMatch(/key-of|proxy-key/i)
      } else expect('code' in admission && admission.code).toBe(expected)
    }),
    { numRuns: 300 },
  )
})

// A request on an app route carries the App's own credentials, so deny is the default.
test('a caller uses an app route only if it names it', () => {
  const appRoutes = [{ method: 'POST', path: '/v2/links', isPrefix: false }]
  const callers = makeCallers([
    rule('any', byKey('key-of-a')),
    rule('links', byKey('key-of-b'), { routes: appRoutes }),
    rule('other', byKey('key-of-c'), { routes: [{ method: 'GET', path: '/v2/', isPrefix: true }] }),
  ])
  const outcomeOf = (key: string, method: string) => {
    const fields = ['Host', 'localhost', 'X-Org-Id', 'acme', 'X-Proxy-Key', key]
    const head = headOf(method, '/v2/links', fields)
    const admission = admit(head, { ...RULES, callers, appRoutes }, () => 'request-id')
    return admission.verdict === 'admitted' ? (admission.orgId ?? 'as the App') : 'code' in admission && admission.code
  }
  const outcomes = ['key-of-a', 'key-of-b', 'key-of-c'].map((key) => [outcomeOf(key, 'POST'), outcomeOf(key, 'GET')])
  expect(outcomes).toEqual([
    ['route_refused', 'acme'],
    ['as the App', 'route_refused'],
    ['route_refused', 'acme'],
  ])
})
