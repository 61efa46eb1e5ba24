/**
 * The attack: CONNECT makes a proxy an open relay without any check of requests. TRACE makes the origin return the request to
 * its sender, with the token.
 */

import { expect } from 'vitest'
import { HOST, head, ORG, startTable } from '../support/case-table.ts'
import { HANDSHAKE } from '../support/handshake.ts'

const table = await startTable()

const tunnelled = head('GET /v2/tunnelled HTTP/1.1', HOST, 'X-Org-Id: {other}')

table.refuses(
  {
    CONNECT: head('CONNECT evil.example:443 HTTP/1.1', 'Host: evil.example:443', ORG) + tunnelled,
    'CONNECT to us': head('CONNECT localhost:{port} HTTP/1.1', HOST, ORG) + tunnelled,
    'CONNECT with an upgrade': head('CONNECT localhost:1 HTTP/1.1', HOST, ORG, ...HANDSHAKE) + tunnelled,
  },
  405,
  'method_refused',
  { closes: true },
)

table.refuses(
  {
    TRACE: head('TRACE /v2/x HTTP/1.1', HOST, ORG),
    'TRACE that should end here': head('TRACE /v2/x HTTP/1.1', HOST, ORG, 'Max-Forwards: 0', 'X-Echo: echo-me'),
  },
  405,
  'method_refused',
  { also: ({ response }) => expect(response.content.toString()).not.toContain('echo-me') },
)
