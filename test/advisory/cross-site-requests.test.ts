/**
 * The attack: any web page that the user of this machine opens can send requests to localhost. It cannot read the answers,
 * but a POST with the token of an Org has done its harm by then. If the service answers `*` to a preflight, the page can
 * even read the answers. Browsers mark requests of pages: the proxy refuses all of them, preflights included.
 */

import { describe, expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { fieldOf } from '../support/raw-client.ts'

const OPEN_TO_ALL = ['Access-Control-Allow-Origin', '*', 'Access-Control-Allow-Credentials', 'true']
const table = await startTable({}, { script: () => ({ fields: [...OPEN_TO_ALL, 'X-Kept', '1'], content: 'hello' }) })

/** Refused, and no field of the answer gives a page access. */
function refused(send: string): Case {
  return {
    send,
    status: 403,
    code: 'browser_refused',
    also: ({ response }) => {
      const opening = response.fields.filter((text, i) => i % 2 === 0 && /^access-control-/i.test(text))
      expect(opening).toEqual([])
    },
  }
}

describe('a page of another origin', () => {
  test.each([
    'https://evil.example',
    'null',
    'http://localhost:3000',
    'http://127.0.0.1:{port}',
    'file://',
    'chrome-extension://x',
    '',
  ])('Origin: %s', (origin) => table.run(refused(get('/v2/x', '{org}', `Origin: ${origin}`))))
  test.each(['cross-site', 'same-site', 'same-origin', 'NONE', ''])('Sec-Fetch-Site: %s', (site) =>
    table.run(refused(get('/v2/x', '{org}', `Sec-Fetch-Site: ${site}`))),
  )
  test('none, and another value', () =>
    table.run(refused(get('/v2/x', '{org}', 'Sec-Fetch-Site: none', 'Sec-Fetch-Site: cross-site'))))
})

describe('a preflight is never forwarded', () => {
  const ask = (...lines: string[]) =>
    head('OPTIONS /v2/x HTTP/1.1', HOST, 'Origin: https://evil.example', 'Access-Control-Request-Method: GET', ...lines)
  test.each([
    ['with X-Org-Id', ask('Access-Control-Request-Headers: x-org-id')],
    ['with an Org', ask('Access-Control-Request-Headers: x-org-id', ORG)],
    ['to a private network', ask('Access-Control-Request-Private-Network: true')],
    ['to the local network', ask('Access-Control-Request-Local-Network: true')],
  ])('%s', (_, send) => table.run(refused(send)))
})

test.each([
  ['text/plain', 'a=b'],
  ['application/x-www-form-urlencoded', 'a=b'],
  ['multipart/form-data; boundary=b', '--b--'],
])('a form (%s) cannot name an Org', (type, content) =>
  table.run({
    send: `${head('POST /v2/x HTTP/1.1', HOST, `Content-Type: ${type}`, `Content-Length: ${content.length}`)}${content}`,
    status: 400,
    code: 'org_id_missing',
  }),
)

test('a WebSocket, to which the same-origin policy does not apply', () =>
  table.run(refused(get('/v2/ws', '{org}', ...HANDSHAKE, 'Origin: https://evil.example'))))

test('a program on this machine is served, and fields that would give pages access are removed', () =>
  table.run({
    send: get('/v2/x', '{org}', 'Sec-Fetch-Mode: cors', 'Sec-Fetch-Site: none'),
    status: 200,
    forwards: ['GET /v2/x'],
    also: ({ response }) => {
      expect(fieldOf(response, 'access-control-allow-origin')).toBeUndefined()
      expect(fieldOf(response, 'access-control-allow-credentials')).toBeUndefined()
      expect(fieldOf(response, 'x-kept')).toBe('1')
    },
  }))
