/**
 * The attack: `Connection` names fields that end at the next hop, so a client names one that the proxy adds or relies on.
 * A proxy that strips last removes its own credential, its `Host`, or the framing (CVE-2026-33805, Go issue 50580).
 */

import { expect, test } from 'vitest'
import { type Case, get, HOST, head, ORG, startTable } from '../support/case-table.ts'

const table = await startTable()

const originHost = new URL(table.service.baseUrl).host

test.each<Case>([
  {
    name: 'Connection: authorization, beside an Authorization of the client',
    send: get('/v2/x', '{org}', 'Connection: keep-alive, authorization', 'Authorization: Bearer evil'),
  },
  {
    name: 'Connection: x-org-id does not change the Org of the request',
    send: get('/v2/x', '{org}', 'Connection: x-org-id'),
    also: ({ org, mints }) => expect(mints.map((mint) => mint.org)).toEqual([org]),
  },
  {
    name: 'the framing fields, in a list in mixed case with white space',
    send: `${head('POST /v2/x HTTP/1.1', HOST, ORG, 'Content-Length: 5', 'Connection: close, AUTHORIZATION , Host,content-length')}hello`,
    content: 'hello',
    closes: true,
    also: ({ requests }) => expect(requests[0]?.values('host')).toEqual([originHost]),
  },
  {
    name: 'the framing of chunks',
    send: `${head('POST /v2/x HTTP/1.1', HOST, ORG, 'Transfer-Encoding: chunked', 'Connection: transfer-encoding')}5\r\nhello\r\n0\r\n\r\n`,
    content: 'hello',
  },
  {
    name: 'all fields that the proxy adds',
    send: get('/v2/x', '{org}', 'Connection: host, via', 'Connection: x-request-id,authorization'),
    also: ({ requests }) => {
      expect(requests[0]?.values('host')).toEqual([originHost])
      expect(requests[0]?.values('via')).toEqual([expect.stringMatching(/^1\.1 org-access-proxy \(/)])
      expect(requests[0]?.values('x-request-id')).toHaveLength(1)
    },
  },
  {
    name: 'Connection and the fields that it names are removed',
    send: get('/v2/x', '{org}', 'Foo: 1', 'Bar: 2', 'Connection: keep-alive , Foo', 'FOO: 3'),
    also: ({ requests }) => {
      expect(requests[0]?.values('foo')).toEqual([])
      expect(requests[0]?.values('bar')).toEqual(['2'])
      expect(requests[0]?.values('connection').filter((value) => value !== 'keep-alive')).toEqual([])
    },
  },
])('$name', (row) => table.run(row))
