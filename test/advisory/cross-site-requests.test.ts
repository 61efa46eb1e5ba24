/**
 * The attack: any web page that the user of this machine opens can send requests to localhost. It cannot read the answers,
 * but a POST with the token of an Org has done its harm by then. If the service answers `*` to a preflight, the page can
 * even read the answers. Browsers mark requests of pages: the proxy refuses all of them, preflights included.
 */

import { afterAll, describe, expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { fieldOf } from '../support/raw-client.ts'

const OPEN_TO_ALL = ['Access-Control-Allow-Origin', '*', 'Access-Control-Allow-Credentials', 'true']
const table = await startTable({}, { script: () => ({ fields: [...OPEN_TO_ALL, 'X-Kept', '1'], content: 'hello' }) })
afterAll(() => table[Symbol.asyncDispose]())

/** Refused, and no field of the answer gives a page access. */
function refused(name: string, send: string): Case {
  return {
    name,
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
  ])('T-BR-06 Origin: %s', (origin) => table.run(refused('T-BR-06', get('/v2/x', '{org}', `Origin: ${origin}`))))
  test.each(['cross-site', 'same-site', 'same-origin', 'NONE', ''])('T-BR-07 Sec-Fetch-Site: %s', (site) =>
    table.run(refused('T-BR-07', get('/v2/x', '{org}', `Sec-Fetch-Site: ${site}`))),
  )
  test('T-BR-07 none, and another value', () =>
    table.run(refused('T-BR-07', get('/v2/x', '{org}', 'Sec-Fetch-Site: none', 'Sec-Fetch-Site: cross-site'))))
})

describe('a preflight is never forwarded', () => {
  const ask = (...lines: string[]) =>
    head('OPTIONS /v2/x HTTP/1.1', HOST, 'Origin: https://evil.example', 'Access-Control-Request-Method: GET', ...lines)
  test.each([
    ['T-BR-09', ask('Access-Control-Request-Headers: x-org-id')],
    ['T-BR-09 with an Org', ask('Access-Control-Request-Headers: x-org-id', ORG)],
    ['T-BR-10 to a private network', ask('Access-Control-Request-Private-Network: true')],
    ['T-BR-10 to the local network', ask('Access-Control-Request-Local-Network: true')],
  ])('%s', (name, send) => table.run(refused(name, send)))
})

test.each([
  ['text/plain', 'a=b'],
  ['application/x-www-form-urlencoded', 'a=b'],
  ['multipart/form-data; boundary=b', '--b--'],
])('T-BR-08 a form (%s) cannot name an Org', (type, content) =>
  table.run({
    name: 'T-BR-08',
    send: `${head('POST /v2/x HTTP/1.1', HOST, `Content-Type: ${type}`, `Content-Length: ${content.length}`)}${content}`,
    status: 400,
    code: 'org_id_missing',
  }),
)

test('T-BR-12 a WebSocket, to which the same-origin policy does not apply', () =>
  table.run(refused('T-BR-12', get('/v2/ws', '{org}', ...HANDSHAKE, 'Origin: https://evil.example'))))

test('T-BR-07, 11 a program on this machine is served, and fields that would give pages access are removed', () =>
  table.run({
    name: 'T-BR-11',
    send: get('/v2/x', '{org}', 'Sec-Fetch-Mode: cors', 'Sec-Fetch-Site: none'),
    status: 200,
    forwards: ['GET /v2/x'],
    also: ({ response }) => {
      expect(fieldOf(response, 'access-control-allow-origin')).toBeUndefined()
      expect(fieldOf(response, 'access-control-allow-credentials')).toBeUndefined()
      expect(fieldOf(response, 'x-kept')).toBe('1')
    },
  }))
