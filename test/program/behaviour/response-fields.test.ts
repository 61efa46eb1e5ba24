/** Status, reason and fields of a response reach the client unchanged, except for the fields that the proxy removes. */

import { brotliCompressSync, gzipSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { get } from '../../support/case-table.ts'
import { certificateFiles } from '../../support/certificates.ts'
import { type Fault, startFaultTable } from '../../support/fault-table.ts'
import { HANDSHAKE } from '../../support/handshake.ts'
import { valuesOf } from '../../support/http-reader.ts'
import { fieldOf, type RawResponse, request, tlsPorts } from '../../support/raw-client.ts'
import { type ProxySettings, startBothForFile, startProxy } from '../../support/start-proxy.ts'

const table = await startFaultTable()

const OK = 'HTTP/1.1 200 OK\r\n'

function relayed(name: string, lines: readonly string[], expected: readonly string[]): Fault {
  return {
    name,
    writes: `${OK}${[...lines, 'Content-Length: 2'].join('\r\n')}\r\n\r\nok`,
    also: (response) => expect(withoutOurs(response)).toEqual(expected),
  }
}

/**
 * Leaves out the fields of our own connection, the length (every row has it), and the Date that a gateway adds (RFC 9110
 * §6.6.1).
 */
function withoutOurs({ fields }: RawResponse): string[] {
  const ours = new Set(['connection', 'content-length', 'date'])
  const isOurs = (name = '', value = '') =>
    ours.has(name.toLowerCase()) || (name === 'Keep-Alive' && !value.includes('77'))
  const theirs = fields.filter((_, i) => !isOurs(fields[i - (i % 2)], fields[i - (i % 2) + 1]))
  return theirs.slice(-2).join(': ') === 'Vary: X-Org-Id' ? theirs.slice(0, -2) : theirs
}

describe('fields that pass', () => {
  test.each<Fault>([
    relayed('order, case and duplicates', ['b: 1', 'A: 2', 'B: 3'], ['b', '1', 'A', '2', 'B', '3']),
    relayed(
      'each Set-Cookie in its line',
      ['Set-Cookie: a=1', 'X: 1', 'set-cookie: b=2, c'],
      ['Set-Cookie', 'a=1', 'X', '1', 'set-cookie', 'b=2, c'],
    ),
    relayed('obs-text stays the byte it is', ['X-Text: caf\xe9 \xff'], ['X-Text', 'caf\xe9 \xff']),
    relayed(
      'caching',
      ['ETag: "a"', 'Vary: A,x-org-id', 'Cache-Control: public, max-age=9'],
      ['ETag', '"a"', 'Vary', 'A,x-org-id', 'Cache-Control', 'public, max-age=9'],
    ),
    relayed('Vary of the service gets the org', ['Vary: Accept', 'VARY: A'], ['Vary', 'Accept, X-Org-Id', 'VARY', 'A']),
    relayed('Vary: * stays', ['Vary: Accept', 'Vary: a, *'], ['Vary', 'Accept, X-Org-Id', 'Vary', 'a, *']),
    relayed(
      'Proxy-Status of others',
      ['Proxy-Status: cache; detail="org-access-proxy, x", org-access-proxy; error=forged, "org-access-proxy";a'],
      ['Proxy-Status', 'cache; detail="org-access-proxy, x"'],
    ),
    relayed(
      'Proxy-Status of others, with quoted quotes',
      ['Proxy-Status: ,a; b="\\", org-access-proxy; \\\\" ,org-access-proxy, c,'],
      ['Proxy-Status', 'a; b="\\", org-access-proxy; \\\\", c'],
    ),
    relayed('empty values', ['X-Empty:'], ['X-Empty', '']),
    relayed('what has blanks before its colon, without them', ['X-Blank \t: 1'], ['X-Blank', '1']),
    relayed('WWW-Authenticate', ['WWW-Authenticate: Bearer'], ['WWW-Authenticate', 'Bearer']),
  ])('$name', (row) => table.run(row))
})

describe('fields that are removed', () => {
  test.each<Fault>([
    relayed(
      'those that Connection names',
      ['X-Foo: 1', 'Connection: x-foo, X-BAR', 'X-Bar: 2', 'X-Baz: 3'],
      ['X-Baz', '3'],
    ),
    relayed(
      'hop-by-hop',
      ['Proxy-Authenticate: Basic', 'Proxy-Connection: close', 'TE: x', 'Trailer: X', 'Proxy-Authentication-Info: x'],
      [],
    ),
    relayed('Proxy-Status that speaks for this proxy', ['Proxy-Status: Org-Access-Proxy; error=dns_error'], []),
    relayed('Proxy-Status whose string does not end', ['Proxy-Status: a; b="c, org-access-proxy; error=x'], []),
    relayed(
      'Proxy-Status whose string ends in another line',
      ['Proxy-Status: a; b="c', 'Proxy-Status: d", org-access-proxy; error=x; e="f', 'Proxy-Status: g"'],
      ['Proxy-Status', 'd", org-access-proxy; error=x; e="f'],
    ),
    relayed('Upgrade on a 200', ['Upgrade: h2c', 'Connection: Upgrade'], []),
    relayed('Keep-Alive of the other connection', ['Keep-Alive: timeout=77'], []),
    relayed(
      'what opens the answer to pages',
      ['Access-Control-Allow-Origin: *', 'access-control-expose-headers: x'],
      [],
    ),
    relayed('Connection: content-length, but not the length', ['Connection: content-length'], []),
  ])('$name', (row) => table.run(row))
})

test.each([301, 302, 303, 307, 308])('a %i is passed on and not followed', async (status) => {
  for (const location of ['https://evil.example/', '/v2/landed']) {
    const target = table.target(() => ({ status, fields: ['Location', location] }))
    const response = await request(table.proxy.port, get(target, 'acme'))
    expect([response.status, fieldOf(response, 'location')]).toEqual([status, location])
  }
  expect(table.requestsFor('/v2/landed')).toEqual([])
})

describe('what leads below baseUrl leads to the proxy', async () => {
  const { service, proxy } = await startBothForFile(
    { prefix: '/api', acceptsAnyToken: true },
    { appRoutes: 'POST /v2/links' },
  )
  const { baseUrl } = service
  const locations = [`${baseUrl}/v2/x?y`, baseUrl.replace('http:', ''), '/api/v2/z', '/v2/x', 'https://evil.example/']

  test.each(['Location', 'content-location'])('%s', async (name) => {
    for (const [i, expected] of ['/v2/x?y', '/', '/v2/z', '/v2/x', 'https://evil.example/'].entries()) {
      service.script = () => ({ status: 201, fields: [name, locations[i] ?? ''] })
      const response = await request(proxy.port, get('/v2/y', 'acme'))
      expect(fieldOf(response, name.toLowerCase())).toBe(expected)
    }
  })

  const LINK = `<${baseUrl}/v2/x?page=2>; rel="next", </v2/x>; rel="first", <https://evil.example/>; rel=up`
  const TLS = {
    'listen.tls.certFile': certificateFiles('localhost').certificate,
    'listen.tls.keyFile': certificateFiles('localhost').key,
  }

  test.each<[string, ProxySettings, string, string | undefined]>([
    ['the host of the request', {}, '127.0.0.1:1', '127.0.0.1:1'],
    ['the scheme of the listener', TLS, 'localhost', 'localhost'],
    ['nothing where each name is allowed', { 'listen.hosts': '*' }, 'elsewhere', undefined],
    ['nothing on a unix socket', { 'listen.address': 'unix:$FOLDER/proxy.sock' }, 'localhost', undefined],
    ['nothing without a host', { 'listen.address': 'unix:$FOLDER/proxy.sock' }, '', undefined],
  ])('Link, with %s', async (_, settings, host, named) => {
    service.script = () => ({ fields: ['link', LINK, 'Link', `<${baseUrl}>`, 'LINK', `<${baseUrl}/v2/x`] })
    await using other = await startProxy(service, { 'listen.address': 'localhost:0', ...settings })
    const isTls = other.settings['listen.tls.certFile'] !== undefined
    if (isTls) tlsPorts.add(other.port)
    const at = other.port === 0 ? other.app.address.replace(/^unix:/, '') : other.port
    const { fields } = await request(at, get('/v2/y', 'acme').replace('localhost', host))
    const self = named === undefined ? '' : `${isTls ? 'https' : 'http'}://${named}`
    expect(valuesOf(fields, 'link')).toEqual([LINK.replace(baseUrl, self), `<${self}/>`, `<${baseUrl}/v2/x`])
  })

  test('but not for an App route, whose links may be meant for a browser', async () => {
    service.script = () => ({ status: 201, fields: ['Location', locations[0] ?? '', 'Link', LINK] })
    const send = get('/v2/links', 'acme', 'Content-Length: 0').replace('GET', 'POST')
    const response = await request(proxy.port, send)
    expect([fieldOf(response, 'location'), fieldOf(response, 'link')]).toEqual([locations[0], LINK])
  })
})

test.each([
  [200, ''],
  [299, 'caf\xe9'],
  [600, 'High'],
  [999, ''],
])('status and reason are passed on: %i %j', async (status, reason) => {
  const target = table.writing(`HTTP/1.1 ${status} ${reason}\r\nContent-Length: 2\r\n\r\nok`)
  const response = await request(table.proxy.port, get(target, 'acme'))
  expect(response).toMatchObject({ status, reason, isComplete: true })
  expect((await table.proxy.logOf(target)).status).toBe(status)
})

test('the Date and the reason of the origin are passed on', async () => {
  const date = 'Thu, 01 Jan 2026 00:00:00 GMT'
  const target = table.target(() => ({ reason: 'Quite all right', fields: ['Date', date] }))
  const { reason, fields } = await request(table.proxy.port, get(target, 'acme'))
  expect([reason, valuesOf(fields, 'date')]).toEqual(['Quite all right', [date]])
})

test.each([
  ['br', brotliCompressSync(Buffer.alloc(1_000_000))],
  ['gzip', gzipSync(Buffer.alloc(1_000_000))],
  ['gzip', Buffer.from('this is no gzip')],
])('content coded as %s is passed on unchanged', async (coding, content) => {
  const target = table.target(() => ({ fields: ['Content-Encoding', coding], content }))
  const response = await request(table.proxy.port, get(target, 'acme', `Accept-Encoding: ${coding}`))
  expect(response.content.equals(content)).toBe(true)
  expect(fieldOf(response, 'content-encoding')).toBe(coding)
})

test.each<[string, string, readonly string[]]>([
  ['a 304', 'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n', []],
  ['an answer to a handshake', `${OK}Content-Length: 2\r\nVary: Accept\r\n\r\nok`, HANDSHAKE],
])('Vary names the org in %s', async (_, writes, lines) => {
  const response = await request(table.proxy.port, get(table.writing(writes), 'acme', ...lines))
  expect(fieldOf(response, 'vary')).toMatch(/X-Org-Id$/)
})

test.each(['GET', 'HEAD'])(
  'nothing of a response to %s is kept: no cookie, and no content that may be stored',
  async (method) => {
    let answers = 0
    const kept = ['Cache-Control', 'public, max-age=3600', 'ETag', '"a"', 'Set-Cookie', 'session=1; Path=/']
    const target = table.target(() => ({ fields: [...kept, 'X-Answer', `${++answers}`] }))
    for (const [index, lines] of [[], [], ['If-None-Match: "a"', 'Range: bytes=0-1']].entries()) {
      const response = await request(table.proxy.port, get(target, 'acme', ...lines).replace('GET', method))
      expect(fieldOf(response, 'x-answer')).toBe(`${index + 1}`)
    }
    const seen = table.requestsFor(target)
    expect(seen.map((each) => each.values('if-none-match'))).toEqual([[], [], ['"a"']])
    expect(seen.map((each) => each.values('cookie'))).toEqual([[], [], []])
  },
)
