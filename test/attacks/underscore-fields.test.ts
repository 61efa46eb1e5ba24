/**
 * The attack: origins that read fields as environment variables (CGI, WSGI, Rack, PHP) see `X_Org_Id` and `X-Org-Id` under one
 * name. If a proxy checks one and forwards the other, a client can set fields that only the proxy may set.
 */

import { expect, test } from 'vitest'
import { get, sentFor, startTable } from '../support/case-table.ts'

const table = await startTable()

const IMITATIONS = [
  'X_Org_Id: {other}',
  'X-Org_Id: {other}',
  'x_org-id: {other}',
  'Transfer_Encoding: chunked',
  'Content_Length: 5',
  'AUTHORIZATION_: x',
  'Authorization_: x',
  '_Authorization: x',
  'Proxy_Authorization: x',
  'X_Forwarded_For: 1.2.3.4',
  'X_Proxy_Key: x',
  'Host_: x',
  '__Host__: x',
  '-Authorization_-: x',
  'X_Request_Id: x',
  'SCRIPT_NAME: /admin', // gunicorn takes its value for a part of the path, on loopback even by default
  'PATH_INFO: /admin',
  'Sec_Fetch_Site: none',
  'Sec_WebSocket_Key: x',
  'HTTP2_Settings: x',
  'Content_Type: text/html',
]

const withLine = (line: string) => get('/v2/x', '{org}', line)
table.refuses(sentFor(IMITATIONS, withLine), 400, 'field_invalid')
table.refuses(sentFor(['AUTHORIZATION\x20: x', 'X-Org-Id : {other}'], withLine), 400, 'request_invalid', {
  closes: true,
})

test('an underscore is permitted in a name that imitates no protected one', () =>
  table.run({
    send: withLine('my_field: 1'),
    also: ({ requests }) => expect(requests[0]?.values('my_field')).toEqual(['1']),
  }))
