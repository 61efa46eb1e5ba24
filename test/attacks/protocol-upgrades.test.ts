/**
 * The attack: `Upgrade: h2c` makes an origin speak HTTP/2 on the proxy's connection, and the proxy does not see the requests
 * in it (h2c smuggling). So the proxy tunnels only WebSockets. It removes every other protocol and forwards the request
 * as plain HTTP.
 */

import { describe, expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'

const table = await startTable()

const H2C = ['Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP', 'Connection: Upgrade, HTTP2-Settings']

function stripped(name: string, lines: readonly string[]): Case {
  return {
    name,
    send: get('/v2/x', '{org}', ...lines),
    also: ({ requests, responses }) => {
      expect(responses.map((response) => response.status)).not.toContain(101)
      for (const field of ['upgrade', 'http2-settings', 'sec-websocket-key'])
        expect(requests[0]?.values(field)).toEqual([])
      expect(requests[0]?.values('connection').join()).not.toMatch(/upgrade|http2/i)
    },
  }
}

test.each<Case>([
  stripped('h2c', H2C),
  stripped('h2c without its settings', ['Upgrade: h2c', 'Connection: Upgrade']),
  stripped('h2c that Connection does not name', ['Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQAAP']),
  stripped('in mixed case', ['UPGRADE: H2C', 'connection: UPGRADE, http2-settings', 'http2-SETTINGS: AAMA']),
  stripped('another protocol', ['Upgrade: foo', 'Connection: Upgrade']),
  stripped('TLS', ['Upgrade: TLS/1.0', 'Connection: Upgrade']),
  stripped('an empty one', ['Upgrade:', 'Connection: Upgrade']),
  stripped('Connection: upgrade alone', ['Connection: Upgrade']),
  stripped('websocket that Connection does not name', ['Upgrade: websocket', 'Sec-WebSocket-Version: 13']),
])('$name', (row) => table.run(row))

describe('with content', () => {
  test.each([
    ['a length', ['Content-Length: 5'], 'hello'],
    ['chunks', ['Transfer-Encoding: chunked'], '5\r\nhello\r\n0\r\n\r\n'],
  ])('%s', (_, lines, content) =>
    table.run({
      send: head('POST /v2/x HTTP/1.1', HOST, ORG, ...H2C, ...lines) + content,
      content: 'hello',
    }),
  )
})

test('bytes after an upgrade that did not happen are never read as frames of HTTP/2', () =>
  table.run({
    send: `${get('/v2/x', '{org}', ...H2C)}PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00`,
    closes: true,
  }))
