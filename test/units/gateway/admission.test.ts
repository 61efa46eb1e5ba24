import { describe, expect, test } from 'vitest'
import { type AdmissionRules, admit } from '../../../src/gateway/admission.ts'
import type { RequestHead } from '../../../src/http1/request-parser.ts'
import { RULES } from '../../support/admission-rules.ts'
import { fc } from '../../support/properties.ts'
import { byKey, makeCallers, rule } from '../callers/make-callers.ts'

const newRequestId = () => 'generated'

const UPGRADE = 'Upgrade websocket Sec-WebSocket-Key dGhlIHNhbXBsZSBub25jZQ== Sec-WebSocket-Version 13'.split(' ')
const HOST = ['Host', 'localhost:8080']
const ORG = ['X-Org-Id', 'acme']

function head(
  rawFields: readonly string[],
  more: { method?: string; target?: string; minor?: 0 | 1; contentLength?: number; isChunked?: boolean } = {},
): RequestHead {
  return {
    method: more.method ?? 'GET',
    target: more.target ?? '/v2/x?y',
    minorVersion: more.minor ?? 1,
    rawFields: [...rawFields],
    contentLength: more.contentLength,
    isChunked: more.isChunked ?? false,
    keepsAlive: true,
  }
}

function admitted(fields: readonly string[], more = {}, changed: Partial<AdmissionRules> = {}) {
  const result = admit(head([...HOST, ...ORG, ...fields], more), { ...RULES, ...changed }, newRequestId)
  if (result.verdict !== 'admitted') throw new Error(`refused: ${JSON.stringify(result)}`)
  return result
}

describe('an admitted request', () => {
  test('has one request id, also if it sent two', () => {
    const { fields } = admitted(['X-Request-Id', 'a', 'X-Request-Id', 'b'])
    expect(fields.slice(-2)).toEqual(['x-request-id', 'generated'])
    expect(fields).not.toContain('X-Request-Id')
  })

  test('keeps its request id if Connection names that field, and has it once', () => {
    const { fields, requestId } = admitted(['Connection', 'x-request-id', 'X-Request-Id', 'mine-1'])
    expect(requestId).toBe('mine-1')
    expect(fields.filter((text) => /^x-request-id$/i.test(text))).toEqual(['x-request-id'])
    expect(fields.at(-1)).toBe('mine-1')
  })

  test('gets 100 Continue if it expects it, but not in HTTP/1.0, which has no interim responses', () => {
    expect(admitted(['Expect', '100-continue']).expectsContinue).toBe(true)
    expect(admitted(['Expect', '100-continue'], { minor: 0 }).expectsContinue).toBe(false)
    expect(admitted([]).expectsContinue).toBe(false)
  })

  test('may be HEAD where a route has GET', () => {
    const allowedRoutes = [{ method: 'GET', path: '/v2/x', isPrefix: false }]
    expect(admitted([], { method: 'HEAD', target: '/v2/x' }, { allowedRoutes }).method).toBe('HEAD')
  })

  test('keeps its cookies if they are sent on, in their place', () => {
    const fields = ['A', '1', 'Cookie', 'a=1', 'B', '2']
    const { dropsCookie, fields: sent } = admitted(fields, {}, { sendCookies: true })
    expect([dropsCookie, sent.slice(0, 6)]).toEqual([false, fields])
    expect(admitted(fields)).toMatchObject({ dropsCookie: true, fields: expect.not.arrayContaining(['Cookie']) })
  })

  test('a handshake may ask for a subprotocol with the name of one of its fields', () => {
    const protocols = ['Sec-WebSocket-Protocol', 'sec-websocket-key', 'Sec-WebSocket-Protocol', 'sec-websocket-version']
    expect(admitted(['Connection', 'Upgrade', ...UPGRADE, ...protocols]).isWebSocket).toBe(true)
  })

  test('an upgrade that the parser does not see is none: it reads the options of Connection between commas', () => {
    expect(admitted(['Connection', 'keep-alive Upgrade', ...UPGRADE]).isWebSocket).toBe(false)
    expect(admitted(['Connection', 'keep-alive\t,\tUpgrade', ...UPGRADE]).isWebSocket).toBe(true)
  })
})

describe('refused', () => {
  // Raw requests test every refusal in test/attacks. Node's parser refuses these before, as long as it is strict.
  test.each<[string, string, readonly string[]]>([
    ['a control in a value', 'field_invalid', ['X', 'a\u007f']],
    [
      'a loop in the first of two fields',
      'proxy_loop_detected',
      ['Via', '1.1 org-access-proxy (this-instance)', 'Via', '1.1 fred'],
    ],
  ])('%s: %s', (_, code, fields) => {
    const result = admit(head([...HOST, ...ORG, ...fields]), RULES, newRequestId)
    expect(result).toMatchObject({ verdict: 'refused', code })
  })
})

const route = (method: string, path: string) => ({ method, path, isPrefix: false })
const callers = makeCallers([
  rule('a', byKey('key-a'), { orgs: [{ id: 'globex', isPrefix: false }], routes: [route('GET', '/v2/x')] }),
])

describe('a refusal names the setting that would admit the request', () => {
  test.each<[string, string, readonly string[], Partial<AdmissionRules>, string?]>([
    ['host_refused', 'listen.hosts', ['Host', 'elsewhere'], {}],
    ['forwarded_refused', 'listen.refuseForwarded', [...HOST, 'Forwarded', 'for=a'], {}],
    ['caller_refused', 'listen.callerKeyFile', HOST, { isCallerKey: () => false }],
    ['caller_refused', 'callers', HOST, { callers }],
    ['host_refused', 'listen.hosts', HOST, {}, 'http://elsewhere/'],
    ['token_endpoint_refused', 'routes.allowTokenEndpoint', HOST, {}, '/v2/orgs/acme/access'],
    ['route_refused', 'routes.allow', HOST, { allowedRoutes: [route('GET', '/v2/y')] }],
    ['route_refused', 'routes.allow', [...HOST, 'X-HTTP-Method', 'GET'], { allowedRoutes: [route('GET', '/v2/x')] }],
    ['route_refused', 'callers[].routes', [...HOST, 'X-Proxy-Key', 'key-a', 'X-Method-Override', 'GET'], { callers }],
    ['route_refused', 'appRoutes', [...HOST, ...ORG, 'X-HTTP-Method-Override', 'POST'], {}, '/v2/links'],
    ['route_refused', 'callers[].routes', [...HOST, 'X-Proxy-Key', 'key-a'], { callers }, '/v2/y'],
    ['org_id_invalid', 'orgs.pattern', [...HOST, 'X-Org-Id', '.x'], {}],
    ['org_not_allowed', 'orgs.allow', [...HOST, ...ORG], { allowedOrgs: new Set(['globex']) }],
    ['org_not_allowed', 'callers[].orgs', [...HOST, ...ORG, 'X-Proxy-Key', 'key-a'], { callers }],
  ])('%s: %s', (code, setting, fields, changed, url = '/v2/x') => {
    const refused = admit(head(fields, { target: url }), { ...RULES, ...changed }, newRequestId)
    expect(refused).toMatchObject({ verdict: 'refused', code, setting })
  })
})

describe('for arbitrary requests', () => {
  const names = fc.oneof(
    fc.constantFrom(
      'Authorization', 'authorization', 'X-Org-Id', 'x-org-id', 'X_Org_Id', 'Connection', 'Keep-Alive', 'TE', 'Trailer', 'Transfer-Encoding',
      'Upgrade', 'Proxy-Authorization', 'Proxy-Connection', 'Host', 'Expect', 'X-Original-URL', 'X-Rewrite-URL', 'X-Proxy-Key', 'Content-Length',
      'Via', 'X-Request-Id', 'Cookie', 'X-Plain', 'HTTP2-Settings', 'Sec-WebSocket-Key',
    ), // biome-ignore format: names
    fc.stringMatching(/^[A-Za-z][A-Za-z0-9_-]{0,12}$/),
  )
  const values = fc.oneof(
    fc.constantFrom(
      'acme', 'other', 'close', 'authorization, x-org-id', 'x-plain, cookie', 'websocket', 'h2c', 'chunked', '5', '100-continue', 'localhost',
    ), // biome-ignore format: values
    fc.string({ maxLength: 20 }),
  )
  const NEVER_SENT = [
    'connection', 'keep-alive', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'proxy-connection', 'http2-settings', 'expect',
    'authorization', 'x-org-id', 'x-proxy-key', 'proxy-authorization', 'x-original-url', 'x-rewrite-url', 'content-length',
  ] // biome-ignore format: names
  const targets = fc.oneof(
    fc.constant('/v2/x'),
    fc
      .array(fc.constantFrom('/', '.', '..', '%2e', '%2f', 'a', '\\', '#', '?', '@evil', ':80', 'http://evil', '*'), {
        maxLength: 8,
      })
      .map((parts) => parts.join('')),
  )

  test('no admitted request has a protected or hop-by-hop field or another org, or leaves the base URL', () => {
    let admissions = 0
    fc.assert(
      fc.property(
        fc.array(fc.tuple(names, values), { maxLength: 8 }),
        targets,
        fc.constantFrom('GET', 'POST', 'DELETE'),
        (pairs, url, method) => {
          const result = admit(head([...HOST, ...ORG, ...pairs.flat()], { target: url, method }), RULES, newRequestId)
          if (result.verdict !== 'admitted') return
          admissions++
          const sent = result.fields.filter((_, i) => i % 2 === 0).map((name) => name.toLowerCase())
          for (const name of NEVER_SENT) expect(sent).not.toContain(name)
          expect(sent.filter((name) => name === 'host')).toHaveLength(1)
          expect(result.fields[result.fields.indexOf('host') + 1]).toBe('service.example')
          expect(sent.filter((name) => name === 'x-request-id')).toHaveLength(1)
          expect(result.orgId).toBe('acme')
          const reached = new URL(result.target, 'http://service.example')
          expect(reached.host).toBe('service.example')
          expect(reached.pathname.startsWith('/api/')).toBe(true)
        },
      ),
      { numRuns: 4_000 },
    )
    expect(admissions).toBeGreaterThan(400)
  })
})
