/**
 * The attack: a page at evil.example lets its name resolve to 127.0.0.1 and then talks to the proxy as its own origin,
 * so the browser notices nothing and makes no CORS check. But the page cannot change `Host`.
 */

import { describe, test } from 'vitest'
import { head, ORG, sentFor, startTable } from '../support/case-table.ts'

const table = await startTable()

const GET = 'GET /v2/x HTTP/1.1'
const named = (value: string) => head(GET, `Host: ${value}`, ORG)

describe('names of this machine', () => {
  const names = [
    'localhost:{port}',
    '127.0.0.1:{port}',
    '[::1]:{port}',
    'LOCALHOST',
    'localhost',
    'localhost.',
    'localhost:',
  ]
  test.each([...names, '[0:0:0:0:0:0:0:1]:{port}'])('%s', (value) => table.run({ send: named(value) }))
})

describe('other names, and other spellings of ours', () => {
  const names = [
    'evil.example',
    'evil.example:{port}',
    '127.0.0.1.evil.com',
    'localhost.evil.com',
    'evillocalhost:{port}',
    '127.1',
    '0x7f.1',
    '0.0.0.0',
    '[::ffff:127.0.0.1]',
    'localhost..',
  ]
  table.refuses(sentFor(names, named), 421, 'host_refused')
})

describe('what is no host', () => {
  const values = [
    '127.0.0.1@evil',
    'a/b?c',
    'localhost/',
    'a b',
    'localhost, evil.example',
    '::1',
    'localhost::',
    'localhost:999999',
    '%6cocalhost',
    '',
    '  ',
  ]
  table.refuses(sentFor(values, named), 400, 'host_invalid')
})

describe('no host, or more than one', () => {
  const sent = {
    none: head(GET, ORG),
    two: head(GET, 'Host: localhost', 'Host: localhost', ORG),
    'two, the good one last': head(GET, 'Host: evil.example', 'Host: localhost', ORG),
    'none in HTTP/1.0': head('GET /v2/x HTTP/1.0', ORG),
  }
  table.refuses(sent, 400, 'host_invalid')
})
