/**
 * The attack: a page at evil.example lets its name resolve to 127.0.0.1 and then talks to the proxy as its own origin,
 * so the browser notices nothing and makes no CORS check. But the page cannot change `Host`.
 */

import { describe, test } from 'vitest'
import { type Case, head, ORG, startTable } from '../support/case-table.ts'

const table = await startTable()

const GET = 'GET /v2/x HTTP/1.1'
const refused = (value: string): Case => ({
  name: value,
  send: head(GET, `Host: ${value}`, ORG),
  status: 421,
  code: 'host_refused',
})

describe('names of this machine', () => {
  test.each([
    'localhost:{port}',
    '127.0.0.1:{port}',
    '[::1]:{port}',
    'LOCALHOST',
    'LocalHost:1',
    'localhost',
    '127.0.0.1',
  ])('%s', (value) =>
    table.run({ name: value, send: head(GET, `Host: ${value}`, ORG), status: 200, forwards: ['GET /v2/x'] }),
  )
})

test.each(['evil.example', 'evil.example:{port}', 'service.internal', '192.168.0.1:{port}'])('%s', (value) =>
  table.run(refused(value)),
)

test.each([
  '127.0.0.1.evil.com',
  'localhost.evil.com',
  'evillocalhost:{port}',
  '127.1',
  '0x7f.1',
  '2130706433',
  '0177.0.0.1',
  '127.0.0.2',
  '0.0.0.0',
  '[::]',
  '[::ffff:127.0.0.1]',
  '[0:0:0:0:0:0:0:1]',
  'localhost.',
])('another name, or another spelling of ours: %s', (value) => table.run(refused(value)))

test.each([
  '127.0.0.1@evil',
  'evil@127.0.0.1',
  'a/b?c',
  'localhost/',
  'localhost?',
  'localhost#',
  'a b',
  'localhost evil.example',
  '::1',
  'localhost:',
  'localhost:port',
  'localhost:80:80',
  'localhost:999999',
  'l\xf6calhost',
  '%6cocalhost',
  'localhost\\evil',
])('not a host: %s', (value) => table.run({ ...refused(value), status: 400, code: 'host_invalid' }))

test.each<Case>([
  { name: 'no Host', send: head(GET, ORG), status: 400 },
  { name: 'two', send: head(GET, 'Host: localhost', 'Host: localhost', ORG), status: 400 },
  {
    name: 'two, the good one last',
    send: head(GET, 'Host: evil.example', 'Host: localhost', ORG),
    status: 400,
  },
  { name: 'a list', send: head(GET, 'Host: localhost, evil.example', ORG), status: 400 },
  { name: 'empty', send: head(GET, 'Host:', ORG), status: 400 },
  { name: 'white space', send: head(GET, 'Host:   ', ORG), status: 400 },
  { name: 'HTTP/1.0 without Host', send: head('GET /v2/x HTTP/1.0', ORG), status: 400 },
])('$name', (row) => table.run(row))
