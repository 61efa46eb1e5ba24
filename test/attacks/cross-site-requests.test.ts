/**
 * The attack: any web page that the user of this machine opens can send requests to localhost. It cannot read the answers,
 * but a POST with the token of an Org has done its harm by then. If the service answers `*` to a preflight, the page can
 * even read the answers. Browsers mark requests of pages: the proxy refuses all of them, preflights included.
 */

import { describe, expect, test } from 'vitest'
import { get, HOST, head, ORG, type Seen, sentFor, startTable } from '../support/case-table.ts'
import { HANDSHAKE } from '../support/handshake.ts'
import { fieldOf } from '../support/raw-client.ts'

const OPEN_TO_ALL = ['Access-Control-Allow-Origin', '*', 'Access-Control-Allow-Credentials', 'true']
const table = await startTable({}, { script: () => ({ fields: [...OPEN_TO_ALL, 'X-Kept', '1'], content: 'hello' }) })

/** No field of the answer gives a page access. */
const also = ({ response }: Seen) =>
  expect(response.fields.filter((text, i) => i % 2 === 0 && /^access-control-/i.test(text))).toEqual([])
const refuses = (sent: Readonly<Record<string, string>>) => table.refuses(sent, 403, 'browser_refused', { also })

describe('a page of another origin', () => {
  const withLine = (line: string) => get('/v2/x', '{org}', line)
  const LINES = [
    'Origin: https://evil.example',
    'Origin: null',
    'Origin: http://localhost:3000',
    'Origin:',
    'Sec-Fetch-Site: cross-site',
    'Sec-Fetch-Site: same-site',
    'Sec-Fetch-Site: same-origin',
    'Sec-Fetch-Site: NONE',
    'Sec-Fetch-Site:',
    'Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site',
  ]
  refuses(sentFor(LINES, withLine))
})

describe('a preflight is never forwarded', () => {
  const ask = (line: string) =>
    head('OPTIONS /v2/x HTTP/1.1', HOST, 'Origin: https://evil.example', 'Access-Control-Request-Method: GET', line)
  const LINES = [
    'Access-Control-Request-Headers: x-org-id',
    `Access-Control-Request-Headers: x-org-id\r\n${ORG}`,
    'Access-Control-Request-Private-Network: true',
    'Access-Control-Request-Local-Network: true',
  ]
  refuses(sentFor(LINES, ask))
})

describe('a WebSocket, to which the same-origin policy does not apply', () => {
  refuses({ 'from a page': get('/v2/ws', '{org}', ...HANDSHAKE, 'Origin: https://evil.example') })
})

test('a form cannot name an Org', () =>
  table.run({
    send: `${head('POST /v2/x HTTP/1.1', HOST, 'Content-Type: text/plain', 'Content-Length: 3')}a=b`,
    status: 400,
    code: 'org_id_missing',
  }))

test('a program on this machine is served, and fields that would give pages access are removed', () =>
  table.run({
    send: get('/v2/x', '{org}', 'Sec-Fetch-Mode: cors', 'Sec-Fetch-Site: none'),
    also: ({ response }) => {
      expect(fieldOf(response, 'access-control-allow-origin')).toBeUndefined()
      expect(fieldOf(response, 'access-control-allow-credentials')).toBeUndefined()
      expect(fieldOf(response, 'x-kept')).toBe('1')
    },
  }))
