/**
 * The attack: CONNECT makes a proxy an open relay without any check of requests. TRACE makes the origin return the request to
 * its sender, with the token.
 */

import { expect, test } from 'vitest'
import { type Case, HOST, head, ORG, startTable } from '../support/case-table.ts'
import { HANDSHAKE } from '../support/handshake.ts'

const table = await startTable()

const tunnelled = head('GET /v2/tunnelled HTTP/1.1', HOST, 'X-Org-Id: {other}')

test.each<Case>([
  {
    name: 'CONNECT',
    send: head('CONNECT evil.example:443 HTTP/1.1', 'Host: evil.example:443', ORG) + tunnelled,
    status: 405,
  },
  {
    name: 'CONNECT to us',
    send: head('CONNECT localhost:{port} HTTP/1.1', HOST, ORG) + tunnelled,
    status: 405,
  },
  {
    name: 'CONNECT with a path',
    send: head('CONNECT /v2/x HTTP/1.1', HOST, ORG) + tunnelled,
    status: 405,
  },
  {
    name: 'CONNECT with an upgrade',
    send: head('CONNECT localhost:1 HTTP/1.1', HOST, ORG, ...HANDSHAKE) + tunnelled,
    status: 405,
  },
])('$name', (row) => table.run({ ...row, closes: true }))

test.each<Case>([
  { name: 'TRACE', send: head('TRACE /v2/x HTTP/1.1', HOST, ORG), status: 405 },
  {
    name: 'TRACE that should end here',
    send: head('TRACE /v2/x HTTP/1.1', HOST, ORG, 'Max-Forwards: 0', 'X-Echo: echo-me'),
    status: 405,
  },
])('$name', (row) =>
  table.run({
    ...row,
    code: 'method_refused',
    also: ({ response }) => expect(response.content.toString()).not.toContain('echo-me'),
  }),
)

test.each(['FOO', 'get', 'GE\x00T', 'G@T', ''])('the method %j', (method) =>
  table.run({ send: head(`${method} /v2/x HTTP/1.1`, HOST, ORG), status: 400, closes: true }),
)
